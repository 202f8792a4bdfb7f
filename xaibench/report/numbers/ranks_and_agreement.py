"""Mean ranks with critical differences, and correlations between metrics.

Mean ranks with a critical difference: Demšar, Statistical comparisons of classifiers over multiple data sets, JMLR
2006. His blocks are data sets. Here they are the cells of a run if it has enough of them, and the samples otherwise.
The variation of data sets and trainings is accounted for (:func:`xaibench.statistics.mean_ranks`): each data set and
training has its own ranking, a further level crossed with the cells.

Correlations between metrics over the samples of each cell, per explainer: Zhang et al. (2023), inter-method
reliability, Table 4. The coefficients equal ``xaibench.metrics.agreement``.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from xaibench.benchmarks.saliency_bench.published_tables import TABLE_4, published_set
from xaibench.report.numbers.inference import Floats, Matrices, cell_matrices
from xaibench.report.numbers.score_summary import lexicographic_rank
from xaibench.report.read.results import RunResults, place
from xaibench.runfolder.tables import CELL
from xaibench.statistics import SamplingDesign, friedman, mean_ranks

#: Smallest number of cells that are used as blocks (Demšar recommends more than ten data sets).
ENOUGH_CELLS = 10


@dataclass(frozen=True)
class Ranking:
    """The explainers' mean ranks by one metric.

    Attributes:
        metric: Name of the metric.
        ranks: Explainer to mean rank, best (smallest) first.
        blocks: Number of rankings that the mean is over.
        unit: Unit of a ranking: ``"cells"`` or ``"samples"``.
        difference: Mean ranks at least this far apart differ at 5 % (Nemenyi's test).
        p: p-value of Friedman's test of equal ranks; NaN if the test is not possible.
        left_out: Explainers without a score in some cell.
    """

    metric: str
    ranks: dict[str, float]
    blocks: int
    unit: str
    difference: float
    p: float
    left_out: tuple[str, ...]

    @property
    def cliques(self) -> list[tuple[str, ...]]:
        """Maximal groups of two or more neighbors whose ranks all differ by less than the critical difference."""
        names, values = list(self.ranks), np.array(list(self.ranks.values()))
        near = np.searchsorted(values, values + np.nan_to_num(self.difference), side="left")
        ends = np.maximum(near, np.searchsorted(values, values, side="right"))  # equal ranks never differ
        found: list[tuple[str, ...]] = []
        reached = 0
        for start, end in enumerate(ends):
            if end - start > 1 and end > reached:
                found.append(tuple(names[start:end]))
            reached = max(reached, int(end))
        return found


def rankings(run: RunResults, summary: pd.DataFrame) -> dict[str, Ranking]:
    """Rank the explainers by each metric with three or more explainers in two or more blocks.

    Args:
        run: The run.
        summary: From :func:`xaibench.report.numbers.score_summary.summarize`.

    Returns:
        Rankings by metric, without metrics whose ranking depends on their own parameters. If cells are the blocks,
        explainers are ranked by their medians, separately per data set and training. If samples are the blocks, each
        group of samples of a training counts once, with its mean scores over samples and models.
    """
    cells = summary.groupby(list(CELL), observed=True).ngroups if len(summary) else 0
    by_cells = cells >= ENOUGH_CELLS
    matrices = list(cell_matrices(run))
    directions = run.scores.groupby("metric", observed=True)["higher_is_better"].first()
    found = {}
    for metric in run.leading:
        if metric in run.unsettled:
            continue
        mine = [cell for cell in matrices if metric in cell.metrics]
        if not mine:
            continue
        names, left_out = _ranked_names(run, mine, metric)
        make = _cell_rows if by_cells else _sample_rows
        rows, drawn = make(mine, metric, names, higher=bool(directions[metric]))
        blocks = len(np.unique(drawn.groups[~np.isnan(rows).any(axis=1)]))
        if blocks < 2 or len(names) < 3:
            continue
        ranked = mean_ranks(rows, drawn, higher_is_better=bool(directions[metric]) and not by_cells)
        ordered = sorted(zip(names, ranked.ranks, strict=True), key=lambda pair: pair[1])
        found[metric] = Ranking(
            metric=metric,
            ranks={name: float(rank) for name, rank in ordered},
            blocks=blocks,
            unit="cells" if by_cells else "samples",
            difference=ranked.critical_difference,
            p=friedman(ranked),
            left_out=left_out,
        )
    return found


def _ranked_names(run: RunResults, cells: list[Matrices], metric: str) -> tuple[list[str], tuple[str, ...]]:
    """Return the explainers with a score in every cell, and the others.

    Means over different cells are not comparable.
    """
    scored = []
    for cell in cells:
        some = np.flatnonzero((~np.isnan(cell.values[:, cell.metrics.index(metric)])).any(axis=0))
        scored.append({cell.methods[m] for m in some})
    names = [name for name in run.explainers if all(name in there for there in scored)]
    known = {name for cell in cells for name in cell.methods}
    return names, tuple(name for name in run.explainers if name in known and name not in names)


def _cell_rows(cells: list[Matrices], metric: str, names: list[str], *, higher: bool) -> tuple[Floats, SamplingDesign]:
    """Return ``[N, M]`` ranks per cell, data set and training; the top repeated level is crossed with the cells."""
    rows, sets, trainings, numbers = [], [], [], []
    for number, cell in enumerate(cells):
        values = _select_scores(cell, metric, names) * (1 if higher else -1)
        for data_set, training in sorted(set(zip(cell.drawn.data_sets, cell.drawn.trainings, strict=True))):
            mine = values[(cell.drawn.data_sets == data_set) & (cell.drawn.trainings == training)]
            known = mine[:, ~np.isnan(mine).all(axis=0)]
            if known.shape[1] == len(names):  # otherwise not all of them are ranked
                rows.append(lexicographic_rank(np.nanmedian(known, axis=0), np.nanmean(known, axis=0)))
                sets.append(cell.seeds[data_set])
                trainings.append(int(training))
                numbers.append(number)
    several = len(set(sets)) > 1
    table = np.array(rows, dtype=np.float64).reshape(len(rows), len(names))
    return table, SamplingDesign.of(len(rows), trainings=sets if several else trainings, groups=numbers)


def _sample_rows(
    cells: list[Matrices], metric: str, names: list[str], *, higher: bool
) -> tuple[Floats, SamplingDesign]:
    """Return ``[N, M]`` mean scores per group of samples, data set and training, over all models."""
    frames = []
    for cell in cells:
        place = pd.Index([cell.cell[:2]] * len(cell.groups), tupleize_cols=False)
        keys = [np.array(cell.seeds)[cell.drawn.data_sets], cell.drawn.trainings, place, cell.groups]
        frames.append(pd.DataFrame(_select_scores(cell, metric, names), columns=names).groupby(keys).mean())
    scores = pd.concat(frames).groupby(level=[0, 1, 2, 3]).mean()
    sets, trainings, places, groups = (scores.index.get_level_values(level) for level in range(4))
    belong = pd.factorize(pd.MultiIndex.from_arrays([places, groups]))[0]
    return scores.to_numpy(), SamplingDesign.of(len(scores), data_sets=sets, trainings=trainings, groups=belong)


def _select_scores(cell: Matrices, metric: str, names: list[str]) -> Floats:
    """Return the scores ``[U, M]`` of the named explainers."""
    return cell.values[:, cell.metrics.index(metric)][:, [cell.methods.index(name) for name in names]]


#: The explainers of the paper's Table 4; a run without any of them shows its first three methods instead.
TABLE_4_EXPLAINERS = ("gradcam", "integrated_gradients", "rise")
#: Smallest number of metrics for which a matrix of correlations is shown.
MIN_METRICS = 3


@dataclass(frozen=True)
class MetricCorrelations:
    """Correlations between metrics, each oriented so that higher is better; drawn by ``agreement_figure``.

    Attributes:
        coefficients: One row and column per metric; NaN if undefined.
        n: Number of samples that both metrics score.
        kind: ``"spearman"``, or ``"point-biserial"`` if one of the two metrics is binary.
    """

    coefficients: pd.DataFrame
    n: pd.DataFrame
    kind: pd.DataFrame


def agreements(run: RunResults) -> dict[tuple[str, str, str, str], MetricCorrelations]:
    """Return the correlations by subset, variant, model and explainer; empty for fewer than three metrics.

    A skill is left out if the run also has the score that it is derived from.
    """
    found: dict[tuple[str, str, str, str], MetricCorrelations] = {}
    own = [name for name, part in run.metrics.items() if part.skill_of not in run.metrics]
    if len(own) < MIN_METRICS:
        return found
    chosen = [name for name in TABLE_4_EXPLAINERS if name in run.explainers]
    chosen = chosen or [name for name, part in run.explainers.items() if not part.control][:3]
    direction = run.scores.groupby("metric", observed=True)["higher_is_better"].first()
    for cell in cell_matrices(run):
        metrics = [metric for metric in cell.metrics if metric in own]
        values = cell.values[:, [cell.metrics.index(metric) for metric in metrics]]
        signs = np.array([1.0 if direction[metric] else -1.0 for metric in metrics])
        # The pointing game counts as binary although ties among the largest pixels make a few scores fractional.
        hits = [
            metric == "hit" or set(np.unique(mine[~np.isnan(mine)])) <= {0.0, 1.0}
            for metric, mine in zip(metrics, values.transpose(1, 0, 2), strict=True)
        ]
        for name in chosen:
            if name in cell.methods and len(metrics) >= 2:
                scores = signs * values[:, :, cell.methods.index(name)]
                found[*cell.cell, name] = correlate(scores, metrics, hits)
    return found


def correlate(scores: Floats, names: list[str], binary: list[bool]) -> MetricCorrelations:
    """Correlate every two columns over the rows in which both are defined.

    Args:
        scores: ``[N, K]``; higher is better, NaN if undefined.
        names: Names of the columns.
        binary: Flags of the binary columns. Correlations with these are point-biserial, all others Spearman's.
    """
    coefficients = pd.DataFrame(np.nan, index=names, columns=names)
    n = pd.DataFrame(0, index=names, columns=names)
    kind = pd.DataFrame("spearman", index=names, columns=names)
    for i, j in itertools.combinations_with_replacement(range(len(names)), 2):
        both = scores[~np.isnan(scores[:, [i, j]]).any(axis=1)][:, [i, j]]
        biserial = binary[i] or binary[j]
        r = coefficient(both[:, 0], both[:, 1], biserial=biserial)
        for row, column in ((names[i], names[j]), (names[j], names[i])):
            coefficients.loc[row, column], n.loc[row, column] = r, len(both)
            kind.loc[row, column] = "point-biserial" if biserial else "spearman"
    return MetricCorrelations(coefficients, n, kind)


def coefficient(x: Floats, y: Floats, *, biserial: bool) -> float:
    """Return Spearman's or the point-biserial correlation of two scores ``[N]``; NaN if either is constant."""
    from scipy.stats import pearsonr, spearmanr

    if len(x) < 2 or (x == x[0]).all() or (y == y[0]).all():
        return float("nan")
    return float(pearsonr(x, y).statistic if biserial else spearmanr(x, y).statistic)


def mean_agreements(found: dict[tuple[str, str, str, str], MetricCorrelations]) -> dict[str, MetricCorrelations]:
    """Average the coefficients over the cells in which they are defined, per explainer; sample counts are added."""
    by_explainer: dict[str, list[MetricCorrelations]] = {}
    for (*_, name), one in found.items():
        by_explainer.setdefault(name, []).append(one)
    means = {}
    for name, parts in by_explainer.items():
        metrics = list(dict.fromkeys(metric for part in parts for metric in part.coefficients))
        stacked = np.stack([part.coefficients.reindex(index=metrics, columns=metrics).to_numpy() for part in parts])
        known = (~np.isnan(stacked)).sum(0)
        r = np.divide(np.nansum(stacked, axis=0), known, out=np.full(known.shape, np.nan), where=known > 0)
        n = np.sum([part.n.reindex(index=metrics, columns=metrics, fill_value=0) for part in parts], axis=0)
        kinds = [part.kind.reindex(index=metrics, columns=metrics) == "point-biserial" for part in parts]
        kind = pd.DataFrame(
            np.where(np.any(kinds, axis=0), "point-biserial", "spearman"), index=metrics, columns=metrics
        )
        means[name] = MetricCorrelations(
            pd.DataFrame(r, index=metrics, columns=metrics), pd.DataFrame(n, metrics, metrics), kind
        )
    return means


def table_4(run: RunResults, found: dict[tuple[str, str, str, str], MetricCorrelations]) -> list[dict[str, Any]]:
    """Return our correlations next to the paper's Table 4.

    Each row has ``cell``, ``pair`` (of metrics) and ``cells``. ``cells`` follow the explainers of :func:`agreements`:
    ``ours, n, theirs, difference``, or None if the explainer is missing. The paper does not say which of its data sets
    it correlates over. Therefore its coefficients are listed for every cell of one of its data sets, and are None for
    all others.
    """
    explainers = list(dict.fromkeys(name for *_, name in found))
    rows = []
    for cell in dict.fromkeys(key[:3] for key in found):
        words = [place(cell[0]), place(cell[1]), run.models[cell[2]].label]
        matrices = [found.get((*cell, name)) for name in explainers]
        for pair, theirs in TABLE_4.items():
            if not all(set(pair) <= set(one.coefficients) for one in matrices if one):
                continue
            published = theirs if published_set(cell[0]) else {}
            entries = [
                one and _table_4_entry(one, pair, published.get(name))
                for name, one in zip(explainers, matrices, strict=True)
            ]
            label = " & ".join(run.metrics[metric].label for metric in pair)
            rows.append({"cell": " · ".join(word for word in words if word), "pair": label, "cells": entries})
    return rows


def _table_4_entry(one: MetricCorrelations, pair: tuple[str, str], theirs: float | None) -> dict[str, Any]:
    ours = float(one.coefficients.loc[pair])  # type: ignore[arg-type]
    known = None if np.isnan(ours) else ours
    difference = None if known is None or theirs is None else known - theirs
    return {"ours": known, "n": int(one.n.loc[pair]), "theirs": theirs, "difference": difference}  # type: ignore[arg-type]
