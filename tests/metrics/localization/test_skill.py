"""The metrics that are read against chance."""

import math

import numpy as np
import pytest
from part_cases import MetricCase

import xaibench as xb
from xaibench.evaluation import PROTOCOLS
from xaibench.evaluation.apply import AppliedMetric
from xaibench.metrics import METRICS, chance_level, skill_scores, undefined_reasons

CASES = {name: MetricCase(takes_magnitude=True) for name in ("emd_skill", "fni_emd_skill", "precision_skill")}
SKILLS = {name: METRICS.resolve(name).info.skill_of for name in METRICS if METRICS.resolve(name).info.skill_of}
every_skill = pytest.mark.parametrize("name", SKILLS)


def masks_and_maps(count=200, side=8):
    """Squares anywhere, and signed noise."""
    rng = np.random.default_rng(5)
    masks = np.zeros((count, side, side), dtype=bool)
    for mask in masks:
        (top, left), size = rng.integers(0, side - 3, 2), rng.integers(1, 4)
        mask[top : top + size, left : left + size] = True
    return masks, rng.uniform(-1, 1, masks.shape)


def test_skills_are_of_five_scores():
    assert sorted(SKILLS.values()) == ["average_precision", "emd_perf", "fni_emd", "iou", "topk_precision"]


@every_skill
def test_a_skill_is_the_score_on_the_way_from_chance_to_one(name):
    masks, maps = masks_and_maps(40)
    given = METRICS.resolve(name).info.skill_parameters
    score = METRICS.resolve(SKILLS[name])(maps, masks, reduction="none", **given)
    chance = chance_level(SKILLS[name], masks, given)
    skill = METRICS.resolve(name)(maps, masks, reduction="none")
    np.testing.assert_allclose(skill, (score - chance) / (1 - chance), rtol=1e-12)
    assert np.array_equal(skill_scores(SKILLS[name], score, masks, given), skill)


@every_skill
def test_the_truth_has_one_noise_has_none_and_the_opposite_has_less(name):
    metric, (masks, maps) = METRICS.resolve(name), masks_and_maps()
    assert (metric(masks * 1.0, masks, reduction="none") == 1).all()
    assert (metric(np.where(masks, -1e-9, 1.0), masks, reduction="none") < 0).all()
    noise = metric(maps, masks, reduction="none")
    assert abs(noise.mean()) < 3 * noise.std() / math.sqrt(len(noise)) < 0.1


def test_the_share_of_the_noise_s_distance_that_is_saved_is_the_skill_whatever_the_diameter():
    masks, maps = masks_and_maps(10)
    noise, own = chance_level("emd", masks), xb.emd(maps, masks, reduction="none")
    skill = xb.emd_skill(maps, masks, reduction="none")
    np.testing.assert_allclose(skill, (noise - own) / noise, rtol=1e-9, atol=1e-12)
    released = xb.emd_perf(maps, masks, diameter="released", reduction="none")
    np.testing.assert_allclose(skill_scores("emd_perf", released, masks, {"diameter": "released"}), skill, atol=1e-12)


@every_skill
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_uniform_control_has_none_under_every_protocol(name, protocol):
    masks, maps = masks_and_maps()
    result = xb.evaluate(
        {"noise": maps}, split_of(masks), metrics=[name], controls=["uniform"], protocol=protocol, progress=False
    )
    for row in result.summary().itertuples():
        assert row.n_valid == len(masks)
        assert abs(row.mean) < row.high - row.low, row  # four standard errors, for there are sixteen of them


def split_of(masks):
    import torch

    from xaibench.data import Split

    images = torch.rand(len(masks), 1, *masks.shape[1:], generator=torch.Generator().manual_seed(0))
    return Split(images, torch.from_numpy(masks), torch.zeros(len(masks), dtype=torch.int64))


@pytest.mark.parametrize("name", ["precision_skill", "iou_skill", "average_precision_skill"])
def test_where_noise_is_perfect_there_is_no_skill(name):
    full, maps = np.ones((1, 4, 4), dtype=bool), np.ones((1, 4, 4))
    assert math.isnan(METRICS.resolve(name)(maps, full))
    assert undefined_reasons(maps, full, name) == ["noise is perfect already"]
    result = xb.evaluate({"ones": maps}, split_of(full), metrics=[name], controls=False, progress=False)
    assert result.scores["reason"].tolist() == ["noise is perfect already"]


def test_of_a_whole_image_a_constant_map_is_the_nearest_and_noise_is_not():
    full = np.ones((8, 8), dtype=bool)
    assert xb.emd_skill(full * 1.0, full) == 1
    assert math.isnan(xb.emd_skill(np.ones((1, 1)), np.ones((1, 1), dtype=bool)))


def test_reasons_of_the_raw_score_stay():
    masks, maps = masks_and_maps(3)
    masks[0], maps[1] = False, 0
    result = xb.evaluate({"own": maps}, split_of(masks), metrics=list(SKILLS), controls=False, progress=False)
    reasons = {metric: rows["reason"].tolist() for metric, rows in result.scores.groupby("metric")}
    assert set(map(tuple, reasons.values())) == {("mask is empty", "map is all zero: scored as chance", "")}


@pytest.mark.parametrize("metrics", [["emd_perf", "emd_skill"], ["emd_skill", "emd_perf"]])
def test_asking_for_both_finds_each_distance_once(metrics, monkeypatch):
    from xaibench.metrics.localization import emd as earth_mover

    masks, maps = masks_and_maps(6)
    chance_level("emd", masks)  # known from here on
    solved = []
    whole = earth_mover.wasserstein_to_few
    monkeypatch.setattr(
        earth_mover, "wasserstein_to_few", lambda samples, *more: solved.extend(samples) or whole(samples, *more)
    )
    xb.evaluate({"own": maps}, split_of(masks), metrics=metrics, controls=False, progress=False)
    assert len(solved) == 6
    xb.evaluate({"own": maps}, split_of(masks), metrics=["emd_skill"], controls=False, progress=False)
    assert len(solved) == 12


def test_what_is_applied_is_the_function():
    masks, maps = masks_and_maps(8)
    maps, split = maps.astype(np.float32), split_of(masks)  # as they are kept
    import torch

    for name in SKILLS:
        table = AppliedMetric(name, protocol="published")(torch.from_numpy(maps), split[:])
        assert np.array_equal(table["value"], METRICS.resolve(name)(maps, masks, reduction="none"))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_skill_of_iou_is_of_the_cut_at_the_mask_s_area_under_every_protocol(protocol):
    masks, maps = masks_and_maps(20)
    maps[:, 0, 0] = 1000  # half of the maximum marks this pixel only
    maps = np.where(masks, 2 + maps, maps)
    result = xb.evaluate(
        {"own": maps}, split_of(masks), metrics=["iou", "iou_skill"], controls=False, protocol=protocol, progress=False
    )
    skill = result.matrix("iou_skill")["own"]
    assert skill.mean() > 0.3
    np.testing.assert_allclose(skill, xb.iou_skill(maps, masks, reduction="none"), rtol=1e-12)
