"""Variance components of a score: between data sets, trainings and samples, and the residual.

The design is that of :mod:`xaibench.statistics.nested_draws`. Within each data set, trainings are crossed with groups
of samples, and their mean squares give the variances between trainings, between samples, and the residual. The means of
the data sets give the variance between data sets. Searle, Casella and McCulloch: Variance Components, 1992, chapters 3
and 4 (estimates below 0 are set to 0).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from xaibench.statistics.grouped_scores import Floats, as_columns
from xaibench.statistics.nested_draws import Ints, SamplingDesign


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
        >>> found = variance_components([0.1, 0.3, 0.2, 0.2, 1.1, 1.3, 1.2, 1.2], drawn)
        >>> [round(float(share), 3) for share in found.shares()[:, 0]]
        [0.987, 0.0, 0.013, 0.0]
    """
    columns, _ = as_columns(scores)
    found = [_components(column, drawn) for column in columns.T]
    return VarianceComponents(*np.array(found, dtype=np.float64).reshape(-1, 4).T)


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
