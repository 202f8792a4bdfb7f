import math
import os

import numpy as np
import ot
import pytest
import torch
from fresh_process import run_fresh
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from oracles import transport as oracle
from part_cases import MetricCase
from scipy.ndimage import gaussian_filter
from scipy.spatial.distance import cdist

from xaibench.kernels.emd import few_pixels as few_places
from xaibench.kernels.emd import multiscale
from xaibench.metrics import TransportError, emd, emd_perf, fni_emd
from xaibench.metrics.localization import emd as earth_mover
from xaibench.metrics.localization import emd_bounds as wasserstein
from xaibench.metrics.localization.emd import TransportProgress

KINDS = ["uniform", "smooth", "sparse", "heavy-tailed", "constant"]
#: FEW_PAIRS and FEW_PLACES by which all goes to one solver.
ROUTES = {"POT": (10**9, 0), "levels": (-1, 0), "few places": (10**9, 10**9)}
CASES = {"emd": MetricCase(takes_magnitude=True), "emd_perf": MetricCase(takes_magnitude=True)}


def some_maps(kind, size, rng):
    noise = rng.standard_normal((size, size))
    return {
        "uniform": rng.uniform(-1, 1, (size, size)),
        "smooth": gaussian_filter(noise, 2),
        "sparse": noise * (rng.random((size, size)) < 0.1) + 1e-3 * np.eye(size),
        "heavy-tailed": rng.standard_cauchy((size, size)) ** 3,
        "constant": np.ones((size, size)),
    }[kind]


def batch(size=20, seed=0):
    """One map of each kind, a zero map and an empty mask."""
    rng = np.random.default_rng(seed)
    maps = np.stack([*(some_maps(kind, size, rng) for kind in KINDS), np.zeros((size, size)), np.ones((size, size))])
    masks = rng.random(maps.shape) < 0.3
    masks[-1] = False
    return maps, masks


def force(monkeypatch, route):
    for name, most in zip(("FEW_PAIRS", "FEW_PLACES"), ROUTES[route], strict=True):
        monkeypatch.setattr(wasserstein, name, most)


@pytest.fixture
def ours(monkeypatch):
    """No map is POT's, or one of many over few places."""
    monkeypatch.setattr(wasserstein, "FEW_PAIRS", -1)


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [8, 16])
def test_emd_against_the_full_cost_matrix(kind, size, route, monkeypatch):
    force(monkeypatch, route)
    rng = np.random.default_rng(size)
    maps = np.stack([some_maps(kind, size, rng) for _ in range(4)])
    masks = rng.random((4, size, size)) < np.array([0.02, 0.1, 0.5, 0.95])[:, None, None]
    masks[:, 1, 1] = True
    expected = [oracle.emd_by_simplex(*case) for case in zip(maps, masks, strict=True)]
    np.testing.assert_allclose(emd(maps, masks, reduction="none"), expected, rtol=1e-11, atol=1e-12)


def test_a_set_is_scored_by_each_map_alone(monkeypatch):
    # Two masks in turns, one of many places, an empty one and a map of zeros: the order, the neighbors and the cuts
    # change no bit, and what is undefined stays so.
    rng = np.random.default_rng(0)
    masks = np.zeros((40, 8, 8), dtype=bool)
    masks[::2, 1:3, 2:5], masks[1::2, 4:6, 5:7], masks[5] = True, True, rng.random((8, 8)) < 0.6
    maps = np.concatenate([batch(8, seed)[0] for seed in range(6)])[:40]
    masks[8] = False
    together = emd(maps, masks, reduction="none")
    assert np.flatnonzero(np.isnan(together)).tolist() == [5, 8, 12, 19, 26, 33]
    alone = [emd(*case) for case in zip(maps, masks, strict=True)]
    np.testing.assert_array_equal(together, alone)
    shuffled = rng.permutation(40)
    np.testing.assert_array_equal(emd(maps[shuffled], masks[shuffled], reduction="none"), together[shuffled])
    monkeypatch.setattr("xaibench.metrics.shared.inputs._BLOCK_PIXELS", 3 * 8 * 8)
    np.testing.assert_array_equal(emd(maps, masks, reduction="none"), together)


def test_what_depends_on_the_mask_alone_is_done_once_for_all_maps_that_share_it(monkeypatch):
    calls = []
    monkeypatch.setattr(few_places, "few_places_emd", lambda *problem: calls.append(problem))
    masks = np.zeros((60, 8, 8), dtype=bool)
    for sample in range(60):
        masks[sample, sample % 3, 2:6] = True
    emd(np.ones((60, 8, 8)), masks)
    ((_, _, order, groups, *_),) = calls
    assert (np.diff(groups[order]) != 0).sum() == 2  # three masks, one after the other
    assert sorted(order) == list(range(60))


def test_arrays_of_every_kind_are_solved_by_one_machine_code():
    rng = np.random.default_rng(0)
    maps, masks = rng.random((4, 8, 8)), rng.random((4, 8, 8)) < 0.1
    masks[:, 0, 0] = True
    expected = emd(maps, masks, reduction="none")
    wide = np.repeat(masks, 2, axis=0)
    fixed = masks.copy()
    fixed.flags.writeable = False
    for same in (wide[::2], fixed, np.broadcast_to(masks, (1, 4, 8, 8))[0], np.asfortranarray(masks)):
        np.testing.assert_array_equal(emd(np.asfortranarray(maps), same, reduction="none"), expected)
    assert len(few_places.few_places_emd.signatures) == 1


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_few_places_against_the_full_cost_matrix(data):
    shape = data.draw(st.tuples(st.integers(1, 9), st.integers(1, 9)))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    few = data.draw(st.lists(st.sampled_from([0.0, 1e-9, 1.0, 2.0, 1e6]), min_size=1, max_size=4))  # zeros and ties
    values, mask = rng.choice(few, shape), np.zeros(shape, dtype=bool)
    mask.ravel()[rng.choice(mask.size, min(mask.size, int(rng.integers(1, 17))), replace=False)] = True
    values[0, 0] += 1.0
    lower, upper = wasserstein.wasserstein_to_few(np.zeros(1, int), values[None], mask[None], np.ones((1, 2)))[0]
    assert upper == pytest.approx(oracle.emd_by_simplex(values, mask), rel=1e-10, abs=1e-12)
    assert lower <= upper <= lower * (1 + 1e-12) + 1e-15


@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_emd_against_the_linear_program(data):
    shape = data.draw(st.tuples(st.integers(1, 4), st.integers(1, 4)))
    maps = data.draw(hnp.arrays(np.float64, shape, elements=st.one_of(st.just(0.0), st.floats(0.01, 10))))
    masks = data.draw(hnp.arrays(np.bool_, shape))
    maps[0, 0], masks[-1, -1] = 1, True
    assert emd(maps, masks) == pytest.approx(oracle.emd_by_linear_program(maps, masks), rel=1e-7, abs=1e-7)


def test_emd_by_hand():
    mask = np.zeros((4, 4), dtype=bool)
    mask[0, 0] = True
    point = np.zeros((4, 4))
    point[3, 3] = -2
    assert emd(point, mask) == pytest.approx(math.hypot(3, 3), rel=1e-15)
    half = point.copy()
    half[0, 0] = 2
    assert emd(half, mask) == pytest.approx(math.hypot(3, 3) / 2, rel=1e-15)


def test_emd_64x64_is_the_distance_of_the_rows_when_columns_are_constant():
    # Constant along the columns on both sides: the optimum moves mass straight up and down, a problem of one dimension.
    rng = np.random.default_rng(0)
    profile, marked = rng.random(64) ** 8, np.arange(64) < 9
    values, mask = np.repeat(profile[:, None], 64, axis=1), np.repeat(marked[:, None], 64, axis=1)
    expected = np.abs(np.cumsum(profile / profile.sum() - marked / marked.sum())).sum()
    assert emd(values, mask) == pytest.approx(expected, rel=1e-11)


@pytest.mark.parametrize("scale", [1e-320, 1e-200, 1.5e308])
def test_emd_of_extreme_maps(scale):  # the plain sum overflows, or falls among the subnormals
    mask = np.array([[1, 0, 0, 0]])
    assert emd(np.array([[1.0, 0, 0, 1.0]]) * scale, mask) == pytest.approx(1.5, rel=1e-12)


def test_emd_of_a_map_that_differs_from_the_mask_by_rounding_is_zero():
    mask = np.zeros((8, 8), dtype=bool)
    mask.ravel()[:7] = True
    nearly = mask * np.nextafter(1.0, 2.0 * np.arange(64).reshape(8, 8) % 3)
    assert 0 <= emd(nearly, mask) < 1e-14


def test_emd_perf_divides_by_the_diameter():
    rng = np.random.default_rng(0)
    maps, masks = rng.random((3, 8, 8)), rng.random((3, 8, 8)) < 0.2
    distances = emd(maps, masks, reduction="none")
    for diameter, length in (("image", math.sqrt(7**2 + 7**2)), ("released", math.sqrt(2 * 8 * 8))):
        scores = emd_perf(maps, masks, diameter=diameter, reduction="none")
        np.testing.assert_allclose(scores, 1 - distances / length, rtol=1e-15)


def test_each_problem_has_the_solver_for_its_size(monkeypatch):
    calls = []
    for name in ("_by_pot", "_by_levels", "wasserstein_to_few"):
        solve = getattr(wasserstein, name)
        spy = lambda *problem, name=name, solve=solve: calls.append(name) or solve(*problem)  # noqa: E731
        monkeypatch.setattr(wasserstein, name, spy)
    for width in (16, 17):  # 128·128 pairs, 136·136 pairs
        left = np.arange(16 * width).reshape(16, width) % 2 == 0
        assert emd((~left).astype(float), left) == pytest.approx(oracle.emd_by_simplex(~left, left), rel=1e-11)
    assert calls == ["_by_pot", "_by_levels"]
    monkeypatch.setattr(earth_mover, "wasserstein_to_few", wasserstein.wasserstein_to_few)
    for marked, size in ((16, 32), (17, 32), (16, 33)):  # 16·1024 pairs
        few = np.arange(size**2).reshape(size, size) < marked
        values = np.exp(np.arange(size**2) % 7.0).reshape(size, size)
        assert emd(values, few) == pytest.approx(oracle.emd_by_simplex(values, few), rel=1e-11)
    assert calls[2:] == ["wasserstein_to_few", "_by_levels", "_by_levels"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_numba_is_loaded_for_large_images_and_small_masks_only():
    code = """
import os, sys
import numpy as np
import xaibench.metrics

def loaded_after(size, share):
    values = np.random.default_rng(0).random((size, size))
    xaibench.metrics.emd(values, values < share)
    return "numba" in sys.modules

assert not loaded_after(8, 0.5) and not loaded_after(16, 0.5)
for case in ((20, 0.5), (8, 0.1)):  # each in a process of its own, which has imported the rest
    pid = os.fork()
    if pid == 0:
        os._exit(0 if loaded_after(*case) else 7)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0, case
"""
    run_fresh(code, POT_BACKEND_DISABLE_PYTORCH="1")  # which is not needed here, and slow to warm up


@pytest.mark.parametrize("route", ROUTES)
def test_a_map_that_is_nearly_the_mask_is_exact_all_the_same(route, monkeypatch):
    force(monkeypatch, route)
    rng = np.random.default_rng(0)
    mask = rng.random((20, 20)) < 0.3
    values = mask * (1 + 1e-9 * rng.standard_normal(mask.shape))
    source, target = oracle.distributions(values, mask)
    excess, lack = np.maximum(source - target, 0), np.maximum(target - source, 0)
    way = ot.emd2(excess / excess.sum(), lack / lack.sum(), oracle.pixel_distances(20, 20))
    assert emd(values, mask) == pytest.approx(excess.sum() * way, rel=1e-11)


@pytest.mark.parametrize("size", [8, 24])
@pytest.mark.parametrize("kind", KINDS)
def test_bounds_enclose_the_distance(kind, size):
    rng = np.random.default_rng(1)
    values, mask = some_maps(kind, size, rng), rng.random((size, size)) < 0.2
    expected = oracle.emd_by_simplex(values, mask)
    lower, upper = emd(values, mask, exact=False)
    assert lower <= expected * (1 + 1e-12)
    assert upper >= expected * (1 - 1e-12)
    assert upper - lower <= 0.003 * upper


@pytest.mark.usefixtures("ours")
def test_bounds_are_reduced_like_scores():
    maps, masks = batch()
    exact = emd(maps, masks, reduction="none")
    lower, upper = emd(maps, masks, exact=False, reduction="none")
    assert lower.shape == upper.shape == (7,)
    assert np.isnan([lower, upper]).tolist() == [[False] * 5 + [True] * 2] * 2
    assert (lower[:5] <= exact[:5] * (1 + 1e-12)).all()
    assert (upper[:5] >= exact[:5] * (1 - 1e-12)).all()
    assert (lower[:5] < upper[:5]).any()
    assert emd(maps, masks, exact=False) == (pytest.approx(lower[:5].mean()), pytest.approx(upper[:5].mean()))
    tensors = emd(torch.from_numpy(maps), torch.from_numpy(masks), exact=False, reduction="none")
    assert all(isinstance(bound, torch.Tensor) for bound in tensors)
    np.testing.assert_array_equal(torch.stack(tensors), [lower, upper])
    worst, best = emd_perf(maps, masks, exact=False, reduction="none")
    np.testing.assert_array_equal([worst, best], [1 - upper / math.hypot(19, 19), 1 - lower / math.hypot(19, 19)])
    nothing = emd(maps[:0], masks[:0], exact=False, reduction="none")
    assert [len(bound) for bound in nothing] == [0, 0]


@pytest.mark.usefixtures("ours")
@pytest.mark.parametrize("exact", [True, False])
def test_any_number_of_workers_gives_the_same_bits(exact):
    maps, masks = batch()
    maps, masks = np.concatenate([maps, maps[::-1]]), np.concatenate([masks, masks])
    alone = emd(maps, masks, exact=exact, reduction="none")
    for workers in (2, 3):
        np.testing.assert_array_equal(emd(maps, masks, exact=exact, workers=workers, reduction="none"), alone)
        if exact:
            np.testing.assert_array_equal(
                emd_perf(maps, masks, workers=workers, reduction="none"), emd_perf(maps, masks, reduction="none")
            )


@pytest.mark.usefixtures("ours")
@pytest.mark.parametrize("workers", [1, 2])
def test_progress(workers):
    maps, masks = batch()
    plain = emd(maps, masks, reduction="none")
    seen: list[TransportProgress] = []
    scores = emd(maps, masks, workers=workers, time_limit=600.0, progress=seen.append, reduction="none")
    np.testing.assert_array_equal(scores, plain)  # to be watched changes nothing
    assert sorted(state.sample for state in seen if state.done) == list(range(7))
    for sample, score in enumerate(plain):
        states = [state for state in seen if state.sample == sample]
        assert [state.done for state in states] == [False] * (len(states) - 1) + [True]
        np.testing.assert_array_equal(states[-1].upper, score)
        np.testing.assert_allclose(states[-1].lower, score, rtol=1e-9)
        assert len(states) > 1 or np.isnan(score)
        assert all(state.lower <= score * (1 + 1e-9) and score <= state.upper * (1 + 1e-9) for state in states[:-1])


def test_when_the_time_is_up_there_is_an_error_or_an_interval():
    maps, masks = batch()
    exact = emd(maps[0], masks[0])
    with pytest.raises(
        TransportError, match=r"Map 0: The time limit of 0 s was reached: the distance is between [\d.]+ and"
    ) as error:
        emd(maps, masks, time_limit=0, workers=2)
    lower, upper = emd(maps[0], masks[0], exact=False, time_limit=0)
    assert lower < exact < upper
    assert upper - lower > 0.003 * upper
    assert f"between {lower:.9g} and {upper:.9g} pixels" in str(error.value)


def test_a_search_that_does_not_end_is_ended(monkeypatch):
    monkeypatch.setattr(multiscale, "_MOST_ROUNDS", 1)
    maps, masks = batch()
    with pytest.raises(TransportError, match=r"Map 0: The optimum was not reached: .* Please report this map"):
        emd(maps, masks)
    lower, upper = emd(maps[0], masks[0], exact=False)
    assert lower <= oracle.emd_by_simplex(maps[0], masks[0]) <= upper


def test_bounds_that_do_not_meet_are_an_error_not_a_score(monkeypatch):
    def apart(maps, masks, order, groups, pixels, free_inside, bounds):
        bounds[:] = [[1.0, 1.0], [1.0, 1.0 + 1e-8]]

    monkeypatch.setattr(few_places, "few_places_emd", apart)
    with pytest.raises(TransportError, match=r"Map 2: The optimum was not reached: .* 1 and 1\.00000001 pixels"):
        emd(np.ones((3, 8, 8)), np.stack([np.zeros((8, 8)), np.eye(8), np.eye(8)]))


def test_a_solver_that_stops_short_is_an_error_not_a_score(monkeypatch):
    solve = ot.lp.emd
    monkeypatch.setattr(ot.lp, "emd", lambda *problem, **options: solve(*problem, **(options | {"numItermax": 1})))
    rng = np.random.default_rng(0)
    with pytest.warns(UserWarning, match="numItermax"), pytest.raises(TransportError, match="without an optimum"):
        emd(rng.random((8, 8)), rng.random((8, 8)) < 0.5)


def test_an_optimum_that_is_none_is_an_error_not_a_score(monkeypatch):
    solve = ot.lp.emd

    def sure(supply, demand, costs, **options):  # says that it has the optimum, of other costs
        return solve(supply, demand, costs.max() - costs, **options)

    monkeypatch.setattr(ot.lp, "emd", sure)
    rng = np.random.default_rng(0)
    with pytest.raises(TransportError, match="Map 0: The optimum was not reached: the distance is between"):
        emd(rng.random((8, 8)), rng.random((8, 8)) < 0.5)


def test_many_ways_of_one_length_come_to_an_end():
    # Of a block of 16 and a map that is the same everywhere, mass went through its neighbors a few units at a time.
    mask = np.zeros((8, 8), dtype=bool)
    mask[:4, 1:5] = True
    maps = np.stack([np.ones((8, 8)), np.random.default_rng(0).random((8, 8))])
    found = emd(maps, np.stack([mask, mask]), reduction="none")
    np.testing.assert_allclose(
        found, [wasserstein.wasserstein(one / one.sum(), mask / 16, np.ones(2))[1] for one in maps], rtol=1e-12
    )


def volume(shape, seed=0, share=0.3):
    rng = np.random.default_rng(seed)
    mask = rng.random(shape) < share
    mask.flat[0] = True
    return rng.random(shape) ** 4 * (rng.random(shape) < 0.8) + 1e-3, mask


def by_full_matrix(values, mask, spacing):
    """The distance by POT, from the distances of all voxels."""
    centers = np.argwhere(np.ones(values.shape)) * np.array(spacing)
    return ot.emd2((values / values.sum()).ravel(), (mask / mask.sum()).ravel(), cdist(centers, centers))


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("spacing", [(1.0, 1.0, 1.0), (5.0, 0.7, 0.7), (0.3, 2.0, 1.1)])
@pytest.mark.parametrize("shape", [(3, 4, 5), (6, 7, 5), (2, 1, 9)])
def test_volumes_against_the_full_matrix(shape, spacing, route, monkeypatch):
    force(monkeypatch, route)
    values, mask = volume(shape)
    expected = by_full_matrix(values, mask, spacing)
    assert emd(values[None], mask[None], spacing=spacing) == pytest.approx(expected, rel=1e-9)
    diameter = np.linalg.norm((np.array(shape) - 1) * spacing)
    assert emd_perf(values[None], mask[None], spacing=spacing) == pytest.approx(1 - expected / diameter, rel=1e-9)
    lower, upper = emd(values[None], mask[None], spacing=spacing, exact=False)
    assert lower <= expected * (1 + 1e-9)
    assert expected <= upper * (1 + 1e-9)
    assert upper - lower <= 0.003 * upper + 1e-12


def test_images_have_a_spacing_too():
    values, mask = volume((6, 9))
    expected = by_full_matrix(values, mask, (0.2, 3.0))
    assert emd(values, mask, spacing=(0.2, 3.0)) == pytest.approx(expected, rel=1e-9)
    assert emd(values, mask, spacing=torch.tensor([[0.2, 3.0]], dtype=torch.float64)) == pytest.approx(expected)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_the_unit_of_length_scales_the_distance_and_not_the_performance(scale, ours):
    values, mask = (each[None] for each in volume((6, 7, 8), share=0.5))
    spacing, scaled = (2.0, 1.0, 0.5), (2 * scale, scale, 0.5 * scale)
    assert emd(values, mask, spacing=scaled) == pytest.approx(scale * emd(values, mask, spacing=spacing), rel=1e-9)
    assert emd_perf(values, mask, spacing=scaled) == pytest.approx(emd_perf(values, mask, spacing=spacing), rel=1e-9)


def test_large_volumes_have_bounds_and_no_exact_distance(monkeypatch):
    values, mask = (each[None] for each in volume((14, 12, 13)))
    mask[:] = False
    mask[:, :3, :5] = True
    exact = emd(values, mask, spacing=(2.0, 1.0, 1.0))
    monkeypatch.setattr(wasserstein, "_PAIRS_OF_BOUNDS", 2**14)
    monkeypatch.setattr(wasserstein, "_PAIRS_OF_EXACT", 2**17)
    lower, upper = emd(values, mask, spacing=(2.0, 1.0, 1.0), exact=False)
    assert lower <= exact <= upper
    assert 0.003 * upper < upper - lower < 0.1 * upper
    with pytest.raises(ValueError, match=r"A volume of 14×12×13 voxels has [\d,]+ pairs .* exact=False"):
        emd(values, mask)
    with pytest.raises(ValueError, match=r"A volume of 14×12×13 voxels"):
        fni_emd(values, mask)
    flat = (each.reshape(1, 14, -1) for each in (values, mask))
    assert emd(*flat) > 0  # images have no limit
