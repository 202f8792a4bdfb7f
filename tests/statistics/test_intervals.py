import itertools

import numpy as np
import pytest
from scipy import stats

from xaibench.statistics.intervals import average_ranks, bootstrap_intervals, critical_difference, holm, paired_test


def rng(seed=0):
    return np.random.default_rng(seed)


def test_the_interval_is_scipys_percentile_bootstrap():
    values = rng().exponential(size=200)
    theirs = stats.bootstrap(
        (values,), np.mean, n_resamples=20_000, method="percentile", rng=rng(1)
    ).confidence_interval
    ours = bootstrap_intervals(values, resamples=20_000)
    np.testing.assert_allclose(ours, [theirs.low, theirs.high], rtol=0.01)


def test_the_interval_covers_the_mean_as_often_as_it_says():
    covered = 0
    for seed in range(300):
        low, high = bootstrap_intervals(rng(seed).normal(size=60), resamples=500, seed=seed)
        covered += low <= 0 <= high
    assert 0.90 < covered / 300 < 0.98


def test_groups_make_it_as_wide_as_there_are_independent_samples():
    means = rng().normal(size=50)
    values, groups = np.repeat(means, 20), np.repeat(np.arange(50), 20)
    np.testing.assert_allclose(bootstrap_intervals(values, groups), bootstrap_intervals(means))
    alone = bootstrap_intervals(values)
    grouped = bootstrap_intervals(values, groups)
    assert np.diff(grouped) > 3 * np.diff(alone)


def test_groups_of_unequal_size_keep_the_mean_over_samples():
    values = np.concatenate([np.zeros(90), np.ones(10)])
    groups = np.concatenate([np.arange(90), np.full(10, 90)])
    low, high = bootstrap_intervals(values, groups, resamples=5000)
    assert low == 0
    assert high > 0.2


def test_undefined_scores_are_left_out_column_by_column():
    table = rng().normal(size=(40, 3))
    table[5:9, 1] = np.nan
    table[1:, 2] = np.nan
    intervals = bootstrap_intervals(table)
    assert intervals.shape == (3, 2)
    assert intervals[1, 0] < np.nanmean(table[:, 1]) < intervals[1, 1]
    assert np.isnan(intervals[2]).all()


def test_the_test_counts_all_patterns_of_signs_of_a_few_samples():
    differences = rng().normal(0.5, 1, 9)
    totals = [abs(np.dot(signs, differences)) for signs in itertools.product([1, -1], repeat=9)]
    assert paired_test(differences) == np.mean(np.array(totals) >= abs(differences.sum()) - 1e-9)


def test_the_test_nears_scipys_with_many_samples():
    differences = rng(3).normal(0.15, 1, 120)
    theirs = stats.permutation_test((differences,), np.mean, permutation_type="samples", n_resamples=9999, rng=rng(1))
    assert paired_test(differences) == pytest.approx(theirs.pvalue, abs=0.02)


def test_chance_alone_is_found_as_often_as_the_level_says():
    columns = rng().normal(size=(40, 1000))
    assert (paired_test(columns, resamples=999) < 0.05).mean() == pytest.approx(0.05, abs=0.02)


def test_a_group_counts_once():
    differences = np.array([0.1, 0.2, 0.1, 0.3, 0.2])
    repeated, groups = np.repeat(differences, 30), np.repeat(np.arange(5), 30)
    assert paired_test(repeated, groups) == paired_test(differences) == 0.0625
    assert paired_test(repeated) < 0.001


def test_no_difference_and_no_score():
    p = paired_test(np.array([[0.0, np.nan], [0.0, np.nan]]))
    assert p[0] == 1
    assert np.isnan(p[1])
    assert paired_test(np.zeros(50)) == 1


def test_p_is_never_zero():
    assert paired_test(np.ones(100), resamples=99) == 0.01


@pytest.mark.parametrize("seed", range(5))
def test_holm_step_by_step(seed):
    p = rng(seed).random(8) ** 3
    ranked = sorted(p)
    expected = [max(min(1, (8 - j) * ranked[j]) for j in range(ranked.index(value) + 1)) for value in p]
    np.testing.assert_allclose(holm(p), expected)


def test_holm_leaves_the_undefined_out():
    np.testing.assert_allclose(holm([0.01, np.nan, 0.04]), [0.02, np.nan, 0.04])


def test_ranks_in_both_directions():
    table = np.array([[1.0, 2.0, 3.0], [1.0, 1.0, 0.0]])
    assert average_ranks(table)[0].tolist() == [2.25, 1.75, 2.0]
    assert average_ranks(table, higher_is_better=False)[0].tolist() == [1.75, 2.25, 2.0]
    ranks, n = average_ranks(np.full((2, 3), np.nan))
    assert np.isnan(ranks).all()
    assert n == 0


@pytest.mark.parametrize(("methods", "q"), [(2, 1.960), (5, 2.728), (10, 3.164)])
def test_critical_values_of_demsars_table(methods, q):
    assert critical_difference(methods, 30) == pytest.approx(q * np.sqrt(methods * (methods + 1) / 180), abs=2e-3)


def test_the_seed_decides_and_shapes_are_checked():
    values = rng().normal(size=(30, 2))
    assert np.array_equal(bootstrap_intervals(values, seed=1), bootstrap_intervals(values, seed=1))
    assert not np.array_equal(bootstrap_intervals(values, seed=1), bootstrap_intervals(values, seed=2))
    with pytest.raises(ValueError, match=r"Expected groups \[30\]"):
        bootstrap_intervals(values, np.zeros(3))
    with pytest.raises(ValueError, match=r"Expected scores \[N\] or \[N, M\]"):
        paired_test(np.zeros((2, 2, 2)))
