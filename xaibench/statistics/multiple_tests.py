"""Which of many differences are more than chance, and what it means that a method beats the controls."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from xaibench.statistics.grouped_scores import Floats

#: Of a family of tests: the share of families that find a difference where there is none.
LEVEL = 0.05


class AgainstControls(NamedTuple):
    """How a method stands against the controls.

    Attributes:
        p: The largest p-value of its tests against them; 1 where one of them has a mean at least as good.
        beats: Whether that is below :data:`LEVEL`.
    """

    p: float
    beats: bool


def holm(p: ArrayLike) -> Floats:
    """P-values adjusted for their number: below 0.05 all at once with an error of 5 % for the family.

    Holm: A simple sequentially rejective multiple test procedure, Scandinavian Journal of Statistics 1979.

    Args:
        p: ``[M]``; undefined ones are not counted.

    Returns:
        ``[M]`` in [0, 1], never below ``p``.

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


def against_controls(
    pairs: Iterable[tuple[str, str, float, float]], controls: Collection[str], *, higher_is_better: bool
) -> dict[str, AgainstControls]:
    """Which methods beat the controls: have a better mean than every one of them, each by more than chance.

    Args:
        pairs: ``(first, second, difference, p)``: the mean of first minus second, and its p-value, corrected for all
            pairs that were tested (:func:`holm`); ``nan`` where the two have no sample in common, which says nothing.
        controls: Those of the methods that know no model.
        higher_is_better: Direction.

    Returns:
        For each method that was tested against a control, how it stands.

    Example:
        >>> pairs = [("ig", "sobel", 0.3, 0.01), ("ig", "uniform", 0.5, 0.02), ("lime", "sobel", -0.1, 0.01)]
        >>> against_controls(pairs, {"sobel", "uniform"}, higher_is_better=True)
        {'ig': AgainstControls(p=0.02, beats=True), 'lime': AgainstControls(p=1.0, beats=False)}
    """
    worst: dict[str, float] = {}
    for first, second, difference, p in pairs:
        if np.isnan(p):
            continue
        ahead = difference if higher_is_better else -difference
        for method, other, lead in ((first, second, ahead), (second, first, -ahead)):
            if other in controls and method not in controls:
                worst[method] = max(worst.get(method, 0.0), float(p) if lead > 0 else 1.0)
    return {method: AgainstControls(p, p < LEVEL) for method, p in worst.items()}
