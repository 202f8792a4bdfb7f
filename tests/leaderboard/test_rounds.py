"""A seed is promised, kept, shown when it is time, and known to be the promised one."""

import json
import tomllib
from datetime import date

import pytest

from xaibench.leaderboard.manifest import ResultError
from xaibench.leaderboard.rounds import (
    ROUNDS,
    commit_round,
    read_rounds,
    reveal_round,
    suite_for_round,
    suite_with_public_seeds,
)
from xaibench.runner.suites.files import load_suite

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
    assert seeds == shown.seeds(3)
    assert not set(seeds) & {0, 1, 2}
    assert tomllib.loads(suite_with_public_seeds(fresh, "xai-tris-8x8", shown))["data"]["seeds"] == [0, 1, 2]
    with pytest.raises(ResultError, match="Its seeds are 0, 1, 2; round winter has"):
        suite_with_public_seeds(text, "xai-tris-8x8", shown)


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
