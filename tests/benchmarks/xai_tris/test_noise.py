"""Smoothed noise is exact: its bits follow from arithmetic with whole numbers."""

import math
from fractions import Fraction

import numpy as np
import pytest

from xaibench.benchmarks.xai_tris import noise
from xaibench.benchmarks.xai_tris.noise import CORR_SIGMA, WHITE_STEP, fill_noise
from xaibench.benchmarks.xai_tris.patterns import WEIGHT_STEP, gaussian_weights, smoothing_matrix


def filled(background, count, size, seed=0):
    out = np.empty((count, size, size), np.float32)
    fill_noise(background, seed, 0, out)
    return out


@pytest.mark.parametrize("size", [8, 64])
def test_smoothing_is_that_of_whole_numbers(size):
    white = filled("white", 3, size).astype(np.float64)
    assert np.array_equal(white / WHITE_STEP, np.rint(white / WHITE_STEP))
    weights = smoothing_matrix(size, CORR_SIGMA[size]) / WEIGHT_STEP
    assert np.array_equal(weights, np.rint(weights))
    whole = [np.vectorize(int, otypes=[object])(each) for each in (weights, white / WHITE_STEP)]
    rows = np.einsum("ij,njk->nik", *whole)  # in units of 2^-42; Python's whole numbers are exact
    unit = round(noise._SUM_STEP / (WHITE_STEP * WEIGHT_STEP))
    rounded = np.vectorize(lambda value: round(Fraction(value, unit)), otypes=[object])(rows)
    sums = np.einsum("njk,lk->njl", rounded, whole[0])
    expected = (sums.astype(np.float64) * (noise._SUM_STEP * WEIGHT_STEP)).astype(np.float32)
    assert max(map(abs, sums.ravel())) < 2**53
    assert np.array_equal(filled("corr", 3, size), expected)


def test_no_partial_sum_needs_more_than_53_bits():
    largest = (8 - WHITE_STEP) / WHITE_STEP
    assert largest / WEIGHT_STEP < 2**53
    assert (8 - noise._SUM_STEP) / noise._SUM_STEP / WEIGHT_STEP < 2**53
    for size, sigma in CORR_SIGMA.items():
        assert (smoothing_matrix(size, sigma).sum(axis=1) == 1).all()


@pytest.mark.parametrize("sigma", [1.5, *CORR_SIGMA.values()])
def test_the_last_bits_of_exp_cannot_change_a_weight(sigma):
    radius = len(gaussian_weights(sigma)) // 2
    exact = [math.exp(-0.5 * (offset / sigma) ** 2) for offset in range(-radius, radius + 1)]
    units = np.array(exact) / math.fsum(exact) / WEIGHT_STEP
    margin = np.abs(np.abs(units % 1) - 0.5) / units
    # exp is wrong by one unit in the last place, 2^-52; an error would have to be 2^20 times larger.
    assert margin.min() > 2.0**-52 * 2**20


def test_numbers_that_are_too_large_are_clipped():
    values = np.array([9.0, -9.0, 8.0, 1.5 * 2.0**-20])
    noise._round_to(values, 2.0**-20)
    assert values.tolist() == [8 - 2.0**-20, 2.0**-20 - 8, 8 - 2.0**-20, 2 * 2.0**-20]
