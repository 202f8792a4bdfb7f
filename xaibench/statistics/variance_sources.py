"""Where does the variance of a score come from: the data set, the training, the sample, or what is left?

The analysis of variance of :mod:`xaibench.statistics.nested_draws`: in each data set trainings are crossed with groups
of samples, whose mean squares give the variances between trainings, between samples and of the rest; the means of the
data sets then give what differs between data sets beyond these. Searle, Casella and McCulloch: Variance Components,
1992, chapters 3 and 4 (estimates below 0 count as 0).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from xaibench.statistics.grouped_scores import Floats, columns_of
from xaibench.statistics.nested_draws import Drawn, Whole


@dataclass(frozen=True)
class VarianceComponents:
    """Variances of one score that come of each level, ``[M]`` a column; ``nan`` for what was drawn once.

    Attributes:
        data_sets: Between data sets.
        trainings: Between trainings of a data set.
        samples: Between groups of samples of a data set.
        rest: Of a sample under a training; with one training it is part of ``samples``.
    """

    data_sets: Floats
    trainings: Floats
    samples: Floats
    rest: Floats

    def shares(self) -> Floats:
        """``[4, M]`` of the four in their sum; a level that was drawn once counts 0; ``nan`` where nothing varies."""
        parts = np.nan_to_num(np.stack([self.data_sets, self.trainings, self.samples, self.rest]))
        total = parts.sum(axis=0)
        shares: Floats = np.divide(parts, total, out=np.full_like(parts, np.nan), where=total > 0)
        return shares


def variance_components(scores: ArrayLike, drawn: Drawn) -> VarianceComponents:
    """The variance of the scores of each column, level by level.

    Args:
        scores: ``[N, M]`` or ``[N]``; a group of samples that lacks a defined score in some training is left out.
        drawn: What the rows are of.

    Returns:
        The components; ``nan`` where too few are drawn or defined.

    Example:
        >>> drawn = Drawn.of(8, data_sets=[0] * 4 + [1] * 4, groups=[0, 1, 2, 3] * 2)
        >>> found = variance_components([0.1, 0.3, 0.2, 0.2, 1.1, 1.3, 1.2, 1.2], drawn)
        >>> [round(float(share), 3) for share in found.shares()[:, 0]]
        [0.987, 0.0, 0.013, 0.0]
    """
    columns, _ = columns_of(scores)
    found = [_components(column, drawn) for column in columns.T]
    return VarianceComponents(*np.array(found, dtype=np.float64).reshape(-1, 4).T)


def _components(column: Floats, drawn: Drawn) -> tuple[float, float, float, float]:
    means, errors, parts = [], [], []
    for each in np.unique(drawn.data_sets):
        mine = drawn.data_sets == each
        table = _table(column[mine], drawn.trainings[mine], drawn.groups[mine])
        if table.size and table.shape[1] > 1:
            trainings, samples, rest = _crossed(table)
            parts.append((trainings, samples, rest))
            means.append(table.mean())
            of_trainings = 0.0 if np.isnan(trainings) else trainings / len(table)
            errors.append(of_trainings + samples / table.shape[1] + np.nan_to_num(rest) / table.size)
    if not parts:
        return (np.nan,) * 4
    between = max(float(np.var(means, ddof=1) - np.mean(errors)), 0.0) if len(means) > 1 else np.nan
    # A data set of one training cannot tell samples from the rest: it says nothing where others can.
    able = [part for part in parts if not np.isnan(part[0])] or parts
    trainings, samples, rest = (max(float(np.mean(part)), 0.0) for part in zip(*able, strict=True))
    return between, trainings, samples, rest


def _table(values: Floats, trainings: Whole, groups: Whole) -> Floats:
    """``[T, G]`` mean scores; groups that lack one are left out, and trainings that have none."""
    shape = int(trainings.max()) + 1, int(groups.max()) + 1
    sums, counts = np.zeros(shape), np.zeros(shape)
    known = ~np.isnan(values)
    np.add.at(sums, (trainings[known], groups[known]), values[known])
    np.add.at(counts, (trainings[known], groups[known]), 1)
    there = counts.any(axis=1)
    whole = counts[there].all(axis=0)
    return np.asarray(sums[there][:, whole] / counts[there][:, whole], dtype=np.float64)


def _crossed(table: Floats) -> tuple[float, float, float]:
    """Variances between the rows, between the columns, and of the rest; unbiased, so that they may be below 0."""
    t, g = table.shape
    columns = table.mean(axis=0)
    if t == 1:
        return np.nan, float(np.var(columns, ddof=1)), np.nan
    rows = table.mean(axis=1)
    rest = np.square(table - rows[:, None] - columns + table.mean()).sum() / ((t - 1) * (g - 1))
    return float(np.var(rows, ddof=1) - rest / g), float(np.var(columns, ddof=1) - rest / t), float(rest)
