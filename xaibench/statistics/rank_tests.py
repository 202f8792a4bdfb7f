"""Which method is best on most samples? Mean ranks, and how far apart they must lie."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from xaibench.statistics.grouped_scores import Floats, columns_of


def average_ranks(scores: ArrayLike, *, higher_is_better: bool = True) -> tuple[Floats, int]:
    """Mean rank of each method over the samples; 1 is best, ties share their ranks.

    Args:
        scores: ``[N, M]``.
        higher_is_better: Direction.

    Returns:
        ``[M]`` ranks, and the number of samples they are over: those on which every method has a score.

    Example:
        >>> ranks, n = average_ranks([[0.9, 0.5, 0.5], [0.8, 0.9, 0.1], [np.nan, 1, 2]])
        >>> ranks.tolist(), n
        ([1.5, 1.75, 2.75], 2)
    """
    from scipy.stats import rankdata

    columns, _ = columns_of(scores)
    whole = columns[~np.isnan(columns).any(axis=1)]
    if len(whole) == 0:
        return np.full(columns.shape[1], np.nan), 0
    ranks = rankdata(-whole if higher_is_better else whole, axis=1)
    return np.asarray(ranks.mean(axis=0), dtype=np.float64), len(whole)


def critical_difference(methods: int, samples: int, *, level: float = 0.05) -> float:
    """How far two average ranks must lie apart to differ at ``level``: the Nemenyi test.

    Demšar: Statistical comparisons of classifiers over multiple data sets, JMLR 2006, section 3.2.2.

    Args:
        methods: Number of methods, at least two.
        samples: Number of samples that were ranked.
        level: Of the whole family of comparisons.

    Returns:
        In ranks; nan for less than two methods, or no sample.

    Example:
        >>> round(critical_difference(4, 14), 2)  # Demšar's example
        1.25
    """
    from scipy.stats import studentized_range

    if methods < 2 or samples < 1:
        return math.nan
    q = studentized_range.ppf(1 - level, methods, math.inf) / math.sqrt(2)
    return float(q * math.sqrt(methods * (methods + 1) / (6 * samples)))
