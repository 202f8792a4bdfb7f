"""Correlations between metrics over the samples of each cell, per explainer.

Zhang et al. (2023), inter-method reliability, Table 4.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from xaibench.benchmarks.saliency_bench.published_tables import TABLE_4, published_set
from xaibench.core.correlations import MetricAgreement, correlate, is_binary
from xaibench.scores.cells import Matrices, cell_matrices
from xaibench.scores.nested_draws import Floats
from xaibench.scores.results import RunResults, place

#: The explainers of the paper's Table 4; a run without any of them shows its first three methods instead.
TABLE_4_EXPLAINERS = ("gradcam", "integrated_gradients", "rise")
#: Smallest number of metrics for which a matrix of correlations is shown.
MIN_METRICS = 3
_RESAMPLES = 500


def agreements(run: RunResults) -> dict[tuple[str, str, str, str], MetricAgreement]:
    """Return the correlations by subset, variant, model and explainer; empty for fewer than three metrics.

    A skill is left out if the run also has the score that it is derived from.
    """
    correlations: dict[tuple[str, str, str, str], MetricAgreement] = {}
    own = [name for name, part in run.metrics.items() if part.skill_of not in run.metrics]
    if len(own) < MIN_METRICS:
        return correlations
    chosen = [name for name in TABLE_4_EXPLAINERS if name in run.explainers]
    chosen = chosen or [name for name, part in run.explainers.items() if not part.control][:3]
    for cell in cell_matrices(run):
        metrics = [metric for metric in cell.metrics if metric in own]
        signs = np.array([1.0 if run.metrics[metric].higher_is_better else -1.0 for metric in metrics])
        for name in chosen:
            if name in cell.methods and len(metrics) >= 2:
                values = cell.values[:, [cell.metrics.index(metric) for metric in metrics], cell.methods.index(name)]
                scored = dict(zip(metrics, values.T, strict=True))
                binary = [metric for metric, scores in scored.items() if metric == "hit" or is_binary(scores)]
                turned = dict(zip(metrics, (signs * values).T, strict=True))
                correlations[*cell.cell, name] = correlate(turned, binary)
    return correlations


def mean_agreements(correlations: dict[tuple[str, str, str, str], MetricAgreement]) -> dict[str, MetricAgreement]:
    """Average the coefficients over the cells in which they are defined, per explainer; sample counts are added."""
    by_explainer: dict[str, list[MetricAgreement]] = {}
    for (*_, name), one in correlations.items():
        by_explainer.setdefault(name, []).append(one)
    means = {}
    for name, parts in by_explainer.items():
        coefficients, n, kind = (pd.concat(tables).groupby(level=0, sort=False) for tables in zip(*parts, strict=True))
        # Of the two kinds, the point-biserial is the first by alphabet.
        means[name] = MetricAgreement(coefficients.mean(), n.sum().astype(int), kind.min())
    return means


def table_4(run: RunResults, correlations: dict[tuple[str, str, str, str], MetricAgreement]) -> list[dict[str, Any]]:
    """Return our correlations next to the paper's Table 4.

    Each row has ``cell``, ``pair`` (of metrics) and ``cells``. ``cells`` follow the explainers of :func:`agreements`:
    ``ours, interval, n, theirs, difference``, or None if the explainer is missing. The paper does not say which of its
    data sets it correlates over. Therefore its coefficients are listed for every cell of one of its data sets, and are
    None for all others, as the intervals are.
    """
    explainers = list(dict.fromkeys(name for *_, name in correlations))
    scores = {each.cell: each for each in cell_matrices(run)}
    rows = []
    for cell in dict.fromkeys(key[:3] for key in correlations):
        words = [place(cell[0]), place(cell[1]), run.models[cell[2]].label]
        matrices = [correlations.get((*cell, name)) for name in explainers]
        for pair, theirs in TABLE_4.items():
            if not all(set(pair) <= set(one.coefficients) for one in matrices if one):
                continue
            published = theirs if published_set(cell[0]) else {}
            entries: list[dict[str, Any] | None] = []
            for name, one in zip(explainers, matrices, strict=True):
                if one is None:
                    entries.append(None)
                    continue
                ours, paper = one.coefficients.to_dict()[pair[0]][pair[1]], published.get(name)
                entry = {"ours": ours, "interval": None, "n": one.n.to_dict()[pair[0]][pair[1]], "theirs": paper}
                if paper is not None and not np.isnan(ours):
                    resampled = resample_correlation(run, scores[cell], pair, name)[1:]
                    entry["interval"] = tuple(np.quantile(resampled, [0.025, 0.975]).tolist())
                entries.append(entry | {"difference": None if paper is None else ours - paper})
            label = " & ".join(run.metrics[metric].label for metric in pair)
            rows.append({"cell": " · ".join(word for word in words if word), "pair": label, "cells": entries})
    return rows


def resample_correlation(
    run: RunResults, cell: Matrices, pair: Sequence[str], method: str, resamples: int = _RESAMPLES, seed: int = 0
) -> Floats:
    """Correlate two metrics, turned so that higher is better, in a cell and in resamples of its groups of samples.

    Returns:
        ``[1 + R]``; point-biserial for the pointing game, otherwise Spearman's. NaN if a metric is constant.
    """
    x, y = (
        (1.0 if run.metrics[name].higher_is_better else -1.0)
        * cell.values[:, cell.metrics.index(name), cell.methods.index(method)]
        for name in pair
    )
    known = ~(np.isnan(x) | np.isnan(y))
    x, y = x[known], y[known]
    if len(np.unique(x)) < 2 or len(np.unique(y)) < 2:
        return np.full(1 + resamples, np.nan)
    groups = np.unique(cell.groups[known], return_inverse=True)[1]
    count = int(groups.max()) + 1
    drawn = np.random.default_rng(seed).multinomial(count, np.full(count, 1 / count), resamples)
    weights = np.vstack([np.ones(count), drawn])[:, groups]
    if "hit" not in pair:
        x, y = _weighted_ranks(x, weights), _weighted_ranks(y, weights)
    x, y = (each - np.average(np.broadcast_to(each, weights.shape), 1, weights, keepdims=True) for each in (x, y))
    spread = np.sqrt((weights * x**2).sum(1) * (weights * y**2).sum(1))
    # A resample in which one metric is constant has no correlation; it gets that of the cell.
    correlations = np.divide((weights * x * y).sum(1), spread, out=np.full(len(spread), np.nan), where=spread > 0)
    filled: Floats = np.where(np.isnan(correlations), correlations[0], correlations)
    return filled


def _weighted_ranks(values: Floats, weights: Floats) -> Floats:
    """Return the ranks of values ``[N]`` that each occur a number of times ``[R, N]``; ties get their mean rank."""
    distinct, place = np.unique(values, return_inverse=True)
    counts = weights @ (place[:, None] == np.arange(len(distinct)))
    ranks: Floats = (counts.cumsum(1) - (counts - 1) / 2)[:, place]
    return ranks
