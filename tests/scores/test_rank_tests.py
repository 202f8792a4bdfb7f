"""Effect sizes, against scipy and by hand."""

import math

import numpy as np
import pytest
from scipy.stats import f_oneway, kendalltau, wilcoxon

from xaibench.scores import (
    SamplingDesign,
    average_ranks,
    compare_with_controls,
    critical_difference,
    explained_variance,
    holm,
    mean_ranks,
    rank_share,
)
from xaibench.scores.rank_tests import kendall_tau


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


def test_for_independent_rankings_the_critical_difference_is_nemenyis():
    scores = np.random.default_rng(0).random((30, 5)) + np.array([0.3, 0, 0, 0, 0])
    found = mean_ranks(scores, SamplingDesign.of(30))
    assert (found.n, found.n_effective) == (30, 30)
    assert found.critical_difference == critical_difference(5, 30)


def test_equal_samples_of_a_patient_count_as_one():
    scores = np.random.default_rng(0).random((20, 5))
    groups = np.repeat(np.arange(20), 4)
    found = mean_ranks(scores[groups], SamplingDesign.of(80, groups=groups))
    assert (found.n, found.ranks.tolist()) == (
        80,
        pytest.approx(mean_ranks(scores, SamplingDesign.of(20)).ranks.tolist()),
    )
    assert found.n_effective == pytest.approx(20, rel=0.06)
    assert found.critical_difference > critical_difference(5, 20)  # because the effective number is estimated


def test_too_few_or_equal_rankings_are_undefined():
    assert np.isnan(mean_ranks(np.full((3, 3), np.nan), SamplingDesign.of(3)).critical_difference)
    assert np.isnan(mean_ranks(np.ones((5, 1)), SamplingDesign.of(5)).critical_difference)
    one = mean_ranks(np.random.default_rng(0).random((5, 3)), SamplingDesign.of(5, groups=[1] * 5))  # one patient
    assert np.isnan(one.critical_difference)
    always = mean_ranks([[1, 2, 3]] * 6, SamplingDesign.of(6, data_sets=[0, 0, 1, 1, 2, 2]))
    assert always.n_effective == 3


def false_alarms(shape, spread, methods=10, *, runs, **levels):
    """Return the share of runs in which equally good methods differ significantly; trainings favor some by chance."""
    rng, names = np.random.default_rng(0), [part.ravel() for part in np.indices(shape)]
    of = SamplingDesign.of(np.prod(shape), **{name: names[level] for name, level in levels.items()})
    alarms = []
    for _ in range(runs):
        favor = spread * rng.normal(size=(*shape[:2], 1, methods))
        scores = (favor + rng.normal(size=(*shape, methods))).reshape(-1, methods)
        found = mean_ranks(scores, of)
        # With infinite degrees of freedom the difference is smaller, and it is computed only once.
        may_differ = np.ptp(found.ranks) > critical_difference(methods, found.n_effective)
        alarms.append(may_differ and np.ptp(found.ranks) > found.critical_difference)
    return np.mean(alarms)


NESTED = {"data_sets": 0, "trainings": 1, "groups": 2}


@pytest.mark.parametrize("runs", [25, pytest.param(200, marks=pytest.mark.slow)])
@pytest.mark.parametrize("shape", [(3, 2, 20), (1, 3, 20), (1, 1, 30)])
@pytest.mark.parametrize("spread", [0.1, 0.5])
def test_methods_that_some_trainings_favor_do_not_differ_significantly(shape, spread, runs):
    assert false_alarms(shape, spread * (shape[0] * shape[1] > 1), runs=runs, **NESTED) <= 0.1


def test_that_test_can_fail():
    assert false_alarms((3, 2, 20), 0.5, runs=25, groups=2) > 0.3  # ignoring that samples are clustered


def rng(seed=0):
    return np.random.default_rng(seed)


@pytest.mark.parametrize("seed", range(5))
def test_holm_step_by_step(seed):
    p = rng(seed).random(8) ** 3
    ranked = sorted(p)
    expected = [max(min(1, (8 - j) * ranked[j]) for j in range(ranked.index(value) + 1)) for value in p]
    np.testing.assert_allclose(holm(p), expected)


def test_holm_leaves_the_undefined_out():
    np.testing.assert_allclose(holm([0.01, np.nan, 0.04]), [0.02, np.nan, 0.04])


PAIRS = [
    ("a", "noise", 0.2, 0.01),
    ("edges", "a", -0.1, 0.04),
    ("b", "noise", 0.2, 0.06),
    ("b", "edges", 0.3, 0.01),
    ("c", "noise", -0.2, 0.01),
    ("c", "edges", 0.0, 1.0),
    ("edges", "noise", 0.5, 0.01),
    ("a", "b", 0.5, 0.01),
]


def test_a_method_beats_the_controls_where_it_is_better_than_each_by_more_than_chance():
    found = compare_with_controls(PAIRS, {"noise", "edges"}, higher_is_better=True)
    assert found == {"a": (0.04, True), "b": (0.06, False), "c": (1.0, False)}
    turned = [(first, second, -difference, p) for first, second, difference, p in PAIRS]
    assert compare_with_controls(turned, {"noise", "edges"}, higher_is_better=False) == found
    assert compare_with_controls(turned, {"noise", "edges"}, higher_is_better=True) == dict.fromkeys(
        "abc", (1.0, False)
    )


def test_a_control_without_a_common_sample_is_no_bar():
    pairs = [("a", "noise", 0.2, 0.01), ("a", "edges", np.nan, np.nan), ("b", "edges", np.nan, np.nan)]
    assert compare_with_controls(pairs, {"noise", "edges"}, higher_is_better=True) == {"a": (0.01, True)}
    assert compare_with_controls(pairs, set(), higher_is_better=True) == {}


def test_rank_share_is_the_statistic_of_the_signed_rank_test():
    rng = np.random.default_rng(0)
    first, second = rng.integers(0, 9, 40), rng.integers(0, 8, 40)
    untied = int((first != second).sum())
    statistic = wilcoxon(first, second, alternative="greater", zero_method="wilcox").statistic
    assert rank_share(first, second) == pytest.approx(statistic / (untied * (untied + 1) / 2))
    assert rank_share(second, first) == pytest.approx(1 - rank_share(first, second))


def test_rank_share_leaves_out_pairs_that_do_not_differ_or_have_no_score():
    assert rank_share([1.0, 2.0, np.nan, 5.0], [1.0, 1.0, 0.0, np.nan]) == 1
    assert math.isnan(rank_share([1.0, np.nan], [1.0, 2.0]))


def test_explained_variance_belongs_to_the_f_statistic():
    rng = np.random.default_rng(1)
    groups = [rng.standard_normal(20) + shift for shift in (0.0, 0.5, 2.0)]
    statistic = f_oneway(*groups).statistic
    between, within = 2, 57
    assert explained_variance(groups) == pytest.approx(statistic * between / (statistic * between + within))


def test_explained_variance_at_its_ends():
    assert explained_variance([[1.0, 1.0], [2.0, np.nan]]) == 1
    assert explained_variance([[1.0, 2.0], [2.0, 1.0]]) == 0
    assert math.isnan(explained_variance([[1.0], [1.0]]))
    assert math.isnan(explained_variance([]))


@pytest.mark.parametrize("ties", [False, True])
def test_it_is_scipys_tau_b_of_every_two_rows(ties):
    rows = np.random.default_rng(0).normal(size=(3, 4, 9))
    rows = rows.round(0) if ties else rows
    found = kendall_tau(rows)
    for some, taus in zip(rows, found, strict=True):
        expected = [[kendalltau(one, other).statistic for other in some] for one in some]
        np.testing.assert_allclose(taus, expected, atol=1e-12)


def test_a_row_that_ties_all_agrees_with_none():
    found = kendall_tau([[1, 1, 1], [1, 2, 3]])
    assert np.isnan(found[0]).all()
    assert found[1, 1] == 1
