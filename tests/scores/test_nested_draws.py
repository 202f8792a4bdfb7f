"""Means under the nested design: comparison with textbook formulas, and coverage in simulations."""

import numpy as np
import pytest
from refusals import refused
from scipy import stats
from scipy.optimize import brentq
from scipy.stats import binomtest, t

from xaibench.scores import SamplingDesign, holm, nested_means, unpaired_difference
from xaibench.scores.nested_draws import compute_influences, variance_components


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
    values = rng().normal(0, 1, (25, 3))
    values = 0.3 + np.concatenate([values, -values])  # not skewed
    found = nested_means(values, SamplingDesign.of(50))
    theirs = stats.ttest_1samp(values, 0)
    assert found.level == "samples"
    np.testing.assert_allclose(found.p_values(), theirs.pvalue, rtol=1e-10)
    np.testing.assert_allclose(found.intervals(), np.stack(theirs.confidence_interval(), axis=1), rtol=1e-10)


def test_of_data_sets_it_is_students_t_of_their_means():
    values = (rng().normal(0.3, 1, (4, 60, 2)) + rng(1).normal(0, 1, (4, 1, 2))).reshape(240, 2)
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
    assert 5 < found.df[0] <= 6


def test_crossed_levels_have_the_variance_of_the_textbook():
    """Two-way random effects (Searle, Casella, McCulloch: Variance Components, section 4.3), from mean squares."""
    table = rng().normal(size=(4, 1, 1)) + rng(1).normal(size=(1, 30, 1)) + rng(2).normal(size=(4, 30, 1))
    found = nested_means(table.reshape(120, 1), drawn(1, 4, 30))
    of_trainings, of_samples, mean = table.mean(axis=1), table.mean(axis=0), table.mean()
    squares = 30 * np.square(of_trainings - mean).sum() / 3, 4 * np.square(of_samples - mean).sum() / 29
    rest = np.square(table - of_trainings[:, None] - of_samples[None] + mean).sum() / (3 * 29)
    assert found.level == "trainings"
    assert found.variance[0] == pytest.approx((sum(squares) - rest) / 120)
    assert found.df[0] == 3


def test_the_level_is_the_highest_with_several_units():
    assert [drawn(*shape).level for shape in ((1, 1, 5), (1, 2, 5), (2, 1, 5), (2, 2, 5))] == [
        *("samples", "trainings", "data sets", "data sets")
    ]


def covers(shape, scales, columns=1500, seed=0):
    """Return the coverage of 95 % intervals for scores whose levels have standard deviations ``scales``."""
    draw = rng(seed)
    d, t, s = shape
    sizes = ((d, 1, 1), (d, t, 1), (d, 1, s), shape)
    parts = [scale * draw.normal(size=(*size, columns)) for size, scale in zip(sizes, scales, strict=True)]
    low, high = nested_means(sum(parts).reshape(-1, columns), drawn(*shape)).intervals().T
    return ((low <= 0) & (high >= 0)).mean()


@pytest.mark.parametrize("shape", [(1, 1, 8), (1, 1, 30), (3, 2, 20), (6, 1, 20)])
def test_intervals_have_a_coverage_of_95_percent(shape):
    of_sets, of_trainings = 1.0 * (shape[0] > 1), 1.0 * (shape[1] > 1)
    assert 0.93 <= covers(shape, (of_sets, of_trainings, 1, 0.5)) <= 0.975


@pytest.mark.parametrize("shape", [(1, 2, 40), (1, 3, 40), (2, 1, 40), (3, 2, 20)])
def test_intervals_are_wide_if_few_data_sets_or_trainings_do_not_differ(shape):
    assert covers(shape, (0, 0.05, 1, 0.5)) >= 0.95


def test_a_method_that_varies_more_than_the_others_has_its_own_interval():
    values = rng().normal(size=(2, 1, 4000)) * np.where(np.arange(4000) % 16 < 2, 10, 1)
    low, high = nested_means(values.reshape(2, -1), drawn(2, 1, 1)).intervals().T
    covered = ((low <= 0) & (high >= 0)).reshape(-1, 16)
    assert 0.92 <= covered[:, :2].mean() <= 0.98
    assert 0.94 <= covered[:, 2:].mean() <= 0.96


def test_equal_means_of_two_data_sets_do_not_give_an_interval_of_width_zero():
    """Two methods have 21 and 20 hits out of 40 samples, in both of two data sets."""
    first, second = (np.tile(np.arange(40) < hits, 2).astype(float) for hits in (21, 20))
    found = nested_means(first - second, drawn(2, 1, 40))
    alone = nested_means(first - second, SamplingDesign.of(80))
    assert found.variance[0] == pytest.approx(alone.variance[0])
    assert found.df.tolist() == [1]
    assert found.p_values()[0] > 0.3
    low, high = found.intervals()[0]
    assert low < 0 < high


def test_near_ties_of_two_data_sets_are_not_significant():
    """Scores in eighths of which 3 % differ, without a true difference, in two data sets of 100 samples."""
    draw, first = rng(), np.triu_indices(16, 1)
    for _ in range(20):
        noise = (draw.random((200, 16)) < 0.03) * draw.choice([-0.125, 0.125], (200, 16))
        found = nested_means(noise[:, first[0]] - noise[:, first[1]], drawn(2, 1, 100))
        assert holm(found.p_values()).min() > 0.05


@pytest.mark.parametrize("level", [(1, 2, 10), (2, 1, 10)])
def test_scores_in_one_of_two_units_have_no_interval(level):
    values = rng().normal(size=20)
    values[:10] = np.nan
    found = nested_means(values, drawn(*level))
    assert np.isfinite(found.mean).all()
    assert np.isnan([found.variance, found.p_values()]).all()
    assert np.isnan(found.intervals()).all()


def test_ignoring_the_trainings_gives_too_narrow_intervals():
    """Intervals over samples that ignore the variance between trainings have a coverage far below 95 %."""
    draw = rng()
    values = 0.5 * draw.normal(size=(3, 1, 1000)) + draw.normal(size=(1, 40, 1000))
    low, high = nested_means(values.reshape(120, -1), SamplingDesign.of(120)).intervals().T
    assert ((low <= 0) & (high >= 0)).mean() < 0.7


def test_undefined_scores_are_left_out():
    values = np.array([[0.1, np.nan], [0.5, np.nan], [np.nan, np.nan], [0.3, 0.2]])
    found = nested_means(values, SamplingDesign.of(4))
    assert found.mean.tolist() == pytest.approx([0.3, 0.2])
    expected = nested_means([0.1, 0.5, 0.3], SamplingDesign.of(3)).intervals()[0]
    np.testing.assert_allclose(found.intervals()[0], expected)
    assert np.isnan(found.intervals()[1]).all()
    assert np.isnan(found.p_values()[1])
    assert np.isnan(nested_means(np.full((4, 1), np.nan), SamplingDesign.of(4)).mean[0])


def test_constant_scores_have_the_p_value_of_the_sign_test():
    found = nested_means(np.array([[0.0, 1.0]] * 5), SamplingDesign.of(5))
    assert found.p_values().tolist() == [1, stats.binomtest(5, 5).pvalue]
    assert found.intervals().tolist() == [[0, 0], [1, 1]]


def test_trainings_without_scores_do_not_count():
    values = rng().normal(size=(3, 10))
    missing = np.where([[True], [False], [True]], values, np.nan).reshape(30)
    found = nested_means(missing, drawn(1, 3, 10))
    np.testing.assert_allclose(found.intervals(), nested_means(values[[0, 2]].ravel(), drawn(1, 2, 10)).intervals())


def test_the_influences_of_a_mean_sum_to_zero():
    values = np.where(rng(1).random((24, 3)) < 0.2, np.nan, rng().normal(size=(24, 3)))
    mean, parts, counts = compute_influences(values, drawn(2, 3, 4))
    np.testing.assert_allclose(mean, np.nanmean(values, axis=0))
    np.testing.assert_allclose(parts.sum(axis=(0, 1, 2)), 0, atol=1e-14)
    assert counts.sum(axis=(0, 1, 2)).tolist() == (~np.isnan(values)).sum(axis=0).tolist()


def test_without_pairs_it_is_welchs_statistic_with_the_smaller_degrees_of_freedom():
    one, other = rng().normal(size=6), rng(1).normal(0.4, 2, 15)
    one, other = (np.concatenate([values, 1 - values]) for values in (one, other))  # not skewed
    found = unpaired_difference(nested_means(one, SamplingDesign.of(12)), nested_means(other, SamplingDesign.of(30)))
    theirs = stats.ttest_ind(other, one, equal_var=False)
    assert found.df.tolist() == [11]
    assert found.p_values()[0] == pytest.approx(2 * stats.t.sf(abs(theirs.statistic), 11))


@pytest.mark.parametrize(("sets", "deviation"), [((6, 2), 5), ((2, 6), 5), ((6, 6), 1)])
def test_two_experiments_of_few_data_sets_rarely_differ_by_chance(sets, deviation):
    draws = rng().normal(size=(sets[0], 4000)), deviation * rng(1).normal(size=(sets[1], 4000))
    means = (nested_means(draw, drawn(len(draw), 1, 1)) for draw in draws)
    assert (unpaired_difference(*means).p_values() < 0.05).mean() <= 0.06


def test_names_of_unlike_number_are_refused():
    refused(ValueError, "groups [3], one for each row; got [2]", lambda: SamplingDesign.of(3, groups=[1, 2]))
    refused(ValueError, "with 4 rows", nested_means, np.zeros(4), SamplingDesign.of(3))


def experiment(shape, scales, columns=400, seed=0):
    """Return scores of ``columns`` methods whose levels have standard deviations ``scales``, and their design."""
    draw = np.random.default_rng(seed)
    d, t, s = shape
    sizes = ((d, 1, 1), (d, t, 1), (d, 1, s), shape)
    parts = [scale * draw.normal(size=(*size, columns)) for size, scale in zip(sizes, scales, strict=True)]
    names = dict(zip(("data_sets", "trainings", "groups"), map(np.ravel, np.indices(shape)), strict=True))
    return sum(parts).reshape(-1, columns), SamplingDesign.of(d * t * s, **names)


def test_each_variance_is_found():
    found = variance_components(*experiment((4, 3, 40), (0.5, 0.4, 1.0, 0.3)))
    means = [part.mean() for part in (found.data_sets, found.trainings, found.samples, found.rest)]
    assert means == pytest.approx([0.25, 0.16, 1.0, 0.09], rel=0.12)
    np.testing.assert_allclose(found.shares().sum(axis=0), 1)


def test_what_does_not_vary_has_no_share():
    found = variance_components(*experiment((3, 3, 50), (0, 0, 1.0, 0.5)))
    assert np.median(found.shares()[:2], axis=1).max() < 0.01


def test_what_was_drawn_once_is_not_known():
    found = variance_components(*experiment((1, 1, 60), (0, 0, 1.0, 0.5), columns=200))
    assert np.isnan([found.data_sets, found.trainings, found.rest]).all()
    assert found.samples.mean() == pytest.approx(1.25, rel=0.1)
    assert found.shares()[2].min() == 1


def test_groups_that_some_training_lacks_are_left_out():
    scores, drawn = experiment((2, 2, 30), (0.1, 0.2, 1.0, 0.3), columns=3)
    holes = scores.copy()
    holes[(drawn.groups < 10) & (drawn.trainings == 1)] = np.nan
    kept = drawn.groups >= 10
    rest = SamplingDesign.of(
        int(kept.sum()), data_sets=drawn.data_sets[kept], trainings=drawn.trainings[kept], groups=drawn.groups[kept]
    )
    expected = variance_components(scores[kept], rest)
    np.testing.assert_allclose(variance_components(holes, drawn).samples, expected.samples)


def test_equal_and_undefined_scores():
    drawn = SamplingDesign.of(6)
    found = variance_components(np.array([[1.0, np.nan]] * 6), drawn)
    assert np.isnan(found.shares()).all()
    assert found.samples[0] == 0
    assert np.isnan(found.samples[1])


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
    assert ((low <= mean) & (high >= mean)).mean() < 0.94


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
    assert 0.935 <= holds(count, slices, 150, within=(0, 1)) <= 0.99


@pytest.mark.parametrize("shape", [(2, 1, 20), (3, 1, 20), (6, 1, 100), (1, 3, 20), (2, 2, 30)])
def test_perfect_scores_count_data_sets_and_trainings(shape):
    """2 data sets with 20 hits each had [0.91, 1], and with one miss in 40 [0.63, 1]."""
    units, n = max(shape[:2]), int(np.prod(shape))
    scores = np.ones((n, 6))
    scores[:, 1] = 0
    for column, misses in ((2, 1), (3, 2), (4, n // 20)):
        scores[np.linspace(0, n - 1, misses).astype(int), column] = 0
    scores[n // 2, 5] = 0.9999
    low, high = nested_means(scores, drawn(*shape)).intervals(within=(0, 1)).T
    wilson = binomtest(units, units).proportion_ci(method="wilson")
    assert (low[0], high[0]) == pytest.approx((wilson.low, 1))
    assert (low[1], high[1]) == pytest.approx((0, 1 - wilson.low))
    assert (np.diff(low[[0, 2, 3, 4]]) <= 1e-12).all()
    assert (low[5], high[5]) == pytest.approx((low[0], 1), abs=1e-3)


@pytest.mark.parametrize("shape", [(2, 1, 20), (3, 1, 20), (6, 1, 100), (1, 3, 20)])
@pytest.mark.parametrize("learned", [0.7, 0.9, 0.95])
def test_data_sets_that_fail_rarely_are_covered(shape, learned):
    """A data set or training has a rate of 1, or rarely of 0.5; before, the coverage was 0.18 to 0.87."""
    draw, columns = rng(), 1000
    rates = np.where(draw.random((*shape[:2], 1, columns)) < learned, 1, 0.5)
    scores = (draw.random((*shape, columns)) < rates).reshape(-1, columns)
    low, high = nested_means(scores, drawn(*shape)).intervals(within=(0, 1)).T
    mean = learned + (1 - learned) / 2
    assert ((low <= mean) & (high >= mean)).mean() >= 0.95


def test_graded_scores_of_several_data_sets_keep_students_t():
    scores = 0.9 + 0.02 * rng().uniform(-1, 1, 600)
    found = nested_means(scores, drawn(6, 1, 100))
    np.testing.assert_allclose(found.intervals(within=(0, 1)), found.intervals(), atol=0.01)


@pytest.mark.parametrize(
    ("within", "value", "other", "end"),
    [((0, np.inf), 0, 0, 1), ((0, np.inf), 0, 4 / 3, 4 / 3), ((-np.inf, 1), 1, -3, 0)],
)
def test_equal_scores_at_the_only_end_of_a_range_have_an_interval(within, value, other, end):
    """Maps without mass outside had 0.000 [0.000, 0.000] next to a share inside of 1.000 [0.796, 1.000]."""
    inside = nested_means(np.ones(15), SamplingDesign.of(15)).intervals(within=(0, 1))[0, 0]
    scores = np.tile([float(value), other], (15, 1))
    interval = nested_means(scores, SamplingDesign.of(15)).intervals(within=within)[0]
    assert sorted(interval) == pytest.approx(sorted([value, value + (1 - inside) * (end - value)]))


def log_normal(n, columns, seed=0):
    return rng(seed).lognormal(size=(n, columns)) - np.exp(0.5)


@pytest.mark.parametrize(("n", "before"), [(20, 0.87), (50, 0.9)])
def test_skewed_scores_of_one_training_are_covered(n, before):
    scores = log_normal(n, 4000)
    for sign in (1, -1):
        found = nested_means(sign * scores, SamplingDesign.of(n))
        low, high = found.intervals().T
        assert ((low <= 0) & (high >= 0)).mean() >= 0.92
        half = stats.t.ppf(0.975, n - 1) * np.sqrt(found.variance)
        assert (np.abs(found.mean) <= half).mean() == pytest.approx(before, abs=0.02)
        np.testing.assert_allclose(np.minimum(found.mean - low, high - found.mean), half)


@pytest.mark.parametrize("n", [20, 50])
def test_methods_with_skewed_scores_rarely_differ_by_chance(n):
    """Methods of different scale; before, 28 and 20 % of the runs had a significant pair."""
    first, second = np.triu_indices(16, 1)
    runs = []
    for seed in range(150):
        scores = log_normal(n, 16, seed) * np.exp(rng(seed).normal(size=16))
        runs.append(holm(nested_means(scores[:, first] - scores[:, second], SamplingDesign.of(n)).p_values()).min())
    assert (np.array(runs) < 0.05).mean() <= 0.05


def test_a_true_difference_stays_significant_if_scores_are_not_skewed():
    scores = rng().normal(size=(50, 16))
    scores[:, 0] += 1.5
    first, second = np.triu_indices(16, 1)
    p = holm(nested_means(scores[:, first] - scores[:, second], SamplingDesign.of(50)).p_values())
    assert (p[first == 0] < 0.05).all()


def test_the_p_value_of_one_column_agrees_with_its_interval():
    for seed in range(40):
        scores = log_normal(30, 1, seed) + 0.5 * seed / 40
        found = nested_means(scores, SamplingDesign.of(30))
        low, high = found.intervals()[0]
        assert found.p_values()[0] >= 0.05 or not low <= 0 <= high


@pytest.mark.parametrize("small", [5, 10, 30])
@pytest.mark.parametrize("own", [0.0, 1.0])
def test_one_large_group_is_covered(small, own):
    """One group of 200 samples next to groups of 3; before, 0.86 to 0.9."""
    groups = np.repeat(np.arange(small), [200] + [3] * (small - 1))
    scores = own * rng().normal(size=(small, 2000))[groups] + rng(1).normal(size=(len(groups), 2000))
    found = nested_means(scores, SamplingDesign.of(len(groups), groups=groups))
    low, high = found.intervals().T
    assert ((low <= 0) & (high >= 0)).mean() >= 0.92
    assert found.df[0] < 2.1


def test_skewed_scores_follow_halls_transform():
    """Hall (1992), with Student's quantile and the less biased skewness, only where it widens the interval."""
    n = 40
    scores = log_normal(n, 1)[:, 0]
    found, error = nested_means(scores, SamplingDesign.of(n)), scores.std(ddof=1) / np.sqrt(n)
    slope = stats.skew(scores, bias=False) / np.sqrt(n) / 3

    def excess(statistic):
        transformed = -statistic + slope * statistic**2 - slope**2 * statistic**3 / 3 + slope / 2
        return -transformed - t.ppf(0.975, n - 1)

    low, high = found.intervals()[0]
    assert slope > 0.05
    assert low == pytest.approx(scores.mean() - t.ppf(0.975, n - 1) * error)
    assert high == pytest.approx(scores.mean() + brentq(excess, 0, 100) * error)
    assert nested_means(scores - high, SamplingDesign.of(n)).p_values() == pytest.approx([0.05], abs=0.005)
