"""The tables of a run: the summary of each cell, ranks, the leaderboard, and the counts of undefined scores.

A *cell* is one scenario, background and model. Scores are summarised over the samples that every explained model of
the data set classifies correctly (``correct``), and over the defined ones among these; ``n`` and ``n_valid`` say how
many that are.
"""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pandas as pd

from xaibench.report.numbers.box_numbers import Distribution, describe, groups, lexicographic_rank
from xaibench.report.numbers.leaderboards import standings
from xaibench.report.read.run_reading import CELL, KEYS, Run, place

#: Columns of :func:`summarise`; ``summary.csv`` has those of :func:`xaibench.report.numbers.inference.infer` behind
#: them.
SUMMARY_COLUMNS = [
    *KEYS,
    *("n", "n_valid", "mean", "std", "min", "q25", "median", "q75", "max"),
    *("higher_is_better", "rank", "control", "beats_controls"),
]


def summarise(run: Run) -> pd.DataFrame:
    """One row for each cell, explainer and metric.

    Returns:
        Columns :data:`SUMMARY_COLUMNS`, then ``whisker_low``, ``whisker_high`` and ``outliers`` for the figures.

        - ``rank`` is within cell and metric: 1 for the best median, equal medians by the mean, what is still equal
          shares the average rank; ``nan`` without a defined score.
        - ``beats_controls`` is True when the rank is better than that of every control of the cell; missing for the
          controls themselves, and in a cell without a ranked control.
    """
    rows = _describe_groups(run)
    if rows.empty:
        return rows.reindex(columns=[*SUMMARY_COLUMNS, "whisker_low", "whisker_high", "outliers"])
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
    beats = (rows["rank"] < bar).astype("boolean")
    rows["beats_controls"] = beats.mask(rows["control"] | bar.isna() | rows["rank"].isna())
    return rows[[*SUMMARY_COLUMNS, "whisker_low", "whisker_high", "outliers"]]


def _describe_groups(run: Run) -> pd.DataFrame:
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


def leaderboard(run: Run, summary: pd.DataFrame) -> pd.DataFrame:
    """The explainers over all cells, best first.

    Returns:
        One row for each explainer:

        - ``place``: position among the methods that were ranked in every cell; missing for controls and for methods
          that were not (an explainer of convolutions only, or one whose jobs failed), since a mean over other cells is
          another quantity.
        - ``explainer``, ``control``, ``cells`` (in which it was ranked), ``of`` (number of cells).
        - ``mean_rank``: mean of the ranks over cells and metrics.
        - for each metric, ``mean_rank:METRIC``, ``median:METRIC`` (median over the cells of the cell's median),
          ``mean:METRIC`` (mean over the cells of the cell's mean),
          ``best:METRIC`` (cells in which no explainer, control or not, has a better rank), ``beats:METRIC`` (cells in
          which it beats every control) and ``against:METRIC`` (cells in which that can be asked; 0 for
          controls).
        - where the summary is one of :func:`.inference.infer`, ``sample_rank`` (mean over cells and metrics) and
          ``exceeds:METRIC`` (cells in which it beats every control by more than chance).
    """
    found = standings(run, summary)
    return found.board(range(len(found.cells)))


def best_by_cell(run: Run, summary: pd.DataFrame) -> pd.DataFrame:
    """The best method of each cell and, in the last row, over all cells; one printable column for each metric."""
    board = leaderboard(run, summary)
    rows = []
    for cell, group in summary.groupby(CELL, observed=True, sort=True):
        scenario, background, model = (str(name) for name in cell)
        row = {"scenario": place(scenario), "background": place(background), "model": run.models[model].label}
        for metric, part in run.metrics.items():
            ranked = group[group["metric"] == metric].dropna(subset=["rank"])
            row[part.label] = _winner(run, ranked) if len(ranked) else "-"
        rows.append(row)
    columns = [*CELL, *(part.label for part in run.metrics.values())]
    if len(board.dropna(subset=["place"])):
        rows.append({"scenario": "all", "background": "", "model": ""})
        for metric, part in run.metrics.items():
            best = board.dropna(subset=["place"]).nsmallest(1, f"mean_rank:{metric}").iloc[0]
            label = run.explainers[best["explainer"]].label
            rows[-1][part.label] = f"{label} (mean rank {best[f'mean_rank:{metric}']:.1f})"
    return pd.DataFrame(rows, columns=columns)


def _winner(run: Run, ranked: pd.DataFrame) -> str:
    best = ranked.nsmallest(1, "rank").iloc[0]
    part = run.explainers[best["explainer"]]
    return f"{part.label} {best['median']:.3f}" + (" (control)" if part.control else "")


def undefined(run: Run) -> pd.DataFrame:
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
