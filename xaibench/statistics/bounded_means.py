r"""Confidence intervals for means of scores with a smallest and a largest value, such as hits or precision.

Near the end of the range, the sample variance is a poor guide: eight hits out of eight have variance 0, and an interval
by Student's t would have width 0. Scores that lie near the end except for a few far ones have a variance that depends
on how many of the few were drawn. Wilson's interval (Probable inference, the law of succession, and statistical
inference, JASA 1927) contains the means :math:`\mu` under which the observed mean m of n hits is likely,
:math:`(m - \mu)^2 \le z^2 \sigma^2(\mu) / n`, with the variance that hits have under :math:`\mu`. For scores in
general, the variance under a smaller mean is not known. Here it is the largest one that the range permits if the
distribution is the observed one except for a share :math:`\varepsilon` of scores at the lower end of the range, which
reduce the mean to :math:`\mu = (1 - \varepsilon) m`:

.. math:: \sigma^2(\mu) = (1 - \varepsilon)\,(s^2 + \varepsilon m^2)

and in the same way for larger means; the part of :math:`s^2` that is due to data sets or trainings does not decrease
with :math:`\varepsilon`. For hits and misses this is Wilson's interval exactly. The interval is continuous in the
scores: one score of 0.9999 among scores of 1 changes nothing.
"""

from __future__ import annotations

import numpy as np

from xaibench.statistics.grouped_scores import Floats

#: Range of scores without bounds.
UNBOUNDED = (-np.inf, np.inf)


def bounded_intervals(mean: Floats, variance: Floats, df: Floats, groups: Floats, level: float = 0.95) -> Floats:
    """Compute confidence intervals for means of scores in [0, 1].

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
        >>> bounded_intervals(*arguments).round(2).tolist()
        [[0.68, 1.0]]
    """
    from scipy.stats import norm, t

    # If every group consists of hits only or misses only, each group counts as one binomial sample, whose variance
    # follows from the mean. Then the quantile is normal, unless there are several data sets or trainings.
    is_binomial = (df == groups - 1) & np.isclose(variance * (groups - 1), mean * (1 - mean), rtol=1e-9, atol=0)
    normal = norm.ppf((1 + level) / 2) ** 2
    with np.errstate(divide="ignore", invalid="ignore"):
        unseen = normal / groups
        of_hits = unseen * mean * (1 - mean)
        observed = np.where(is_binomial, of_hits, variance * t.ppf((1 + level) / 2, df) ** 2)
        of_samples = np.minimum(observed, of_hits)
        below, above = (_distance(size, observed, of_samples, unseen) for size in (mean, 1 - mean))
    ends = np.stack([mean - below, mean + above], axis=-1)
    return np.where(np.isnan(variance)[:, None], np.nan, np.clip(ends, 0, 1))


def _distance(size: Floats, observed: Floats, of_samples: Floats, unseen: Floats) -> Floats:
    """Return the distance d from the mean to an end of the interval.

    It solves ``d² = observed - share of_samples + (1 - share) unseen size d`` with ``share = d / size``, the share of
    scores that are moved to the end of the range, at a distance of ``size`` from the mean.
    """
    linear = unseen * size - np.divide(of_samples, size, out=np.zeros_like(size), where=size > 0)
    root = (linear + np.sqrt(linear**2 + 4 * (1 + unseen) * observed)) / (2 * (1 + unseen))
    return np.where(size > 0, root, 0.0)
