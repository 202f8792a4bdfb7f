"""Effect sizes of paired scores and of a factor."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike


def rank_share(first: ArrayLike, second: ArrayLike) -> float:
    r"""Share of the ranks of Wilcoxon's signed-rank test with ``first`` above ``second``: the paired effect size.

    .. math:: T^+ \,/\, \sum_i r_i

    with :math:`r_i` the ranks of the absolute differences and :math:`T^+` the sum of the ranks of positive differences.
    0.5: no effect; 1: every pair is higher in ``first``. The matched-pairs rank-biserial correlation is 2 times the
    share minus 1. Pairs without a difference are left out, as are pairs with an undefined score.

    Args:
        first: ``[N]`` scores.
        second: ``[N]`` scores of the same samples.

    Returns:
        The share in [0, 1]; NaN if no pair differs.

    Example:
        >>> rank_share([3.0, 2.0, 5.0], [1.0, 3.0, 0.0])  # ranks 2, 1 and 3 of the differences 2, -1 and 5
        0.8333333333333334
    """
    from scipy.stats import rankdata  # imported on use, because it is slow to load

    differences = np.asarray(first, dtype=np.float64) - np.asarray(second, dtype=np.float64)
    differences = differences[~np.isnan(differences) & (differences != 0)]
    if len(differences) == 0:
        return math.nan
    ranks = rankdata(np.abs(differences))
    return float(ranks[differences > 0].sum() / ranks.sum())


def explained_variance(groups: Sequence[ArrayLike]) -> float:
    r"""Share of the variance of scores that the group explains (:math:`R^2` of a one-way model, eta squared).

    Args:
        groups: Scores of each group, ``[N_k]``; undefined scores are left out.

    Returns:
        The share in [0, 1]; NaN if all scores are equal or there is none.

    Example:
        >>> explained_variance([[1.0, 2.0], [3.0, 4.0]])
        0.8
    """
    values = [np.asarray(group, dtype=np.float64).ravel() for group in groups]
    values = [group[~np.isnan(group)] for group in values]
    every = np.concatenate(values) if values else np.empty(0)
    if len(every) == 0 or np.ptp(every) == 0:
        return math.nan
    within = sum(float(((group - group.mean()) ** 2).sum()) for group in values if len(group))
    return 1 - within / float(((every - every.mean()) ** 2).sum())
