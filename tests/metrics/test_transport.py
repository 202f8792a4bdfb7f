import math

import numpy as np
import ot
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from oracles import transport as oracle
from scipy.ndimage import gaussian_filter

from xaibench.metrics import TransportError, emd, emd_perf


def some_maps(kind, size, rng):
    noise = rng.standard_normal((size, size))
    return {
        "uniform": rng.uniform(-1, 1, (size, size)),
        "smooth": gaussian_filter(noise, 2),
        "sparse": noise * (rng.random((size, size)) < 0.1) + 1e-3 * np.eye(size),
        "heavy-tailed": rng.standard_cauchy((size, size)) ** 3,
        "constant": np.ones((size, size)),
    }[kind]


@pytest.mark.parametrize("kind", ["uniform", "smooth", "sparse", "heavy-tailed", "constant"])
@pytest.mark.parametrize("size", [8, 16])
def test_emd_against_the_full_cost_matrix(kind, size):
    rng = np.random.default_rng(size)
    maps = np.stack([some_maps(kind, size, rng) for _ in range(4)])
    masks = rng.random((4, size, size)) < np.array([0.02, 0.1, 0.5, 0.95])[:, None, None]
    masks[:, 1, 1] = True
    expected = [oracle.emd_by_simplex(*case) for case in zip(maps, masks, strict=True)]
    np.testing.assert_allclose(emd(maps, masks, reduction="none"), expected, rtol=1e-11, atol=1e-12)


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


def test_emd_of_a_map_moved_as_a_whole_is_the_way_it_was_moved():
    mask = np.zeros((9, 9), dtype=bool)
    mask[1:4, 2:4] = True
    assert emd(np.roll(mask, (4, 3), axis=(0, 1)).astype(float), mask) == pytest.approx(5.0, rel=1e-14)


def test_emd_of_a_column_is_the_distance_of_the_cumulative_sums():
    rng = np.random.default_rng(0)
    values, mask = rng.random((40, 1)), rng.random((40, 1)) < 0.3
    source, target = oracle.distributions(values, mask)
    assert emd(values, mask) == pytest.approx(np.abs(np.cumsum(source - target)).sum(), rel=1e-13)


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


def test_emd_perf_is_zero_from_corner_to_corner_and_one_at_home():
    mask, opposite = np.zeros((5, 9), dtype=bool), np.zeros((5, 9))
    mask[0, 0], opposite[4, 8] = True, 3.0
    assert emd_perf(opposite, mask) == 0.0
    assert emd_perf(5.0 * mask, mask) == 1.0
    assert emd_perf(np.ones((1, 1)), np.ones((1, 1), dtype=bool)) == 1.0


def test_emd_perf_refuses_an_unknown_diameter():
    with pytest.raises(ValueError, match="diameter must be 'image' or 'released', got 'paper'"):
        emd_perf(np.ones((2, 2)), np.ones((2, 2)), diameter="paper")


def test_emd_perf_refuses_the_released_diameter_of_an_oblong_image():
    with pytest.raises(ValueError, match=r"square images, got 1×9. Use diameter='image'"):
        emd_perf(np.ones((1, 9)), np.ones((1, 9)), diameter="released")


def test_a_solver_that_stops_short_is_an_error_not_a_score(monkeypatch):
    solve = ot.lp.emd
    monkeypatch.setattr(ot.lp, "emd", lambda *problem, **options: solve(*problem, **(options | {"numItermax": 1})))
    rng = np.random.default_rng(0)
    with pytest.warns(UserWarning, match="numItermax"), pytest.raises(TransportError, match="without an optimum"):
        emd(rng.random((8, 8)), rng.random((8, 8)) < 0.5)
