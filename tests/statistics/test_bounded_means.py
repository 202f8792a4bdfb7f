"""Confidence intervals of bounded scores: comparison with scipy, and coverage in simulations."""

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import binomtest, t

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


def solve_by_definition(scores, z=1.959964):
    """Return the smallest mean below that of the scores that the definition in the module's docstring permits."""
    mean, n = scores.mean(), len(scores)
    quantile = t.ppf(0.975, n - 1) ** 2 / (z**2 * (n - 1) / n)  # of the estimated variance, instead of the normal one

    def excess(candidate):
        share = 1 - candidate / mean
        variance = (1 - share) * (quantile * scores.var() + share * mean**2)
        return (mean - candidate) ** 2 - z**2 * variance / n

    return brentq(excess, 1e-12, mean - 1e-12)


@pytest.mark.parametrize("n", [8, 30, 200])
def test_graded_scores_follow_the_definition(n):
    scores = np.random.default_rng(n).beta(8, 2, n)
    low, high = nested_means(scores, SamplingDesign.of(n)).intervals(within=(0, 1))[0]
    assert low == pytest.approx(solve_by_definition(scores), rel=1e-4)
    assert 1 - high == pytest.approx(solve_by_definition(1 - scores), rel=1e-4)


def test_a_nearly_perfect_score_has_the_interval_of_a_perfect_one():
    """36 maps in 4 groups that all score 1 had [0.51, 1], and with one score of 0.9999 [1, 1]."""
    groups = np.repeat(np.arange(4), 9)
    scores = np.ones((36, 2))
    scores[7, 1] = 0.9999
    perfect, nearly = nested_means(scores, SamplingDesign.of(36, groups=groups)).intervals(within=(0, 1))
    assert perfect.round(2).tolist() == [0.51, 1]
    np.testing.assert_allclose(nearly, perfect, atol=1e-4)


@pytest.mark.parametrize(("n", "index"), [(20, 1.5), (50, 1.5), (20, 3)])
def test_skewed_gaps_near_the_end_of_the_range_are_covered(n, index):
    """Student's t covers the mean of gaps with a Pareto distribution in 70 to 90 % of the cases."""
    scale, rng = 0.02, np.random.default_rng(n)
    scores = 1 - np.minimum(scale * rng.pareto(index, (n, 4000)), 1)
    mean = 1 - scale * (1 - (1 + 1 / scale) ** (1 - index)) / (index - 1)
    found = nested_means(scores, SamplingDesign.of(n))
    low, high = found.intervals(within=(0, 1)).T
    assert ((low <= mean) & (high >= mean)).mean() >= 0.94
    low, high = found.intervals().T
    assert ((low <= mean) & (high >= mean)).mean() < 0.9


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


def test_scores_that_do_not_attain_the_ends_have_students_t_within_the_range():
    scores = np.array([0.9, 0.99, 0.95])
    found = nested_means(scores, SamplingDesign.of(3))
    low, high = found.intervals(within=(0, 1), attains_ends=False)[0]
    assert (low, high) == (found.intervals()[0, 0], 1)


def test_a_single_group_has_no_interval():
    assert np.isnan(nested_means([1.0], SamplingDesign.of(1)).intervals(within=(0, 1))).all()


@pytest.mark.parametrize("value", [0.0, 0.25, 0.9, 1.0])
def test_constant_scores_have_the_width_of_hits_only(value):
    """What other samples would score is unknown, wherever in the range the scores are."""
    low, high = nested_means(np.full(8, value), SamplingDesign.of(8)).intervals(within=(0, 1))[0]
    hits = binomtest(8, 8).proportion_ci(method="wilson")
    assert high - low == pytest.approx(hits.high - hits.low)
    assert low <= value <= high


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
    assert 0.935 <= holds(count, slices, 150, within=(0, 1)) <= 0.985
    assert holds(count, slices, 150) < 0.935  # Student's t has a lower coverage
