"""What the scores of a run allow to be concluded: intervals, ranks over samples, and tests between methods.

Everything is worked out cell by cell on matrices, a row a sample and a column a method. Rows that belong together (all
scores of one image, or of one patient where ``samples.csv`` says so) form a group, and groups are what is drawn or
turned. Of more than :data:`BUNDLES` groups, some at random are tied into one bundle and drawn or turned together: the
test stays exact (it runs over fewer of the equally likely patterns of signs), the interval stays one of a clustered
bootstrap, and both take the same time for a hundred samples as for a million.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from xaibench.report.numbers.pair_testing import pair_tests
from xaibench.report.read.run_results import RunResults
from xaibench.runfolder.tables import CELL, COMPARISONS, INFERRED, KEYS
from xaibench.statistics import against_controls, average_ranks, bootstrap_intervals
from xaibench.statistics.paired_tests import LEVEL

#: Groups that are drawn or turned each by itself; more are bundled.
BUNDLES = 1000
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Matrices:
    """The scores of one cell on correctly classified samples.

    Attributes:
        cell: Scenario, background and model.
        methods: Explainers that were scored, in the order to show.
        metrics: Metrics that were scored, in the order to show.
        values: ``[U, K, M]``: row, metric, method; ``nan`` where undefined or missing. A row is one sample of one
            training.
        groups: ``[U]`` which rows belong together, the same numbers in every cell.
    """

    cell: tuple[str, str, str]
    methods: tuple[str, ...]
    metrics: tuple[str, ...]
    values: Floats
    groups: NDArray[np.int64]


def cell_matrices(run: RunResults) -> Iterator[Matrices]:
    """The scores of each cell that has one, in the order to show."""
    scores = run.scores[run.scores["correct"].to_numpy()]
    if scores.empty:
        return
    groups, rows = _numbers(run, scores)
    codes = {key: scores[key].cat.codes.to_numpy().astype(np.int64) for key in KEYS}
    names = {key: scores[key].cat.categories for key in KEYS}
    cell = np.zeros(len(scores), dtype=np.int64)
    for key in CELL:
        cell = cell * len(names[key]) + codes[key]
    values = scores["value"].to_numpy()
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
        yield Matrices(
            cell=(place[0], place[1], place[2]),
            methods=tuple(names["explainer"][methods]),
            metrics=tuple(names["metric"][metrics]),
            values=table,
            groups=groups[mine][first],
        )


def _numbers(run: RunResults, scores: pd.DataFrame) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """``[N]`` twice: the group of each score, and its row (sample and training)."""
    image = _joint(scores["dataset"].cat.codes, scores["data_seed"], scores["sample"])
    row = _joint(image, scores["seed"])
    samples = run.samples
    if samples["group"].isna().all():
        return image, row
    # One entry for each image, looked up by its name; those without a group stay a group of their own.
    images, first, index = np.unique(image, return_index=True, return_inverse=True)
    keys = ["dataset", "data_seed", "sample"]
    found = scores.iloc[first][keys].astype({"dataset": str})
    known = samples.drop_duplicates(keys)[[*keys, "group"]]
    group = found.merge(known, on=keys, how="left")["group"].to_numpy()
    own = pd.isna(group)
    named = pd.factorize(pd.Series([f"{d}\n{g}" for d, g in zip(found["dataset"], group, strict=True)]))[0]
    return np.where(own, len(images) + images, named)[index].astype(np.int64), row


def _joint(*columns: Any) -> NDArray[np.int64]:
    """One number for each different row of the columns."""
    joint = np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:
        codes, names = pd.factorize(np.asarray(column))
        joint = joint * max(len(names), 1) + codes
    return joint


def infer(run: RunResults, summary: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Add to the summary what can be concluded, and test methods against each other.

    Args:
        run: The run.
        summary: From :func:`xaibench.report.numbers.score_summary.summarise`.

    Returns:
        The summary with :data:`~xaibench.runfolder.tables.INFERRED`, and the pairs that were tested.

        - ``low``, ``high``: 95 % interval of the mean, by bootstrap over groups.
        - ``sample_rank``: mean rank over the ``n_ranked`` rows on which every explainer of the cell that has any score
          has one; 1 is best, ties share their ranks.
        - ``p_controls``: the largest p-value, after Holm's correction, of the paired sign-flip tests against the
          controls of the cell; 1 where one of them has a mean at least as good. Missing for controls and without one.
        - ``beats_controls``: whether that is below 5 % (:func:`xaibench.statistics.against_controls`).
        - ``better_than``, ``worse_than``: of ``compared_with`` other explainers, how many it differs from at 5 %.

        Pairs are :data:`~xaibench.runfolder.tables.COMPARISONS`: ``difference`` is the mean of first minus second over
        the ``n_valid`` rows in which both have a score, from ``n_groups`` groups, ``low`` to ``high`` its 95 %
        interval; ``p_holm`` is corrected for all pairs tested in that cell and metric, or in cells of more than
        :data:`.pair_testing.ALL_PAIRS` explainers for all of its kind: of a method and a control, or of two methods.
        The last three columns of the summary are of the first kind then.
    """
    found, pairs = [], []
    directions = dict(zip(summary["metric"].astype(str), summary["higher_is_better"], strict=True))
    for cell in cell_matrices(run):
        bundles = bundled(cell.groups)
        rows, _, methods = cell.values.shape
        flat = cell.values.reshape(rows, -1)
        intervals = bootstrap_intervals(flat, bundles).reshape(len(cell.metrics), methods, 2)
        for k, metric in enumerate(cell.metrics):
            values, higher = cell.values[:, k], bool(directions[metric])
            control = [run.explainers[name].control for name in cell.methods]
            tests = pair_tests(cell.methods, control, values, bundles, len(np.unique(cell.groups)))
            pairs.append(tests.assign(**dict(zip(CELL, cell.cell, strict=True)), metric=metric))
            ranks, n = _sample_ranks(values, higher_is_better=higher)
            judged = tests[tests["of_controls"].astype(bool)]
            standings = _standings(run, cell.methods, judged, higher_is_better=higher)
            for m, name in enumerate(cell.methods):
                key = dict(zip(KEYS, (*cell.cell, name, metric), strict=True))
                numbers = {"low": intervals[k, m, 0], "high": intervals[k, m, 1], "sample_rank": ranks[m]}
                found.append(key | numbers | {"n_ranked": n} | standings[name])
    table = pd.DataFrame(found, columns=[*KEYS, *INFERRED])
    joined = summary.astype(dict.fromkeys(KEYS, str)).merge(table, on=list(KEYS), how="left")
    joined.index = summary.index
    joined[list(KEYS)] = summary[list(KEYS)]  # keep the order of the categories
    whole = ["n_ranked", "better_than", "worse_than", "compared_with"]
    joined = joined.astype(dict.fromkeys(whole, "Int64") | {"beats_controls": "boolean"})
    tested = pd.concat(pairs, ignore_index=True) if pairs else pd.DataFrame()
    return joined, tested.reindex(columns=list(COMPARISONS.columns))


def bundled(groups: NDArray[np.int64], limit: int = BUNDLES, seed: int = 0) -> NDArray[np.int64]:
    """Group numbers from 0, at most ``limit`` of them: more are tied together at random, as evenly as can be.

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


def _sample_ranks(values: Floats, *, higher_is_better: bool) -> tuple[Floats, int]:
    """``[M]`` mean ranks of the explainers that have a score at all, and over how many rows."""
    scored = ~np.isnan(values).all(axis=0)
    ranks = np.full(values.shape[1], np.nan)
    ranks[scored], n = average_ranks(values[:, scored], higher_is_better=higher_is_better)
    return ranks, n


def _standings(
    run: RunResults, methods: tuple[str, ...], tests: pd.DataFrame, *, higher_is_better: bool
) -> dict[str, dict[str, Any]]:
    """For each explainer its standing in the tests: the last five columns of ``INFERRED``."""
    counts = {name: {"better_than": 0, "worse_than": 0, "compared_with": 0} for name in methods}
    pairs = list(tests[["first", "second", "difference", "p_holm"]].itertuples(index=False, name=None))
    controls = {name for name in methods if run.explainers[name].control}
    against = against_controls(pairs, controls, higher_is_better=higher_is_better)
    sign = 1 if higher_is_better else -1
    for first, second, difference, p in pairs:
        if np.isnan(p):
            continue
        for name, ahead in ((first, sign * difference), (second, -sign * difference)):
            counts[name]["compared_with"] += 1
            counts[name]["better_than"] += p < LEVEL and ahead > 0
            counts[name]["worse_than"] += p < LEVEL and ahead < 0
    standings: dict[str, dict[str, Any]] = {}
    for name in methods:
        p, beats = against.get(name, (np.nan, None))
        standings[name] = {"p_controls": p, "beats_controls": beats, **counts[name]}
    return standings


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
