r"""What does noise score? The expected score of a map of independent uniform noise, for the given ground truth.

With :math:`R` of the :math:`N` pixels in the ground truth, every order of the noise's pixels is equally likely, and a
threshold :math:`\tau` marks each of them alike with :math:`p = P(u > \tau)`. From this follow, without a draw,

==================================  ===================================================================================
score                               expected for noise
==================================  ===================================================================================
top-k precision, mass accuracy,     :math:`R/N`
precision, pointing game
AUC                                 :math:`1/2`
average precision                   :math:`\frac1N \bigl[H_N \frac{N-R}{N-1} + N \frac{R-1}{N-1}\bigr]`, :math:`H_N`
                                    being the N-th harmonic number
recall                              :math:`p`
F1                                  :math:`\sum_m P(|M| = m)\, 2 m R / (N (m + R))`
IoU                                 :math:`R\,p\, \sum_o P(|M \setminus F^+| = o) / (R + o)`
==================================  ===================================================================================

(:math:`|M|` and :math:`|M \setminus F^+|` being binomial.) The noise is uniform in [-1, 1), as that of the control
``uniform``. Where maps are stretched to [0, 1] before they are cut, so is the noise's magnitude: then the largest of
its pixels is marked and the smallest is not, wherever they lie, and the others are as before.

The earth mover's distance of noise has no formula: :mod:`xaibench.metrics.truth.noise_distance` integrates it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

#: A level ``[n]`` from masks ``[n, H, W]``, and from those of the metric's parameters that decide it.
ChanceLevel: TypeAlias = Callable[..., NDArray[np.float64]]

#: How many standard deviations of a binomial are summed over; what lies beyond is less than rounding.
_REACH = 12


def marked_share(masks: NDArray[np.bool_]) -> NDArray[np.float64]:
    """:math:`R/N`: what any choice of pixels at random, or of one of them, hits."""
    return _by_count(masks, lambda inside, pixels: inside / pixels)


def half(masks: NDArray[np.bool_]) -> NDArray[np.float64]:
    """One half, where there are pixels on either side."""
    return _by_count(masks, lambda inside, pixels: 0.5 if inside < pixels else math.nan)


def expected_average_precision(masks: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Over all orders of the pixels."""
    return _by_count(masks, _average_precision)


def expected_recall(masks: NDArray[np.bool_], *, threshold: float = 0.5, scaled: bool = False) -> NDArray[np.float64]:
    """The share of the noise's pixels that is marked."""

    def level(inside: int, pixels: int) -> float:
        certain, free, p = _cut(pixels, threshold, scaled)
        return (certain + free * p) / pixels

    return _by_count(masks, level)


def expected_precision(
    masks: NDArray[np.bool_], *, threshold: float = 0.0, scaled: bool = False
) -> NDArray[np.float64]:
    """:math:`R/N`, given that something is marked."""

    def level(inside: int, pixels: int) -> float:
        certain, free, p = _cut(pixels, threshold, scaled)
        return inside / pixels if certain or free * p > 0 else math.nan

    return _by_count(masks, level)


def expected_f1(masks: NDArray[np.bool_], *, threshold: float = 0.0, scaled: bool = False) -> NDArray[np.float64]:
    """Given how many pixels are marked, their expected share inside is that of all."""

    def level(inside: int, pixels: int) -> float:
        certain, free, p = _cut(pixels, threshold, scaled)
        marked, chance = _binomial(free, p)
        marked = marked + certain
        return float(chance @ (2 * marked * inside / (pixels * (marked + inside))))

    return _by_count(masks, level)


def expected_iou(masks: NDArray[np.bool_], *, threshold: float = 0.0, scaled: bool = False) -> NDArray[np.float64]:
    """Inside and outside are marked independently, and the union is the ground truth and what is marked outside."""

    def level(inside: int, pixels: int) -> float:
        return _expected_iou(inside, pixels, threshold, scaled)

    return _by_count(masks, level)


def _by_count(masks: NDArray[np.bool_], level: Callable[[int, int], float]) -> NDArray[np.float64]:
    """What depends on the number of pixels inside alone, worked out once for each; ``nan`` where there are none."""
    counts, which = np.unique(np.count_nonzero(masks, axis=(1, 2)), return_inverse=True)
    levels = [level(int(inside), math.prod(masks.shape[1:])) if inside else math.nan for inside in counts]
    return np.array(levels, dtype=np.float64)[which]


def _average_precision(inside: int, pixels: int) -> float:
    if pixels == 1:
        return 1.0
    harmonic = float((1 / np.arange(1, pixels + 1)).sum())
    return (harmonic * (pixels - inside) + pixels * (inside - 1)) / (pixels * (pixels - 1))


def _cut(pixels: int, threshold: float, scaled: bool) -> tuple[int, int, float]:
    """Of a map of noise: how many pixels are marked for certain, how many are free, and the chance of each of these."""
    if not scaled:
        return 0, pixels, min(1.0, max(0.0, (1 - threshold) / 2))
    if pixels == 1:  # a constant map, which is stretched to 0
        return int(threshold < 0), 0, 0.0
    # The largest is 1 and the smallest 0; between them the others are uniform.
    return int(threshold < 1) + int(threshold < 0), pixels - 2, min(1.0, max(0.0, 1 - threshold))


def _binomial(trials: int, p: float) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The numbers that are not too unlikely to count, and their chances."""
    from scipy.stats import binom  # imported here: few ask for chance

    reach = _REACH * math.sqrt(trials * p * (1 - p)) + _REACH
    least, most = max(0, math.floor(trials * p - reach)), min(trials, math.ceil(trials * p + reach))
    numbers = np.arange(least, most + 1)
    return numbers, np.asarray(binom.pmf(numbers, trials, p), dtype=np.float64)


@functools.lru_cache(maxsize=2**16)
def _expected_iou(inside: int, pixels: int, threshold: float, scaled: bool) -> float:
    certain, free, p = _cut(pixels, threshold, scaled)
    fixed = pixels - free  # the largest and the smallest, or none
    total = 0.0
    # Which of the fixed pixels lie inside: for each, whether it does, and whether it is marked.
    for where in np.ndindex(*(2,) * fixed):
        chance, left_in, left_out, both, beside = 1.0, inside, pixels - inside, 0, 0
        for number, lies_inside in enumerate(where):
            marked = int(number < certain)
            chance *= (left_in if lies_inside else left_out) / max(1, left_in + left_out)
            left_in, left_out = left_in - lies_inside, left_out - (1 - lies_inside)
            both, beside = both + marked * lies_inside, beside + marked * (1 - lies_inside)
        if chance > 0:
            outside, likely = _binomial(left_out, p)
            total += chance * (both + left_in * p) * float(likely @ (1 / (inside + beside + outside)))
    return total
