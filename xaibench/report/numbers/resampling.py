"""Means under resamples of the samples, for what is said of several cells at once."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from xaibench.report.numbers.inference import Matrices, bundled

Floats = NDArray[np.float64]


def resampled_means(cells: Iterable[Matrices], resamples: int, seed: int = 0) -> dict[tuple[str, str, str], Floats]:
    """The mean scores of each cell: as they are, and under the resamples of a clustered bootstrap.

    All cells of a data set (a scenario and background) see the same resample of its groups of samples, since its models
    and methods were scored on the same images; each data set is drawn by itself.

    Args:
        cells: The scores.
        resamples: R.
        seed: Of the draws.

    Returns:
        Cell to ``[1 + R, K, M]``, in the order of its metrics and methods: first the means as they are. A resample that
        has drawn no score of a method has the method's mean; ``nan`` for a method without any score.
    """
    by_set: dict[tuple[str, str], list[Matrices]] = {}
    for cell in cells:
        by_set.setdefault(cell.cell[:2], []).append(cell)
    means = {}
    for number, members in enumerate(by_set.values()):
        groups = np.unique(np.concatenate([cell.groups for cell in members]))
        bundles = bundled(groups)
        size = int(bundles.max()) + 1
        drawn = np.random.default_rng([number, seed]).multinomial(size, np.full(size, 1 / size), resamples)
        weights = np.vstack([np.ones(size), drawn])
        for cell in members:
            means[cell.cell] = _weighted_means(cell, weights, bundles[np.searchsorted(groups, cell.groups)])
    return means


def _weighted_means(cell: Matrices, weights: Floats, index: NDArray[np.int64]) -> Floats:
    """``[W, K, M]`` means of the rows, which count as much as ``weights [W, G]`` says of their group ``index [N]``."""
    flat = cell.values.reshape(len(cell.values), -1)
    defined = ~np.isnan(flat)
    sums, counts = np.zeros((2, weights.shape[1], flat.shape[1]))
    np.add.at(sums, index, np.where(defined, flat, 0.0))
    np.add.at(counts, index, defined)
    totals, numbers = weights @ sums, weights @ counts
    scored = counts.sum(0)
    plain = np.divide(sums.sum(0), scored, out=np.full(len(scored), np.nan), where=scored > 0)
    found = np.where(numbers > 0, totals / np.maximum(numbers, 1), plain)
    return np.asarray(found.reshape(len(weights), *cell.values.shape[1:]))
