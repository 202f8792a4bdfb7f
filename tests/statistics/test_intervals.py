import numpy as np
import pytest
from scipy import stats

from xaibench.statistics import bootstrap_intervals


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


def test_the_seed_decides_and_shapes_are_checked():
    values = rng().normal(size=(30, 2))
    assert np.array_equal(bootstrap_intervals(values, seed=1), bootstrap_intervals(values, seed=1))
    assert not np.array_equal(bootstrap_intervals(values, seed=1), bootstrap_intervals(values, seed=2))
    with pytest.raises(ValueError, match=r"Expected groups \[30\]"):
        bootstrap_intervals(values, np.zeros(3))
    with pytest.raises(ValueError, match=r"Expected scores \[N\] or \[N, M\]"):
        bootstrap_intervals(np.zeros((2, 2, 2)))
