"""Chance levels."""

import itertools
import math

import numpy as np
import pytest

from xaibench.metrics import METRICS, chance_level
from xaibench.metrics.localization.emd import draws, expected_distance, noise_distances

OF_TRUTH = [name for name in METRICS if METRICS.resolve(name).info.kind == "ground-truth"]
BY_ORDER = [
    "topk_precision",
    "roc_auc",
    "average_precision",
    "hit",
    "mass_outside",
    "grid_pointing",
    "use_auc",
    "use_ap",
]
CUT = [name for name in OF_TRUTH if METRICS.resolve(name).info.thresholded and not METRICS.resolve(name).info.skill_of]


@pytest.mark.parametrize("name", OF_TRUTH)
def test_every_metric_with_a_ground_truth_says_what_chance_scores(name):
    info = METRICS.resolve(name).info
    assert info.chance.endswith(".")
    assert bool(info.chance_level) != bool(info.skill_of), "give MetricInfo chance_level=, the expected score of noise"


@pytest.mark.parametrize("name", BY_ORDER)
@pytest.mark.parametrize("inside", [1, 2, 4, 5])
def test_what_goes_by_the_order_of_pixels_is_the_mean_over_all_orders(name, inside):
    orders = np.array(list(itertools.permutations(range(1, 6))), dtype=float).reshape(-1, 1, 5)
    mask = np.arange(5).reshape(1, 5) < inside
    scores = METRICS.resolve(name)(orders, np.broadcast_to(mask, orders.shape), reduction="none")
    np.testing.assert_allclose(chance_level(name, mask), [scores.mean()], rtol=1e-12)


def noise(count, shape=(3, 4)):
    return np.random.default_rng(0).uniform(-1, 1, (count, *shape))


def stretched(maps):
    magnitude = np.abs(maps)
    low, high = magnitude.min((1, 2), keepdims=True), magnitude.max((1, 2), keepdims=True)
    return (magnitude - low) / (high - low)


@pytest.mark.parametrize("name", CUT)
@pytest.mark.parametrize("threshold", [-0.3, 0.0, 0.4, 0.8])
@pytest.mark.parametrize("scaled", [False, True])
def test_what_cuts_the_map_is_the_mean_over_many_maps_of_noise(name, threshold, scaled):
    mask = np.zeros((3, 4), dtype=bool)
    mask[0, :3] = True
    maps = noise(20_000)
    masks = np.broadcast_to(mask, maps.shape)
    scores = METRICS.resolve(name)(stretched(maps) if scaled else maps, masks, threshold=threshold, reduction="none")
    error = np.nanstd(scores) / math.sqrt(len(scores))
    (level,) = chance_level(name, mask, {"threshold": threshold, "scaled": scaled})
    assert abs(np.nanmean(scores) - level) <= 4 * error + 1e-12


@pytest.mark.parametrize("name", CUT)
@pytest.mark.parametrize("inside", [1, 2, 4, 5])
def test_at_the_area_it_is_the_mean_over_all_orders(name, inside):
    orders = np.array(list(itertools.permutations(range(1, 6))), dtype=float).reshape(-1, 1, 5)
    mask = np.arange(5).reshape(1, 5) < inside
    masks = np.broadcast_to(mask, orders.shape)
    scores = METRICS.resolve(name)(orders, masks, threshold="area", reduction="none")
    np.testing.assert_allclose(chance_level(name, mask, {"threshold": "area"}), [scores.mean()], rtol=1e-12)


@pytest.mark.parametrize(("name", "parameters"), [("mass_accuracy", {}), ("hit", {"tolerance": 1.0}), ("emd", {})])
def test_the_others_are_the_mean_over_many_maps_of_noise(name, parameters):
    mask = np.zeros((3, 4), dtype=bool)
    mask[0, :2] = True
    maps = noise(3_000)
    scores = METRICS.resolve(name)(maps, np.broadcast_to(mask, maps.shape), reduction="none", **parameters)
    error = scores.std() / math.sqrt(len(scores))
    if name == "emd":
        pairs = noise_distances(mask, np.ones(2))
        error = math.hypot(error, pairs.std() / math.sqrt(len(pairs)))
    assert abs(scores.mean() - chance_level(name, mask, parameters)[0]) < 4 * error


def test_a_performance_is_one_minus_the_distance_by_its_diameter():
    mask = np.zeros((1, 8, 8), dtype=bool)
    mask[0, 2:4, 2:4] = True
    (distance,) = chance_level("emd", mask)
    assert chance_level("emd_perf", mask)[0] == 1 - distance / math.hypot(7, 7)
    assert chance_level("emd_perf", mask, {"diameter": "released"})[0] == 1 - distance / math.sqrt(128)


@pytest.mark.parametrize(("side", "marked"), [(8, 2), (8, 4), (8, 5), (16, 4), (16, 10)])
def test_the_error_of_the_integral_is_what_is_said(side, marked):
    mask = np.zeros((side, side), dtype=bool)
    mask[:marked, 1 : 1 + marked] = True
    found = noise_distances(mask, np.ones(2))
    assert found.std(ddof=1) / math.sqrt(len(found)) < 0.003 * found.mean()


def test_large_images_are_integrated_over_bounds_that_are_close():
    from xaibench.metrics import emd

    mask = np.zeros((24, 24), dtype=bool)
    mask[2:14, 5:17] = True
    noise = np.random.default_rng(0).random((draws(24, 24) // 2, 24, 24))
    both = np.concatenate([noise, 1 - noise])
    exact = emd(both, np.broadcast_to(mask, both.shape))
    assert noise_distances(mask, np.ones(2)).mean() == pytest.approx(exact, rel=0.0015)


def test_mirrored_and_turned_masks_have_one_distance_found_once(monkeypatch):
    from xaibench.metrics.localization import emd as noise_distance

    mask = np.zeros((5, 7), dtype=bool)
    mask[0, :3] = mask[1, 0] = True
    looked = []
    noise_distance._cached_distance.cache_clear()
    noise_distance._integrate.cache_clear()
    monkeypatch.setattr(noise_distance, "noise_distances", lambda *one: looked.append(one) or noise_distances(*one))
    same = [expected_distance(np.rot90(side, turns)[None])[0] for side in (mask, mask.T) for turns in range(4)]
    assert len(set(same)) == len(looked) == 1
    assert expected_distance(~mask[None]) != same[0]
    assert len(looked) == 2


def test_fewer_draws_of_larger_images():
    assert [draws(side, side) for side in (2, 8, 16, 32, 64, 224)] == [128, 64, 16, 4, 2, 2]


def test_noise_has_no_score_where_nothing_is_to_be_found():
    empty = np.zeros((2, 4, 4), dtype=bool)
    empty[1, 0, 0] = True
    for name in OF_TRUTH:
        if METRICS.resolve(name).info.chance_level:
            assert np.isnan(chance_level(name, empty)).tolist() == [True, False], name
            assert chance_level(name, empty[:0]).shape == (0,)


def signed_share(maps, masks, *, power=1.0, reduction="mean"):
    """One of a user's own, without a formula."""
    shares = (np.abs(maps) ** power * masks).sum((1, 2)) / (np.abs(maps) ** power).sum((1, 2))
    return shares.mean() if reduction == "mean" else shares


def test_a_metric_without_a_formula_is_averaged_over_maps_of_noise():
    mask = np.zeros((4, 4), dtype=bool)
    mask[0] = True
    for power in (1.0, 2.0):
        (level,) = chance_level(f"{__name__}:signed_share", mask, {"power": power})
        assert level == pytest.approx(0.25, abs=0.02)
    assert level == chance_level(f"{__name__}:signed_share", mask, {"power": 2.0})[0]
    assert abs(chance_level("emd_skill", mask)[0]) < 0.1


def test_what_has_no_ground_truth_says_which_have():
    with pytest.raises(
        ValueError, match="'insertion' does not use a ground truth; expected one of emd_perf, emd, fni_emd, topk"
    ):
        chance_level("insertion", np.ones((2, 2)))
