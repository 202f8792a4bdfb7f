"""Confidence intervals of bounded scores: comparison with scipy, and coverage in simulations."""

import numpy as np
import pytest
from scipy.stats import binomtest

from xaibench.statistics import SamplingDesign, nested_means

RATES = np.linspace(0.1, 0.9, 16)


@pytest.mark.parametrize(("hits", "of"), [(0, 8), (3, 10), (29, 30), (1, 2)])
def test_of_hits_and_misses_it_is_wilsons_interval(hits, of):
    scores = np.repeat([1.0, 0.0], [hits, of - hits])
    expected = binomtest(hits, of).proportion_ci(method="wilson")
    found = nested_means(scores, SamplingDesign.of(of)).intervals(within=(0, 1))[0]
    assert found.tolist() == pytest.approx([expected.low, expected.high])


def test_patients_who_are_all_hit_or_all_missed_count_once_each():
    groups = np.repeat(np.arange(10), 4)
    patients = nested_means(np.arange(10) < 7, SamplingDesign.of(10)).intervals(within=(0, 1))
    slices = nested_means((np.arange(10) < 7)[groups], SamplingDesign.of(40, groups=groups)).intervals(within=(0, 1))
    np.testing.assert_allclose(slices, patients)


def test_of_many_scores_it_is_students_t():
    scores = np.random.default_rng(0).beta(8, 2, 5000)
    found = nested_means(scores, SamplingDesign.of(5000))
    np.testing.assert_allclose(found.intervals(within=(0, 1)), found.intervals(), atol=1e-4)


def test_a_range_is_a_matter_of_scale():
    scores = np.random.default_rng(0).beta(2, 2, (20, 3))
    unit = nested_means(scores, SamplingDesign.of(20)).intervals(within=(0, 1))
    wide = nested_means(6 * scores - 1, SamplingDesign.of(20)).intervals(within=(-1, 5))
    np.testing.assert_allclose(wide, 6 * unit - 1)
    assert unit.min() > 0


def test_without_a_second_end_it_is_students_t_cut_at_the_one():
    found = nested_means([0.0, 0.0, 3.0], SamplingDesign.of(3))
    free, cut = found.intervals()[0], found.intervals(within=(0, np.inf))[0]
    assert free[0] < 0
    assert cut.tolist() == [0, free[1]]


def test_scores_beyond_the_range_are_believed():
    found = nested_means([1.5, 1.7, 1.9], SamplingDesign.of(3))
    np.testing.assert_allclose(found.intervals(within=(0, 1)), found.intervals())


def test_one_group_says_nothing_and_constant_ones_what_they_can():
    assert np.isnan(nested_means([1.0], SamplingDesign.of(1)).intervals(within=(0, 1))).all()
    assert nested_means([0.5, 0.5], SamplingDesign.of(2)).intervals(within=(0, 1)).tolist() == [[0.5, 0.5]]
    low, high = nested_means(np.ones(300), SamplingDesign.of(300, data_sets=np.arange(300) % 3)).intervals(
        within=(0, 1)
    )[0]
    assert (round(float(low), 3), round(float(high), 9)) == (
        0.987,
        1,
    )  # three data sets, with three hundred hits in total


def holds(count, slices, runs, **bounds):
    rng, found = np.random.default_rng(count), []
    for _ in range(runs):
        groups = np.repeat(np.arange(count), rng.integers(1, slices + 1, count))
        own = rng.beta(RATES, 1 - RATES, (count, len(RATES)))
        scores = rng.random((len(groups), len(RATES))) < own[groups]
        low, high = nested_means(scores, SamplingDesign.of(len(groups), groups=groups)).intervals(**bounds).T
        found.append((low <= RATES) & (high >= RATES))
    return np.mean(found)


@pytest.mark.parametrize("count", [8, 20])
@pytest.mark.parametrize("slices", [1, 5])
def test_nineteen_of_twenty_hold_the_share_of_hits_in_few_groups(count, slices):
    assert 0.935 <= holds(count, slices, 150, within=(0, 1)) <= 0.97
    assert holds(count, slices, 150) < 0.935  # Student's t has a lower coverage
