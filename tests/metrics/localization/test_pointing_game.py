import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from oracles import overlap as oracle
from part_cases import MetricCase

from xaibench.metrics import hit

pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning")  # undefined is quiet
CASES = {"hit": MetricCase(constant=6 / 30, drawn={"tolerance": st.one_of(st.integers(0, 9), st.floats(0, 1e300))})}


@st.composite
def pairs(draw):
    shape = draw(st.tuples(st.integers(1, 6), st.integers(1, 6)))
    values = st.sampled_from([0.0, 0.5, 1.0, -1.0, 0.3])
    return draw(hnp.arrays(np.float64, shape, elements=values)), draw(hnp.arrays(np.bool_, shape))


@given(pair=pairs(), tolerance=st.sampled_from([0, 1, 1.4, math.sqrt(2), 2, 2.5, 5]))
@settings(max_examples=150, deadline=None)
def test_hit_against_the_definition(pair, tolerance):
    np.testing.assert_allclose(hit(*pair, tolerance=tolerance), oracle.hit(*pair, tolerance), rtol=1e-15)


def test_quantus_empty_mask_is_not_a_hit():
    # Quantus returns nan for it and stores it as a truth value: True.
    maps, masks = np.random.default_rng(0).random((2, 4, 4)), np.zeros((2, 4, 4), dtype=bool)
    masks[0].flat[maps[0].argmin()] = True
    assert hit(maps, masks) == 0.0
    assert np.isnan(hit(maps, masks, reduction="none")).tolist() == [False, True]
    assert math.isnan(hit(maps[1], masks[1], tolerance=15))


def test_quantus_constant_map_does_not_always_hit():
    # Quantus asks whether any of the tied maxima lies inside.
    mask = np.zeros((4, 4), dtype=bool)
    mask[1, :3] = True
    assert hit(np.ones((4, 4)), mask) == 3 / 16
    assert hit(-np.ones((4, 4)), mask) == 3 / 16
    assert math.isnan(hit(np.zeros((4, 4)), mask))


def test_published_constant_map_always_hits_and_here_it_does_not():
    maps, masks = np.ones((2, 5, 6)), np.zeros((2, 5, 6), dtype=bool)
    masks[:, 2, 3] = True
    published = np.mean([bool((mask & (m == m.max())).any()) for m, mask in zip(maps, masks, strict=True)])
    assert published == 1.0
    assert hit(maps, masks) == 1 / 30


def test_torchray_tolerance_is_a_disc_and_counts_its_edge():
    # TorchRay asks for less than the tolerance: 15 pixels off would miss, and at 0 nothing would ever hit.
    mask = np.zeros((41, 41), dtype=bool)
    mask[20, 20] = True
    points = {(20, 20): 0, (20, 35): 15, (35, 20): 15, (29, 32): 15, (30, 32): math.sqrt(244), (31, 31): math.sqrt(242)}
    for point, distance in points.items():
        maps = np.zeros((41, 41))
        maps[point] = 1
        assert hit(maps, mask, tolerance=15) == (distance <= 15), point
        assert hit(maps, mask, tolerance=distance) == 1.0
        assert hit(maps, mask, tolerance=np.nextafter(distance, 0)) == (0.0 if distance else 1.0)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_published_example_gives_the_published_relations(seed):
    rng = np.random.default_rng(seed)
    maps, gts = rng.random((16, 224, 224)), rng.integers(0, 2, (16, 224, 224))
    # The point of each map falls on a coin that has been tossed: a number of sixteenths.
    hits = [g.flat[m.argmax()] for m, g in zip(maps, gts, strict=True)]
    assert hit(maps, gts) == np.mean(hits)
    assert hit(maps, gts, reduction="none").tolist() == hits


@pytest.mark.parametrize("spacing", [(1.0, 1.0, 1.0), (2.5, 0.5, 1.0)])
def test_the_tolerance_is_a_ball_in_the_unit_of_the_spacing(spacing):
    rng = np.random.default_rng(0)
    maps, masks = rng.random((40, 4, 5, 6)), rng.random((40, 4, 5, 6)) < 0.02
    for tolerance in (1.0, 2.5, math.sqrt(2)):
        found = hit(maps, masks, tolerance=tolerance, spacing=spacing, reduction="none")
        for score, values, mask in zip(found, maps, masks, strict=True):
            top = np.array(np.unravel_index(values.argmax(), values.shape))
            away = np.linalg.norm((np.argwhere(mask) - top) * spacing, axis=1)
            assert math.isnan(score) if not mask.any() else score == (away.min() <= tolerance)


def test_a_distance_that_equals_the_tolerance_counts_however_the_spacing_is_rounded():
    mask, maps = np.zeros((1, 8), dtype=bool), np.zeros((1, 8))
    mask[0, 0], maps[0, 3] = True, 1.0
    assert 3 * 0.1 > 0.3  # by rounding
    assert hit(maps, mask, tolerance=0.3, spacing=(1.0, 0.1)) == 1.0
    assert hit(maps, mask, tolerance=0.3 - 1e-12, spacing=(1.0, 0.1)) == 0.0
