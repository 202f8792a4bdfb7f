"""Means under the nested design: comparison with textbook formulas, and coverage in simulations."""

import numpy as np
import pytest
from scipy import stats

from xaibench.statistics import SamplingDesign, nested_means, unpaired_difference
from xaibench.statistics.nested_draws import compute_influences


def rng(seed=0):
    return np.random.default_rng(seed)


def drawn(data_sets, trainings, samples):
    """Return a full design, with samples varying fastest."""
    shape = data_sets, trainings, samples
    return SamplingDesign.of(
        np.prod(shape),
        **dict(zip(("data_sets", "trainings", "groups"), map(np.ravel, np.indices(shape)), strict=True)),
    )


def test_of_samples_alone_it_is_students_t():
    values = rng().normal(0.3, 1, (50, 3))
    found = nested_means(values, SamplingDesign.of(50))
    theirs = stats.ttest_1samp(values, 0)
    assert found.level == "samples"
    np.testing.assert_allclose(found.p_values(), theirs.pvalue, rtol=1e-10)
    np.testing.assert_allclose(found.intervals(), np.stack(theirs.confidence_interval(), axis=1), rtol=1e-10)


def test_of_data_sets_it_is_students_t_of_their_means():
    values = rng().normal(0.3, 1, (4 * 3 * 20, 2))
    found = nested_means(values, drawn(4, 3, 20))
    theirs = stats.ttest_1samp(values.reshape(4, 60, 2).mean(axis=1), 0)
    assert found.level == "data sets"
    np.testing.assert_allclose(found.p_values(), theirs.pvalue, rtol=1e-10)
    np.testing.assert_allclose(found.intervals(), np.stack(theirs.confidence_interval(), axis=1), rtol=1e-10)


def test_groups_of_one_size_are_samples_of_their_means():
    values, groups = rng().normal(size=60), np.repeat(np.arange(12), 5)
    expected = nested_means(values.reshape(12, 5).mean(axis=1), SamplingDesign.of(12)).intervals()
    np.testing.assert_allclose(nested_means(values, SamplingDesign.of(60, groups=groups)).intervals(), expected)


def test_groups_of_unlike_sizes_are_clusters_of_a_ratio():
    values, groups = rng().normal(size=30), rng(1).integers(0, 7, 30)
    mean = values.mean()
    without = [values[groups != g].mean() for g in range(7)]  # the jackknife, by its definition
    found = nested_means(values, SamplingDesign.of(30, groups=groups))
    assert found.variance[0] == pytest.approx(6 / 7 * np.square(np.array(without) - mean).sum())
    assert found.df[0] == 6


def test_crossed_levels_have_the_variance_of_the_textbook():
    """Two-way random effects (Searle, Casella, McCulloch: Variance Components, section 4.3), from mean squares."""
    table = rng().normal(size=(4, 1, 1)) + rng(1).normal(size=(1, 30, 1)) + rng(2).normal(size=(4, 30, 1))
    found = nested_means(table.reshape(120, 1), drawn(1, 4, 30))
    of_trainings, of_samples, mean = table.mean(axis=1), table.mean(axis=0), table.mean()
    squares = 30 * np.square(of_trainings - mean).sum() / 3, 4 * np.square(of_samples - mean).sum() / 29
    rest = np.square(table - of_trainings[:, None] - of_samples[None] + mean).sum() / (3 * 29)
    assert found.level == "trainings"
    assert found.variance[0] == pytest.approx((sum(squares) - rest) / 120)
    assert 3 <= found.df[0] < 29


def test_the_level_is_the_highest_with_several_units():
    assert [drawn(*shape).level for shape in ((1, 1, 5), (1, 2, 5), (2, 1, 5), (2, 2, 5))] == [
        *("samples", "trainings", "data sets", "data sets")
    ]


def covers(shape, scales, columns=1500, seed=0, *, pool_variances=False):
    """Return the coverage of 95 % intervals for scores whose levels have standard deviations ``scales``."""
    draw = rng(seed)
    d, t, s = shape
    sizes = ((d, 1, 1), (d, t, 1), (d, 1, s), shape)
    parts = [scale * draw.normal(size=(*size, columns)) for size, scale in zip(sizes, scales, strict=True)]
    low, high = (
        nested_means(sum(parts).reshape(-1, columns), drawn(*shape), pool_variances=pool_variances).intervals().T
    )
    return ((low <= 0) & (high >= 0)).mean()


@pytest.mark.parametrize("shape", [(1, 1, 8), (1, 1, 30), (1, 2, 40), (1, 3, 40), (2, 2, 20), (3, 2, 20)])
@pytest.mark.parametrize("trainings", [0.05, 0.5])
@pytest.mark.parametrize("pool_variances", [False, True])
def test_intervals_have_a_coverage_of_95_percent(shape, trainings, pool_variances):
    of_sets, of_trainings = trainings * (shape[0] > 1), trainings * (shape[1] > 1)
    careful = shape[:2] == (1, 2) and not pool_variances  # with two trainings, their variance is hardly known
    assert (
        0.925
        <= covers(shape, (of_sets, of_trainings, 1, 0.5), pool_variances=pool_variances)
        <= (0.995 if careful else 0.975)
    )


@pytest.mark.parametrize("rest", [0.5, 2.0])
def test_two_trainings_that_are_similar_by_chance_keep_the_coverage(rest):
    assert covers((1, 2, 40), (0, 0.7, 1, rest)) >= 0.94


def test_ignoring_the_trainings_gives_too_narrow_intervals():
    """Intervals over samples that ignore the variance between trainings have a coverage far below 95 %."""
    draw = rng()
    values = 0.5 * draw.normal(size=(3, 1, 1000)) + draw.normal(size=(1, 40, 1000))
    low, high = nested_means(values.reshape(120, -1), SamplingDesign.of(120)).intervals().T
    assert ((low <= 0) & (high >= 0)).mean() < 0.7


def test_pooled_variances_give_narrower_intervals_with_the_same_coverage():
    values = rng().normal(size=(3, 400))
    alone, together = (
        nested_means(values, drawn(3, 1, 1), pool_variances=pool_variances).intervals()
        for pool_variances in (False, True)
    )
    assert np.median(np.ptp(together, axis=1)) < 0.6 * np.median(np.ptp(alone, axis=1))
    assert 0.93 < ((together[:, 0] <= 0) & (together[:, 1] >= 0)).mean() < 0.97


def test_undefined_scores_are_left_out():
    values = np.array([[0.1, np.nan], [0.5, np.nan], [np.nan, np.nan], [0.3, 0.2]])
    found = nested_means(values, SamplingDesign.of(4))
    assert found.mean.tolist() == pytest.approx([0.3, 0.2])
    expected = nested_means([0.1, 0.5, 0.3], SamplingDesign.of(3)).intervals()[0]
    np.testing.assert_allclose(found.intervals()[0], expected)
    assert np.isnan(found.intervals()[1]).all()
    assert np.isnan(found.p_values()[1])
    assert np.isnan(nested_means(np.full((4, 1), np.nan), SamplingDesign.of(4)).mean[0])


def test_constant_scores_have_variance_zero():
    found = nested_means(np.array([[0.0, 1.0]] * 5), SamplingDesign.of(5))
    assert found.p_values().tolist() == [1, 0]
    assert found.intervals().tolist() == [[0, 0], [1, 1]]


def test_trainings_without_scores_do_not_count():
    values = rng().normal(size=(2, 10))
    alone = np.where([[True], [False]], values, np.nan).reshape(20, 1)
    found = nested_means(alone, drawn(1, 2, 10))
    np.testing.assert_allclose(found.intervals(), nested_means(values[0], SamplingDesign.of(10)).intervals())


def test_the_influences_of_a_mean_sum_to_zero():
    values = np.where(rng(1).random((24, 3)) < 0.2, np.nan, rng().normal(size=(24, 3)))
    mean, parts, counts = compute_influences(values, drawn(2, 3, 4))
    np.testing.assert_allclose(mean, np.nanmean(values, axis=0))
    np.testing.assert_allclose(parts.sum(axis=(0, 1, 2)), 0, atol=1e-14)
    assert counts.sum(axis=(0, 1, 2)).tolist() == (~np.isnan(values)).sum(axis=0).tolist()


def test_without_pairs_it_is_welchs_test():
    one, other = rng().normal(size=12), rng(1).normal(0.4, 2, 30)
    found = unpaired_difference(nested_means(one, SamplingDesign.of(12)), nested_means(other, SamplingDesign.of(30)))
    theirs = stats.ttest_ind(other, one, equal_var=False)
    assert found.p_values()[0] == pytest.approx(theirs.pvalue)
    assert found.intervals()[0].tolist() == pytest.approx(list(theirs.confidence_interval()))


def test_names_of_unlike_number_are_refused():
    with pytest.raises(ValueError, match=r"groups \[3\], one for each row; got \[2\]"):
        SamplingDesign.of(3, groups=[1, 2])
    with pytest.raises(ValueError, match="with 4 rows, as many as the scores have; got 3"):
        nested_means(np.zeros(4), SamplingDesign.of(3))
