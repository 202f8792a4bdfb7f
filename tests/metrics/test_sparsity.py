import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from oracles import concentration as oracle
from part_cases import MetricCase
from scipy.stats import entropy

from xaibench.metrics import complexity, sparseness

pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning")  # undefined is quiet
BOTH = [sparseness, complexity]
both = pytest.mark.parametrize("metric", BOTH, ids=["sparseness", "complexity"])
CASES = {
    "sparseness": MetricCase(constant=0.0, takes_magnitude=True, largest=lambda pixels: 1.0),
    "complexity": MetricCase(constant=math.log(30), takes_magnitude=True, largest=math.log),
}


@st.composite
def images(draw):
    shape = draw(st.tuples(st.integers(1, 6), st.integers(1, 6)))
    # NumPy 1.26 warns of an overflow when it divides subnormal numbers by each other.
    values = st.one_of(st.sampled_from([0.0, 1.0, -1.0]), st.floats(-1e9, 1e9, allow_subnormal=False))
    return draw(hnp.arrays(np.float64, shape, elements=values))


@both
@given(maps=images())
@settings(max_examples=120, deadline=None)
def test_against_the_definition(metric, maps):
    np.testing.assert_allclose(metric(maps), getattr(oracle, metric.__name__)(maps), rtol=1e-12, atol=1e-14)


@given(maps=images())
@settings(max_examples=60, deadline=None)
def test_gini_is_half_the_relative_mean_difference(maps):
    np.testing.assert_allclose(sparseness(maps), oracle.mean_difference(maps), rtol=1e-12, atol=1e-14)


def test_against_scipy():
    maps = np.random.default_rng(0).standard_normal((10, 16, 16))
    expected = [entropy(np.abs(values).ravel()) for values in maps]
    np.testing.assert_allclose(complexity(maps, reduction="none"), expected, rtol=1e-13)


@both
@given(maps=images(), data=st.data())
@settings(max_examples=60, deadline=None)
def test_neither_place_nor_sign_nor_scale_counts(metric, maps, data):
    score = metric(maps)
    order = np.array(data.draw(st.permutations(range(maps.size))))
    np.testing.assert_allclose(metric(maps.ravel()[order].reshape(maps.shape)), score, rtol=1e-13, atol=1e-14)
    np.testing.assert_array_equal(metric(-maps), score)
    np.testing.assert_array_equal(metric(maps * 4.0), score)


def test_extremes():
    for shape in ((1, 1), (2, 2), (3, 5), (224, 224)):
        pixels = shape[0] * shape[1]
        constant, single = np.full(shape, -0.1), np.zeros(shape)
        single[-1, 0] = -3
        assert sparseness(constant) == 0.0
        assert complexity(constant) == pytest.approx(math.log(pixels), abs=1e-12)
        assert complexity(constant) <= math.log(pixels)
        assert sparseness(single) == pytest.approx(1 - 1 / pixels, rel=1e-15)
        assert complexity(single) == 0.0
        assert math.copysign(1, complexity(single)) == 1.0


def test_no_entropy_exceeds_that_of_the_constant_map():
    # Of 5, 12 or 13 equal shares, and of a third of all numbers, the rounded entropy is above ln d.
    for pixels in range(1, 120):
        assert complexity(np.ones((1, pixels))) <= math.log(pixels)


def test_by_hand():
    maps = np.array([[1.0, 0.0], [-3.0, 0.0]])
    assert sparseness(maps) == pytest.approx(0.625, rel=1e-15)  # 1 - 2 (1/4 · 1.5/4 + 3/4 · 0.5/4)
    assert complexity(maps) == pytest.approx(-(0.25 * math.log(0.25) + 0.75 * math.log(0.75)), rel=1e-15)


def test_sharper_maps_are_sparser_and_simpler():
    sharper = np.exp(np.random.default_rng(0).standard_normal((8, 8)) * np.arange(1, 6)[:, None, None])
    assert (np.diff(sparseness(sharper, reduction="none")) > 0).all()
    assert (np.diff(complexity(sharper, reduction="none")) < 0).all()


@both
def test_quantus_zero_map_has_no_score(metric):
    # Quantus adds 1e-7 to each value and calls a zero map perfectly dense.
    maps = np.stack([np.zeros((4, 4)), np.eye(4)])
    scores = metric(maps, reduction="none")
    assert np.isnan(scores).tolist() == [True, False]
    assert metric(maps) == scores[1]


@pytest.mark.parametrize("scale", [1e-9, 1e-310, 1e307])
def test_quantus_epsilon_does_not_blur_small_maps(scale):
    maps = np.array([[1.0, 2.0], [3.0, 4.0]])
    assert sparseness(maps * scale) == pytest.approx(sparseness(maps), rel=1e-9)
    assert complexity(maps * scale) == pytest.approx(complexity(maps), rel=1e-9)


def test_quantus_negative_values_do_not_break_the_entropy():
    assert complexity(np.array([[-1.0, 1.0]])) == pytest.approx(math.log(2), rel=1e-15)
