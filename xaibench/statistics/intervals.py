"""Is a difference more than chance? Intervals, paired tests and ranks of scores of the same samples.

Scores come as ``[N, M]``, a row a sample and a column a method, ``nan`` where undefined. Samples that belong together
(slices of one patient, two objects in one image) say so by ``groups``: what is drawn, or turned, is then a whole group,
without which intervals come out too narrow.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]


def bootstrap_intervals(
    scores: ArrayLike, groups: ArrayLike | None = None, *, level: float = 0.95, resamples: int = 2000, seed: int = 0
) -> Floats:
    """Interval of the mean of each column, by the percentile bootstrap over groups of samples.

    Each resample draws as many groups as there are, with replacement, the same for all columns. Efron and Tibshirani:
    An Introduction to the Bootstrap, 1993, section 13.3; Field and Welsh: Bootstrapping clustered data, JRSS B 2007.

    Args:
        scores: ``[N, M]`` or ``[N]``; undefined ones are left out of the means.
        groups: ``[N]`` which samples belong together; None = each for itself.
        level: Share of the resampled means inside.
        resamples: How many.
        seed: Of the draw.

    Returns:
        ``[M, 2]`` lower and upper end (``[2]`` for one column); ``nan`` where fewer than two groups have a score.

    Example:
        >>> low, high = bootstrap_intervals(np.arange(100.0))
        >>> bool(43 < low < 45 and 54 < high < 56)
        True
    """
    columns, one = _columns(scores)
    sums, counts = _by_group(columns, groups)
    means = _resampled(len(sums), resamples, seed, sums, counts)
    tail = (1 - level) / 2
    interval = np.full((columns.shape[1], 2), np.nan)
    for column in np.flatnonzero((counts > 0).sum(0) >= 2):
        drawn = means[:, column]
        interval[column] = np.quantile(drawn[~np.isnan(drawn)], [tail, 1 - tail])
    return interval[0] if one else interval


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
    columns, one = _columns(differences)
    sums, counts = _by_group(columns, groups)
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

    columns, _ = _columns(scores)
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


def _columns(scores: ArrayLike) -> tuple[Floats, bool]:
    values = np.asarray(scores, dtype=np.float64)
    if values.ndim not in (1, 2):
        raise ValueError(f"Expected scores [N] or [N, M], got {list(values.shape)}.")
    return (values[:, None], True) if values.ndim == 1 else (values, False)


def _by_group(columns: Floats, groups: ArrayLike | None) -> tuple[Floats, Floats]:
    """``[G, M]`` sums and numbers of the defined scores of each group."""
    defined = ~np.isnan(columns)
    filled = np.where(defined, columns, 0.0)
    if groups is None:
        return filled, defined.astype(np.float64)
    of = np.asarray(groups)
    if of.shape != columns.shape[:1]:
        raise ValueError(f"Expected groups [{len(columns)}], one for each sample; got {list(of.shape)}.")
    names, index = np.unique(of, return_inverse=True)
    sums, counts = (np.zeros((len(names), columns.shape[1])) for _ in range(2))
    np.add.at(sums, index, filled)
    np.add.at(counts, index, defined)
    return sums, counts


def _resampled(n: int, resamples: int, seed: int, sums: Floats, counts: Floats) -> Floats:
    """``[resamples, M]`` means of resampled groups; nan where a resample has drawn no score."""
    rng = np.random.default_rng(seed)
    means = []
    for start in range(0, resamples, 500):
        rows = min(500, resamples - start)
        drawn = rng.integers(0, max(n, 1), (rows, n)) + np.arange(rows)[:, None] * n
        weights = np.bincount(drawn.ravel(), minlength=rows * n).reshape(rows, n).astype(np.float64)
        total, number = weights @ sums, weights @ counts
        means.append(np.divide(total, number, out=np.full_like(total, np.nan), where=number > 0))
    return np.concatenate(means)
