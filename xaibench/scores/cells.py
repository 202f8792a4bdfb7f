"""The scores of each cell of a run as matrices, and random replicates of their means.

A matrix has one row per sample and training and one column per method. Each row has a data set seed, a training seed
and a group (all scores of one image, or of one patient if ``samples.csv`` says so). If a data set has more than
:data:`BUNDLES` groups, groups are merged at random into bundles. The variance estimate remains one over clusters, and
the memory needed no longer grows with the number of samples.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from xaibench.runfolder.schema import CELL, KEYS
from xaibench.scores.nested_draws import Floats, SamplingDesign, nested_means
from xaibench.scores.results import RunResults

#: Largest number of groups per data set; further groups are merged into bundles.
BUNDLES = 1000


@dataclass(frozen=True)
class Matrices:
    """The scores of one cell on correctly classified samples.

    Attributes:
        cell: Subset, variant and model.
        methods: Explainers with scores, in display order.
        metrics: Metrics with scores, in display order.
        values: ``[U, K, M]``: row, metric, method. NaN if undefined or missing. A row is one sample of one training.
        groups: ``[U]`` group of each row; the same group has the same number in every cell.
        drawn: Data set, training and group of each row.
        seeds: Data set seeds, indexed by the data set numbers in ``drawn``.
    """

    cell: tuple[str, str, str]
    methods: tuple[str, ...]
    metrics: tuple[str, ...]
    values: Floats
    groups: NDArray[np.int64]
    drawn: SamplingDesign
    seeds: tuple[int, ...]


def cell_matrices(run: RunResults) -> Iterator[Matrices]:
    """Yield the scores of each cell that has any, in display order."""
    scores = run.scores[run.scores["scored"].to_numpy()]
    if scores.empty:
        return
    groups, rows = group_and_row_numbers(run, scores)
    codes = {key: scores[key].cat.codes.to_numpy().astype(np.int64) for key in KEYS}
    names = {key: scores[key].cat.categories for key in KEYS}
    cell = np.zeros(len(scores), dtype=np.int64)
    for key in CELL:
        cell = cell * len(names[key]) + codes[key]
    values, data_seed, seed = (scores[name].to_numpy() for name in ("value", "data_seed", "seed"))
    order = np.argsort(cell, kind="stable")
    bounds = np.flatnonzero(np.diff(cell[order], prepend=-1, append=-1))
    for start, stop in itertools.pairwise(bounds):
        mine = order[start:stop]
        unit, first, row = np.unique(rows[mine], return_index=True, return_inverse=True)
        metrics, k = np.unique(codes["metric"][mine], return_inverse=True)
        methods, m = np.unique(codes["explainer"][mine], return_inverse=True)
        table = np.full((len(unit), len(metrics), len(methods)), np.nan)
        table[row, k, m] = values[mine]
        place = tuple(str(names[key][codes[key][mine[0]]]) for key in CELL)
        at = mine[first]
        yield Matrices(
            cell=(place[0], place[1], place[2]),
            methods=tuple(names["explainer"][methods]),
            metrics=tuple(names["metric"][metrics]),
            values=table,
            groups=groups[at],
            drawn=SamplingDesign.of(
                len(at),
                data_sets=data_seed[at],
                trainings=seed[at],
                groups=_bundle_within_data_sets(data_seed[at], groups[at]),
            ),
            seeds=tuple(int(name) for name in np.unique(data_seed[at])),
        )


def group_and_row_numbers(run: RunResults, scores: pd.DataFrame) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return ``[N]`` group numbers and ``[N]`` row numbers (sample and training) of the scores."""
    image = _number_rows(scores["dataset"].cat.codes, scores["data_seed"], scores["sample"])
    row = _number_rows(image, scores["seed"])
    samples = run.samples
    if samples["group"].isna().all():
        return image, row
    # Look groups up once per image; an image without a group is its own group.
    images, first, index = np.unique(image, return_index=True, return_inverse=True)
    keys = ["dataset", "data_seed", "sample"]
    samples_of = scores.iloc[first][keys].astype({"dataset": str})
    known = samples.drop_duplicates(keys)[[*keys, "group"]]
    group = samples_of.merge(known, on=keys, how="left")["group"].to_numpy()
    own = pd.isna(group)
    named = pd.factorize(pd.Series([f"{d}\n{g}" for d, g in zip(samples_of["dataset"], group, strict=True)]))[0]
    return np.where(own, len(images) + images, named)[index].astype(np.int64), row


def _number_rows(*columns: Any) -> NDArray[np.int64]:
    """Number the distinct rows of the columns."""
    joint = np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:
        codes, names = pd.factorize(np.asarray(column))
        joint = joint * max(len(names), 1) + codes
    return joint


def bundled(groups: NDArray[np.int64], limit: int = BUNDLES, seed: int = 0) -> NDArray[np.int64]:
    """Return group numbers from 0, at most ``limit``; surplus groups are merged at random, as evenly as possible.

    Example:
        >>> bundled(np.array([7, 3, 7])).tolist()
        [1, 0, 1]
        >>> sorted(np.bincount(bundled(np.arange(7), limit=3)).tolist())
        [2, 2, 3]
    """
    names, index = np.unique(groups, return_inverse=True)
    if len(names) > limit:
        index = (np.random.default_rng(seed).permutation(len(names)) % limit)[index]
    return np.asarray(index, dtype=np.int64)


def _bundle_within_data_sets(data_sets: NDArray[Any], groups: NDArray[np.int64]) -> NDArray[np.int64]:
    """Apply :func:`bundled` within each data set."""
    bundles = np.zeros(len(groups), dtype=np.int64)
    for each in np.unique(data_sets):
        bundles[data_sets == each] = bundled(groups[data_sets == each])
    return bundles


def resampled_means(cells: Iterable[Matrices], resamples: int, seed: int = 0) -> dict[tuple[str, str, str], Floats]:
    """Return the mean scores of each cell with random replicates of them (wild bootstrap).

    The contribution of each data set (or training and group of samples) to a mean is multiplied by a random normal
    weight. The replicates are scaled so that their variance equals that of :func:`~xaibench.scores.nested_means`
    and their tails match Student's t. All cells of a subset and variant share the weights of data sets and
    samples, since their models and methods were scored on the same images. Weights of trainings are drawn separately
    per cell. Wu: Jackknife, bootstrap and other resampling methods in regression analysis, Annals of Statistics 1986,
    section 7.

    Args:
        cells: The scores.
        resamples: Number of replicates R.
        seed: Seed of the weights.

    Returns:
        ``[1 + R, K, M]`` per cell, in the order of its metrics and methods. The first entry holds the means themselves.
        NaN for a method without scores. All entries are equal if the cell has a single data set, training and sample.
    """
    by_place: dict[tuple[str, str], list[Matrices]] = {}
    for cell in cells:
        by_place.setdefault(cell.cell[:2], []).append(cell)
    means = {}
    for number, members in enumerate(by_place.values()):
        rng = np.random.default_rng([number, seed])
        sets = {name: rng.standard_normal(resamples) for name in sorted({s for cell in members for s in cell.seeds})}
        groups = np.unique(np.concatenate([cell.groups for cell in members]))
        bundles = bundled(groups)
        samples = rng.standard_normal((resamples, int(bundles.max()) + 1))
        # Evenly spaced quantiles, since few random ones would have few in the tails.
        tail = (rng.permutation(resamples) + 0.5) / resamples
        for cell in members:
            flat = cell.values.reshape(len(cell.values), -1)
            of_samples = samples, bundles[np.searchsorted(groups, cell.groups)]
            deviation = _deviations(cell, flat, np.stack([sets[name] for name in cell.seeds], axis=1), of_samples, rng)
            shape = (resamples, len(cell.metrics), len(cell.methods))
            deviation = _scale_deviations(cell, deviation.reshape(shape), tail)
            mean = nested_means(flat, cell.drawn).mean.reshape(1, *shape[1:])
            means[cell.cell] = np.concatenate([mean, mean + deviation])
    return means


def _deviations(
    cell: Matrices, flat: Floats, sets: Floats, of_samples: tuple[Floats, NDArray[np.int64]], rng: np.random.Generator
) -> Floats:
    """Return ``[R, K M]`` unscaled deviations from the mean."""
    n = (~np.isnan(flat)).sum(axis=0)
    mean = np.divide(np.nansum(flat, axis=0), n, out=np.zeros(len(n)), where=n > 0)
    residual = np.nan_to_num(flat - mean) / np.maximum(n, 1)
    if cell.drawn.level == "data sets":
        return sets @ _sum_rows(residual, cell.drawn.data_sets, sets.shape[1])
    samples, index = of_samples
    sums = samples @ _sum_rows(residual, index, samples.shape[1])
    if cell.drawn.level == "trainings":
        count = int(cell.drawn.trainings.max()) + 1
        sums = sums + rng.standard_normal((len(samples), count)) @ _sum_rows(residual, cell.drawn.trainings, count)
    return np.asarray(sums, dtype=np.float64)


def _sum_rows(rows: Floats, index: NDArray[np.int64], count: int) -> Floats:
    sums = np.zeros((count, rows.shape[1]))
    np.add.at(sums, index, rows)
    return sums


def _scale_deviations(cell: Matrices, deviation: Floats, tail: Floats) -> Floats:
    """Scale deviations ``[R, K, M]`` to the variance of each mean and the tails of its degrees of freedom."""
    from scipy.stats import chi2

    scaled = np.zeros_like(deviation)
    for k in range(len(cell.metrics)):
        estimate = nested_means(cell.values[:, k], cell.drawn)
        spread = deviation[:, k].std(axis=0)
        known = (spread > 0) & ~np.isnan(estimate.variance)
        df, which = np.unique(np.round(np.minimum(estimate.df[known], 1e6), 2), return_inverse=True)
        heavier = np.sqrt(df / chi2.ppf(tail[:, None], df))[:, which]
        size = np.sqrt(estimate.variance[known]) / spread[known]
        scaled[:, k, known] = deviation[:, k, known] * size * heavier
    return scaled
