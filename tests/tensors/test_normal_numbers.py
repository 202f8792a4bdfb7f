"""Normal numbers from random bits: the quantiles, and that nothing but the seed decides them."""

import math

import mpmath
import numpy as np
import pytest
from scipy import stats

from xaibench.tensors import normal_numbers as module
from xaibench.tensors.normal_numbers import normal_numbers


def draw(count, seed=0):
    out = np.empty(count)
    normal_numbers(np.random.SeedSequence(seed), out)
    return out


def test_quantiles_agree_with_arithmetic_of_40_digits():
    # Where the series for the logarithm is longest.
    tails = np.outer([0.71, 1.0, 1.41], 2.0 ** -np.arange(4, 52)).ravel()
    centered = np.concatenate([np.linspace(-0.4999, 0.4999, 101), tails - 0.5])
    found = centered.copy()
    module._to_normal(found)
    with mpmath.workdps(40):
        exact = [mpmath.sqrt(2) * mpmath.erfinv(2 * mpmath.mpf(each)) for each in centered.tolist()]
        errors = [abs(mpmath.mpf(a) / b - 1) if b else abs(a) for a, b in zip(found.tolist(), exact, strict=True)]
    assert max(errors) < 1e-15


def test_a_number_is_the_quantile_of_its_random_bits():
    bits = np.random.Philox(np.random.SeedSequence(3)).random_raw(40_000)
    expected = stats.norm.ppf([(int(each) >> 11) / 2**53 + 2.0**-54 for each in bits[:1000]])
    assert draw(1000, seed=3) == pytest.approx(expected, rel=1e-8, abs=1e-12)


def test_a_shorter_array_has_the_first_numbers_of_a_longer_one():
    long = draw(40_000)
    for count in (1, 100, module._CHUNK, module._CHUNK + 1):
        assert np.array_equal(draw(count), long[:count])
    square = np.empty((100, 400))
    normal_numbers(np.random.SeedSequence(0), square)
    assert np.array_equal(square.ravel(), long)


def test_the_numbers_are_standard_normal():
    numbers = draw(400_000, seed=1)
    assert stats.kstest(numbers, "norm").pvalue > 0.001
    moments = [np.mean(numbers**power) for power in (1, 2, 3, 4)]
    errors = [math.sqrt(variance / len(numbers)) for variance in (1, 2, 15, 96)]
    assert np.all(np.abs(np.array(moments) - [0, 1, 0, 3]) < 4 * np.array(errors))
