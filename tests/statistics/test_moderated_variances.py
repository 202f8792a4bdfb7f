import numpy as np
import pytest
from scipy.special import polygamma

from xaibench.statistics.moderated_variances import FEWEST, inverse_trigamma, moderated


def drawn(prior, freedom, columns=20_000, seed=0):
    """Variances that are alike as Smyth has it: a scaled inverse chi-square with ``prior`` degrees of freedom."""
    draw = np.random.default_rng(seed)
    truth = prior / draw.chisquare(prior, columns)
    return truth, truth * draw.chisquare(freedom, columns) / freedom


@pytest.mark.parametrize("prior", [2.0, 6.0])
@pytest.mark.parametrize("freedom", [1.0, 2.0, 5.0])
def test_how_alike_they_are_is_found(prior, freedom):
    _, variance = drawn(prior, freedom)
    found, sure = moderated(variance, np.full(len(variance), freedom))
    assert sure[0] - freedom == pytest.approx(prior, rel=0.5)
    middle = (found * sure - freedom * variance) / (sure - freedom)
    np.testing.assert_allclose(middle, middle[0])
    assert middle[0] == pytest.approx(1, rel=0.1)


def test_they_come_nearer_to_the_truth():
    truth, variance = drawn(6.0, 2.0)
    found, _ = moderated(variance, np.full(len(variance), 2.0))
    error = [np.square(np.log(each) - np.log(truth)).mean() for each in (variance, found)]
    assert error[1] < 0.4 * error[0]


def test_a_test_by_them_rejects_what_it_says():
    """Where nothing differs: one in twenty, at degrees of freedom with which a test alone rejects hardly anything."""
    from scipy.stats import t

    truth, variance = drawn(4.0, 2.0, seed=1)
    mean = np.random.default_rng(2).normal(size=len(truth)) * np.sqrt(truth)
    found, sure = moderated(variance, np.full(len(truth), 2.0))
    assert (2 * t.sf(np.abs(mean) / np.sqrt(found), sure) < 0.05).mean() == pytest.approx(0.05, abs=0.006)


def test_few_and_undefined_ones_stay_as_they_are():
    few = np.linspace(1, 2, FEWEST - 1)
    assert np.array_equal(moderated(few, np.full(len(few), 2.0))[0], few)
    variance = np.concatenate([np.linspace(1, 5, 20), [0.0, np.nan]])
    found, sure = moderated(variance, np.concatenate([np.full(21, 2.0), [np.nan]]))
    assert found[20] == 0
    assert sure[20] == 2
    assert np.isnan(found[21])
    assert (np.diff(found[:20]) > 0).all() or np.ptp(found[:20]) == 0


@pytest.mark.parametrize("value", [1e-6, 0.01, 1.0, 30.0, 1e4])
def test_the_trigamma_function_is_turned_round(value):
    assert polygamma(1, inverse_trigamma(value)) == pytest.approx(value, rel=1e-8)


def test_unlike_ones_are_left_nearly_alone():
    variance = np.exp(np.random.default_rng(0).normal(0, 4, 500))
    found, sure = moderated(variance, np.full(500, 10.0))
    assert np.corrcoef(np.log(found), np.log(variance))[0, 1] > 0.95
    assert sure[0] < 11
