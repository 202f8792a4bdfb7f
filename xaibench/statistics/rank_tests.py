"""Which method is best on most samples? Mean ranks, and how far apart they must lie.

Friedman's and Nemenyi's tests: Demšar, Statistical comparisons of classifiers over multiple data sets, JMLR 2006,
section 3.2.2. There every ranking is of a block that was drawn by itself. Here data sets, trainings and samples are
drawn in each other, and rankings of one training or patient are alike: both tests are of as many rankings as theirs are
worth, fewer by the design effect (Rao and Scott: The analysis of categorical data from complex sample surveys, JASA
1981), the variance of the mean ranks over what was drawn as a multiple of what it were of rankings drawn one by one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from xaibench.statistics.grouped_scores import Floats, columns_of
from xaibench.statistics.nested_draws import Drawn, nested_means


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
    columns, _ = columns_of(scores)
    whole = columns[~np.isnan(columns).any(axis=1)]
    if len(whole) == 0:
        return np.full(columns.shape[1], np.nan), 0
    return np.asarray(_ranked(whole, higher_is_better=higher_is_better).mean(axis=0), dtype=np.float64), len(whole)


def critical_difference(methods: int, samples: float, *, freedom: float = math.inf, level: float = 0.05) -> float:
    """How far two average ranks must lie apart to differ at ``level``: the Nemenyi test.

    Args:
        methods: Number of methods, at least two.
        samples: Number of samples that were ranked, or as many as they are worth.
        freedom: Degrees of freedom of that number; infinite where it is counted.
        level: Of the whole family of comparisons.

    Returns:
        In ranks; nan for less than two methods, or no sample.

    Example:
        >>> round(critical_difference(4, 14), 2)  # Demšar's example
        1.25
    """
    from scipy.stats import studentized_range

    if methods < 2 or not samples > 0 or math.isnan(freedom):
        return math.nan
    q = studentized_range.ppf(1 - level, methods, freedom) / math.sqrt(2)
    return float(q * math.sqrt(methods * (methods + 1) / (6 * samples)))


@dataclass(frozen=True)
class MeanRanks:
    """How methods rank over what was drawn, and what of it is more than chance.

    Attributes:
        ranks: ``[M]`` mean ranks; 1 is best.
        n: Rankings that they are the means of: rows where every method has a score.
        worth: How many rankings drawn one by one say as much; ``nan`` where too few are drawn.
        freedom: Degrees of freedom of that; infinite where each is drawn by itself.
    """

    ranks: Floats
    n: int
    worth: float
    freedom: float

    @property
    def critical_difference(self) -> float:
        """Ranks at least so far apart differ at 5 %, of all pairs at once (Nemenyi); ``nan`` where none can."""
        return critical_difference(len(self.ranks), self.worth, freedom=self.freedom)


def mean_ranks(scores: ArrayLike, drawn: Drawn, *, higher_is_better: bool = True) -> MeanRanks:
    """Mean ranks over what was drawn, and of how many independent rankings they are worth.

    Args:
        scores: ``[N, M]``; a row ranks the methods, and counts where every method has a score.
        drawn: Which data set, training and group each row is of.
        higher_is_better: Direction.

    Returns:
        Ranks, and what they are worth.

    Example:
        >>> rows = np.array([[0.9, 0.5, 0.1], [0.8, 0.4, 0.2], [0.9, 0.6, 0.7], [0.7, 0.8, 0.3]])
        >>> found = mean_ranks(rows, Drawn.of(4))
        >>> found.ranks.tolist(), found.worth, round(found.critical_difference, 2)
        ([1.25, 2.0, 2.75], 4.0, 1.66)
        >>> round(mean_ranks(rows.repeat(2, axis=0), Drawn.of(8, groups=[0, 0, 1, 1, 2, 2, 3, 3])).worth, 1)
        3.4
    """
    columns, _ = columns_of(scores)
    ranks, n = average_ranks(columns, higher_is_better=higher_is_better)
    whole = ~np.isnan(columns).any(axis=1)
    parts = {name: getattr(drawn, name)[whole] for name in ("data_sets", "trainings", "groups")}
    kept = Drawn.of(n, **parts)
    alone = kept.level == "samples" and len(np.unique(kept.groups)) == n
    if alone or n < 2:
        return MeanRanks(ranks, n, float(n) if n else math.nan, math.inf)
    rows = _ranked(columns[whole], higher_is_better=higher_is_better)
    found, plain = nested_means(rows, kept, alike=True), nested_means(rows, Drawn.of(n))
    single, several = float(plain.variance.sum()), float(found.variance.sum())
    # Where all rankings are the same, nothing says what they are worth: what was drawn at the top counts.
    worth = n * single / several if several > 0 else float(len(np.unique(getattr(kept, _TOP[kept.level]))))
    return MeanRanks(ranks, n, worth, float(found.freedom.mean()))


#: What is counted at each level.
_TOP = {"data sets": "data_sets", "trainings": "trainings", "samples": "groups"}


def friedman(ranks: MeanRanks) -> float:
    """The p-value of Friedman's test that no method is better than another, by the F distribution.

    Args:
        ranks: From :func:`mean_ranks`.

    Returns:
        In [0, 1]; ``nan`` where all mean ranks are the same, or too few are drawn.
    """
    from scipy.stats import f

    m = len(ranks.ranks)
    if m < 2 or not ranks.worth > 0 or np.ptp(ranks.ranks) == 0:
        return math.nan
    statistic = 12 * ranks.worth / (m * (m + 1)) * float(np.square(ranks.ranks - (m + 1) / 2).sum())
    return float(f.sf(statistic / (m - 1), m - 1, min(ranks.freedom, 1e9)))


def _ranked(whole: Floats, *, higher_is_better: bool) -> Floats:
    """Ranks within each row."""
    from scipy.stats import rankdata

    return np.asarray(rankdata(-whole if higher_is_better else whole, axis=1), dtype=np.float64)
