import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from oracles import localization as oracle
from part_cases import MetricCase

from xaibench.metrics import mass_accuracy, relative_importance, topk_precision

pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning")  # undefined is quiet
tiny = st.sampled_from([(1, 1), (1, 5), (2, 3), (3, 2), (6, 1)])
CASES = {
    "topk_precision": MetricCase(constant=6 / 30, takes_magnitude=True),
    "mass_accuracy": MetricCase(constant=6 / 30, takes_magnitude=True),
    "relative_importance": MetricCase(constant=1.0, takes_magnitude=True),
}


@given(data=st.data())
@settings(max_examples=80, deadline=None)
def test_topk_precision_with_ties_is_the_mean_over_all_orders(data):
    shape = data.draw(tiny)
    maps = data.draw(hnp.arrays(np.float64, shape, elements=st.sampled_from([0.0, 1.0, -1.0, 2.0, -3.0])))
    masks = data.draw(hnp.arrays(np.bool_, shape))
    np.testing.assert_allclose(topk_precision(maps, masks), oracle.topk_precision(maps, masks), rtol=1e-12)


def test_topk_precision_of_every_tied_map_of_four_pixels():
    # All maps over {0, 1, 2} and all masks, 1296 cases in one batch.
    maps = np.array(list(itertools.product([0.0, 1.0, 2.0], repeat=4))).reshape(-1, 2, 2)
    masks = np.array(list(itertools.product([False, True], repeat=4))).reshape(-1, 2, 2)
    all_maps, all_masks = maps.repeat(len(masks), axis=0), np.tile(masks, (len(maps), 1, 1))
    scores = topk_precision(all_maps, all_masks, reduction="none")
    expected = [oracle.topk_precision(*case) for case in zip(all_maps, all_masks, strict=True)]
    np.testing.assert_allclose(scores, expected, rtol=1e-12)


def test_released_topk_precision_sees_where_ties_are_and_ours_does_not():
    # The sort of the released XAI-TRIS code (and of Quantus) gives 1 or 0, as the marked pixels come first or last.
    constant = np.ones((4, 4))
    for corner in np.ndindex(3, 3):
        mask = np.zeros((4, 4), dtype=bool)
        mask[corner[0] : corner[0] + 2, corner[1] : corner[1] + 2] = True
        assert topk_precision(constant, mask) == 4 / 16


@given(data=st.data())
@settings(max_examples=80, deadline=None)
def test_mass_accuracy_against_the_definition(data):
    shape = data.draw(st.tuples(st.integers(1, 6), st.integers(1, 6)))
    maps = data.draw(hnp.arrays(np.float64, shape, elements=st.floats(-1e9, 1e9)))
    masks = data.draw(hnp.arrays(np.bool_, shape))
    expected = oracle.mass_accuracy(maps, masks)
    np.testing.assert_allclose(mass_accuracy(maps, masks), expected, rtol=1e-12, atol=1e-300)


def test_quantus_mass_of_signed_maps_leaves_its_range_and_ours_does_not():
    # Quantus' RelevanceMassAccuracy sums the values with their signs: 3 / (3 - 2) of the mass.
    maps, masks = np.array([[3.0, 0.0, -2.0, 0.0]]), np.array([[1, 1, 0, 0]])
    assert (maps * masks).sum() / maps.sum() == 3.0
    assert mass_accuracy(maps, masks) == pytest.approx(0.6, rel=1e-14)


def test_quantus_epsilon_does_not_lower_the_mass_of_small_maps():
    # Quantus' AttributionLocalization divides by the sum plus 1e-9.
    maps, masks = np.array([[3.0, 0.0, 2.0, 0.0]]) * 1e-9, np.array([[1, 1, 0, 0]])
    assert mass_accuracy(maps, masks) == pytest.approx(0.6, rel=1e-14)


@pytest.mark.parametrize("scale", [1e-310, 5e307])
def test_mass_accuracy_of_extreme_maps(scale):  # the plain sum overflows, or falls among the subnormals
    maps = np.array([[3.0, -3.0, 2.0, 0.0]]) * scale
    assert mass_accuracy(maps, np.array([[1, 1, 0, 0]])) == pytest.approx(0.75, rel=1e-12)


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_relative_importance_is_the_mean_inside_over_the_mean_of_the_image(data):
    shape = data.draw(tiny)
    maps = data.draw(hnp.arrays(np.float64, shape, elements=st.sampled_from([0.0, 1.0, -1.0, 0.3, -3.0])))
    masks = data.draw(hnp.arrays(np.bool_, shape))
    np.testing.assert_allclose(relative_importance(maps, masks), oracle.relative_importance(maps, masks), rtol=1e-12)


def test_relative_importance_of_noise_is_one_and_at_most_pixels_per_marked_pixel():
    rng = np.random.default_rng(0)
    masks = np.broadcast_to(rng.random((8, 8)) < 0.2, (2000, 8, 8))
    assert relative_importance(rng.standard_normal((2000, 8, 8)), masks) == pytest.approx(1, abs=0.02)
    assert relative_importance(masks[:1].astype(float), masks[:1]) == pytest.approx(64 / masks[0].sum())
