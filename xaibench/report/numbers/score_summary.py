"""Summary statistics of the scores of each cell, and counts of undefined scores.

A *cell* is one subset, variant and model. Scores are summarized over the samples that count (``correct``): by default,
the samples that the explained network classifies correctly. ``n`` is their number, ``n_valid`` the number of samples
with a defined score.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from xaibench.report.numbers.unscored_maps import is_scored_as_chance
from xaibench.report.read.results import RunResults
from xaibench.runfolder.tables import CELL, DESCRIBED, KEYS

Floats: TypeAlias = NDArray[np.floating[Any]]

#: Largest number of outliers drawn on each side of a box, to bound the size of the figures.
MAX_OUTLIERS = 8
#: Columns for the figures, in addition to those of ``summary.csv``.
_FOR_FIGURES = ("whisker_low", "whisker_high", "outliers")


def summarize(run: RunResults) -> pd.DataFrame:
    """Return one row per cell, explainer and metric.

    Returns:
        Columns :data:`~xaibench.runfolder.tables.DESCRIBED`, then ``whisker_low``, ``whisker_high`` and ``outliers``
        for the figures.

        - ``rank``: rank of the mean within cell and metric, 1 is best; ties share the average rank. NaN without a
          defined score, and for a control that is the answer by construction of the data.
        - ``above_controls``: whether the rank is better than that of every control of the cell, significant or not (for
          significance see ``beats_controls`` of :func:`.inference.infer`). Missing for controls, and in a cell without
          a ranked control.
    """
    rows = _describe_groups(run)
    if rows.empty:
        return rows.reindex(columns=[*DESCRIBED, *_FOR_FIGURES])
    # The direction in the scores takes precedence over the one in parts.json.
    direction = run.scores.groupby("metric", observed=True)["higher_is_better"].first()
    rows["higher_is_better"] = rows["metric"].map(direction).astype(bool)
    rows["control"] = [run.explainers[name].control for name in rows["explainer"]]
    sign = np.where(rows["higher_is_better"], 1.0, -1.0)
    means = sign * rows["mean"].to_numpy(float)
    means[_are_answers(run, rows)] = np.nan
    rows["rank"] = np.nan
    for index in rows.groupby([*CELL, "metric"], observed=True).indices.values():
        rows.loc[rows.index[index], "rank"] = rank_means(means[index])
    best_control = rows["rank"].where(rows["control"]).groupby([rows[key] for key in [*CELL, "metric"]], observed=True)
    bar = best_control.transform("min")
    above = (rows["rank"] < bar).astype("boolean")
    rows["above_controls"] = above.mask(rows["control"] | bar.isna() | rows["rank"].isna())
    return rows[[*DESCRIBED, *_FOR_FIGURES]]


def _are_answers(run: RunResults, rows: pd.DataFrame) -> NDArray[np.bool_]:
    """Return which rows are of a control that is the answer by construction of the data."""
    cells = rows[[*CELL, "explainer"]].astype(str).itertuples(index=False, name=None)
    return np.array([run.is_answer(row[:3], row[3]) for row in cells], dtype=bool)


def _describe_groups(run: RunResults) -> pd.DataFrame:
    """Describe every group that occurs, also those without a correct sample, in display order."""
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
    for field in fields(ScoreDistribution):
        name = {"low": "min", "high": "max"}.get(field.name, field.name)
        rows[name] = [getattr(distribution, field.name) for distribution in described.values()]
    return rows


def undefined(run: RunResults) -> pd.DataFrame:
    """Count the undefined scores of correctly classified samples, and the scores of maps scored as chance, by reason.

    Returns:
        One row per explainer, metric and reason, the largest share first: ``undefined`` (number of these scores),
        ``of`` (all scores of that explainer and metric on correctly classified samples), ``share``.
    """
    scores = run.scores[run.scores["correct"]]
    of = scores.groupby(["explainer", "metric"], observed=True).size().rename("of")
    bad = scores[scores["value"].isna() | is_scored_as_chance(scores["reason"])]
    count = bad.groupby(["explainer", "metric", "reason"], observed=True, dropna=False).size().rename("undefined")
    table = count.reset_index().merge(of.reset_index(), on=["explainer", "metric"], how="left")
    table["reason"] = table["reason"].astype(object).fillna("").replace("", "no reason given")
    table["share"] = table["undefined"] / table["of"]
    return table.sort_values("share", ascending=False, kind="stable").reset_index(drop=True)


@dataclass(frozen=True)
class ScoreDistribution:
    """Summary statistics of a group of scores.

    Attributes:
        n: Number of scores, undefined ones included.
        n_valid: Number of defined scores. All statistics are over these, and NaN if there are none.
        mean: Arithmetic mean.
        std: Sample standard deviation (divided by ``n_valid - 1``); ``nan`` for fewer than two.
        low: Smallest score.
        q25: First quartile, linearly interpolated (as ``numpy.quantile``).
        median: Second quartile.
        q75: Third quartile.
        high: Largest score.
        whisker_low: Smallest score within 1.5 interquartile ranges below ``q25`` (Tukey).
        whisker_high: Largest score within 1.5 interquartile ranges above ``q75``.
        outliers: Some of the distinct scores outside the whiskers: the extreme one, and others evenly spaced in order,
            at most :data:`MAX_OUTLIERS` per side.
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


def describe(values: Floats) -> ScoreDistribution:
    """Compute the summary statistics of a group of scores.

    Args:
        values: ``[N]``; NaN if undefined.

    Example:
        >>> d = describe(np.array([1.0, 2.0, 3.0, 4.0, 100.0, np.nan]))
        >>> d.n, d.n_valid, d.median, d.q75, d.whisker_high, d.outliers
        (6, 5, 3.0, 4.0, 4.0, (100.0,))
    """
    valid = np.sort(values[~np.isnan(values)].astype(np.float64))
    n_valid = len(valid)
    if n_valid == 0:
        nothing = (np.nan,) * 9
        return ScoreDistribution(len(values), 0, *nothing, ())
    q25, median, q75 = (float(q) for q in np.quantile(valid, (0.25, 0.5, 0.75)))
    reach = 1.5 * (q75 - q25)
    first = int(np.searchsorted(valid, q25 - reach, side="left"))
    last = int(np.searchsorted(valid, q75 + reach, side="right"))
    return ScoreDistribution(
        n=len(values),
        n_valid=n_valid,
        mean=float(valid.mean()),
        std=float(valid.std(ddof=1)) if n_valid > 1 else np.nan,
        low=float(valid[0]),
        q25=q25,
        median=median,
        q75=q75,
        high=float(valid[-1]),
        # Interpolated quartiles can be beyond every score within reach; a whisker must not point into its box.
        whisker_low=min(float(valid[first]), q25),
        whisker_high=max(float(valid[last - 1]), q75),
        outliers=(*_thin(np.unique(valid[:first])), *_thin(np.unique(valid[last:])[::-1])),
    )


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
