import itertools

import numpy as np
import pytest
from scipy import stats

from xaibench.statistics import against_controls, holm, paired_test


def rng(seed=0):
    return np.random.default_rng(seed)


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
    found = against_controls(PAIRS, {"noise", "edges"}, higher_is_better=True)
    assert found == {"a": (0.04, True), "b": (0.06, False), "c": (1.0, False)}
    turned = [(first, second, -difference, p) for first, second, difference, p in PAIRS]
    assert against_controls(turned, {"noise", "edges"}, higher_is_better=False) == found
    assert against_controls(turned, {"noise", "edges"}, higher_is_better=True) == dict.fromkeys("abc", (1.0, False))


def test_a_control_without_a_common_sample_is_no_bar():
    pairs = [("a", "noise", 0.2, 0.01), ("a", "edges", np.nan, np.nan), ("b", "edges", np.nan, np.nan)]
    assert against_controls(pairs, {"noise", "edges"}, higher_is_better=True) == {"a": (0.01, True)}
    assert against_controls(pairs, set(), higher_is_better=True) == {}
