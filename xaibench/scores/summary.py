"""Summary statistics of the scores: per method, cell and metric, with unscored maps and accuracies."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from xaibench.core.messages import listed
from xaibench.core.types import SCORED_AS_CHANCE
from xaibench.registry.info import MetricInfo
from xaibench.runfolder.descriptions import PartDescription
from xaibench.runfolder.schema import CELL, COMPARISONS, DESCRIBED, INFERRED, KEYS
from xaibench.scores.cells import cell_matrices, group_and_row_numbers
from xaibench.scores.nested_draws import (
    FEW_SAMPLES,
    RELIABLE_GROUPS,
    Floats,
    SamplingDesign,
    nested_means,
    paired_differences,
)
from xaibench.scores.rank_tests import ALPHA, average_ranks, compare_with_controls, holm
from xaibench.scores.results import RunResults

#: Columns that name a network.
_NETWORK = [*CELL, "data_seed", "seed"]
#: Largest number of outliers drawn on each side of a box, to bound the size of the figures.
MAX_OUTLIERS = 8
#: In cells of up to this many explainers, all pairs are one family of tests. In larger cells, pairs of a method and a
#: control are one family and pairs of two methods another, so that many methods do not weaken the tests against
#: the controls.
ALL_PAIRS = 15
#: Columns for the figures, in addition to those of ``summary.csv``.
_FOR_FIGURES = ("whisker_low", "whisker_high", "outliers")


def summarize(run: RunResults) -> pd.DataFrame:
    """Return one row per cell, explainer and metric.

    Returns:
        Columns :data:`~xaibench.runfolder.schema.DESCRIBED`, then ``whisker_low``, ``whisker_high`` and ``outliers``
        for the figures.

        - ``rank``: rank of the mean within cell and metric, 1 is best; ties share the average rank. NaN without a
          defined score, and for a control that is the answer by construction of the data.
        - ``above_controls``: whether the rank is better than that of every control of the cell, significant or not (for
          significance see ``beats_controls`` of :func:`.summary.infer`). Missing for controls, and in a cell without
          a ranked control.
    """
    rows = _describe_groups(run)
    if rows.empty:
        return rows.reindex(columns=[*DESCRIBED, *_FOR_FIGURES])
    # The direction in the scores takes precedence over the one in descriptions.json.
    direction = run.scores.groupby("metric", observed=True)["higher_is_better"].first()
    rows["higher_is_better"] = rows["metric"].map(direction).astype(bool)
    rows["control"] = [run.explainers[name].control for name in rows["explainer"]]
    sign = np.where(rows["higher_is_better"], 1.0, -1.0)
    means = sign * rows["mean"].to_numpy(float)
    cells = rows[[*CELL, "explainer"]].astype(str).itertuples(index=False, name=None)
    means[np.array([run.is_answer(row[:3], row[3]) for row in cells], dtype=bool)] = np.nan
    rows["rank"] = np.nan
    for index in rows.groupby([*CELL, "metric"], observed=True).indices.values():
        rows.loc[rows.index[index], "rank"] = rank_means(means[index])
    best_control = rows["rank"].where(rows["control"]).groupby([rows[key] for key in [*CELL, "metric"]], observed=True)
    bar = best_control.transform("min")
    above = (rows["rank"] < bar).astype("boolean")
    rows["above_controls"] = above.mask(rows["control"] | bar.isna() | rows["rank"].isna())
    return rows[[*DESCRIBED, *_FOR_FIGURES]]


def _describe_groups(run: RunResults) -> pd.DataFrame:
    """Describe every group that occurs, also those without a scored sample, in display order."""
    scores = run.scores
    codes = np.zeros(len(scores), dtype=np.int64)
    for key in KEYS:
        codes = codes * len(scores[key].cat.categories) + scores[key].cat.codes.to_numpy()
    counts = scores["scored"].to_numpy()
    described = {int(code): describe(np.empty(0)) for code in np.unique(codes)}
    described |= {code: describe(part) for code, part in groups(codes[counts], scores["value"].to_numpy()[counts])}
    rows = pd.DataFrame(index=range(len(described)))
    left = np.array(list(described), dtype=np.int64)
    for key in reversed(KEYS):
        categories = scores[key].cat.categories
        place_of = left % max(len(categories), 1)
        left = left // max(len(categories), 1)
        rows[key] = pd.Categorical.from_codes(place_of, categories=categories, ordered=True)
    for name in described[next(iter(described))] if described else ():
        rows[name] = [distribution[name] for distribution in described.values()]
    return rows


def infer(run: RunResults, summary: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Add intervals, ranks and test results to the summary, and test methods against each other.

    Args:
        run: The run.
        summary: From :func:`xaibench.scores.summary.summarize`.

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
        - ``beats_controls``: whether ``p_controls`` is below 5 % (:func:`xaibench.scores.compare_with_controls`).
        - ``better_than``, ``worse_than``: number of the ``compared_with`` other explainers that differ from this one at
          5 %.

        The pairs have the columns of :data:`~xaibench.runfolder.schema.COMPARISONS`. ``difference`` is the mean of
        first minus second over the ``n_valid`` rows in which both have a score, from ``n_groups`` groups. ``low`` and
        ``high`` are its 95 % interval by Student's t with ``df`` degrees of freedom; with one training and skewed
        differences, the end on the side of the longer tail is further away. ``p_holm`` is corrected for all pairs of
        that cell and metric. In cells of more than :data:`ALL_PAIRS` explainers, pairs of a method and a
        control are corrected separately from pairs of two methods, and the last three columns of the summary refer to
        the former.
    """
    rows, pairs = [], []
    for cell in cell_matrices(run):
        control = [run.explainers[name].control for name in cell.methods]
        answers = [run.is_answer(cell.cell, name) for name in cell.methods]
        for k, metric in enumerate(cell.metrics):
            key, part = dict(zip(CELL, cell.cell, strict=True)), run.metrics[metric]
            tests = pair_tests(cell.methods, cell.values[:, k], cell.drawn, control)
            pairs.append(tests.assign(**key, metric=metric, n_groups=len(np.unique(cell.groups))))
            numbers = method_numbers(cell.methods, cell.values[:, k], cell.drawn, part, tests, control, answers)
            rows += [key | {"explainer": name, "metric": metric} | row for name, row in numbers.items()]
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
    groups = scores.assign(group=group_and_row_numbers(run, scores)[0]) if len(scores) else scores.assign(group=0)
    few = groups.groupby(list(CELL), observed=True)["group"].nunique().to_numpy() < RELIABLE_GROUPS
    sentences = [
        f"The 95 % intervals{'' if len(levels) == 1 else f' of {count} cell' + 's' * (count > 1)} account for "
        f"{_INTERVAL_SCOPES[name]}"
        for name, count in levels
    ]
    return [*sentences, *([FEW_SAMPLES] if (few & (level == "samples")).any() else [])]


def method_numbers(
    methods: Sequence[str],
    values: Floats,
    drawn: SamplingDesign,
    metric: PartDescription | MetricInfo,
    tests: pd.DataFrame,
    control: Sequence[bool],
    answers: Sequence[bool] | None = None,
) -> dict[str, dict[str, Any]]:
    """Return the columns :data:`~xaibench.runfolder.schema.INFERRED` of each method by one metric (:func:`infer`).

    Args:
        methods: ``M`` names.
        values: ``[U, M]`` scores; ``nan`` where undefined.
        drawn: Data set, training and group of each row.
        metric: Direction and range of the scores.
        tests: From :func:`pair_tests`.
        control: ``M`` flags, true for controls.
        answers: ``M`` flags, true for controls that are not ranked and need not be beaten.
    """
    intervals = nested_means(values, drawn).intervals(within=metric.range, attains_ends=metric.attains_ends)
    is_answer = np.zeros(len(methods), bool) if answers is None else np.array(answers, dtype=bool)
    scored, ranks = ~(np.isnan(values).all(axis=0) | is_answer), np.full(len(methods), np.nan)
    ranks[scored], n = average_ranks(values[:, scored], higher_is_better=metric.higher_is_better)
    judged = tests[tests["of_controls"].astype(bool) & tests["p_holm"].notna()]
    sign = 1 if metric.higher_is_better else -1
    pairs = list(judged[["first", "second", "difference", "p_holm"]].itertuples(index=False, name=None))
    to_beat = {name for m, name in enumerate(methods) if control[m] and not is_answer[m]}
    against = compare_with_controls(pairs, to_beat, higher_is_better=metric.higher_is_better)
    numbers: dict[str, dict[str, Any]] = {}
    for m, name in enumerate(methods):
        p, beats = (np.nan, None) if control[m] else against.get(name, (np.nan, None))
        numbers[name] = {"low": intervals[m, 0], "high": intervals[m, 1], "sample_rank": ranks[m], "n_ranked": n}
        numbers[name] |= {"p_controls": p, "beats_controls": beats, "better_than": 0, "worse_than": 0}
        numbers[name]["compared_with"] = 0
    for first, second, difference, p in pairs:
        for name, ahead in ((first, sign * difference), (second, -sign * difference)):
            numbers[name]["compared_with"] += 1
            numbers[name]["better_than"] += p < ALPHA and ahead > 0
            numbers[name]["worse_than"] += p < ALPHA and ahead < 0
    return numbers


def pair_tests(
    methods: Sequence[str], values: Floats, drawn: SamplingDesign, control: Sequence[bool] | None = None
) -> pd.DataFrame:
    """Run the paired tests of every two methods by one metric.

    Args:
        methods: ``M`` names.
        values: ``[U, M]`` scores; ``nan`` where undefined.
        drawn: Data set, training and group of each row.
        control: ``M`` flags, true for controls; None = all pairs are one family of tests, however many methods there
            are.

    Returns:
        One row per pair with the columns of :data:`~xaibench.runfolder.schema.COMPARISONS` from ``first`` to
        ``n_valid``, and ``of_controls``: whether the pair belongs to the family of tests against the controls.
    """
    every = control is None or len(methods) <= ALL_PAIRS
    controls = np.zeros(len(methods), bool) if control is None else np.array(control, dtype=bool)
    names = np.array(methods, dtype=object)
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
    columns = {"first": names[i], "second": names[j], "difference": means.mean}
    columns |= {"low": intervals[:, 0], "high": intervals[:, 1], "p": p, "p_holm": corrected, "df": means.df}
    return pd.DataFrame(columns | {"n_valid": (~np.isnan(difference)).sum(axis=0), "of_controls": of_controls})


def min_accuracy(run: RunResults) -> float:
    """Return the test accuracy in percent from which a network counts as trained, as in the suite."""
    return float(run.settings.get("explaining", {}).get("min_accuracy", 80.0))


def left_out_networks(run: RunResults) -> pd.DataFrame:
    """Return the trainings of explained networks without a scored sample, since they did not learn their task.

    They are left out if another network of their cell has reached the suite's ``min_accuracy``.

    Returns:
        Rows of :data:`~xaibench.runfolder.schema.TRAININGS`.
    """
    trainings = run.trainings
    if trainings["left_out"].notna().all():
        return trainings[trainings["left_out"].astype(bool)]
    # Folders of older versions lack the column.
    any_scored = run.scores.groupby(_NETWORK, observed=True)["scored"].any()
    silent = any_scored[~any_scored].reset_index()[_NETWORK].astype(dict.fromkeys(CELL, str))
    return trainings[trainings["test_accuracy"] < min_accuracy(run)].merge(silent, on=_NETWORK)


def explained_networks(run: RunResults) -> pd.DataFrame:
    """Return the trainings of networks that have scores: rows of :data:`~xaibench.runfolder.schema.TRAININGS`."""
    scored = run.scores[_NETWORK].drop_duplicates().astype(dict.fromkeys(CELL, str))
    return run.trainings.merge(scored, on=_NETWORK)


def unlearned_networks(run: RunResults) -> pd.DataFrame:
    """Return the trainings of explained networks that are scored although they did not learn their task.

    No network of their cell has reached the suite's ``min_accuracy``; otherwise they would be left out
    (:func:`left_out_networks`).

    Returns:
        Rows of :data:`~xaibench.runfolder.schema.TRAININGS`, the lowest test accuracy first.
    """
    low = run.trainings[run.trainings["test_accuracy"] < min_accuracy(run)]
    if low.empty:  # as usual; the many scores are not read
        return low
    found = explained_networks(run).merge(left_out_networks(run)[_NETWORK], on=_NETWORK, how="left", indicator=True)
    scored = found[(found["_merge"] == "left_only") & (found["test_accuracy"] < min_accuracy(run))]
    return scored.drop(columns="_merge").sort_values("test_accuracy", kind="stable")


def undefined(run: RunResults) -> pd.DataFrame:
    """Count the undefined scores of samples that count, and the scores of maps scored as chance, by reason.

    Returns:
        One row per explainer, metric and reason, the largest share first: ``undefined`` (number of these scores),
        ``of`` (all scores of that explainer and metric on these samples), ``share``.
    """
    scores = run.scores[run.scores["scored"]]
    of = scores.groupby(["explainer", "metric"], observed=True).size().rename("of")
    bad = scores[scores["value"].isna() | is_scored_as_chance(scores["reason"])]
    count = bad.groupby(["explainer", "metric", "reason"], observed=True, dropna=False).size().rename("undefined")
    table = count.reset_index().merge(of.reset_index(), on=["explainer", "metric"], how="left")
    table["reason"] = table["reason"].astype(object).fillna("").replace("", "no reason given")
    table["share"] = table["undefined"] / table["of"]
    return table.sort_values("share", ascending=False, kind="stable").reset_index(drop=True)


def describe(values: Floats) -> dict[str, Any]:
    """Compute the summary statistics of a group of scores.

    Args:
        values: ``[N]``; NaN if undefined.

    Returns:
        - ``n``: number of scores, undefined ones included.
        - ``n_valid``: number of defined scores. All statistics are over these, and NaN if there are none.
        - ``mean``: arithmetic mean.
        - ``std``: sample standard deviation (divided by ``n_valid - 1``); NaN for fewer than two.
        - ``min``, ``max``: smallest and largest score.
        - ``q25``, ``median``, ``q75``: quartiles, linearly interpolated (as ``numpy.quantile``).
        - ``whisker_low``: smallest score within 1.5 interquartile ranges below ``q25`` (Tukey).
        - ``whisker_high``: largest score within 1.5 interquartile ranges above ``q75``.
        - ``outliers``: some of the distinct scores outside the whiskers: the extreme one, and others evenly spaced in
          order, at most :data:`MAX_OUTLIERS` per side.

    Example:
        >>> d = describe(np.array([1.0, 2.0, 3.0, 4.0, 100.0, np.nan]))
        >>> d["n"], d["n_valid"], d["median"], d["q75"], d["whisker_high"], d["outliers"]
        (6, 5, 3.0, 4.0, 4.0, (100.0,))
    """
    valid = np.sort(values[~np.isnan(values)].astype(np.float64))
    counts = {"n": len(values), "n_valid": len(valid)}
    if not len(valid):
        names = ("mean", "std", "min", "q25", "median", "q75", "max", "whisker_low", "whisker_high")
        return counts | dict.fromkeys(names, np.nan) | {"outliers": ()}
    q25, median, q75 = (float(q) for q in np.quantile(valid, (0.25, 0.5, 0.75)))
    reach = 1.5 * (q75 - q25)
    first = int(np.searchsorted(valid, q25 - reach, side="left"))
    last = int(np.searchsorted(valid, q75 + reach, side="right"))
    return counts | {
        "mean": float(valid.mean()),
        "std": float(valid.std(ddof=1)) if len(valid) > 1 else np.nan,
        "min": float(valid[0]),
        "q25": q25,
        "median": median,
        "q75": q75,
        "max": float(valid[-1]),
        # Interpolated quartiles can be beyond every score within reach; a whisker must not point into its box.
        "whisker_low": min(float(valid[first]), q25),
        "whisker_high": max(float(valid[last - 1]), q75),
        "outliers": (*_thin(np.unique(valid[:first])), *_thin(np.unique(valid[last:])[::-1])),
    }


def _thin(outliers: Floats) -> list[float]:
    """Keep at most :data:`MAX_OUTLIERS` values, including the first (most extreme) one."""
    if len(outliers) > MAX_OUTLIERS:
        outliers = outliers[np.linspace(0, len(outliers) - 1, MAX_OUTLIERS).round().astype(int)]
    return [float(value) for value in outliers]


def groups(codes: NDArray[np.integer[Any]], values: Floats) -> Iterator[tuple[int, Floats]]:
    """Split ``values`` by group number with one stable sort.

    Args:
        codes: ``[N]`` group numbers.
        values: ``[N]``.

    Yields:
        ``(code, values of that group in their order)``, by rising code.

    Example:
        >>> [(code, part.tolist()) for code, part in groups(np.array([2, 0, 2]), np.array([0.1, 0.2, 0.3]))]
        [(0, [0.2]), (2, [0.1, 0.3])]
    """
    if len(codes) == 0:
        return
    order = np.argsort(codes, kind="stable")
    codes, values = codes[order], values[order]
    starts = np.flatnonzero(np.diff(codes, prepend=codes[0] - 1))
    for start, stop in zip(starts, [*starts[1:], len(codes)], strict=True):
        yield int(codes[start]), values[start:stop]


def rank_means(means: Floats) -> Floats:
    """Rank means, largest first. Means that differ by rounding errors only share the average rank.

    Args:
        means: ``[N]``; NaN gets no rank.

    Returns:
        ``[N]`` ranks from 1, ``nan`` where the mean is ``nan``.

    Example:
        >>> rank_means(np.array([0.5, 0.9, 0.5, np.nan, 0.6]))
        array([3.5, 1. , 3.5, nan, 2. ])
    """
    from scipy.stats import rankdata

    ranks = np.full(len(means), np.nan)
    known = ~np.isnan(means)
    ranks[known] = rankdata(-np.round(means[known], 12))
    return ranks


_MAP = ["dataset", "model", "data_seed", "seed", "sample"]


#: Largest number of methods that a sentence names, those with the largest shares.
_MAX_NAMES = 3


@dataclass(frozen=True)
class UnscoredMaps:
    """Numbers of maps that a method's scores treat as chance, and of undefined scores, over the samples that count.

    Attributes:
        as_chance: Maps that at least one metric scored as chance, because they are constant or no pixel is above the
            threshold of the metric.
        maps: All maps.
        undefined: Undefined scores, which enter no mean.
        scores: All scores.
    """

    as_chance: int
    maps: int
    undefined: int
    scores: int


def count_unscored(scores: pd.DataFrame) -> dict[str, UnscoredMaps]:
    """Count maps that were scored as chance, and undefined scores.

    Args:
        scores: Rows as in ``scores.parquet``. Only samples that count (``scored``) are counted.

    Returns:
        By method, in the order of the rows; methods without any are left out.
    """
    scores = scores[scores["scored"]]
    chance = is_scored_as_chance(scores["reason"]) & scores["value"].notna()
    counts = {}
    for name in dict.fromkeys(scores["explainer"][chance | scores["value"].isna()]):
        own = scores["explainer"] == name
        rows = scores.loc[own, _MAP]
        as_chance, maps = len(rows[chance[own]].drop_duplicates()), len(rows.drop_duplicates())
        counts[str(name)] = UnscoredMaps(as_chance, maps, int(scores["value"][own].isna().sum()), int(own.sum()))
    return counts


def is_scored_as_chance(reasons: pd.Series) -> pd.Series:
    """Return for which scores the reason is that the map was scored as chance."""
    # Few reasons are distinct, so that text is compared once per reason.
    known = [reason for reason in reasons.unique() if str(reason).endswith(SCORED_AS_CHANCE)]
    return reasons.isin(known)


def unscored_notes(counts: Mapping[str, UnscoredMaps], labels: Mapping[str, str]) -> list[str]:
    """Return a sentence about maps that were scored as chance, and one about undefined scores, if there are any.

    Args:
        counts: From :func:`count_unscored`.
        labels: Display name of each method of the run.
    """
    chance = {name: (one.as_chance, one.maps) for name, one in counts.items() if one.as_chance}
    undefined = {name: (one.undefined, one.scores) for name, one in counts.items() if one.undefined}
    starts = (
        "Maps scored as chance, because they are constant or no pixel is above the threshold",
        "Undefined scores, which enter no mean",
    )
    return [
        f"{start}: {_counts_in_words(part, labels)}."
        for start, part in zip(starts, (chance, undefined), strict=True)
        if part
    ]


def _counts_in_words(counts: Mapping[str, tuple[int, int]], labels: Mapping[str, str]) -> str:
    if len(counts) == len(labels) > 1 and len(set(counts.values())) == 1:
        count, whole = next(iter(counts.values()))
        return f"{count:,} of {whole:,} of every method"
    known = sorted((name for name in labels if name in counts), key=lambda name: -counts[name][0] / counts[name][1])
    named = [f"{labels[name]} {counts[name][0]:,} of {counts[name][1]:,}" for name in known[:_MAX_NAMES]]
    if len(known) <= _MAX_NAMES:
        return listed(named)
    count, whole = counts[known[_MAX_NAMES]]
    return f"{', '.join(named)} and at most {count / whole:.0%} of {len(known) - _MAX_NAMES} others".replace("%", " %")


#: Accuracy of a failed training in percent; the paper's data sets have two classes.
_FAILED_ACCURACY = 50.0
#: Number of test samples if the run folder does not state it; the binomial variance is then zero.
_UNKNOWN_SAMPLES = math.inf


class Spread(NamedTuple):
    """Variance of one training's accuracy in squared percent, and its degrees of freedom."""

    variance: float
    df: int


def accuracy_margins(run: RunResults) -> dict[tuple[Any, ...], float]:
    """Return the difference to the paper's accuracy that chance explains, at 95 %.

    Args:
        run: The run.

    Returns:
        Percent per cell (``run.accuracy_keys``): Student's quantile times the standard error of the difference
        of two means, each over as many trainings as the cell has. If our mean is larger and trainings of the
        architecture failed, the effect of the largest share of failures that ours do not exclude is added (Clopper,
        Pearson 1934). NaN if the architecture was not trained twice in any cell.
    """
    from scipy.stats import t

    margins = {}
    keys = list(run.accuracy_keys)
    groups = {cell: _training_spread(group) for cell, group in run.trainings.groupby(keys, observed=True)}
    learned = run.accuracy.get("learned", run.accuracy["trainings"])
    failing = set(run.accuracy.loc[learned < run.accuracy["trainings"], "model"])
    for _, row in run.accuracy.iterrows():
        cell = tuple(row[key] for key in keys)
        spread = _cell_spread(groups, cell)
        trainings = int(row["trainings"] or 0) if not pd.isna(row["trainings"]) else 0
        if spread.df < 1 or trainings < 1:
            margins[cell] = math.nan
            continue
        variance = 2 * spread.variance / trainings + _sampling_variance(row, "mean") + _sampling_variance(row, "paper")
        margins[cell] = float(t.ppf(1 - ALPHA / 2, spread.df)) * math.sqrt(variance)
        if cell[2] in failing and float(row["mean"]) > float(row["paper"]):
            margins[cell] += _max_failure_share(row) * max(0.0, float(row["mean"]) - _FAILED_ACCURACY)
    return margins


def _max_failure_share(row: pd.Series) -> float:
    """Return the upper confidence limit of the share of failed trainings in the cell."""
    from scipy.stats import beta

    trainings, learned = int(row["trainings"]), int(row["learned"])
    return float(beta.ppf(1 - ALPHA / 2, trainings - learned + 1, learned)) if learned else 1.0


def _training_spread(trainings: pd.DataFrame) -> Spread:
    reached = trainings["test_accuracy"].dropna()
    return Spread(float(reached.var(ddof=1)) if len(reached) > 1 else math.nan, max(0, len(reached) - 1))


def _cell_spread(groups: Mapping[Any, Spread], cell: tuple[Any, ...]) -> Spread:
    """Return the spread of the cell, or the pooled one of its architecture if that is larger."""
    alike = [spread for other, spread in groups.items() if other[2] == cell[2] and spread.df > 0]
    df = sum(spread.df for spread in alike)
    if not df:
        return Spread(math.nan, 0)
    together = Spread(sum(spread.df * spread.variance for spread in alike) / df, df)
    own = groups.get(cell, Spread(math.nan, 0))
    return own if own.df and own.variance > together.variance else together


def _sampling_variance(row: pd.Series, column: str) -> float:
    """Return the variance of an accuracy due to the choice of test samples, in squared percent."""
    share, samples = row.get(column), row.get("test_samples")
    if share is None or pd.isna(share):
        return 0.0
    return (
        float(share)
        * (100 - float(share))
        / (_UNKNOWN_SAMPLES if samples is None or pd.isna(samples) else float(samples))
    )
