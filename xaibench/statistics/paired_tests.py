"""Is a difference more than chance? Paired tests, and what it means that a method beats the controls.

Scores come as ``[N, M]``, a row a sample and a column a method, ``nan`` where undefined. Samples that belong together
(slices of one patient, two objects in one image) say so by ``groups``: what is turned is then a whole group,
without which p-values come out too small.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from xaibench.statistics.grouped_scores import Floats, by_group, columns_of

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


def paired_test(
    differences: ArrayLike, groups: ArrayLike | None = None, *, resamples: int = 9999, seed: int = 0
) -> Floats:
    """Two-sided p-value of each column: would a mean difference so far from 0 come of chance alone?

    The sign-flip permutation test: if two methods were the same, the difference of a group could as well have the other
    sign. All patterns of signs are counted up to 13 groups; beyond, ``resamples`` random ones and the observed one, so
    that p is never below 1 / (resamples + 1). Fisher: The Design of Experiments, 1935, section 21.

    Args:
        differences: ``[N, M]`` or ``[N]``; undefined ones are left out.
        groups: ``[N]`` which samples belong together.
        resamples: Random patterns.
        seed: Of the draw.

    Returns:
        ``[M]`` (a single number for one column); 1 where all differences are 0, ``nan`` where none is defined.

    Example:
        >>> float(paired_test([0.1, 0.2, 0.1, 0.3, 0.2]))  # 2 of the 32 patterns of signs are as far out
        0.0625
    """
    columns, one = columns_of(differences)
    sums, counts = by_group(columns, groups)
    observed = np.abs(sums.sum(0))
    slack = 1e-12 * np.abs(sums).sum(0)  # equal up to the order of summation counts as equal
    n = len(sums)
    if n <= 13:
        signs = 1 - 2 * ((np.arange(2**n)[:, None] >> np.arange(n)) & 1)
        p = (np.abs(signs @ sums) >= observed - slack).mean(0)
    else:
        rng = np.random.default_rng(seed)
        extreme = np.ones(columns.shape[1])
        for start in range(0, resamples, 1000):
            signs = 1 - 2 * rng.integers(0, 2, (min(1000, resamples - start), n), dtype=np.int8)
            extreme += (np.abs(signs.astype(np.float64) @ sums) >= observed - slack).sum(0)
        p = extreme / (resamples + 1)
    p = np.where((counts > 0).any(0), p, np.nan)
    return p[0] if one else p


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
