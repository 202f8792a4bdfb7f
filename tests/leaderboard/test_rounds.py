"""A seed is promised, kept, shown when it is time, and known to be the promised one."""

import json
import tomllib
from datetime import date

import numpy as np
import pytest

from xaibench.data import load
from xaibench.leaderboard.manifest import ResultError
from xaibench.leaderboard.rounds import (
    ROUNDS,
    Round,
    commit_round,
    read_rounds,
    reveal_round,
    suite_for_round,
    suite_with_public_seeds,
)
from xaibench.leaderboard.suite_text import differences_from_official, official_suite
from xaibench.metrics import METRICS
from xaibench.runner.plan.plan import make_plan
from xaibench.runner.suites.files import SUITES, load_suite

TODAY, LAST, AFTER = date(2026, 12, 1), date(2026, 12, 31), date(2027, 1, 1)


@pytest.fixture
def matches_commitment(tmp_path):
    secret = tmp_path / "winter.json"
    made = commit_round(tmp_path / "results", "winter", "xai-tris-8x8", LAST, secret, today=TODAY)
    return tmp_path / "results", secret, made


def test_nothing_of_the_seed_is_in_the_repository_before_its_time(matches_commitment):
    repository, secret, made = matches_commitment
    assert (made.seed, made.salt) == (None, None)
    assert secret.stat().st_mode & 0o077 == 0
    kept = json.loads(secret.read_text())
    assert str(kept["seed"]) not in (repository / ROUNDS).read_text()
    with pytest.raises(ResultError, match="is open until 2026-12-31"):
        reveal_round(repository, secret, today=LAST)
    with pytest.raises(ResultError, match="is revealed after 2026-12-31"):
        read_rounds(repository)[0].seeds(1)


def test_the_seed_that_is_shown_is_the_promised_one(matches_commitment):
    repository, secret, made = matches_commitment
    shown = reveal_round(repository, secret, today=AFTER)
    assert read_rounds(repository) == [shown]
    assert shown.commitment == made.commitment
    assert shown.seeds(2) == shown.seeds(3)[:2]
    content = json.loads((repository / ROUNDS).read_text())
    content[0]["seed"] += 1
    (repository / ROUNDS).write_text(json.dumps(content))
    with pytest.raises(ResultError, match="the seed of round winter does not match its commitment"):
        read_rounds(repository)


def test_another_secret_is_refused(matches_commitment, tmp_path):
    repository, secret, _ = matches_commitment
    kept = json.loads(secret.read_text()) | {"seed": 7}
    (tmp_path / "other.json").write_text(json.dumps(kept))
    with pytest.raises(ResultError, match="does not contain the seed that round winter commits to"):
        reveal_round(repository, tmp_path / "other.json", today=AFTER)


def test_a_promise_is_made_once_and_kept_outside(matches_commitment, tmp_path):
    repository, secret, _ = matches_commitment
    with pytest.raises(ResultError, match="Round 'winter' exists already"):
        commit_round(repository, "winter", "xai-tris-8x8", LAST, tmp_path / "new.json", today=TODAY)
    for place in (secret, repository / "seed.json"):
        with pytest.raises(ResultError, match="choose another file"):
            commit_round(repository, "spring", "xai-tris-8x8", LAST, place, today=TODAY)
    with pytest.raises(ResultError, match="data sets that are not generated"):
        commit_round(repository, "spring", "saliency-bench", LAST, tmp_path / "new.json", today=TODAY)


def test_a_suite_is_run_on_the_seeds_of_the_round_and_known_by_its_own(matches_commitment):
    repository, secret, _ = matches_commitment
    shown = reveal_round(repository, secret, today=AFTER)
    _, text = load_suite("xai-tris-8x8")
    fresh = suite_for_round(text, shown)
    seeds = tomllib.loads(fresh)["data"]["seeds"]
    assert seeds == shown.seeds(6)
    assert not set(seeds) & set(range(6))
    assert tomllib.loads(suite_with_public_seeds(fresh, "xai-tris-8x8", shown))["data"]["seeds"] == [0, 1, 2, 3, 4, 5]
    with pytest.raises(ResultError, match=r"Its seeds are 0, 1, 2, ... \(6 in all\); round winter has"):
        suite_with_public_seeds(text, "xai-tris-8x8", shown)


def drawn_round(seed, suite="xai-tris-8x8"):
    return Round("winter", suite, "", "2026-12-31", seed, "salt")


def layouts_of(text):
    cells = tomllib.loads(text)["cells"]
    return {name: cell.get("data", {}).get("layout") for cell in cells for name in cell["datasets"]}


def test_the_layout_is_derived_from_the_seed_of_the_round():
    rounds = [drawn_round(seed) for seed in range(200)]
    assert all(0 < one.layout <= 2**31 for one in rounds)
    assert len({one.layout for one in rounds}) == 200
    assert not any(one.layout in one.seeds(25) for one in rounds)
    assert drawn_round(7).layout == drawn_round(7).layout == 1_427_138_796
    with pytest.raises(ResultError, match="is revealed after 2026-12-31"):
        _ = Round("winter", "xai-tris-8x8", "", "2026-12-31").layout


def test_a_round_moves_the_patterns_and_the_public_suite_is_restored():
    for suite in (name for name in SUITES if name.startswith(("xai-tris", "certified", "budget"))):
        try:
            text = official_suite(suite)
        except ResultError:  # photographs of a local folder
            continue
        shown = drawn_round(7, suite)
        fresh = suite_for_round(text, shown)
        for name, layout in layouts_of(fresh).items():
            assert layout == (shown.layout if name.startswith("xai-tris/") and suite != "certified" else None), name
        assert differences_from_official(fresh, suite)
        assert not differences_from_official(suite_with_public_seeds(fresh, suite, shown), suite)


def test_blinded_networks_keep_the_layout_that_their_pixels_are_chosen_for():
    fresh = suite_for_round(official_suite("certified"), drawn_round(7, "certified"))
    assert "xai-tris/lin-white-8x8" in layouts_of(fresh)
    assert set(layouts_of(fresh).values()) == {None}


def test_cells_keep_their_other_parameters_in_a_round():
    text = official_suite("xai-tris-8x8").replace('models = ["llr"', 'data = { alpha = 0.5 }\nmodels = ["llr"', 1)
    shown = drawn_round(7)
    fresh = suite_for_round(text, shown)
    assert tomllib.loads(fresh)["cells"][0]["data"] == {"alpha": 0.5, "layout": shown.layout}
    restored = tomllib.loads(suite_with_public_seeds(fresh, "xai-tris-8x8", shown))
    assert [cell.get("data") for cell in restored["cells"]] == [{"alpha": 0.5}, None, None, None]


def test_a_run_with_another_layout_is_not_of_the_round():
    shown = drawn_round(7)
    fresh = suite_for_round(official_suite("xai-tris-8x8"), shown)
    for wrong in ("0", "5"):
        changed = fresh.replace(f"layout = {shown.layout}", f"layout = {wrong}", 1)
        assert changed != fresh
        with pytest.raises(ResultError, match=f"have layout {wrong}.*; round winter has {shown.layout}"):
            suite_with_public_seeds(changed, "xai-tris-8x8", shown)


def test_a_number_of_seeds_is_replaced_by_as_many_seeds():
    text, shown = official_suite("xai-tris-8x8-paper"), drawn_round(7, "xai-tris-8x8-paper")
    assert tomllib.loads(text)["data"]["seeds"] == 25
    fresh = suite_for_round(text, shown)
    assert tomllib.loads(fresh)["data"]["seeds"] == shown.seeds(25)
    assert not differences_from_official(suite_with_public_seeds(fresh, shown.suite, shown), shown.suite)


def test_published_networks_are_not_used_for_another_layout(tmp_path):
    text = official_suite("xai-tris-8x8")

    def published(text):
        (tmp_path / "suite.toml").write_text(text)
        plan = make_plan(load_suite(tmp_path / "suite.toml")[0])
        return {job.published for cell in plan.cells for job in cell.trainings if "rigid" not in cell.data.name}

    assert published(text) == {True}
    moved = suite_for_round(text, drawn_round(7))
    public = moved.replace(str(drawn_round(7).seeds(6)), "[0, 1, 2, 3, 4, 5]")  # only the layout differs
    assert tomllib.loads(public)["data"] == tomllib.loads(text)["data"]
    assert published(public) == {False}
    assert published(moved) == {False}


@pytest.mark.parametrize("scenario", ["lin", "mult", "xor"])
def test_the_mean_mask_of_the_public_data_fails_in_a_round(scenario):
    """A constant map that fits the public data marks other pixels than those of the round."""
    name, few = f"xai-tris/{scenario}-white-8x8", {"n_samples": 100}
    fixed = load(name, **few).test.masks.double().mean(0).numpy()

    def score(masks):
        maps = np.broadcast_to(fixed, masks.shape)
        metrics = {metric: METRICS.resolve(metric) for metric in ("topk_precision", "precision_skill", "emd_skill")}
        return {metric: float(function(maps, masks)) for metric, function in metrics.items()}

    public = score(load(name, **few).test.masks.numpy())
    assert public == pytest.approx(dict.fromkeys(public, 1.0))
    rounds = [drawn_round(seed) for seed in range(20)]
    fresh = [score(load(name, seed=one.seeds(1)[0], layout=one.layout, **few).test.masks.numpy()) for one in rounds]
    chance = 8 / 64
    assert max(one["topk_precision"] for one in fresh) <= 2 / 8
    assert np.mean([one["topk_precision"] for one in fresh]) == pytest.approx(chance, abs=0.06)
    assert max(one["precision_skill"] for one in fresh) < 0.15
    assert max(one["emd_skill"] for one in fresh) < 0.5
    assert np.mean([one["emd_skill"] for one in fresh]) < 0.1


def test_certified_networks_have_rounds_too_and_photographs_none(tmp_path):
    made = commit_round(tmp_path / "results", "winter", "certified", LAST, tmp_path / "certified.json", today=TODAY)
    assert made.suite == "certified"
    with pytest.raises(ResultError, match="not generated"):
        commit_round(tmp_path / "results", "winter", "pets-offline", LAST, tmp_path / "pets.json", today=TODAY)


@pytest.mark.parametrize("name", ["", "../x", "a:b", "Winter", "a/b", "winter\n", "x" * 65])
def test_a_name_that_is_no_part_of_a_path_is_refused(name, tmp_path):
    with pytest.raises(ResultError, match="The name of the round is"):
        commit_round(tmp_path / "results", name, "xai-tris-8x8", LAST, tmp_path / "seed.json", today=TODAY)


def test_a_deadline_that_has_passed_is_refused(tmp_path):
    """Committed and revealed in one minute, a seed promises nothing."""
    with pytest.raises(ResultError, match="The deadline 2026-12-31 has passed"):
        commit_round(tmp_path / "results", "winter", "xai-tris-8x8", LAST, tmp_path / "seed.json", today=AFTER)
    assert not (tmp_path / "seed.json").exists()
