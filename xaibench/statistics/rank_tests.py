"""Mean ranks of methods over samples, with Nemenyi's critical difference.

Nemenyi's test: Demšar, Statistical comparisons of classifiers over multiple data sets, JMLR 2006, section 3.2.2. It
assumes independent rankings. Here trainings and samples are nested in data sets, and the rankings of one training or
patient are correlated. So the test uses the effective number of rankings: their number divided by the design effect
(Rao and Scott: The analysis of categorical data from complex sample surveys, JASA 1981), which is the variance of the
mean ranks under the nested design divided by their variance under independent rankings.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from xaibench.statistics.grouped_scores import Floats, as_columns
from xaibench.statistics.nested_draws import SamplingDesign, nested_means


def average_ranks(scores: ArrayLike, *, higher_is_better: bool = True) -> tuple[Floats, int]:
    """Compute the mean rank of each method over the samples. 1 is best; ties get their average rank.

    Args:
        scores: Scores of M methods, ``[N, M]``. Samples on which a method has no score are left out.
        higher_is_better: Whether higher scores are better.

    Returns:
        Mean ranks ``[M]``, and the number of samples used.

    Example:
        >>> ranks, n = average_ranks([[0.9, 0.5, 0.5], [0.8, 0.9, 0.1], [np.nan, 1, 2]])
        >>> ranks.tolist(), n
        ([1.5, 1.75, 2.75], 2)
    """
    columns, _ = as_columns(scores)
    complete = columns[~np.isnan(columns).any(axis=1)]
    if len(complete) == 0:
        return np.full(columns.shape[1], np.nan), 0
    ranks = _rank_rows(complete, higher_is_better=higher_is_better)
    return np.asarray(ranks.mean(axis=0), dtype=np.float64), len(complete)


def critical_difference(methods: int, samples: float, *, df: float = math.inf, level: float = 0.05) -> float:
    """Compute Nemenyi's critical difference: mean ranks that differ by more are significantly different.

    Args:
        methods: Number of methods, at least two.
        samples: Number of ranked samples, or their effective number.
        df: Degrees of freedom of the effective number; infinite if the samples are independent.
        level: Family-wise error rate.

    Returns:
        The critical difference in ranks; ``nan`` for fewer than two methods, or no samples.

    Example:
        >>> round(critical_difference(4, 14), 2)  # Demšar's example
        1.25
    """
    if methods < 2 or not samples > 0 or math.isnan(df):
        return math.nan
    q = _studentized_range_quantile(1 - level, methods, df) / math.sqrt(2)
    return q * math.sqrt(methods * (methods + 1) / (6 * samples))


@functools.lru_cache(maxsize=1024)  # takes a tenth of a second, and the tables of a page share it
def _studentized_range_quantile(probability: float, methods: int, df: float) -> float:
    from scipy.stats import studentized_range

    return float(studentized_range.ppf(probability, methods, df))


@dataclass(frozen=True)
class MeanRanks:
    """Mean ranks of methods, with the effective number of rankings.

    Attributes:
        ranks: Mean ranks, ``[M]``; 1 is best.
        n: Number of rankings: rows in which every method has a score.
        n_effective: Effective number of independent rankings; ``nan`` if there are too few to estimate it.
        df: Degrees of freedom of the effective number; infinite if the rankings are independent.
    """

    ranks: Floats
    n: int
    n_effective: float
    df: float

    @property
    def critical_difference(self) -> float:
        """Nemenyi's critical difference at a family-wise error rate of 5 %; ``nan`` if undefined."""
        return critical_difference(len(self.ranks), self.n_effective, df=self.df)


def mean_ranks(scores: ArrayLike, drawn: SamplingDesign, *, higher_is_better: bool = True) -> MeanRanks:
    """Compute mean ranks and the effective number of independent rankings.

    Args:
        scores: Scores of M methods, ``[N, M]``. Each row ranks the methods; incomplete rows are left out.
        drawn: The data set, training and group of each row.
        higher_is_better: Whether higher scores are better.

    Returns:
        The mean ranks and their effective number.

    Example:
        >>> rows = np.array([[0.9, 0.5, 0.1], [0.8, 0.4, 0.2], [0.9, 0.6, 0.7], [0.7, 0.8, 0.3]])
        >>> found = mean_ranks(rows, SamplingDesign.of(4))
        >>> found.ranks.tolist(), found.n_effective, round(found.critical_difference, 2)
        ([1.25, 2.0, 2.75], 4.0, 1.66)
        >>> design = SamplingDesign.of(8, groups=[0, 0, 1, 1, 2, 2, 3, 3])
        >>> round(mean_ranks(rows.repeat(2, axis=0), design).n_effective, 1)
        3.4
    """
    columns, _ = as_columns(scores)
    ranks, n = average_ranks(columns, higher_is_better=higher_is_better)
    complete = ~np.isnan(columns).any(axis=1)
    parts = {name: getattr(drawn, name)[complete] for name in ("data_sets", "trainings", "groups")}
    design = SamplingDesign.of(n, **parts)
    is_independent = design.level == "samples" and len(np.unique(design.groups)) == n
    if is_independent or n < 2:
        return MeanRanks(ranks, n, float(n) if n else math.nan, math.inf)
    rows = _rank_rows(columns[complete], higher_is_better=higher_is_better)
    nested, independent = nested_means(rows, design), nested_means(rows, SamplingDesign.of(n))
    independent_variance, nested_variance = float(independent.variance.sum()), float(nested.variance.sum())
    if nested_variance > 0:
        n_effective = n * independent_variance / nested_variance
    else:  # all rankings are equal, so the design effect is undefined; count the units of the highest level
        n_effective = float(len(np.unique(getattr(design, _FIELDS[design.level]))))
    return MeanRanks(ranks, n, n_effective, float(nested.df.mean()))


#: Field of the sampling design per level.
_FIELDS = {"data sets": "data_sets", "trainings": "trainings", "samples": "groups"}


def _rank_rows(scores: Floats, *, higher_is_better: bool) -> Floats:
    from scipy.stats import rankdata

    return np.asarray(rankdata(-scores if higher_is_better else scores, axis=1), dtype=np.float64)
