"""Correlations between metrics over the samples of each cell, per explainer.

Zhang et al. (2023), inter-method reliability, Table 4. The coefficients equal ``xaibench.metrics.agreement``.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from xaibench.benchmarks.saliency_bench.published_tables import TABLE_4, published_set
from xaibench.report.numbers.inference import Floats, cell_matrices
from xaibench.report.results import RunResults, place

#: The explainers of the paper's Table 4; a run without any of them shows its first three methods instead.
TABLE_4_EXPLAINERS = ("gradcam", "integrated_gradients", "rise")
#: Smallest number of metrics for which a matrix of correlations is shown.
MIN_METRICS = 3


@dataclass(frozen=True)
class MetricCorrelations:
    """Correlations between metrics, each oriented so that higher is better; drawn by :func:`xaibench.plots.agreement`.

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
    correlations: dict[tuple[str, str, str, str], MetricCorrelations] = {}
    own = [name for name, part in run.metrics.items() if part.skill_of not in run.metrics]
    if len(own) < MIN_METRICS:
        return correlations
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
                correlations[*cell.cell, name] = correlate(scores, metrics, hits)
    return correlations


def correlate(scores: Floats, names: list[str], binary: list[bool]) -> MetricCorrelations:
    """Correlate every two columns over the rows in which both are defined.

    Args:
        scores: ``[N, K]``; higher is better, NaN if undefined.
        names: Names of the columns.
        binary: Flags of the binary columns. Correlations with these are point-biserial, all others Spearman's.
    """
    shape = (len(names),) * 2
    coefficients, n, kind = np.full(shape, np.nan), np.zeros(shape, int), np.full(shape, "spearman", object)
    for i, j in itertools.combinations_with_replacement(range(len(names)), 2):
        both = scores[~np.isnan(scores[:, [i, j]]).any(axis=1)][:, [i, j]]
        biserial = binary[i] or binary[j]
        coefficients[[i, j], [j, i]] = coefficient(both[:, 0], both[:, 1], biserial=biserial)
        n[[i, j], [j, i]] = len(both)
        kind[[i, j], [j, i]] = "point-biserial" if biserial else "spearman"
    return MetricCorrelations(*(pd.DataFrame(table, names, names) for table in (coefficients, n, kind)))


def coefficient(x: Floats, y: Floats, *, biserial: bool) -> float:
    """Return Spearman's or the point-biserial correlation of two scores ``[N]``; NaN if either is constant."""
    from scipy.stats import pearsonr, spearmanr

    if len(x) < 2 or (x == x[0]).all() or (y == y[0]).all():
        return float("nan")
    return float(pearsonr(x, y).statistic if biserial else spearmanr(x, y).statistic)


def mean_agreements(correlations: dict[tuple[str, str, str, str], MetricCorrelations]) -> dict[str, MetricCorrelations]:
    """Average the coefficients over the cells in which they are defined, per explainer; sample counts are added."""
    by_explainer: dict[str, list[MetricCorrelations]] = {}
    for (*_, name), one in correlations.items():
        by_explainer.setdefault(name, []).append(one)
    means = {}
    for name, parts in by_explainer.items():
        metrics = list(dict.fromkeys(metric for each in parts for metric in each.coefficients))
        stacked = np.stack([each.coefficients.reindex(index=metrics, columns=metrics).to_numpy() for each in parts])
        known = (~np.isnan(stacked)).sum(0)
        r = np.divide(np.nansum(stacked, axis=0), known, out=np.full(known.shape, np.nan), where=known > 0)
        n = np.sum([each.n.reindex(index=metrics, columns=metrics, fill_value=0) for each in parts], axis=0)
        kinds = [each.kind.reindex(index=metrics, columns=metrics) == "point-biserial" for each in parts]
        kind = pd.DataFrame(
            np.where(np.any(kinds, axis=0), "point-biserial", "spearman"), index=metrics, columns=metrics
        )
        means[name] = MetricCorrelations(
            pd.DataFrame(r, index=metrics, columns=metrics), pd.DataFrame(n, metrics, metrics), kind
        )
    return means


def table_4(run: RunResults, correlations: dict[tuple[str, str, str, str], MetricCorrelations]) -> list[dict[str, Any]]:
    """Return our correlations next to the paper's Table 4.

    Each row has ``cell``, ``pair`` (of metrics) and ``cells``. ``cells`` follow the explainers of :func:`agreements`:
    ``ours, n, theirs, difference``, or None if the explainer is missing. The paper does not say which of its data sets
    it correlates over. Therefore its coefficients are listed for every cell of one of its data sets, and are None for
    all others.
    """
    explainers = list(dict.fromkeys(name for *_, name in correlations))
    rows = []
    for cell in dict.fromkeys(key[:3] for key in correlations):
        words = [place(cell[0]), place(cell[1]), run.models[cell[2]].label]
        matrices = [correlations.get((*cell, name)) for name in explainers]
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
