r"""Expected scores of a map of independent uniform noise, for a given ground truth.

With :math:`R` of the :math:`N` pixels in the ground truth, every order of the pixels of noise is equally likely, and
each pixel exceeds a threshold :math:`\tau` with the same probability :math:`p = P(u > \tau)`. This gives exactly

==================================  ===================================================================================
score                               expected for noise
==================================  ===================================================================================
top-k precision, mass accuracy,     :math:`R/N`
precision, pointing game
ROC AUC                             :math:`1/2`
average precision                   :math:`\frac1N \bigl[H_N \frac{N-R}{N-1} + N \frac{R-1}{N-1}\bigr]`, :math:`H_N`
                                    being the N-th harmonic number
recall                              :math:`p`
F1                                  :math:`\sum_m P(|M| = m)\, 2 m R / (N (m + R))`
IoU                                 :math:`R\,p\, \sum_o P(|M \setminus F^+| = o) / (R + o)`
==================================  ===================================================================================

(:math:`|M|` and :math:`|M \setminus F^+|` are binomial.) The noise is uniform in [-1, 1), like the control ``uniform``.
If maps are scaled to [0, 1] before the threshold is applied, so is the noise's magnitude: then the largest pixel is
always marked, the smallest never, and the others are as before.

At the threshold ``"area"`` exactly :math:`R` pixels of the noise are marked, and the number of them inside is
hypergeometric. Precision, recall and F1 are :math:`R/N`, and IoU is

.. math:: \sum_i P(|M \cap F^+| = i) \, \frac{i}{2R - i}, \qquad
    P(|M \cap F^+| = i) = \binom{R}{i} \binom{N-R}{R-i} \Big/ \binom{N}{R}

The earth mover's distance of noise has no formula: :mod:`xaibench.metrics.localization.emd_noise` integrates it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from xaibench.metrics.shared.map_inputs import Threshold, flat

#: Computes chance levels ``[n]`` from masks ``[n, H, W]`` and the metric's parameters.
ChanceLevel: TypeAlias = Callable[..., NDArray[np.float64]]

#: Standard deviations of a binomial that are summed over; the rest is below rounding error.
_REACH = 12


def marked_share(masks: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return :math:`R/N`, the expected share of randomly chosen pixels that are inside."""
    return _by_count(masks, lambda inside, pixels: inside / pixels)


def half(masks: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return one half where there are pixels inside and outside."""
    return _by_count(masks, lambda inside, pixels: 0.5 if inside < pixels else math.nan)


def expected_average_precision(masks: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return the expected average precision over all orders of the pixels."""
    return _by_count(masks, _average_precision)


def expected_recall(
    masks: NDArray[np.bool_], *, threshold: Threshold = 0.5, scaled: bool = False
) -> NDArray[np.float64]:
    """Return the expected share of pixels above the threshold."""
    if threshold == "area":
        return marked_share(masks)

    def level(inside: int, pixels: int) -> float:
        certain, free, p = _count_marked(pixels, threshold, scaled)
        return (certain + free * p) / pixels

    return _by_count(masks, level)


def expected_precision(
    masks: NDArray[np.bool_], *, threshold: Threshold = 0.0, scaled: bool = False
) -> NDArray[np.float64]:
    """Return :math:`R/N`, given that at least one pixel is above the threshold."""
    if threshold == "area":
        return marked_share(masks)

    def level(inside: int, pixels: int) -> float:
        certain, free, p = _count_marked(pixels, threshold, scaled)
        return inside / pixels if certain or free * p > 0 else math.nan

    return _by_count(masks, level)


def expected_f1(masks: NDArray[np.bool_], *, threshold: Threshold = 0.0, scaled: bool = False) -> NDArray[np.float64]:
    """Return the expected F1: for any number of marked pixels, their expected share inside is :math:`R/N`."""
    if threshold == "area":
        return marked_share(masks)

    def level(inside: int, pixels: int) -> float:
        certain, free, p = _count_marked(pixels, threshold, scaled)
        marked, chance = _binomial(free, p)
        marked = marked + certain
        return float(chance @ (2 * marked * inside / (pixels * (marked + inside))))

    return _by_count(masks, level)


def expected_iou(masks: NDArray[np.bool_], *, threshold: Threshold = 0.0, scaled: bool = False) -> NDArray[np.float64]:
    """Return the expected IoU; pixels inside and outside are marked independently, except at the mask's area."""

    def level(inside: int, pixels: int) -> float:
        if threshold == "area":
            return expected_iou_at_area(inside, 0, pixels, inside, inside)
        return _expected_iou(inside, pixels, threshold, scaled)

    return _by_count(masks, level)


def _by_count(masks: NDArray[np.bool_], level: Callable[[int, int], float]) -> NDArray[np.float64]:
    """Compute a level that depends only on the number of pixels inside, once per number; NaN where there are none."""
    counts, which = np.unique(np.count_nonzero(flat(masks), axis=1), return_inverse=True)
    levels = [level(int(inside), math.prod(masks.shape[1:])) if inside else math.nan for inside in counts]
    return np.array(levels, dtype=np.float64)[which]


@functools.lru_cache(maxsize=2**16)
def expected_iou_at_area(k: int, both: int, tied: int, tied_inside: int, n_tied: int) -> float:
    """Return the expected IoU of ``k`` marked pixels and a ground truth of ``k`` pixels.

    Args:
        k: Number of marked pixels, at least 1.
        both: Number of pixels that are certainly marked and inside.
        tied: Number of pixels from which the other marked ones are drawn.
        tied_inside: Number of these that are inside.
        n_tied: Number of pixels that are drawn.

    Example:
        >>> expected_iou_at_area(2, 1, 4, 1, 1)  # 3 of 4 draws hit nothing more: 3/4 · 1/3 + 1/4 · 1
        0.5
    """
    from scipy.stats import hypergeom  # imported on use, because it is slow to load

    if n_tied == tied:  # nothing is drawn
        found, chance = np.array([tied_inside]), np.array([1.0])
    else:
        found = np.arange(max(0, n_tied - (tied - tied_inside)), min(n_tied, tied_inside) + 1)
        chance = np.asarray(hypergeom.pmf(found, tied, tied_inside, n_tied), dtype=np.float64)
    inside = both + found
    return float(chance @ (inside / (2 * k - inside)) / chance.sum())


def _average_precision(inside: int, pixels: int) -> float:
    if pixels == 1:
        return 1.0
    harmonic = float((1 / np.arange(1, pixels + 1)).sum())
    return (harmonic * (pixels - inside) + pixels * (inside - 1)) / (pixels * (pixels - 1))


def _count_marked(pixels: int, threshold: float, scaled: bool) -> tuple[int, int, float]:
    """Return the number of certainly marked pixels of noise, that of the others, and their probability."""
    if not scaled:
        return 0, pixels, min(1.0, max(0.0, (1 - threshold) / 2))
    if pixels == 1:  # a constant map is scaled to 0
        return int(threshold < 0), 0, 0.0
    # The largest is 1, the smallest 0, and the others are uniform in between.
    return int(threshold < 1) + int(threshold < 0), pixels - 2, min(1.0, max(0.0, 1 - threshold))


def _binomial(trials: int, p: float) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the numbers with non-negligible probability, and these probabilities."""
    from scipy.stats import binom  # imported on use, because it is slow to load

    reach = _REACH * math.sqrt(trials * p * (1 - p)) + _REACH
    least, most = max(0, math.floor(trials * p - reach)), min(trials, math.ceil(trials * p + reach))
    numbers = np.arange(least, most + 1)
    return numbers, np.asarray(binom.pmf(numbers, trials, p), dtype=np.float64)


@functools.lru_cache(maxsize=2**16)
def _expected_iou(inside: int, pixels: int, threshold: float, scaled: bool) -> float:
    certain, free, p = _count_marked(pixels, threshold, scaled)
    fixed = pixels - free  # the largest and the smallest, or none
    total = 0.0
    # Sum over all cases of which fixed pixels are inside the ground truth.
    for where in np.ndindex(*(2,) * fixed):
        chance, left_in, left_out, both, marked_outside = 1.0, inside, pixels - inside, 0, 0
        for number, is_inside in enumerate(where):
            marked = int(number < certain)
            chance *= (left_in if is_inside else left_out) / max(1, left_in + left_out)
            left_in, left_out = left_in - is_inside, left_out - (1 - is_inside)
            both += marked * is_inside
            marked_outside += marked * (1 - is_inside)
        if chance > 0:
            outside, likely = _binomial(left_out, p)
            total += chance * (both + left_in * p) * float(likely @ (1 / (inside + marked_outside + outside)))
    return total
