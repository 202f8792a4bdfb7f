"""Intervals, ranks over samples and paired tests of the scores of a run.

Everything is computed cell by cell on matrices with one row per sample and training and one column per method. Each row
has a data set seed, a training seed and a group (all scores of one image, or of one patient if ``samples.csv`` says
so). Intervals and tests account for all three levels (:mod:`xaibench.statistics.nested_draws`). If a data set has more
than :data:`BUNDLES` groups, groups are merged at random into bundles. The variance estimate remains one over clusters,
and the memory needed no longer grows with the number of samples.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from xaibench.report.results import RunResults
from xaibench.runfolder.schema import CELL, COMPARISONS, INFERRED, KEYS
from xaibench.statistics import (
    SamplingDesign,
    average_ranks,
    compare_with_controls,
    holm,
    nested_means,
    paired_differences,
)
from xaibench.statistics.nested_draws import FEW_SAMPLES, RELIABLE_GROUPS
from xaibench.statistics.rank_tests import ALPHA

#: Largest number of groups per data set; further groups are merged into bundles.
BUNDLES = 1000
#: In cells of up to this many explainers, all pairs are one family of tests. In larger cells, pairs of a method and a
#: control are one family and pairs of two methods another, so that many methods do not weaken the tests against
#: the controls.
ALL_PAIRS = 15
Floats = NDArray[np.float64]


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
    groups, rows = _group_and_row_numbers(run, scores)
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


def _group_and_row_numbers(run: RunResults, scores: pd.DataFrame) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
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


def infer(run: RunResults, summary: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Add intervals, ranks and test results to the summary, and test methods against each other.

    Args:
        run: The run.
        summary: From :func:`xaibench.report.numbers.summary.summarize`.

    Returns:
        :data:`~xaibench.runfolder.schema.INFERRED` added to the summary, and the pairs that were tested. Columns of the
        summary:

        - ``low``, ``high``: 95 % interval of the mean. It accounts for the choice of data sets; with one data set, for
          the choice of trainings and samples; with one training, for the choice of samples.
        - ``sample_rank``: mean rank over the ``n_ranked`` rows in which every explainer with any score in the cell has
          one. 1 is best; ties share their ranks.
        - ``p_controls``: largest Holm-corrected p-value of the paired tests against the controls of the cell; 1 if some
          control has a mean at least as good. Missing for controls, and in cells without one. Controls that are the
          answer by construction of the data are left out.
        - ``beats_controls``: whether ``p_controls`` is below 5 % (:func:`xaibench.statistics.compare_with_controls`).
        - ``better_than``, ``worse_than``: number of the ``compared_with`` other explainers that differ from this one at
          5 %.

        The pairs have the columns of :data:`~xaibench.runfolder.schema.COMPARISONS`. ``difference`` is the mean of
        first minus second over the ``n_valid`` rows in which both have a score, from ``n_groups`` groups. ``low`` and
        ``high`` are its 95 % interval by Student's t with ``df`` degrees of freedom; with one training and skewed
        differences, the end on the side of the longer tail is further away. ``p_holm`` is corrected for all pairs of
        that cell and metric. In cells of more than :data:`.pair_testing.ALL_PAIRS` explainers, pairs of a method and a
        control are corrected separately from pairs of two methods, and the last three columns of the summary refer to
        the former.
    """
    rows, pairs = [], []
    directions = dict(zip(summary["metric"].astype(str), summary["higher_is_better"], strict=True))
    for cell in cell_matrices(run):
        for k, metric in enumerate(cell.metrics):
            values, higher = cell.values[:, k], bool(directions[metric])
            part = run.metrics[metric]
            intervals = nested_means(values, cell.drawn).intervals(within=part.range, attains_ends=part.attains_ends)
            control = [run.explainers[name].control for name in cell.methods]
            tests = pair_tests(cell.methods, control, values, cell.drawn, len(np.unique(cell.groups)))
            pairs.append(tests.assign(**dict(zip(CELL, cell.cell, strict=True)), metric=metric))
            answers = [run.is_answer(cell.cell, name) for name in cell.methods]
            ranked = np.where(answers, np.nan, values)
            scored, ranks = ~np.isnan(ranked).all(axis=0), np.full(len(answers), np.nan)
            ranks[scored], n = average_ranks(ranked[:, scored], higher_is_better=higher)
            judged = tests[tests["of_controls"].astype(bool)]
            controls = {name for m, name in enumerate(cell.methods) if control[m]}
            to_beat = {name for m, name in enumerate(cell.methods) if control[m] and not answers[m]}
            standings = _standings(to_beat, controls, cell.methods, judged, higher_is_better=higher)
            for m, name in enumerate(cell.methods):
                key = dict(zip(KEYS, (*cell.cell, name, metric), strict=True))
                numbers = {"low": intervals[m, 0], "high": intervals[m, 1], "sample_rank": ranks[m]}
                rows.append(key | numbers | {"n_ranked": n} | standings[name])
    table = pd.DataFrame(rows, columns=[*KEYS, *INFERRED])
    joined = summary.astype(dict.fromkeys(KEYS, str)).merge(table, on=list(KEYS), how="left")
    joined.index = summary.index
    joined[list(KEYS)] = summary[list(KEYS)]  # keep the order of the categories
    whole = ["n_ranked", "better_than", "worse_than", "compared_with"]
    joined = joined.astype(dict.fromkeys(whole, "Int64") | {"beats_controls": "boolean"})
    tested = pd.concat(pairs, ignore_index=True) if pairs else pd.DataFrame()
    return joined, tested.reindex(columns=list(COMPARISONS.columns))


#: Sources of variation that the intervals account for, by the highest level that was repeated.
_INTERVAL_SCOPES = {
    "data sets": "the random choice of data sets, trainings and samples.",
    "trainings": "the random choice of trainings and samples, but not for that of the data set.",
    "samples": "the random choice of samples, but not for that of the training and the data set, whose effect is often "
    "larger.",
}


def promises(run: RunResults) -> list[str]:
    """Return sentences that say which sources of variation the intervals account for.

    Args:
        run: The run.

    Returns:
        One sentence per level at which cells were repeated, and one if intervals over few samples are not reliable;
        empty if nothing was scored.
    """
    scores = run.scores[run.scores["scored"].to_numpy()]
    by_cell = scores.groupby(list(CELL), observed=True)[["data_seed", "seed"]].nunique()
    sets, trainings = (by_cell[name].to_numpy() for name in ("data_seed", "seed"))
    level = np.where(sets > 1, "data sets", np.where(trainings > 1, "trainings", "samples"))
    counts = [(name, int((level == name).sum())) for name in _INTERVAL_SCOPES]
    levels = [(name, count) for name, count in counts if count]
    groups = scores.assign(group=_group_and_row_numbers(run, scores)[0]) if len(scores) else scores.assign(group=0)
    few = groups.groupby(list(CELL), observed=True)["group"].nunique().to_numpy() < RELIABLE_GROUPS
    sentences = [
        f"The 95 % intervals{'' if len(levels) == 1 else f' of {count} cell' + 's' * (count > 1)} account for "
        f"{_INTERVAL_SCOPES[name]}"
        for name, count in levels
    ]
    return [*sentences, *([FEW_SAMPLES] if (few & (level == "samples")).any() else [])]


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


def _standings(
    to_beat: set[str],
    controls: set[str],
    methods: tuple[str, ...],
    tests: pd.DataFrame,
    *,
    higher_is_better: bool,
) -> dict[str, dict[str, Any]]:
    """Return the last five columns of ``INFERRED`` for each explainer; ``controls`` need not beat any control."""
    counts = {name: {"better_than": 0, "worse_than": 0, "compared_with": 0} for name in methods}
    pairs = list(tests[["first", "second", "difference", "p_holm"]].itertuples(index=False, name=None))
    against = compare_with_controls(pairs, to_beat, higher_is_better=higher_is_better)
    sign = 1 if higher_is_better else -1
    for first, second, difference, p in pairs:
        if np.isnan(p):
            continue
        for name, ahead in ((first, sign * difference), (second, -sign * difference)):
            counts[name]["compared_with"] += 1
            counts[name]["better_than"] += p < ALPHA and ahead > 0
            counts[name]["worse_than"] += p < ALPHA and ahead < 0
    standings: dict[str, dict[str, Any]] = {}
    for name in methods:
        p, beats = (np.nan, None) if name in controls else against.get(name, (np.nan, None))
        standings[name] = {"p_controls": p, "beats_controls": beats, **counts[name]}
    return standings


def resampled_means(cells: Iterable[Matrices], resamples: int, seed: int = 0) -> dict[tuple[str, str, str], Floats]:
    """Return the mean scores of each cell with random replicates of them (wild bootstrap).

    The contribution of each data set (or training and group of samples) to a mean is multiplied by a random normal
    weight. The replicates are scaled so that their variance equals that of :func:`~xaibench.statistics.nested_means`
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


def pair_tests(
    methods: Sequence[str], control: Sequence[bool], values: Floats, drawn: SamplingDesign, groups: int
) -> pd.DataFrame:
    """Run the paired tests of one metric in one cell.

    Args:
        methods: ``M`` names.
        control: ``M`` flags, true for controls.
        values: ``[U, M]`` scores; ``nan`` where undefined.
        drawn: Data set, training and group of each row.
        groups: Number of groups of samples.

    Returns:
        One row per pair with the columns of :data:`~xaibench.runfolder.schema.COMPARISONS` after the metric, and
        ``of_controls``: whether the pair belongs to the family of tests against the controls.
    """
    every = len(methods) <= ALL_PAIRS
    controls, names = np.array(control, dtype=bool), np.array(methods, dtype=object)
    i, j = np.triu_indices(len(methods), 1)
    tested = every | ~(controls[i] & controls[j])
    i, j = i[tested], j[tested]
    if not len(i):
        return pd.DataFrame(columns=[*COMPARISONS.columns, "of_controls"])
    difference = paired_differences(values[:, i], values[:, j])
    means = nested_means(difference, drawn)
    p, intervals = means.p_values(), means.intervals()
    of_controls = every | (controls[i] != controls[j])
    corrected = np.full(len(p), np.nan)
    for family in (of_controls, ~of_controls):
        corrected[family] = holm(p[family])
    return pd.DataFrame(
        {
            "first": names[i],
            "second": names[j],
            "difference": means.mean,
            "low": intervals[:, 0],
            "high": intervals[:, 1],
            "p": p,
            "p_holm": corrected,
            "df": means.df,
            "n_valid": (~np.isnan(difference)).sum(axis=0),
            "n_groups": groups,
            "of_controls": of_controls,
        }
    )
