"""Split of the maps' mass by its cause: means per cell and method, and tables of stacked bars."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from xaibench.runfolder.schema import CELL
from xaibench.scores import nested_means
from xaibench.scores.cells import cell_matrices
from xaibench.scores.results import RunResults, place

#: The parts of a map's mass, in display order.
SHARE_PARTS = ("on_truth", "relied_on", "not_relied_on")
#: Labels of the parts.
SHARE_LABELS = ("on the ground truth", "outside it, relied on by the network", "outside it, not relied on")


@dataclass(frozen=True)
class ShareMeans:
    """Mean shares of one method in one cell.

    Attributes:
        cell: Subset, variant and model.
        explainer: Name of the method, a control, or the reference.
        means: Mean of each of :data:`SHARE_PARTS`; they sum to 1. NaN if all maps are zero.
        intervals: Ends of the 95 % interval of each mean.
    """

    cell: tuple[str, str, str]
    explainer: str
    means: tuple[float, ...]
    intervals: tuple[tuple[float, float], ...]


def share_means(run: RunResults) -> list[ShareMeans]:
    """Return the mean shares of a run by cell and method, in display order with the reference first.

    Args:
        run: The run. If its suite has several references, the first is used.

    Returns:
        One :class:`ShareMeans` per cell and method; empty if the suite has no reference.
    """
    if not len(run.shares):
        return []
    first = next(iter(run.references), str(run.shares["reference"].iloc[0]))
    rows, shares = run.shares[run.shares["reference"] == first], []
    for cell in cell_matrices(dataclasses.replace(run, scores=_shares_as_scores(run, rows, [first, *run.explainers]))):
        means = [nested_means(cell.values[:, k], cell.drawn) for k in range(len(SHARE_PARTS))]
        intervals = [each.intervals(within=(0.0, 1.0)).tolist() for each in means]
        for m, name in enumerate(cell.methods):
            ends = tuple((low, high) for low, high in (each[m] for each in intervals))
            shares.append(ShareMeans(cell.cell, name, tuple(float(each.mean[m]) for each in means), ends))
    return shares


def _shares_as_scores(run: RunResults, rows: pd.DataFrame, explainers: list[str]) -> pd.DataFrame:
    """Return the shares as metrics, so that means and intervals are computed as for scores."""
    tables = [rows.assign(metric=name, value=rows[name]) for name in SHARE_PARTS]
    scores = pd.concat(tables, ignore_index=True)
    orders = dict(zip(CELL, (run.subsets, run.variants, list(run.models)), strict=True))
    orders |= {"explainer": explainers, "metric": SHARE_PARTS}
    for key, order in orders.items():
        scores[key] = pd.Categorical(scores[key].astype(str), categories=list(order), ordered=True)
    scores["dataset"] = scores["dataset"].astype("category")
    return scores[np.logical_and.reduce([scores[key].notna() for key in orders])]


@dataclass(frozen=True)
class ShareTable:
    """Stacked bars of one variant.

    Attributes:
        title: Label of the variant; empty if the run has no variants.
        heads: Subset and model of each column.
        rows: Shares per method and column, or None; the reference is the first.
    """

    title: str
    heads: tuple[tuple[str, str], ...]
    rows: dict[str, list[ShareMeans | None]]


@dataclass(frozen=True)
class ShareBars:
    """The page's tables of shares.

    Attributes:
        tables: One table per variant.
        every: All mean shares, for the table of numbers.
        reference: Label of the reference.
        scored: Mean score of the reference by label of the metric and cell.
    """

    tables: tuple[ShareTable, ...]
    every: tuple[ShareMeans, ...]
    reference: str
    scored: dict[str, dict[tuple[str, str, str], float]]


def share_bars(run: RunResults) -> ShareBars | None:
    """Return the tables of shares of a run.

    Args:
        run: The run.

    Returns:
        The tables; None if the suite has no reference.
    """
    shares = share_means(run)
    if not shares:
        return None
    first = shares[0].explainer
    label = run.references[first].label if first in run.references else first
    return ShareBars(tuple(_share_tables(run, shares)), tuple(shares), label, _reference_scores(run, first))


def _share_tables(run: RunResults, shares: list[ShareMeans]) -> Iterator[ShareTable]:
    for variant in run.variants:
        mine = [row for row in shares if row.cell[1] == variant]
        cells = list(dict.fromkeys(row.cell for row in mine))
        where = {(row.explainer, row.cell): row for row in mine}
        names = list(dict.fromkeys(row.explainer for row in shares))
        order = [names[0], *(name for name in run.explainers if name in names)]
        rows = {name: [where.get((name, cell)) for cell in cells] for name in order}
        heads = tuple((place(cell[0]), run.models[cell[2]].label) for cell in cells)
        if cells:
            yield ShareTable(place(variant), heads, rows)


def _reference_scores(run: RunResults, reference: str) -> dict[str, dict[tuple[str, str, str], float]]:
    scores = run.reference_scores
    if scores.empty:
        return {}
    mine = scores[(scores["explainer"] == reference) & scores["scored"]]
    means = mine.groupby(["metric", "subset", "variant", "model"], observed=True)["value"].mean()
    means_of: dict[str, dict[tuple[str, str, str], float]] = {part.label: {} for part in run.metrics.values()}
    for metric, subset, variant, model, mean in means.reset_index().itertuples(index=False, name=None):
        if metric in run.metrics:
            means_of[run.metrics[metric].label][subset, variant, model] = float(mean)
    return means_of
