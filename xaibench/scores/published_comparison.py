"""Numbers of a run next to the published tables of Saliency-Bench."""

from __future__ import annotations

from typing import Any

import pandas as pd

from xaibench.benchmarks.saliency_bench.published_tables import (
    NETWORK,
    SETS,
    TABLE_2,
    TABLE_3,
    TABLE_3_METRICS,
    published_set,
)
from xaibench.runfolder.descriptions import PartDescription
from xaibench.scores.results import RunResults


def accuracies(run: RunResults) -> list[dict[str, Any]]:
    """Return the scores of the classifiers in percent next to Table 2.

    Returns:
        One entry per data set and model: ``set, model, same_network`` and ``cells``, a list of accuracy, precision,
        recall and F1 with ``ours, theirs, difference``; of a folder of an older version only accuracy is known.
    """
    rows = []
    for row in run.accuracy.to_dict("records"):
        key = published_set(str(row.get("subset")))
        if key is None or pd.isna(row.get("mean")):
            continue
        network = _network_entry(run, str(row["model"]))
        cells = [
            {"ours": row[name], "theirs": theirs, "difference": row[name] - theirs}
            for name, theirs in TABLE_2[key].items()
        ]
        rows.append({"set": SETS[key], **network, "cells": cells})
    return rows


def scores(run: RunResults, summary: pd.DataFrame) -> list[dict[str, Any]]:
    """Return our mean scores next to Table 3, for the entries that the run has.

    Args:
        run: The run.
        summary: From :func:`xaibench.scores.summary.infer`.

    Returns:
        One entry per data set, model and explainer: ``place`` (a number per data set and model, in the paper's order),
        ``set, model, same_network, explainer`` and ``cells``, a list in the order of :func:`shown_metrics` with ``ours,
        low, high, theirs, difference``, or None if the run has no score.
    """
    entries: dict[tuple[str, str, str], dict[str, Any]] = {}
    for row in summary.astype({"subset": str, "model": str, "explainer": str, "metric": str}).to_dict("records"):
        key = published_set(row["subset"])
        theirs = TABLE_3.get((key or "", row["explainer"]), {}).get(row["metric"])
        if key is None or theirs is None or pd.isna(row["mean"]):
            continue
        name = (key, row["model"], row["explainer"])
        head = {"set": SETS[key], **_network_entry(run, row["model"]), "explainer": row["explainer"], "metrics": {}}
        numbers = {"ours": row["mean"], "low": row["low"], "high": row["high"], "theirs": theirs}
        entry = entries.setdefault(name, head)
        entry["metrics"][row["metric"]] = numbers | {"difference": row["mean"] - theirs}
    shown = [part.name for part in shown_metrics(run)]
    order = {key: i for i, key in enumerate(SETS)}
    names = sorted(entries, key=lambda name: order[name[0]])
    places = {name[:2]: i for i, name in enumerate(names)}
    cells = {name: [entries[name]["metrics"].get(metric) for metric in shown] for name in names}
    return [entries[name] | {"place": places[name[:2]], "cells": cells[name]} for name in names]


def shown_metrics(run: RunResults) -> list[PartDescription]:
    """Return the metrics of Table 3 that the run has, in the paper's order."""
    return [run.metrics[name] for name in TABLE_3_METRICS if name in run.metrics]


def _network_entry(run: RunResults, model: str) -> dict[str, Any]:
    label = run.models[model].label if model in run.models else model
    return {"model": label, "same_network": model.split(":")[-1] == NETWORK}


_RULES = {
    "area": "Of each map, as many of the largest pixels are marked as the mask has.",
    "scaled": "The magnitude of each map is stretched to [0, 1], smallest to largest value, and cut above 0.5.",
    "published": "Maps are cut by the defaults of the published functions: above 0, for recall above 0.5.",
}


def thresholding(run: RunResults) -> str:
    """Describe how the run's suite thresholded maps for IoU, precision, recall and F1; empty if unknown."""
    explaining = run.settings.get("explaining")
    if explaining is None:
        return ""
    rule = _RULES.get(explaining.get("protocol", "area"), "")
    stated = []
    for name, parameters in run.settings.get("metrics", {}).items():
        if name in run.metrics and isinstance(parameters, dict) and "threshold" in parameters:
            threshold = parameters["threshold"]
            stated.append(run.metrics[name].label + (f" above {threshold}" if threshold != "area" else ""))
    return rule + (f" The suite states another threshold for: {', '.join(stated)}." if stated else "")
