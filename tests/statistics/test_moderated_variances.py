import numpy as np
import pytest
from scipy.special import polygamma

from xaibench.statistics.moderated_variances import MIN_VARIANCES, inverse_trigamma, moderate_variances


def drawn(prior, freedom, columns=20_000, seed=0):
    """Draw variances from Smyth's prior, a scaled inverse chi-square with ``prior`` degrees of freedom."""
    draw = np.random.default_rng(seed)
    truth = prior / draw.chisquare(prior, columns)
    return truth, truth * draw.chisquare(freedom, columns) / freedom


@pytest.mark.parametrize("prior", [2.0, 6.0])
@pytest.mark.parametrize("freedom", [1.0, 2.0, 5.0])
def test_the_prior_is_estimated(prior, freedom):
    _, variance = drawn(prior, freedom)
    found, sure = moderate_variances(variance, np.full(len(variance), freedom))
    assert sure[0] - freedom == pytest.approx(prior, rel=0.5)
    middle = (found * sure - freedom * variance) / (sure - freedom)
    np.testing.assert_allclose(middle, middle[0])
    assert middle[0] == pytest.approx(1, rel=0.1)


def test_moderated_variances_have_a_smaller_error():
    truth, variance = drawn(6.0, 2.0)
    found, _ = moderate_variances(variance, np.full(len(variance), 2.0))
    error = [np.square(np.log(each) - np.log(truth)).mean() for each in (variance, found)]
    assert error[1] < 0.4 * error[0]


def test_the_moderated_t_test_keeps_its_level():
    """Under the null hypothesis, the moderated test with few degrees of freedom rejects 5 %."""
    from scipy.stats import t

    truth, variance = drawn(4.0, 2.0, seed=1)
    mean = np.random.default_rng(2).normal(size=len(truth)) * np.sqrt(truth)
    found, sure = moderate_variances(variance, np.full(len(truth), 2.0))
    assert (2 * t.sf(np.abs(mean) / np.sqrt(found), sure) < 0.05).mean() == pytest.approx(0.05, abs=0.006)


def test_few_or_undefined_variances_are_not_changed():
    few = np.linspace(1, 2, MIN_VARIANCES - 1)
    assert np.array_equal(moderate_variances(few, np.full(len(few), 2.0))[0], few)
    variance = np.concatenate([np.linspace(1, 5, 20), [0.0, np.nan]])
    found, sure = moderate_variances(variance, np.concatenate([np.full(21, 2.0), [np.nan]]))
    assert found[20] == 0
    assert sure[20] == 2
    assert np.isnan(found[21])
    assert (np.diff(found[:20]) > 0).all() or np.ptp(found[:20]) == 0


@pytest.mark.parametrize("value", [1e-6, 0.01, 1.0, 30.0, 1e4])
def test_the_trigamma_function_is_inverted(value):
    assert polygamma(1, inverse_trigamma(value)) == pytest.approx(value, rel=1e-8)


def test_dissimilar_variances_are_hardly_shrunk():
    variance = np.exp(np.random.default_rng(0).normal(0, 4, 500))
    found, sure = moderate_variances(variance, np.full(500, 10.0))
    assert np.corrcoef(np.log(found), np.log(variance))[0, 1] > 0.95
    assert sure[0] < 11
