"""The statements about watermarks, on scores whose numbers are known by hand."""

import math

import numpy as np
import pytest

from xaibench.benchmarks.watermarks.claims import CLAIMS, METHODS, NETWORK, STATEMENTS

REGIMES = ("confounder", "suppressor", "none")


def number(words, scores):
    (stated,) = (each for each in STATEMENTS if words in each.statement)
    return stated.compute(scores)


def scores(with_watermark, without, names=METHODS, variant="bright"):
    """The same pairs for every method: ``[3 regimes][pairs]``."""
    return {
        (regime, variant, NETWORK): {name: np.stack([shown, plain], -1)[None] for name in names}
        for regime, shown, plain in zip(REGIMES, np.array(with_watermark), np.array(without), strict=True)
    }


def test_presence_is_the_smallest_over_regimes():
    found = scores([[2.0, 4.0], [2.0, 4.0], [3.0, 3.0]], [[1.0, 1.0], [1.0, 5.0], [1.0, 1.0]])
    assert number("in every training setting", found) == pytest.approx(0.5)  # suppressor: +1 and -1, tied ranks
    assert number("substantially elevated", found) == pytest.approx(0.0)  # both means are 3
    assert number("substantially elevated", {k: v for k, v in found.items() if k[0] == "none"}) == 1


def test_the_class_is_compared_over_images_with_the_watermark():
    found = scores([[1.0, 2.0], [3.0, 4.0], [9.0, 9.0]], [[0.0, 0.0]] * 3)
    assert number("class-dependent", found) == pytest.approx(0.8)
    del found["suppressor", "bright", NETWORK]
    assert math.isnan(number("class-dependent", found))


def test_filters_and_inverted_intensities():
    bright = scores([[2.0, 4.0]] * 3, [[1.0, 1.0]] * 3, names=(*METHODS, "sobel", "laplace"))
    assert number("Edge detection", bright) == 1
    assert math.isnan(number("bright intensities", bright))
    dark = scores([[1.0, 2.0]] * 3, [[1.0, 1.0]] * 3, variant="inverted")
    assert number("bright intensities", bright | dark) == pytest.approx(0.5)


def test_they_are_about_the_network_of_the_suite():
    assert CLAIMS.applies(("none", "bright", NETWORK))
    assert not CLAIMS.applies(("none", "bright", f"blind:{NETWORK}"))
    assert not CLAIMS.applies(("lin", "white", "cnn"))
