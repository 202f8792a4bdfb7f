"""Means of scores from a nested design (data sets, trainings, samples), with variances and degrees of freedom.

All networks trained on a data set explain the same samples of it. So samples and trainings are crossed within a data
set, and both are nested in it::

    score = mean + data set + training (of the data set) + sample (of the data set) + residual

With several data sets, the variance of the mean follows from the means of the data sets, because these include all
variation below. With one data set (generated once, or a fixed set of photographs), the variance is over its trainings
and samples, and with one training over the samples alone. Then the interval does not account for the levels that were
not varied, and :attr:`NestedMeans.level` shows which level it accounts for. A mean with scores in a single unit of that
level, such as one of two trainings, has no variance.

Means of few data sets or trainings can be equal by chance, above all means of hits and of other scores with few values.
Therefore the variance is at least the one over the samples alone. The degrees of freedom are always the number of data
sets (or trainings) minus one. Larger ones, as Satterthwaite's, would be right for 95 % intervals but not for the small
p-values that remain significant after a correction for many tests. They are fewer if one unit has many more
scores than the others (:func:`_jackknife`).

Few scores of a skewed distribution rarely include its largest values, so that their mean and their variance are both
too small. With one training, the end of the interval on the side of the longer tail therefore follows from the monotone
transform of Hall (On the removal of skewness by transformation, JRSS B 1992); the other end is Student's t. The tests
also assume a skewness as in the other columns, because a column that lacks its largest values by chance does not look
skewed.

The variance of a method depends on its own scores only. Shrinking the variances of all methods toward a common value
would narrow the intervals of few data sets, but a method that varies more than the others would then have intervals
that are too narrow.

The variances are cluster-robust variances of a ratio (a mean over rows, some of which are undefined), estimated by the
jackknife over clusters (Bell and McCaffrey: Bias reduction in standard errors for linear regression with multi-stage
samples, Survey Methodology 2002). The variances of two crossed levels are added, minus their interaction, which both
contain: Cameron, Gelbach and Miller: Robust inference with multiway clustering, JBES 2011. The interaction is estimated
from the doubly centered table as in Cornfield and Tukey: Average values of mean squares in factorials, Annals of
Mathematical Statistics 1956.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
#: Relative difference below which scores are considered equal. float32 has seven digits, and rank-based scores lose one
#: or two more where rounding breaks a tie.
ROUNDING = 1e-5
#: Range of scores without bounds.
UNBOUNDED = (-np.inf, np.inf)
#: Number of independent groups of samples from which on intervals and tests of skewed scores are reliable.
RELIABLE_GROUPS = 20
#: Note below intervals of fewer groups.
FEW_SAMPLES = (
    f"Fewer than {RELIABLE_GROUPS} independent samples: intervals and tests are not reliable if the scores are skewed."
)
#: The highest level with more than one unit, which the variance is computed over.
Level: TypeAlias = Literal["data sets", "trainings", "samples"]


@dataclass(frozen=True)
class SamplingDesign:
    """Sampling design: the data set, training and group of samples of each row.

    Attributes:
        data_sets: Data set index of each row, ``[N]``.
        trainings: Training index within the data set, ``[N]``.
        groups: Index of the group of samples (such as a patient) within the data set, ``[N]``.
    """

    data_sets: Ints
    trainings: Ints
    groups: Ints

    @classmethod
    def of(
        cls,
        rows: int,
        *,
        data_sets: ArrayLike | None = None,
        trainings: ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> SamplingDesign:
        """Build the design from names of any type.

        Args:
            rows: Number of rows, N.
            data_sets: Data set of each row, ``[N]``; by default all rows have the same.
            trainings: Training of each row, ``[N]``; by default all rows of a data set have the same. The same name in
                two data sets means two trainings.
            groups: Sample, patient or image of each row, ``[N]``; by default every row is its own group. The same name
                in two data sets means two groups.

        Returns:
            The design.

        Raises:
            ValueError: If an array does not have one entry per row.

        Example:
            >>> SamplingDesign.of(3, data_sets=["x", "y", "y"], trainings=["a", "b", "a"]).trainings.tolist()
            [0, 1, 0]
        """
        zeros = np.zeros(rows, np.int64)
        sets = _encode_within("data_sets", zeros if data_sets is None else data_sets, zeros)
        return cls(
            sets,
            _encode_within("trainings", zeros if trainings is None else trainings, sets),
            _encode_within("groups", np.arange(rows) if groups is None else groups, sets),
        )

    @property
    def level(self) -> Level:
        """The highest level with more than one unit."""
        if len(np.unique(self.data_sets)) > 1:
            return "data sets"
        return "trainings" if len(np.unique(self.trainings)) > 1 else "samples"


def _encode_within(name: str, given: ArrayLike, parents: Ints) -> Ints:
    """Integer-encode names, restarting at 0 within each parent."""
    names = np.asarray(given)
    if names.shape != parents.shape:
        raise ValueError(f"Expected {name} [{len(parents)}], one for each row; got {list(names.shape)}.")
    numbers = np.unique(names, return_inverse=True)[1]
    codes = np.zeros(len(parents), dtype=np.int64)
    for parent in np.unique(parents):
        codes[parents == parent] = np.unique(numbers[parents == parent], return_inverse=True)[1]
    return codes


@dataclass(frozen=True)
class NestedMeans:
    """Means with their variances, one per column (a method, or a pair of methods).

    Attributes:
        mean: Mean over all defined rows, ``[M]``; ``nan`` if there are none.
        variance: Variance of the mean, ``[M]``; ``nan`` if fewer than two units of the level have a score.
        df: Degrees of freedom of the variance, ``[M]``.
        level: The level that the variance is computed over.
        groups: Number of groups of samples with a score, over all data sets, ``[M]``.
        units: Number of units of the level with a score, ``[M]``: data sets, trainings, or groups of samples.
        spread: Variance of the scores, ``[M]``.
        largest: Largest score, ``[M]``.
        skewness: Skewness of the mean with one training, ``[M]``: that of the scores divided by the square root of
            their number, if each is its own group. 0 at the other levels.
    """

    mean: Floats
    variance: Floats
    df: Floats
    level: Level
    groups: Floats
    units: Floats
    spread: Floats
    largest: Floats
    skewness: Floats

    def intervals(
        self, level: float = 0.95, *, within: tuple[float, float] = UNBOUNDED, attains_ends: bool = True
    ) -> Floats:
        """Compute the confidence interval of each mean.

        Args:
            level: Confidence level.
            within: Smallest and largest possible score.
            attains_ends: Whether scores may be exactly at a finite end of that range. Then the interval of equal scores
                at that end is Wilson's, with as many observations as :attr:`units`, and no interval of hits and misses
                ends further inside. Other intervals are widened to the square of the share that the variance of the
                scores has of that of hits and misses with the same mean, so graded scores hardly change. If both ends
                are finite and there is one training, the interval is a generalization of Wilson's
                (:func:`~xaibench.scores.nested_draws.bounded_intervals`). If one end is infinite, scores that were
                not seen are assumed within 1 of the other end, where chance is, or up to the largest score of all
                columns.

        Returns:
            Lower and upper bounds, ``[M, 2]``; ``nan`` where the variance is undefined.
        """
        from scipy.stats import norm, t

        quantile: Floats = np.asarray(t.ppf((1 + level) / 2, self.df), dtype=np.float64)
        error = np.sqrt(self.variance)
        below, above = (_untransform(quantile, sign * self.skewness) * error for sign in (-1, 1))
        ends = np.stack([self.mean - below, self.mean + above], axis=-1)
        low, high = within
        if not (attains_ends and np.isfinite(within).any()):
            return np.clip(ends, low, high)
        length = high - low
        if not np.isfinite(length):
            length = 1.0 if np.isfinite(high) else np.fmax.reduce(self.largest - low, initial=1.0)
        if np.isfinite(high - low):
            mean, variance = (self.mean - low) / length, self.variance / length**2
            bounded = low + length * bounded_intervals(mean, variance, self.df, self.groups, level)
            in_range = (mean >= 0) & (mean <= 1)  # a metric may return scores outside its stated range
            ends = np.where(in_range[:, None], bounded, ends)
        reach = norm.ppf((1 + level) / 2) ** 2 / np.maximum(self.units, 1)
        reach = reach / (1 + reach)
        for end, far in ((high, 0), (low, 1)):
            if np.isfinite(end):
                size, one = np.abs(self.mean - end) / length, 1 / np.maximum(self.groups, 1)
                of_hits = np.maximum(size * (1 - size), 0)  # variance of hits and misses with that mean
                weight = np.minimum((self.spread / length**2 + one) / (of_hits + one), 1) ** 2 * (size <= 1)
                distance = np.abs(ends[:, far] - end) / length
                distance += weight * np.maximum(reach - distance, 0)
                ends[:, far] = end + (distance if far else -distance) * length
        return np.clip(ends, low, high)

    def p_values(self) -> Floats:
        """Compute two-sided p-values of the test that the mean is 0.

        With one training, the test is Student's for scores that are not skewed. Otherwise it accounts for the skewness
        of the column, and for that of nine in ten columns as far as the column's scores do not exclude it. The p-value
        may therefore exceed 5 % although the 95 % interval does not contain 0.

        Returns:
            ``[M]`` in [0, 1]: 1 where the mean is 0; ``nan`` where the variance is undefined. Where the variance is 0
            but the mean is not, the p-value of the sign test, ``2 ** (1 - groups)``.
        """
        with np.errstate(divide="ignore", invalid="ignore"):
            statistic = np.abs(self.mean) / np.sqrt(self.variance)
        size, chance = np.abs(self.skewness), _deviation_of_skewness(self.groups)
        varied = self.variance > 0
        usual = np.quantile(size[varied], 0.9) if varied.any() else 0.0
        usual = np.sqrt(np.maximum(usual**2 - 3 * chance**2, 0))  # less what normal scores have by chance
        skewness = np.maximum(-self.skewness * np.sign(self.mean), np.minimum(usual, size + 3 * chance))
        statistic = _transform(np.where(varied, statistic, 0.0), np.maximum(skewness, 0))
        p = two_sided_p_values(np.where(varied, statistic, self.mean), np.where(varied, 1.0, self.variance), self.df)
        return np.where((self.variance == 0) & (self.mean != 0), 2.0 ** (1 - self.groups), p)


def _transform(statistic: Floats, skewness: Floats) -> Floats:
    """Return Hall's transform of Student's statistic, at least 0 and at most the statistic; [M] each."""
    slope = skewness / 3
    transformed = statistic - slope * statistic**2 + slope**2 * statistic**3 / 3 - skewness / 6
    return np.clip(transformed, 0, statistic)


def _untransform(quantile: Floats, skewness: Floats) -> Floats:
    """Return the statistic with that quantile as its transform, at least the quantile; [M] each."""
    slope = np.where(skewness > 1e-6, skewness / 3, 1.0)
    statistic = (1 + np.cbrt(3 * slope * (quantile + skewness / 6) - 1)) / slope
    return np.where(skewness > 1e-6, np.maximum(statistic, quantile), quantile)


def _deviation_of_skewness(groups: Floats) -> Floats:
    """Return the standard deviation of :attr:`NestedMeans.skewness` for normal scores in groups of one size."""
    n = np.maximum(groups, 3)
    return np.asarray(np.sqrt(6 * (n - 1) / ((n - 2) * (n + 1) * (n + 3))), dtype=np.float64)


def two_sided_p_values(mean: Floats, variance: Floats, df: Floats) -> Floats:
    """Compute two-sided p-values of Student's t-test that the mean is 0.

    Args:
        mean: Means, ``[M]``.
        variance: Variances of the means, ``[M]``.
        df: Degrees of freedom of the variances, ``[M]``.

    Returns:
        ``[M]`` in [0, 1]: 1 where the mean is 0; 0 where it is not but the variance is 0; ``nan`` where the variance is
        undefined.

    Example:
        >>> two_sided_p_values(np.array([0.0, 1.0, 2.0]), np.array([0.0, 0.0, 1.0]), np.full(3, 10.0)).round(3).tolist()
        [1.0, 0.0, 0.073]
    """
    from scipy.stats import t

    with np.errstate(divide="ignore", invalid="ignore"):
        statistic = np.abs(mean) / np.sqrt(variance)
    p = np.asarray(2 * t.sf(statistic, df), dtype=np.float64)
    return np.where((mean == 0) & ~np.isnan(variance), 1.0, p)


def unpaired_difference(first: NestedMeans, second: NestedMeans) -> NestedMeans:
    """Return second minus first for two independent experiments.

    The degrees of freedom are the smaller ones of the two experiments. Welch's (Biometrika 1947) would be too many if
    the experiment with fewer data sets varies more.

    Args:
        first: Means and variances of the first experiment.
        second: Means and variances of the second experiment.

    Returns:
        The differences; ``level`` is taken from ``first``.

    Example:
        >>> one, other = (nested_means(scores, SamplingDesign.of(4)) for scores in ([1, 2, 3, 4], [3, 4, 5, 9]))
        >>> found = unpaired_difference(one, other)
        >>> float(found.mean[0]), float(found.df[0])
        (2.75, 3.0)
    """
    variance = first.variance + second.variance
    third = second.skewness * second.variance**1.5 - first.skewness * first.variance**1.5
    return NestedMeans(
        mean=second.mean - first.mean,
        variance=variance,
        df=np.minimum(first.df, second.df),
        level=first.level,
        groups=first.groups + second.groups,
        units=np.minimum(first.units, second.units),
        spread=first.spread + second.spread,
        largest=np.fmax(first.largest, second.largest),
        skewness=np.divide(third, variance**1.5, out=np.zeros_like(third), where=variance > 0),
    )


def nested_means(scores: ArrayLike, drawn: SamplingDesign) -> NestedMeans:
    """Compute the mean of each column and its variance under the nested design.

    Args:
        scores: ``[N, M]`` or ``[N]``, one row per sample and training; ``nan`` where undefined.
        drawn: The data set, training and group of each row.

    Returns:
        The mean and its variance per column.

    Raises:
        ValueError: If ``scores`` has another number of dimensions, or ``drawn`` another number of rows.

    Example:
        >>> found = nested_means([0.5, 0.7, 0.8, 1.0], SamplingDesign.of(4, data_sets=[0, 0, 1, 1]))
        >>> float(found.mean[0]), float(found.df[0]), found.level
        (0.75, 1.0, 'data sets')
        >>> [round(float(end), 2) for end in found.intervals()[0]]  # wide, because there are only two data sets
        [-1.16, 2.66]
    """
    columns, _ = as_columns(scores)
    if len(drawn.groups) != len(columns):
        raise ValueError(
            f"Expected a design with {len(columns)} rows, as many as the scores have; got {len(drawn.groups)}."
        )
    mean, influence, counts = compute_influences(columns, drawn)
    variance, df = variance_of_mean(influence, counts, drawn.level)
    is_scored = counts.sum(axis=1) > 0
    groups = is_scored.sum(axis=(0, 1)).astype(np.float64)
    units = {"data sets": is_scored.any(axis=1).sum(axis=0), "trainings": (counts[0] > 0).any(axis=1).sum(axis=0)}
    skewness = _skewness(influence[0].sum(axis=0), groups) if drawn.level == "samples" else np.zeros(len(mean))
    total = counts.sum(axis=(0, 1, 2))
    squares = np.nansum((columns - mean) ** 2, axis=0)
    return NestedMeans(
        mean=mean,
        variance=variance,
        df=df,
        level=drawn.level,
        groups=groups,
        units=np.asarray(units.get(drawn.level, groups), dtype=np.float64),
        spread=np.divide(squares, total, out=np.zeros(len(total)), where=total > 0),
        largest=np.fmax.reduce(columns, axis=0, initial=-np.inf),
        skewness=skewness,
    )


class OneSidedTest(NamedTuple):
    """A mean with its 95 % interval, tested in both directions.

    Attributes:
        mean: The mean.
        low: Lower end of the interval.
        high: Upper end.
        p: P-value of "the mean is not above 0"; 1 if the mean is 0 or has no variance.
        p_below: P-value of "the mean is not below 0".
        groups: Number of independent groups of samples.
    """

    mean: float
    low: float
    high: float
    p: float
    p_below: float
    groups: int


def one_sided_test(differences: ArrayLike, groups: ArrayLike) -> OneSidedTest:
    """Test whether a mean of differences is above 0, and whether it is below.

    Args:
        differences: ``[N]``; ``nan`` where undefined.
        groups: Group of samples (image, patient) of each difference, ``[N]``.

    Returns:
        The mean with its interval and p-values.

    Example:
        >>> found = one_sided_test([0.1, 0.3, 0.2, 0.4], [0, 1, 2, 3])
        >>> round(found.mean, 3), round(found.p, 3), found.groups
        (0.25, 0.015, 4)
    """
    values = np.asarray(differences, dtype=np.float64)
    means = nested_means(values, SamplingDesign.of(len(values), groups=groups))
    mean, half = float(means.mean[0]), float(means.p_values()[0]) / 2
    above, below = (half, 1 - half) if mean > 0 else (1 - half, half)
    if mean == 0 or np.isnan(half):
        above = below = 1.0
    low, high = (float(end) for end in means.intervals()[0])
    return OneSidedTest(mean, low, high, above, below, int(means.groups[0]))


def compute_influences(columns: Floats, drawn: SamplingDesign) -> tuple[Floats, Floats, Floats]:
    """Compute the influence of each cell of the design (data set, training and group) on the mean.

    Args:
        columns: Scores ``[N, M]``.
        drawn: The data set, training and group of each row.

    Returns:
        The means ``[M]``; the influence of each cell, which is its sum of deviations from the mean divided by the
        total number of scores, ``[D, T, G, M]`` (zero in sum); and the number of scores of each cell, ``[D, T, G, M]``.
    """
    parts = (drawn.data_sets, drawn.trainings, drawn.groups)
    shape = tuple(int(numbers.max(initial=-1)) + 1 for numbers in parts)
    cells = np.ravel_multi_index(parts, shape) if len(columns) else np.zeros(0, np.int64)
    order = np.argsort(cells, kind="stable")
    starts = np.flatnonzero(np.diff(cells[order], prepend=-1))
    sums, counts = (np.zeros((*shape, columns.shape[1])) for _ in range(2))
    for table, values in ((sums, np.nan_to_num(columns)), (counts, ~np.isnan(columns))):
        if len(starts):
            flat = table.reshape(-1, columns.shape[1])
            flat[cells[order][starts]] = np.add.reduceat(values[order].astype(np.float64), starts, axis=0)
    total = counts.sum(axis=(0, 1, 2))
    mean = np.divide(sums.sum(axis=(0, 1, 2)), total, out=np.full(len(total), np.nan), where=total > 0)
    influence = np.divide(sums - np.nan_to_num(mean) * counts, total, out=np.zeros_like(sums), where=total > 0)
    return mean, influence, counts


def variance_of_mean(influence: Floats, counts: Floats, level: Level) -> tuple[Floats, Floats]:
    """Compute the variance of each mean and its degrees of freedom.

    Args:
        influence: Influence of each cell, ``[D, T, G, M]``, from :func:`compute_influences`.
        counts: Number of scores of each cell, ``[D, T, G, M]``, from :func:`compute_influences`.
        level: The highest level with more than one unit.

    Returns:
        Variances and degrees of freedom, ``[M]`` each.
    """
    if level == "data sets":
        variance, df = _jackknife(influence.sum(axis=(1, 2)), counts.sum(axis=(1, 2)))
        samples = (table.sum(axis=1).reshape(-1, table.shape[-1]) for table in (influence, counts))
        return np.maximum(variance, _jackknife(*samples)[0]), df
    groups = _jackknife(influence.sum(axis=(0, 1)), counts.sum(axis=(0, 1)))
    if level == "samples":
        return groups
    trainings, df = _jackknife(influence[0].sum(axis=1), counts[0].sum(axis=1))
    return _crossed(influence[0], trainings, groups[0]), df


def _jackknife(influence: Floats, counts: Floats) -> tuple[Floats, Floats]:
    """Return the jackknife variance over independent clusters, and its degrees of freedom.

    Leaving out a cluster changes the mean by its influence ``[C, M]``, divided by the share of the remaining scores.
    The degrees of freedom are the number of clusters minus one, and fewer if some clusters have many more scores than
    the others: at most one plus Satterthwaite's for clusters whose means have equal variances (Bell and McCaffrey).
    Without the one, which does not matter for clusters of about equal size, nearly all intervals contain the mean.
    """
    clusters, total = (counts > 0).sum(axis=0).astype(np.float64), counts.sum(axis=0)
    share = np.divide(counts, total, out=np.zeros_like(counts), where=total > 0)
    remaining = 1 - share
    changes = np.divide(influence, remaining, out=np.zeros_like(influence), where=remaining > 0)
    is_defined = clusters > 1
    factor = np.divide(clusters - 1, clusters, out=np.full(len(clusters), np.nan), where=is_defined)
    # The variance is a quadratic form in the means of the clusters: trace and sum of squares of its matrix.
    square = np.divide(share, remaining, out=np.zeros_like(share), where=remaining > 0) ** 2
    overlap = (share**2).sum(axis=0)
    zeroth, first, second = (square.sum(axis=0), (square * share).sum(axis=0), (square * share**2).sum(axis=0))
    trace = zeroth - 2 * first + overlap * zeroth
    squares = (square**2 * (1 - 4 * share + 2 * overlap)).sum(axis=0)
    squares += (overlap * zeroth) ** 2 + 2 * zeroth * second - 4 * overlap * zeroth * first + 2 * first**2
    df = np.divide(trace**2, squares, out=np.full(len(clusters), np.nan), where=is_defined & (squares > 0))
    return (changes**2).sum(axis=0) * factor, np.minimum(clusters - 1, df + 1)


def _skewness(influence: Floats, groups: Floats) -> Floats:
    """Return the skewness of the mean from the influences of independent groups ``[G, M]``; 0 for fewer than three."""
    squares, cubes = ((influence**power).sum(axis=0) for power in (2, 3))
    known = (groups > 2) & (squares > 0)
    skewness = np.divide(cubes, squares**1.5, out=np.zeros_like(cubes), where=known)
    n = np.maximum(groups, 3)
    return np.asarray(skewness * np.sqrt(n * (n - 1)) / (n - 2), dtype=np.float64)  # less biased for few groups


def _crossed(influence: Floats, trainings: Floats, samples: Floats) -> Floats:
    """Add the variances of two crossed levels, minus their interaction, which both contain.

    The interaction may be overestimated, so the variance is at least that over the samples alone.
    """
    t, g, _ = influence.shape
    rest = influence - influence.mean(axis=0) - influence.mean(axis=1, keepdims=True) + influence.mean(axis=(0, 1))
    interaction = (rest**2).sum(axis=(0, 1)) * (t * g / max((t - 1) * (g - 1), 1))
    variance: Floats = np.maximum(trainings + np.maximum(samples - interaction, 0.0), samples)
    return variance


@dataclass(frozen=True)
class VarianceComponents:
    """Variance components of M scores, ``[M]`` each; ``nan`` for a level with a single unit.

    Attributes:
        data_sets: Variance between data sets.
        trainings: Variance between trainings of a data set.
        samples: Variance between groups of samples of a data set.
        rest: Residual variance. With one training, it is part of ``samples``.
    """

    data_sets: Floats
    trainings: Floats
    samples: Floats
    rest: Floats

    def shares(self) -> Floats:
        """Return each component's share of the total, ``[4, M]``; 0 for a single unit, ``nan`` if the total is 0."""
        parts = np.nan_to_num(np.stack([self.data_sets, self.trainings, self.samples, self.rest]))
        total = parts.sum(axis=0)
        shares: Floats = np.divide(parts, total, out=np.full_like(parts, np.nan), where=total > 0)
        return shares


def variance_components(scores: ArrayLike, drawn: SamplingDesign) -> VarianceComponents:
    """Estimate the variance components of each column.

    Args:
        scores: ``[N, M]`` or ``[N]``. A group of samples without a defined score in some training is left out.
        drawn: The data set, training and group of each row.

    Returns:
        The components; ``nan`` where there are too few units or defined scores.

    Example:
        >>> drawn = SamplingDesign.of(8, data_sets=[0] * 4 + [1] * 4, groups=[0, 1, 2, 3] * 2)
        >>> components = variance_components([0.1, 0.3, 0.2, 0.2, 1.1, 1.3, 1.2, 1.2], drawn)
        >>> [round(float(share), 3) for share in components.shares()[:, 0]]
        [0.987, 0.0, 0.013, 0.0]
    """
    columns, _ = as_columns(scores)
    components = [_components(column, drawn) for column in columns.T]
    return VarianceComponents(*np.array(components, dtype=np.float64).reshape(-1, 4).T)


def _components(column: Floats, drawn: SamplingDesign) -> tuple[float, float, float, float]:
    means, errors, parts = [], [], []
    for data_set in np.unique(drawn.data_sets):
        in_set = drawn.data_sets == data_set
        table = _mean_table(column[in_set], drawn.trainings[in_set], drawn.groups[in_set])
        if table.size and table.shape[1] > 1:
            trainings, samples, rest = _crossed_components(table)
            parts.append((trainings, samples, rest))
            means.append(table.mean())
            of_trainings = 0.0 if np.isnan(trainings) else trainings / len(table)
            errors.append(of_trainings + samples / table.shape[1] + np.nan_to_num(rest) / table.size)
    if not parts:
        return (np.nan,) * 4
    between = max(float(np.var(means, ddof=1) - np.mean(errors)), 0.0) if len(means) > 1 else np.nan
    # With a single training, samples and residual are confounded; use such data sets only if there are no others.
    separable = [part for part in parts if not np.isnan(part[0])] or parts
    trainings, samples, rest = (max(float(np.mean(part)), 0.0) for part in zip(*separable, strict=True))
    return between, trainings, samples, rest


def _mean_table(values: Floats, trainings: Ints, groups: Ints) -> Floats:
    """Return mean scores ``[T, G]`` without trainings that have no scores, and then without incomplete groups."""
    shape = int(trainings.max()) + 1, int(groups.max()) + 1
    sums, counts = np.zeros(shape), np.zeros(shape)
    known = ~np.isnan(values)
    np.add.at(sums, (trainings[known], groups[known]), values[known])
    np.add.at(counts, (trainings[known], groups[known]), 1)
    has_scores = counts.any(axis=1)
    is_complete = counts[has_scores].all(axis=0)
    return np.asarray(sums[has_scores][:, is_complete] / counts[has_scores][:, is_complete], dtype=np.float64)


def _crossed_components(table: Floats) -> tuple[float, float, float]:
    """Return unbiased variances between rows, between columns, and of the residual; they may be negative."""
    t, g = table.shape
    columns = table.mean(axis=0)
    if t == 1:
        return np.nan, float(np.var(columns, ddof=1)), np.nan
    rows = table.mean(axis=1)
    rest = np.square(table - rows[:, None] - columns + table.mean()).sum() / ((t - 1) * (g - 1))
    return float(np.var(rows, ddof=1) - rest / g), float(np.var(columns, ddof=1) - rest / t), float(rest)


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


def as_columns(scores: ArrayLike) -> tuple[Floats, bool]:
    """Convert scores ``[N]`` or ``[N, M]`` to ``[N, M]``, and return whether they were ``[N]``.

    Raises:
        ValueError: If the scores have another number of dimensions.
    """
    values = np.asarray(scores, dtype=np.float64)
    if values.ndim not in (1, 2):
        raise ValueError(f"Expected scores [N] or [N, M], got {list(values.shape)}.")
    return (values[:, None], True) if values.ndim == 1 else (values, False)


def paired_differences(first: Floats, second: Floats) -> Floats:
    """Return first minus second, with differences that are due to rounding set to 0.

    A difference counts as rounding up to :data:`ROUNDING` times the larger mean magnitude of the two columns.

    Args:
        first: Scores ``[N, M]`` or ``[N]``; ``nan`` where undefined.
        second: Scores of the same shape.

    Returns:
        Differences of the same shape; ``nan`` where either score is undefined.

    Example:
        >>> paired_differences(np.array([0.5, 0.7]), np.array([0.5 + 1e-9, 0.4])).round(3).tolist()
        [0.0, 0.3]
    """
    difference = first - second
    known = ~np.isnan(difference)
    n = np.maximum(known.sum(axis=0), 1)
    magnitude = np.maximum(*(np.where(known, np.abs(scores), 0.0).sum(axis=0) / n for scores in (first, second)))
    return np.asarray(np.where(np.abs(difference) <= ROUNDING * magnitude, 0.0, difference), dtype=np.float64)
