"""How sure is a mean of what was drawn at several levels: data sets, and in each of them trainings and samples?

The rows of one experiment: every network trained on a data set explains the same samples of it. So samples and
trainings are crossed within a data set, and both are nested in it::

    score = mean + data set + training (of the data set) + sample (of the data set) + the rest

Data sets that were drawn carry all that varies below them: the variance of the mean follows from their means alone,
with one degree of freedom less than there are of them. With one data set (drawn once, or a fixed one of photographs)
its trainings and its samples are what varies, and with one training its samples alone; then the interval leaves out
what was not varied, and :attr:`NestedMeans.level` says so.

The variances are those of cluster-robust inference for a ratio (a mean over rows of which some are undefined), by the
jackknife over clusters (Bell and McCaffrey: Bias reduction in standard errors for linear regression with multi-stage
samples, Survey Methodology 2002). Of two crossed levels they are added, less what both contain: Cameron, Gelbach and
Miller: Robust inference with multiway clustering, JBES 2011, their interaction from the doubly centred table as in
Cornfield and Tukey: Average values of mean squares in factorials, Annals of Mathematical Statistics 1956, and degrees
of freedom as in Graybill and Wang: Confidence intervals on nonnegative linear combinations of variances, JASA 1980.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from xaibench.statistics.bounded_means import UNBOUNDED, wilson
from xaibench.statistics.grouped_scores import Floats, columns_of
from xaibench.statistics.moderated_variances import moderated

Whole = NDArray[np.int64]
#: The highest level of which more than one was drawn, which the interval is over.
Level: TypeAlias = Literal["data sets", "trainings", "samples"]


@dataclass(frozen=True)
class Drawn:
    """Which data set, training and group of samples each row is of.

    Attributes:
        data_sets: ``[N]`` numbers of the data sets.
        trainings: ``[N]`` numbers of the trainings, counted within a data set.
        groups: ``[N]`` numbers of the groups of samples that belong together, counted within a data set.
    """

    data_sets: Whole
    trainings: Whole
    groups: Whole

    @classmethod
    def of(
        cls,
        rows: int,
        *,
        data_sets: ArrayLike | None = None,
        trainings: ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> Drawn:
        """From names of any kind; what is not given was drawn once, but for samples, each of which is a group.

        Args:
            rows: N.
            data_sets: ``[N]`` names.
            trainings: ``[N]`` names within the data set.
            groups: ``[N]`` names within the data set: of samples, patients or images.

        Returns:
            Their numbers.

        Raises:
            ValueError: If there is not one name for each row.

        Example:
            >>> Drawn.of(3, data_sets=["x", "y", "y"], trainings=["a", "b", "a"]).trainings.tolist()
            [0, 1, 0]
        """
        once = np.zeros(rows, np.int64)
        sets = _numbered("data_sets", once if data_sets is None else data_sets, once)
        return cls(
            sets,
            _numbered("trainings", once if trainings is None else trainings, sets),
            _numbered("groups", np.arange(rows) if groups is None else groups, sets),
        )

    @property
    def level(self) -> Level:
        """The highest level of which there is more than one."""
        if len(np.unique(self.data_sets)) > 1:
            return "data sets"
        return "trainings" if len(np.unique(self.trainings)) > 1 else "samples"


def _numbered(name: str, given: ArrayLike, within: Whole) -> Whole:
    """Numbers from 0 for names, counted anew within each of something."""
    names = np.asarray(given)
    if names.shape != within.shape:
        raise ValueError(f"Expected {name} [{len(within)}], one for each row; got {list(names.shape)}.")
    numbers = np.unique(names, return_inverse=True)[1]
    found = np.zeros(len(within), dtype=np.int64)
    for each in np.unique(within):
        found[within == each] = np.unique(numbers[within == each], return_inverse=True)[1]
    return found


@dataclass(frozen=True)
class NestedMeans:
    """Means and how sure they are, a column a method (or a pair of them).

    Attributes:
        mean: ``[M]`` over all defined rows; ``nan`` without one.
        variance: ``[M]`` of the mean; ``nan`` where the level has fewer than two with a score.
        freedom: ``[M]`` degrees of freedom of that variance.
        level: What the variance is over.
        groups: ``[M]`` of how many groups of samples there is a score, over all data sets.
    """

    mean: Floats
    variance: Floats
    freedom: Floats
    level: Level
    groups: Floats

    def intervals(self, level: float = 0.95, *, within: tuple[float, float] = UNBOUNDED) -> Floats:
        """``[M, 2]`` ends of the interval of each mean.

        Args:
            level: Share of the intervals that hold the mean of all that could have been drawn.
            within: Smallest and largest possible score. With both, Wilson's interval
                (:func:`~xaibench.statistics.bounded_means.wilson`); else Student's t, cut where there is one.

        Returns:
            Lower and upper ends; ``nan`` where the variance is undefined.
        """
        from scipy.stats import t

        half = np.sqrt(self.variance) * t.ppf((1 + level) / 2, self.freedom)
        ends = np.stack([self.mean - half, self.mean + half], axis=-1)
        low, high = within
        if not np.isfinite(high - low):
            return np.clip(ends, low, high)
        place, spread = (self.mean - low) / (high - low), self.variance / (high - low) ** 2
        bounded = low + (high - low) * wilson(place, spread, self.freedom, self.groups, level)
        possible = (place >= 0) & (place <= 1)  # of a metric that says otherwise, the scores are right
        return np.where(possible[:, None], bounded, ends)

    def p_values(self) -> Floats:
        """``[M]`` two-sided: would a mean so far from 0 come of what was drawn alone?

        1 where the mean is 0, 0 where it is not and nothing varies.

        Returns:
            In [0, 1]; ``nan`` where the variance is undefined.
        """
        return two_sided(self.mean, self.variance, self.freedom)


def two_sided(mean: Floats, variance: Floats, freedom: Floats) -> Floats:
    """p-values by Student's t: would a mean so far from 0 come of chance alone?

    Args:
        mean: ``[M]``.
        variance: ``[M]`` of the mean.
        freedom: ``[M]`` degrees of freedom of that.

    Returns:
        ``[M]`` in [0, 1]: 1 where the mean is 0, 0 where it is not and nothing varies; ``nan`` where the variance is
        undefined.

    Example:
        >>> two_sided(np.array([0.0, 1.0, 2.0]), np.array([0.0, 0.0, 1.0]), np.full(3, 10.0)).round(3).tolist()
        [1.0, 0.0, 0.073]
    """
    from scipy.stats import t

    with np.errstate(divide="ignore", invalid="ignore"):
        far = np.abs(mean) / np.sqrt(variance)
    p = np.asarray(2 * t.sf(far, freedom), dtype=np.float64)
    return np.where((mean == 0) & ~np.isnan(variance), 1.0, p)


def unpaired_difference(first: NestedMeans, second: NestedMeans) -> NestedMeans:
    """Second minus first, of two experiments that share nothing. Welch: Biometrika 1947, and his degrees of freedom.

    Args:
        first: Means and variances of the one.
        second: Of the other.

    Returns:
        The differences; their ``level`` is that of the first.

    Example:
        >>> one, other = (nested_means(scores, Drawn.of(4)) for scores in ([1, 2, 3, 4], [3, 4, 5, 9]))
        >>> found = unpaired_difference(one, other)
        >>> float(found.mean[0]), round(float(found.freedom[0]), 2), round(float(found.p_values()[0]), 3)
        (2.75, 4.37, 0.128)
    """
    variance = first.variance + second.variance
    spread = first.variance**2 / first.freedom + second.variance**2 / second.freedom
    freedom = np.divide(variance**2, spread, out=np.full(len(variance), np.inf), where=spread > 0)
    return NestedMeans(second.mean - first.mean, variance, freedom, first.level, first.groups + second.groups)


def nested_means(scores: ArrayLike, drawn: Drawn, *, alike: bool = False) -> NestedMeans:
    """The mean of each column, and its variance over what was drawn.

    Args:
        scores: ``[N, M]`` or ``[N]``, a row a score of one sample by one training; ``nan`` where undefined.
        drawn: What the rows are of.
        alike: Whether the columns vary alike, so that each tells something of the variance of the others: few data sets
            or trainings tell little of their own (:func:`~xaibench.statistics.moderated_variances.moderated`).

    Returns:
        One for each column.

    Raises:
        ValueError: For another shape, or rows that ``drawn`` does not speak of.

    Example:
        >>> found = nested_means([0.5, 0.7, 0.8, 1.0], Drawn.of(4, data_sets=[0, 0, 1, 1]))
        >>> float(found.mean[0]), float(found.freedom[0]), found.level
        (0.75, 1.0, 'data sets')
        >>> [round(float(end), 2) for end in found.intervals()[0]]  # two data sets: next to nothing is known
        [-1.16, 2.66]
    """
    columns, _ = columns_of(scores)
    if len(drawn.groups) != len(columns):
        raise ValueError(f"Expected what was drawn for {len(columns)} rows, got {len(drawn.groups)}.")
    mean, residual, counts = influences(columns, drawn)
    variance, freedom = variance_of(residual, counts, drawn.level, alike=alike)
    groups = (counts.sum(axis=1) > 0).sum(axis=(0, 1)).astype(np.float64)
    return NestedMeans(mean, variance, freedom, drawn.level, groups)


def influences(columns: Floats, drawn: Drawn) -> tuple[Floats, Floats, Floats]:
    """What each part of an experiment adds to the difference of a mean from that of all that could be drawn.

    Args:
        columns: ``[N, M]``.
        drawn: What the rows are of.

    Returns:
        ``[M]`` means, ``[D, T, G, M]`` what each data set, training and group adds (sums to zero in every column), and
        ``[D, T, G, M]`` how many scores it has.
    """
    parts = (drawn.data_sets, drawn.trainings, drawn.groups)
    shape = tuple(int(numbers.max(initial=-1)) + 1 for numbers in parts)
    place = np.ravel_multi_index(parts, shape) if len(columns) else np.zeros(0, np.int64)
    order = np.argsort(place, kind="stable")
    starts = np.flatnonzero(np.diff(place[order], prepend=-1))
    sums, counts = (np.zeros((*shape, columns.shape[1])) for _ in range(2))
    for table, values in ((sums, np.nan_to_num(columns)), (counts, ~np.isnan(columns))):
        if len(starts):
            flat = table.reshape(-1, columns.shape[1])
            flat[place[order][starts]] = np.add.reduceat(values[order].astype(np.float64), starts, axis=0)
    total = counts.sum(axis=(0, 1, 2))
    mean = np.divide(sums.sum(axis=(0, 1, 2)), total, out=np.full(len(total), np.nan), where=total > 0)
    residual = np.divide(sums - np.nan_to_num(mean) * counts, total, out=np.zeros_like(sums), where=total > 0)
    return mean, residual, counts


def variance_of(residual: Floats, counts: Floats, level: Level, *, alike: bool = False) -> tuple[Floats, Floats]:
    """Variance of each mean and its degrees of freedom.

    Args:
        residual: ``[D, T, G, M]`` and
        counts: ``[D, T, G, M]``, both of :func:`influences`.
        level: What was drawn at the top.
        alike: As in :func:`nested_means`.

    Returns:
        ``[M]`` twice.
    """
    if level == "data sets":
        return _one_way(residual.sum(axis=(1, 2)), counts.sum(axis=(1, 2)), alike=alike)
    groups = _one_way(residual.sum(axis=(0, 1)), counts.sum(axis=(0, 1)))
    if level == "samples":
        return groups
    trainings = _one_way(residual[0].sum(axis=1), counts[0].sum(axis=1), alike=alike)
    return _crossed(trainings, groups, _interaction(residual[0]))


def _one_way(parts: Floats, counts: Floats, *, alike: bool = False) -> tuple[Floats, Floats]:
    """Of the parts ``[C, M]`` of independent clusters: the jackknife, which of large clusters knows that they are.

    Left out, a cluster moves the mean by its part over the share of the scores that stay.
    """
    clusters, total = (counts > 0).sum(axis=0).astype(np.float64), counts.sum(axis=0)
    stays = 1 - np.divide(counts, total, out=np.zeros_like(counts), where=total > 0)
    moves = np.divide(parts, stays, out=np.zeros_like(parts), where=stays > 0)
    enough = clusters > 1
    factor = np.divide(clusters - 1, clusters, out=np.full(len(clusters), np.nan), where=enough)
    found = (moves**2).sum(axis=0) * factor, np.where(enough, clusters - 1, np.nan)
    return moderated(*found) if alike else found


def _interaction(residual: Floats) -> tuple[Floats, Floats]:
    """What two crossed levels have in common, ``[T, G, M]``: the variance of what neither of them explains."""
    t, g, columns = residual.shape
    freedom = max((t - 1) * (g - 1), 1)
    rest = residual - residual.mean(axis=0) - residual.mean(axis=1, keepdims=True) + residual.mean(axis=(0, 1))
    return (rest**2).sum(axis=(0, 1)) * (t * g / freedom), np.full(columns, float(freedom))


def _crossed(
    one: tuple[Floats, Floats], other: tuple[Floats, Floats], common: tuple[Floats, Floats]
) -> tuple[Floats, Floats]:
    """Of two crossed levels: both, less what they have in common, which both contain.

    Each part keeps its own degrees of freedom at the ends of the 95 % interval, as in the modified large-sample method;
    Satterthwaite's would be those of the other part wherever the one with few comes out small by chance.
    """
    alone = np.maximum(other[0] - common[0], 0.0)
    # What is common may be overestimated: a mean is never surer than by one of the two alone.
    variance = np.maximum(one[0] + alone, other[0])
    ends = np.maximum(one[0] * _quantile(one[1]) + alone * _quantile(other[1]), other[0] * _quantile(other[1]))
    freedom = _freedom_at(np.divide(ends, variance, out=np.ones_like(variance), where=variance > 0))
    undefined = np.isnan(one[0])  # one training has all the scores
    return np.where(undefined, other[0], variance), np.where(undefined, other[1], freedom)


def _quantile(freedom: Floats) -> Floats:
    """Squares of what Student's t has 2.5 % beyond."""
    from scipy.stats import t

    return np.asarray(t.ppf(0.975, freedom) ** 2, dtype=np.float64)


def _freedom_at(squared: Floats) -> Floats:
    """The degrees of freedom with such a :func:`_quantile`, to a thousandth."""
    grid = np.geomspace(1.0, 1e6, 20_000)
    return np.asarray(np.interp(-squared, -_quantile(grid), grid), dtype=np.float64)
