"""Empirical Bayes shrinkage of variances (moderated variances), for many methods on few data sets or trainings.

Two data sets give a variance with one degree of freedom, with which hardly any difference is significant. The variances
of the many methods of a run are similar, and their own spread shows how similar. Each variance is shrunk toward a
common prior value, by a weight that is estimated from this spread, and gains the degrees of freedom of the prior.
Smyth: Linear models and empirical Bayes methods for assessing differential expression in microarray experiments,
Statistical Applications in Genetics and Molecular Biology 2004, sections 4 and 6 (there: many genes, few arrays).
"""

from __future__ import annotations

import math

import numpy as np

from xaibench.statistics.grouped_scores import Floats

#: Minimum number of variances; from fewer, the prior cannot be estimated.
MIN_VARIANCES = 8
#: Number of standard errors added to the spread of the variances, so that they are not shrunk too much.
SAFETY_MARGIN = 1.0


def moderate_variances(variance: Floats, df: Floats) -> tuple[Floats, Floats]:
    """Shrink variances toward their common prior value.

    Args:
        variance: Variances, ``[M]``. Variances that are undefined or 0 are not changed.
        df: Their degrees of freedom, ``[M]``.

    Returns:
        Moderated variances and their degrees of freedom, ``[M]`` each; unchanged if there are fewer than
        :data:`MIN_VARIANCES`.

    Example:
        >>> variance = np.array([0.9, 1.1, 1.0, 1.2, 0.8, 1.05, 0.95, 1.0])
        >>> moderate_variances(variance, np.full(8, 2.0))[1].tolist()  # all are pooled into one variance
        [16.0, 16.0, 16.0, 16.0, 16.0, 16.0, 16.0, 16.0]
    """
    from scipy.special import digamma, polygamma

    used = np.isfinite(variance) & (variance > 0) & np.isfinite(df)
    if used.sum() < MIN_VARIANCES:
        return variance, df
    s2, d = variance[used], df[used]
    logs = np.log(s2) - digamma(d / 2) + np.log(d / 2)
    spread = float(logs.var(ddof=1))
    # The spread is increased by a standard error, because it is estimated from few variances.
    excess = spread * (1 + SAFETY_MARGIN * math.sqrt(2 / (len(s2) - 1))) - float(polygamma(1, d / 2).mean())
    prior_df = 2 * inverse_trigamma(excess) if excess > 0 else math.inf
    if math.isinf(prior_df):
        prior_variance = np.exp(logs.mean())
        moderated, moderated_df = np.full(len(s2), prior_variance), np.full(len(s2), d.sum())
    else:
        prior_variance = np.exp(logs.mean() + digamma(prior_df / 2) - math.log(prior_df / 2))
        moderated = (prior_df * prior_variance + d * s2) / (prior_df + d)
        moderated_df = np.minimum(prior_df + d, d.sum())  # at most the pooled degrees of freedom
    variance, df = variance.copy(), df.copy()
    variance[used], df[used] = moderated, moderated_df
    return variance, df


def inverse_trigamma(value: float) -> float:
    """Invert the trigamma function, by Newton's method on its reciprocal.

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
