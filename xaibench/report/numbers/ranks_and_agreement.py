"""Which methods are told apart, and whether the metrics agree.

Mean ranks with a critical difference: Demšar, Statistical comparisons of classifiers over multiple data sets, JMLR
2006. His blocks are data sets; here they are the cells of a run where it has enough of them, and else the samples. What
was drawn in them varies too (:func:`xaibench.statistics.mean_ranks`): each data set and training has a ranking of its
own, which count as one more level, crossed with the cells.

Correlations between metrics over the samples of each cell, explainer by explainer: Zhang et al. (2023), inter-method
reliability, Table 4. The coefficients are those of ``xaibench.metrics.agreement``.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from xaibench.report.numbers.inference import Floats, Matrices, cell_matrices
from xaibench.report.numbers.published_tables import AGREEMENT, published_set
from xaibench.report.numbers.score_summary import lexicographic_rank
from xaibench.report.read.run_results import RunResults, place
from xaibench.runfolder.tables import CELL
from xaibench.statistics import Drawn, friedman, mean_ranks

#: From so many cells on, cells are the blocks (Demšar asks for more than ten data sets).
ENOUGH_CELLS = 10


@dataclass(frozen=True)
class Ranking:
    """Explainers by their mean rank for one metric.

    Attributes:
        metric: Name.
        ranks: Explainer to mean rank, best (smallest) first.
        blocks: How many rankings the mean is over.
        unit: What one of them is of: ``"cells"`` or ``"samples"``.
        difference: Mean ranks at least this far apart differ at 5 % (Nemenyi's test).
        p: Of Friedman's test that all are the same, ``nan`` where it cannot be asked.
        left_out: Explainers without a score in some cell, or without any.
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
        """The largest sets of neighbours whose ranks all lie within the critical difference; two or more each."""
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
    """The ranking of each metric that ranks three explainers or more in two blocks or more.

    Args:
        run: The run.
        summary: From :func:`xaibench.report.numbers.score_summary.summarise`.

    Returns:
        By metric, but for those whose own parameters decide the order. Over cells, an explainer has its rank by median,
        in each data set and training by itself; over samples, each group of samples of a training counts once, with its
        mean scores over samples and models.
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
    """The explainers that every cell has a score of, since a mean over others is another quantity; and who is not."""
    scored = []
    for cell in cells:
        some = np.flatnonzero((~np.isnan(cell.values[:, cell.metrics.index(metric)])).any(axis=0))
        scored.append({cell.methods[m] for m in some})
    names = [name for name in run.explainers if all(name in there for there in scored)]
    known = {name for cell in cells for name in cell.methods}
    return names, tuple(name for name in run.explainers if name in known and name not in names)


def _cell_rows(cells: list[Matrices], metric: str, names: list[str], *, higher: bool) -> tuple[Floats, Drawn]:
    """``[N, M]`` ranks in each data set and training of each cell; the highest drawn level, crossed with the cells."""
    rows, sets, trainings, numbers = [], [], [], []
    for number, cell in enumerate(cells):
        values = _values(cell, metric, names) * (1 if higher else -1)
        for data_set, training in sorted(set(zip(cell.drawn.data_sets, cell.drawn.trainings, strict=True))):
            mine = values[(cell.drawn.data_sets == data_set) & (cell.drawn.trainings == training)]
            known = mine[:, ~np.isnan(mine).all(axis=0)]
            if known.shape[1] == len(names):  # else this draw ranks not all of them
                rows.append(lexicographic_rank(np.nanmedian(known, axis=0), np.nanmean(known, axis=0)))
                sets.append(cell.seeds[data_set])
                trainings.append(int(training))
                numbers.append(number)
    several = len(set(sets)) > 1
    table = np.array(rows, dtype=np.float64).reshape(len(rows), len(names))
    return table, Drawn.of(len(rows), trainings=sets if several else trainings, groups=numbers)


def _sample_rows(cells: list[Matrices], metric: str, names: list[str], *, higher: bool) -> tuple[Floats, Drawn]:
    """``[N, M]`` mean scores of each group of samples of a data set and training, over all models."""
    frames = []
    for cell in cells:
        place = pd.Index([cell.cell[:2]] * len(cell.groups), tupleize_cols=False)
        keys = [np.array(cell.seeds)[cell.drawn.data_sets], cell.drawn.trainings, place, cell.groups]
        frames.append(pd.DataFrame(_values(cell, metric, names), columns=names).groupby(keys).mean())
    scores = pd.concat(frames).groupby(level=[0, 1, 2, 3]).mean()
    sets, trainings, places, groups = (scores.index.get_level_values(level) for level in range(4))
    belong = pd.factorize(pd.MultiIndex.from_arrays([places, groups]))[0]
    return scores.to_numpy(), Drawn.of(len(scores), data_sets=sets, trainings=trainings, groups=belong)


def _values(cell: Matrices, metric: str, names: list[str]) -> Floats:
    """``[U, M]`` scores of the explainers named."""
    return cell.values[:, cell.metrics.index(metric)][:, [cell.methods.index(name) for name in names]]


#: The explainers of the paper's Table 4; a run without any of them shows its first three methods.
EXPLAINERS = ("gradcam", "integrated_gradients", "rise")
#: From so many metrics on there is a matrix to look at.
FEWEST = 3


@dataclass(frozen=True)
class Agreement:
    """Correlations between metrics, each turned so that higher is better: what ``agreement_figure`` draws.

    Attributes:
        coefficients: A row and a column for each metric, ``nan`` where undefined.
        n: Samples that both score.
        kind: ``"spearman"``, or ``"point-biserial"`` where one of the two is a hit or a miss.
    """

    coefficients: pd.DataFrame
    n: pd.DataFrame
    kind: pd.DataFrame


def agreements(run: RunResults) -> dict[tuple[str, str, str, str], Agreement]:
    """The correlations by scenario, background, model and explainer; empty for a run of fewer than three metrics.

    A skill is left out where the score is there that it is of: it says the same of a map.
    """
    found: dict[tuple[str, str, str, str], Agreement] = {}
    own = [name for name, part in run.metrics.items() if part.skill_of not in run.metrics]
    if len(own) < FEWEST:
        return found
    chosen = [name for name in EXPLAINERS if name in run.explainers]
    chosen = chosen or [name for name, part in run.explainers.items() if not part.control][:3]
    direction = run.scores.groupby("metric", observed=True)["higher_is_better"].first()
    for cell in cell_matrices(run):
        metrics = [metric for metric in cell.metrics if metric in own]
        values = cell.values[:, [cell.metrics.index(metric) for metric in metrics]]
        signs = np.array([1.0 if direction[metric] else -1.0 for metric in metrics])
        # A hit stays one where ties among the largest pixels make a few scores fractional.
        hits = [
            metric == "hit" or set(np.unique(mine[~np.isnan(mine)])) <= {0.0, 1.0}
            for metric, mine in zip(metrics, values.transpose(1, 0, 2), strict=True)
        ]
        for name in chosen:
            if name in cell.methods and len(metrics) >= 2:
                scores = signs * values[:, :, cell.methods.index(name)]
                found[*cell.cell, name] = correlate(scores, metrics, hits)
    return found


def correlate(scores: Floats, names: list[str], binary: list[bool]) -> Agreement:
    """Correlate every two columns over the rows in which both are defined.

    Args:
        scores: ``[N, K]``, higher = better, ``nan`` = undefined.
        names: Of the columns.
        binary: Which columns are hits and misses: their pairs are point-biserial, all others Spearman's.
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
    return Agreement(coefficients, n, kind)


def coefficient(x: Floats, y: Floats, *, biserial: bool) -> float:
    """Spearman's correlation of two scores ``[N]``, or the point-biserial; nan where one of them does not vary."""
    from scipy.stats import pearsonr, spearmanr

    if len(x) < 2 or (x == x[0]).all() or (y == y[0]).all():
        return float("nan")
    return float(pearsonr(x, y).statistic if biserial else spearmanr(x, y).statistic)


def mean_agreements(found: dict[tuple[str, str, str, str], Agreement]) -> dict[str, Agreement]:
    """For each explainer the mean of the coefficients over the cells where they are defined; samples are added up."""
    by_explainer: dict[str, list[Agreement]] = {}
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
        means[name] = Agreement(
            pd.DataFrame(r, index=metrics, columns=metrics), pd.DataFrame(n, metrics, metrics), kind
        )
    return means


def table_4(run: RunResults, found: dict[tuple[str, str, str, str], Agreement]) -> list[dict[str, Any]]:
    """Table 4 beside ours: ``cell``, ``pair`` and ``cells``, for each pair of metrics that the run has.

    ``cells`` follow the explainers of :func:`agreements`: ``ours, n, theirs, difference``, or None without the
    explainer. The paper does not say over which of its sets it correlates, so its coefficients stand beside those of
    every cell of one of them, and are None beside all others.
    """
    explainers = list(dict.fromkeys(name for *_, name in found))
    rows = []
    for cell in dict.fromkeys(key[:3] for key in found):
        words = [place(cell[0]), place(cell[1]), run.models[cell[2]].label]
        matrices = [found.get((*cell, name)) for name in explainers]
        for pair, theirs in AGREEMENT.items():
            if not all(set(pair) <= set(one.coefficients) for one in matrices if one):
                continue
            published = theirs if published_set(cell[0]) else {}
            entries = [
                one and _entry(one, pair, published.get(name)) for name, one in zip(explainers, matrices, strict=True)
            ]
            label = " & ".join(run.metrics[metric].label for metric in pair)
            rows.append({"cell": " · ".join(word for word in words if word), "pair": label, "cells": entries})
    return rows


def _entry(one: Agreement, pair: tuple[str, str], theirs: float | None) -> dict[str, Any]:
    ours = float(one.coefficients.loc[pair])  # type: ignore[arg-type]
    known = None if np.isnan(ours) else ours
    difference = None if known is None or theirs is None else known - theirs
    return {"ours": known, "n": int(one.n.loc[pair]), "theirs": theirs, "difference": difference}  # type: ignore[arg-type]
