"""The functions against their definitions in words, and their Shapley values against all orders of the players."""

import itertools
import math

import numpy as np
import pytest

from xaibench.benchmarks.certified.functions import FUNCTIONS, OFFSET, evidence, shapley_values, used_pixels

every_function = pytest.mark.parametrize("name", FUNCTIONS)
SIGNS = np.array(list(itertools.product([-1.0, 0.0, 1.0], repeat=4)))

#: What each cell makes of pixels of -1 and 1, in plain words.
PLAIN = {
    "additive": lambda a, b, c, d: a - b / 2,
    "and": lambda a, b, c, d: float(a == b == 1),
    "xor": lambda a, b, c, d: float(a != b),
    "or": lambda a, b, c, d: float(a == 1 or b == 1),
    "saturation": lambda a, b, c, d: min(1.0, max(0.0, a + b + c)),
    "cancellation": lambda a, b, c, d: a + c - d,
    "absence": lambda a, b, c, d: float(a == b == -1),
    "shattered": lambda a, b, c, d: a + d,
}


def by_orders(function, pixels):
    """Shapley's definition: what each pixel adds as it joins, averaged over all orders of joining."""
    values = np.zeros(4)
    for order in itertools.permutations(range(4)):
        there = np.zeros(4)
        for player in order:
            before = function(there)
            there[player] = pixels[player]
            values[player] += function(there) - before
    return values / math.factorial(4)


@every_function
def test_it_is_what_is_said_in_words(name):
    function = FUNCTIONS[name]
    assert function(np.zeros(4)) == 0
    for pixels in itertools.product([-1.0, 1.0], repeat=4):
        assert function(np.array(pixels)) == PLAIN[name](*pixels)


@every_function
def test_shapley_values_are_those_of_all_orders(name):
    function = FUNCTIONS[name]
    drawn = np.random.default_rng(0).uniform(-1, 1, (5, 4))
    pixels = np.concatenate([SIGNS[::7], drawn])
    expected = [by_orders(function, one) for one in pixels]
    np.testing.assert_allclose(function.shapley(pixels), expected, atol=1e-14)
    np.testing.assert_allclose(function.shapley(pixels).sum(1), function(pixels), atol=1e-14)


@every_function
def test_used_are_those_that_ever_make_a_difference(name):
    function = FUNCTIONS[name]
    values = function(SIGNS)
    changes = [
        any((function(np.where(np.arange(4) == pixel, other, SIGNS)) != values).any() for other in (-1, 0, 1))
        for pixel in range(4)
    ]
    assert tuple(changes) == function.used
    # And what is not used has exactly nothing.
    assert (function.shapley(SIGNS)[:, ~np.array(function.used)] == 0).all()


@every_function
def test_an_image_is_the_sum_of_its_cells(name):
    function = FUNCTIONS[name]
    images = np.random.default_rng(0).choice([-1.0, 1.0], (20, 6, 8))
    expected = np.full(20, OFFSET)
    for row, column in itertools.product(range(3), range(4)):
        if (row + column) % 2 == 0:
            cell = images[:, 2 * row : 2 * row + 2, 2 * column : 2 * column + 2].reshape(20, 4)
            expected += (-0.5) ** (row % 2) * function(cell)
    np.testing.assert_array_equal(evidence(function, images), expected)
    assert (expected != 0).all()
    values = shapley_values(function, images)
    np.testing.assert_allclose(values.sum((1, 2)), expected - OFFSET, atol=1e-12)
    used = used_pixels(function, 6, 8)
    assert (values[:, ~used] == 0).all()
    assert (values[:, used] != 0).any(0).all()


def test_where_the_gradient_is_shattered_it_points_the_wrong_way():
    function, step = FUNCTIONS["shattered"], np.array([1e-3, 0, 0, 0])
    for start in (-1.0, 1.0):
        here = np.array([start, 0, 0, 0])
        assert (function(here + step) - function(here - step)) / 2e-3 == pytest.approx(-3)
    assert function(np.array([1.0, 0, 0, 0])) - function(np.array([-1.0, 0, 0, 0])) == 2
