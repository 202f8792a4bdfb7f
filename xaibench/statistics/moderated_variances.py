"""Few data sets or trainings say little of one variance; many methods together say more of all.

Two data sets give a variance with one degree of freedom, and hardly anything can be told apart by it. The variances of
the many methods of a run are alike, though not the same: how alike, the variances themselves tell. Each is drawn
towards their common middle by as much as they are alike, and gains the degrees of freedom that stand behind that.
Smyth: Linear models and empirical Bayes methods for assessing differential expression in microarray experiments,
Statistical Applications in Genetics and Molecular Biology 2004, sections 4 and 6 (there: many genes, few arrays).
"""

from __future__ import annotations

import math

import numpy as np

from xaibench.statistics.grouped_scores import Floats

#: Fewer variances say too little of how alike they are.
FEWEST = 8
#: Standard errors by which they are taken to be less alike than they seem.
CAUTION = 1.0


def moderated(variance: Floats, freedom: Floats) -> tuple[Floats, Floats]:
    """Variances drawn towards their common middle, and their degrees of freedom.

    Args:
        variance: ``[M]``; those that are undefined or 0 stay as they are.
        freedom: ``[M]`` degrees of freedom.

    Returns:
        ``[M]`` variances and ``[M]`` degrees of freedom, as given where there are fewer than :data:`FEWEST`.

    Example:
        >>> alike = np.array([0.9, 1.1, 1.0, 1.2, 0.8, 1.05, 0.95, 1.0])
        >>> moderated(alike, np.full(8, 2.0))[1].tolist()  # they are one variance: as sure as all of them together
        [16.0, 16.0, 16.0, 16.0, 16.0, 16.0, 16.0, 16.0]
    """
    from scipy.special import digamma, polygamma

    used = np.isfinite(variance) & (variance > 0) & np.isfinite(freedom)
    if used.sum() < FEWEST:
        return variance, freedom
    of, their = variance[used], freedom[used]
    logs = np.log(of) - digamma(their / 2) + np.log(their / 2)
    spread = float(logs.var(ddof=1))
    # Few variances tell badly how alike they are: a standard error on the safe side.
    excess = spread * (1 + CAUTION * math.sqrt(2 / (len(of) - 1))) - float(polygamma(1, their / 2).mean())
    prior = 2 * inverse_trigamma(excess) if excess > 0 else math.inf
    if math.isinf(prior):
        middle = np.exp(logs.mean())
        drawn, sure = np.full(len(of), middle), np.full(len(of), their.sum())
    else:
        middle = np.exp(logs.mean() + digamma(prior / 2) - math.log(prior / 2))
        drawn = (prior * middle + their * of) / (prior + their)
        sure = np.minimum(prior + their, their.sum())  # never surer than all together
    variance, freedom = variance.copy(), freedom.copy()
    variance[used], freedom[used] = drawn, sure
    return variance, freedom


def inverse_trigamma(value: float) -> float:
    """The x at which the trigamma function has this value, by Newton's method on its reciprocal.

    Example:
        >>> round(inverse_trigamma(np.pi**2 / 6), 12)
        1.0
    """
    from scipy.special import polygamma

    x = 0.5 + 1 / value
    for _ in range(50):
        height = float(polygamma(1, x))
        step = height * (1 - height / value) / float(polygamma(2, x))
        x += step
        if abs(step) < 1e-12 * x:
            break
    return x
