"""The scores of each cell in a few numbers: quartiles, whiskers, ranks; and how many are undefined, and why.

A *cell* is one scenario, background and model. Scores are summarised over the samples that every explained model of
the data set classifies correctly (``correct``), and over the defined ones among these; ``n`` and ``n_valid`` say how
many that are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from xaibench.report.read.run_results import RunResults
from xaibench.runfolder.tables import CELL, DESCRIBED, KEYS

Floats: TypeAlias = NDArray[np.floating[Any]]

#: Outliers drawn on each side of a box: enough to show the tail, few enough for millions of scores.
MAX_OUTLIERS = 8
#: What the figures need beside the columns of ``summary.csv``.
_FOR_FIGURES = ("whisker_low", "whisker_high", "outliers")


def summarise(run: RunResults) -> pd.DataFrame:
    """One row for each cell, explainer and metric.

    Returns:
        Columns :data:`~xaibench.runfolder.tables.DESCRIBED`, then ``whisker_low``, ``whisker_high`` and ``outliers``
        for the figures.

        - ``rank`` is within cell and metric: 1 for the best median, equal medians by the mean, what is still equal
          shares the average rank; ``nan`` without a defined score.
        - ``above_controls`` is True when the rank is better than that of every control of the cell, by chance or not
          (``beats_controls`` of :func:`.inference.infer` tells that); missing for the controls themselves, and in a
          cell without a ranked control.
    """
    rows = _describe_groups(run)
    if rows.empty:
        return rows.reindex(columns=[*DESCRIBED, *_FOR_FIGURES])
    # What the rows of the run say counts before what parts.json says.
    direction = run.scores.groupby("metric", observed=True)["higher_is_better"].first()
    rows["higher_is_better"] = rows["metric"].map(direction).astype(bool)
    rows["control"] = [run.explainers[name].control for name in rows["explainer"]]
    sign = np.where(rows["higher_is_better"], 1.0, -1.0)
    first, second = sign * rows["median"].to_numpy(float), sign * rows["mean"].to_numpy(float)
    rows["rank"] = np.nan
    for index in rows.groupby([*CELL, "metric"], observed=True).indices.values():
        rows.loc[rows.index[index], "rank"] = lexicographic_rank(first[index], second[index])
    best_control = rows["rank"].where(rows["control"]).groupby([rows[key] for key in [*CELL, "metric"]], observed=True)
    bar = best_control.transform("min")
    above = (rows["rank"] < bar).astype("boolean")
    rows["above_controls"] = above.mask(rows["control"] | bar.isna() | rows["rank"].isna())
    return rows[[*DESCRIBED, *_FOR_FIGURES]]


def _describe_groups(run: RunResults) -> pd.DataFrame:
    """Every group that occurs, those without a correct sample too, in the order to show."""
    scores = run.scores
    codes = np.zeros(len(scores), dtype=np.int64)
    for key in KEYS:
        codes = codes * len(scores[key].cat.categories) + scores[key].cat.codes.to_numpy()
    correct = scores["correct"].to_numpy()
    described = {int(code): describe(np.empty(0)) for code in np.unique(codes)}
    described |= {code: describe(part) for code, part in groups(codes[correct], scores["value"].to_numpy()[correct])}
    rows = pd.DataFrame(index=range(len(described)))
    left = np.array(list(described), dtype=np.int64)
    for key in reversed(KEYS):
        categories = scores[key].cat.categories
        place_of = left % max(len(categories), 1)
        left = left // max(len(categories), 1)
        rows[key] = pd.Categorical.from_codes(place_of, categories=categories, ordered=True)
    for field in fields(Distribution):
        name = {"low": "min", "high": "max"}.get(field.name, field.name)
        rows[name] = [getattr(distribution, field.name) for distribution in described.values()]
    return rows


def undefined(run: RunResults) -> pd.DataFrame:
    """How many scores of correctly classified samples are undefined, and why.

    Returns:
        One row for each explainer, metric and reason: ``undefined``, ``of`` (all scores of that explainer and metric
        on correctly classified samples), ``share``; the largest share first.
    """
    scores = run.scores[run.scores["correct"]]
    of = scores.groupby(["explainer", "metric"], observed=True).size().rename("of")
    bad = scores[scores["value"].isna()]
    count = bad.groupby(["explainer", "metric", "reason"], observed=True, dropna=False).size().rename("undefined")
    table = count.reset_index().merge(of.reset_index(), on=["explainer", "metric"], how="left")
    table["reason"] = table["reason"].astype(object).fillna("").replace("", "no reason given")
    table["share"] = table["undefined"] / table["of"]
    return table.sort_values("share", ascending=False, kind="stable").reset_index(drop=True)


@dataclass(frozen=True)
class Distribution:
    """What a box plot and a table row need to know of a group of scores.

    Attributes:
        n: Number of scores, undefined ones included.
        n_valid: Number of defined scores. All that follows is over these, and ``nan`` when there are none.
        mean: Arithmetic mean.
        std: Sample standard deviation (divided by ``n_valid - 1``); ``nan`` for fewer than two.
        low: Smallest score.
        q25: First quartile, linearly interpolated (as ``numpy.quantile``).
        median: Second quartile.
        q75: Third quartile.
        high: Largest score.
        whisker_low: Smallest score within 1.5 interquartile ranges below ``q25`` (Tukey).
        whisker_high: Largest score within 1.5 interquartile ranges above ``q75``.
        outliers: Some of the different scores outside the whiskers: the extreme one, and others evenly spaced in
            order, at most :data:`MAX_OUTLIERS` a side.
    """

    n: int
    n_valid: int
    mean: float
    std: float
    low: float
    q25: float
    median: float
    q75: float
    high: float
    whisker_low: float
    whisker_high: float
    outliers: tuple[float, ...]


def describe(values: Floats) -> Distribution:
    """Describe one group of scores.

    Args:
        values: ``[N]``; ``nan`` where undefined.

    Example:
        >>> d = describe(np.array([1.0, 2.0, 3.0, 4.0, 100.0, np.nan]))
        >>> d.n, d.n_valid, d.median, d.q75, d.whisker_high, d.outliers
        (6, 5, 3.0, 4.0, 4.0, (100.0,))
    """
    valid = np.sort(values[~np.isnan(values)].astype(np.float64))
    n_valid = len(valid)
    if n_valid == 0:
        nothing = (np.nan,) * 9
        return Distribution(len(values), 0, *nothing, ())
    q25, median, q75 = (float(q) for q in np.quantile(valid, (0.25, 0.5, 0.75)))
    reach = 1.5 * (q75 - q25)
    first = int(np.searchsorted(valid, q25 - reach, side="left"))
    last = int(np.searchsorted(valid, q75 + reach, side="right"))
    return Distribution(
        n=len(values),
        n_valid=n_valid,
        mean=float(valid.mean()),
        std=float(valid.std(ddof=1)) if n_valid > 1 else np.nan,
        low=float(valid[0]),
        q25=q25,
        median=median,
        q75=q75,
        high=float(valid[-1]),
        # Interpolated quartiles may lie beyond every score within reach; a whisker never points into its box.
        whisker_low=min(float(valid[first]), q25),
        whisker_high=max(float(valid[last - 1]), q75),
        outliers=(*_thin(np.unique(valid[:first])), *_thin(np.unique(valid[last:])[::-1])),
    )


def _thin(outliers: Floats) -> list[float]:
    """At most :data:`MAX_OUTLIERS` of them, the first (most extreme) among them."""
    if len(outliers) > MAX_OUTLIERS:
        outliers = outliers[np.linspace(0, len(outliers) - 1, MAX_OUTLIERS).round().astype(int)]
    return [float(value) for value in outliers]


def groups(codes: NDArray[np.integer[Any]], values: Floats) -> Iterator[tuple[int, Floats]]:
    """Split ``values`` by group number, with one stable sort rather than one pass for each group.

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


def lexicographic_rank(first: Floats, second: Floats) -> Floats:
    """Rank 1 for the largest ``first``; ties by the largest ``second``; what is still tied shares the average rank.

    Args:
        first: ``[N]``; ``nan`` gets no rank.
        second: ``[N]``.

    Returns:
        ``[N]`` ranks from 1, ``nan`` where ``first`` is ``nan``.

    Example:
        >>> lexicographic_rank(np.array([0.5, 0.9, 0.5, np.nan, 0.5]), np.array([0.4, 0.1, 0.6, 0.9, 0.4]))
        array([3.5, 1. , 2. , nan, 3.5])
    """
    ranks = np.full(len(first), np.nan)
    known = np.flatnonzero(~np.isnan(first))
    if len(known) == 0:
        return ranks
    # Rounded, so that the order in which a mean was summed cannot break a tie.
    keys = np.round(np.stack([-first[known], -second[known]], axis=1), 12) + 0.0
    _, code, count = np.unique(keys, axis=0, return_inverse=True, return_counts=True)
    ranks[known] = (np.cumsum(count) - (count - 1) / 2)[code.ravel()]
    return ranks
