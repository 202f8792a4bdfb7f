"""Intervals for means of scores that have a smallest and a largest value, such as hits and misses.

Of a few hits the variance says little where it matters: eight hits of eight have none, and Student's t would be sure.
Wilson's interval (JASA 1927) asks of each mean whether the hits would be likely under it. Scores that vary by less or,
within groups, by more than hits would are worth more or fewer samples than they are: the effective sample size, with
Student's t for what is estimated of it. Korn and Graubard: Confidence intervals for proportions with small expected
number of positive counts estimated from survey data, Survey Methodology 1998 (sample size, degrees of freedom). Dean
and Pagano: Evaluating confidence interval methods for binomial proportions in clustered surveys, Journal of Survey
Statistics and Methodology 2015 (Wilson's interval in few groups).
"""

from __future__ import annotations

import numpy as np

from xaibench.statistics.grouped_scores import Floats

#: The range of scores of which none is known.
UNBOUNDED = (-np.inf, np.inf)


def wilson(mean: Floats, variance: Floats, freedom: Floats, groups: Floats, level: float = 0.95) -> Floats:
    """Intervals of means of scores from 0 to 1.

    Args:
        mean: ``[M]``.
        variance: ``[M]`` of the means.
        freedom: ``[M]`` degrees of freedom of the variances.
        groups: ``[M]`` how many independent groups of samples the means are of.
        level: Share of the intervals that hold the mean of all that could have been drawn.

    Returns:
        ``[M, 2]`` lower and upper ends in [0, 1]; ``nan`` where the variance is undefined.

    Example:
        >>> of = [np.array([value]) for value in (1.0, 0.0, 7.0, 8.0)]  # eight hits of eight
        >>> wilson(*of).round(2).tolist()
        [[0.68, 1.0]]
    """
    from scipy.stats import norm, t

    binomial = np.clip(mean * (1 - mean), 0, None)
    # Groups of hits alone and of misses alone: as if each were one sample. Nothing is estimated but the mean.
    whole = np.isclose(variance * (groups - 1), binomial, rtol=1e-9, atol=0)
    estimated = np.divide(binomial, variance, out=np.full(len(mean), np.inf), where=variance > 0)
    size = np.where(whole, groups, estimated)
    far = np.where(whole, norm.ppf((1 + level) / 2), t.ppf((1 + level) / 2, freedom)) ** 2
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.where(size > 0, far / size, np.inf)
        middle, half = (mean + share / 2) / (1 + share), np.sqrt(share * (binomial + share / 4)) / (1 + share)
    ends = np.stack([middle - half, middle + half], axis=-1)
    return np.where(np.isnan(variance)[:, None], np.nan, np.clip(ends, 0, 1))
