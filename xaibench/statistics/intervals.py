"""How sure is a mean? Intervals by the bootstrap.

Scores come as ``[N, M]``, a row a sample and a column a method, ``nan`` where undefined. Samples that belong together
(slices of one patient, two objects in one image) say so by ``groups``: what is drawn is then a whole group,
without which intervals come out too narrow.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from xaibench.statistics.grouped_scores import Floats, by_group, columns_of


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
    columns, one = columns_of(scores)
    sums, counts = by_group(columns, groups)
    means = _resampled(len(sums), resamples, seed, sums, counts)
    tail = (1 - level) / 2
    interval = np.full((columns.shape[1], 2), np.nan)
    for column in np.flatnonzero((counts > 0).sum(0) >= 2):
        drawn = means[:, column]
        interval[column] = np.quantile(drawn[~np.isnan(drawn)], [tail, 1 - tail])
    return interval[0] if one else interval


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
