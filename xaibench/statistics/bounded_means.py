"""Confidence intervals for means of bounded scores, such as hits and misses.

With few hits, the sample variance is a poor guide: eight hits out of eight have variance 0, and an interval by
Student's t would have width 0. Wilson's interval (JASA 1927) instead contains all means under which the observed hits
are likely. Scores that vary less than hits, or more because they are clustered, are accounted for by the effective
sample size, with a t quantile because that size is estimated. Korn and Graubard: Confidence intervals for proportions
with small expected number of positive counts estimated from survey data, Survey Methodology 1998 (sample size, degrees
of freedom). Dean and Pagano: Evaluating confidence interval methods for binomial proportions in clustered surveys,
Journal of Survey Statistics and Methodology 2015 (Wilson's interval in few groups).
"""

from __future__ import annotations

import numpy as np

from xaibench.statistics.grouped_scores import Floats

#: Range of scores without bounds.
UNBOUNDED = (-np.inf, np.inf)


def wilson(mean: Floats, variance: Floats, df: Floats, groups: Floats, level: float = 0.95) -> Floats:
    """Compute Wilson confidence intervals for means of scores in [0, 1], with an effective sample size.

    Args:
        mean: Means, ``[M]``.
        variance: Variances of the means, ``[M]``.
        df: Degrees of freedom of the variances, ``[M]``.
        groups: Number of independent groups of samples per mean, ``[M]``.
        level: Confidence level.

    Returns:
        Lower and upper bounds in [0, 1], ``[M, 2]``; ``nan`` where the variance is undefined.

    Example:
        >>> arguments = [np.array([value]) for value in (1.0, 0.0, 7.0, 8.0)]  # eight hits out of eight
        >>> wilson(*arguments).round(2).tolist()
        [[0.68, 1.0]]
    """
    from scipy.stats import norm, t

    binomial = np.clip(mean * (1 - mean), 0, None)
    # If every group consists of hits only or misses only, each group counts as one binomial sample. Then the sample
    # size is known, and the quantile is normal.
    is_binomial = np.isclose(variance * (groups - 1), binomial, rtol=1e-9, atol=0)
    estimated = np.divide(binomial, variance, out=np.full(len(mean), np.inf), where=variance > 0)
    n_effective = np.where(is_binomial, groups, estimated)
    squared_quantile = np.where(is_binomial, norm.ppf((1 + level) / 2), t.ppf((1 + level) / 2, df)) ** 2
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(n_effective > 0, squared_quantile / n_effective, np.inf)
        center, half = (mean + ratio / 2) / (1 + ratio), np.sqrt(ratio * (binomial + ratio / 4)) / (1 + ratio)
    ends = np.stack([center - half, center + half], axis=-1)
    return np.where(np.isnan(variance)[:, None], np.nan, np.clip(ends, 0, 1))
