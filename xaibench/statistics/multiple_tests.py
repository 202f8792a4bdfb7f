"""Multiple testing: Holm's correction, and comparison of methods with all controls."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from xaibench.statistics.grouped_scores import Floats

#: Significance level: family-wise error rate of a family of tests.
ALPHA = 0.05


class ControlComparison(NamedTuple):
    """Comparison of a method with all controls.

    Attributes:
        p: The largest p-value of the tests against the controls; 1 if the mean of a control is at least as good.
        beats: Whether ``p`` is below :data:`ALPHA`.
    """

    p: float
    beats: bool


def holm(p: ArrayLike) -> Floats:
    """Adjust p-values for multiple testing by Holm's step-down method, which controls the family-wise error rate.

    Holm: A simple sequentially rejective multiple test procedure, Scandinavian Journal of Statistics 1979.

    Args:
        p: P-values, ``[M]``. ``nan`` is not counted as a test.

    Returns:
        Adjusted p-values in [0, 1], ``[M]``, at least as large as ``p``.

    Example:
        >>> holm([0.01, 0.04, 0.03]).tolist()
        [0.03, 0.06, 0.06]
    """
    values = np.asarray(p, dtype=np.float64)
    adjusted = np.full(values.shape, np.nan)
    order = np.argsort(values, kind="stable")[: int((~np.isnan(values)).sum())]
    factors = len(order) - np.arange(len(order))
    adjusted[order] = np.minimum(np.maximum.accumulate(values[order] * factors), 1.0)
    return adjusted


def compare_with_controls(
    pairs: Iterable[tuple[str, str, float, float]], controls: Collection[str], *, higher_is_better: bool
) -> dict[str, ControlComparison]:
    """Compare methods with the controls. A method beats them if its mean is significantly better than each of theirs.

    Args:
        pairs: ``(first, second, difference, p)``: the mean of first minus second, and its p-value, corrected for all
            tested pairs (:func:`holm`). Pairs with p-value ``nan``, which have no common samples, are ignored.
        controls: The methods that are controls.
        higher_is_better: Whether higher scores are better.

    Returns:
        The comparison for each method that was tested against at least one control.

    Example:
        >>> pairs = [("ig", "sobel", 0.3, 0.01), ("ig", "uniform", 0.5, 0.02), ("lime", "sobel", -0.1, 0.01)]
        >>> compare_with_controls(pairs, {"sobel", "uniform"}, higher_is_better=True)
        {'ig': ControlComparison(p=0.02, beats=True), 'lime': ControlComparison(p=1.0, beats=False)}
    """
    worst: dict[str, float] = {}
    for first, second, difference, p in pairs:
        if math.isnan(p):
            continue
        ahead = difference if higher_is_better else -difference
        for method, other, lead in ((first, second, ahead), (second, first, -ahead)):
            if other in controls and method not in controls:
                worst[method] = max(worst.get(method, 0.0), float(p) if lead > 0 else 1.0)
    return {method: ControlComparison(p, p < ALPHA) for method, p in worst.items()}
