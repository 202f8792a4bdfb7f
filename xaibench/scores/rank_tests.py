"""Tests and effect sizes of paired scores, correction for several tests, and agreement of rankings."""

from __future__ import annotations

import functools
import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from xaibench.scores.nested_draws import Floats, SamplingDesign, as_columns, nested_means

#: Significance level: family-wise error rate of a family of tests.
ALPHA = 0.05


class ControlComparison(NamedTuple):
    """Comparison of a method with all controls.

    Attributes:
        p: The largest p-value of the tests against the controls; 1 if the mean of a control is at least as good.
        beats: Whether ``p`` is below :data:`ALPHA`.
    """

    p: float
    beats: bool


def holm(p: ArrayLike) -> Floats:
    """Adjust p-values for multiple testing by Holm's step-down method, which controls the family-wise error rate.

    Holm: A simple sequentially rejective multiple test procedure, Scandinavian Journal of Statistics 1979.

    Args:
        p: P-values, ``[M]``. ``nan`` is not counted as a test.

    Returns:
        Adjusted p-values in [0, 1], ``[M]``, at least as large as ``p``.

    Example:
        >>> holm([0.01, 0.04, 0.03]).tolist()
        [0.03, 0.06, 0.06]
    """
    values = np.asarray(p, dtype=np.float64)
    adjusted = np.full(values.shape, np.nan)
    order = np.argsort(values, kind="stable")[: int((~np.isnan(values)).sum())]
    factors = len(order) - np.arange(len(order))
    adjusted[order] = np.minimum(np.maximum.accumulate(values[order] * factors), 1.0)
    return adjusted


def compare_with_controls(
    pairs: Iterable[tuple[str, str, float, float]], controls: Collection[str], *, higher_is_better: bool
) -> dict[str, ControlComparison]:
    """Compare methods with the controls. A method beats them if its mean is significantly better than each of theirs.

    Args:
        pairs: ``(first, second, difference, p)``: the mean of first minus second, and its p-value, corrected for all
            tested pairs (:func:`holm`). Pairs with p-value ``nan``, which have no common samples, are ignored.
        controls: The methods that are controls.
        higher_is_better: Whether higher scores are better.

    Returns:
        The comparison for each method that was tested against at least one control.

    Example:
        >>> pairs = [("ig", "sobel", 0.3, 0.01), ("ig", "uniform", 0.5, 0.02), ("lime", "sobel", -0.1, 0.01)]
        >>> compare_with_controls(pairs, {"sobel", "uniform"}, higher_is_better=True)
        {'ig': ControlComparison(p=0.02, beats=True), 'lime': ControlComparison(p=1.0, beats=False)}
    """
    worst: dict[str, float] = {}
    for first, second, difference, p in pairs:
        if math.isnan(p):
            continue
        ahead = difference if higher_is_better else -difference
        for method, other, lead in ((first, second, ahead), (second, first, -ahead)):
            if other in controls and method not in controls:
                worst[method] = max(worst.get(method, 0.0), float(p) if lead > 0 else 1.0)
    return {method: ControlComparison(p, p < ALPHA) for method, p in worst.items()}


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


def rank_share(first: ArrayLike, second: ArrayLike) -> float:
    r"""Share of the ranks of Wilcoxon's signed-rank test with ``first`` above ``second``: the paired effect size.

    .. math:: T^+ \,/\, \sum_i r_i

    with :math:`r_i` the ranks of the absolute differences and :math:`T^+` the sum of the ranks of positive differences.
    0.5: no effect; 1: every pair is higher in ``first``. The matched-pairs rank-biserial correlation is 2 times the
    share minus 1. Pairs without a difference are left out, as are pairs with an undefined score.

    Args:
        first: ``[N]`` scores.
        second: ``[N]`` scores of the same samples.

    Returns:
        The share in [0, 1]; NaN if no pair differs.

    Example:
        >>> rank_share([3.0, 2.0, 5.0], [1.0, 3.0, 0.0])  # ranks 2, 1 and 3 of the differences 2, -1 and 5
        0.8333333333333334
    """
    from scipy.stats import rankdata  # imported on use, because it is slow to load

    differences = np.asarray(first, dtype=np.float64) - np.asarray(second, dtype=np.float64)
    differences = differences[~np.isnan(differences) & (differences != 0)]
    if len(differences) == 0:
        return math.nan
    ranks = rankdata(np.abs(differences))
    return float(ranks[differences > 0].sum() / ranks.sum())


def explained_variance(groups: Sequence[ArrayLike]) -> float:
    r"""Share of the variance of scores that the group explains (:math:`R^2` of a one-way model, eta squared).

    Args:
        groups: Scores of each group, ``[N_k]``; undefined scores are left out.

    Returns:
        The share in [0, 1]; NaN if all scores are equal or there is none.

    Example:
        >>> explained_variance([[1.0, 2.0], [3.0, 4.0]])
        0.8
    """
    values = [np.asarray(group, dtype=np.float64).ravel() for group in groups]
    values = [group[~np.isnan(group)] for group in values]
    every = np.concatenate(values) if values else np.empty(0)
    if len(every) == 0 or np.ptp(every) == 0:
        return math.nan
    within = sum(float(((group - group.mean()) ** 2).sum()) for group in values if len(group))
    return 1 - within / float(((every - every.mean()) ** 2).sum())


def kendall_tau(values: ArrayLike) -> NDArray[np.float64]:
    """Compute Kendall's tau-b between every two rows.

    Kendall: The treatment of ties in ranking problems, Biometrika 1945: the number of concordant pairs minus the number
    of discordant pairs, divided by the geometric mean of the numbers of untied pairs of the two rows.

    Args:
        values: ``[..., S, M]``: S rows that rank M items by their values.

    Returns:
        ``[..., S, S]`` in [-1, 1]: 1 for the same order, about 0 for unrelated orders; ``nan`` if a row is constant.

    Example:
        >>> kendall_tau([[1, 2, 3, 4], [1, 2, 4, 3], [4, 3, 2, 1]]).round(2).tolist()
        [[1.0, 0.67, -1.0], [0.67, 1.0, -0.67], [-1.0, -0.67, 1.0]]
    """
    rows = np.asarray(values, dtype=np.float64)
    first, second = np.triu_indices(rows.shape[-1], 1)
    signs = np.sign(rows[..., first] - rows[..., second])
    untied = (signs != 0).sum(axis=-1).astype(np.float64)
    balance = signs @ np.swapaxes(signs, -1, -2)  # concordant minus discordant pairs
    largest = np.sqrt(untied[..., :, None] * untied[..., None, :])
    tau: NDArray[np.float64] = np.divide(balance, largest, out=np.full(balance.shape, np.nan), where=largest > 0)
    return tau
