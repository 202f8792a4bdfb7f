"""Effects of training the networks again: accuracy, and the order of the methods."""

from __future__ import annotations

import numpy as np
import pandas as pd

from xaibench.report.numbers.score_summary import summarize
from xaibench.report.read.results import RunResults
from xaibench.runfolder.tables import CELL, KEYS
from xaibench.statistics.rank_agreement import kendall_tau


def compare_trainings(published: RunResults, trained: RunResults) -> pd.DataFrame:
    """Compare a run on published networks with one on networks that were trained again.

    Args:
        published: The run on published networks.
        trained: The run of the same suite with ``train=True``.

    Returns:
        One row per cell and metric that both runs have: ``subset, variant, model, metric``; ``accuracy`` and
        ``accuracy_trained``, mean test accuracies in percent; ``tau``, Kendall's tau-b of the orders of the methods by
        their mean scores, in [-1, 1], 1 = the same order, NaN for fewer than three methods; ``largest``, the largest
        difference of a method's mean score. Controls are left out, for their scores do not depend on a network.
    """
    keys = [*CELL, "metric"]
    accuracies = [
        run.accuracy.astype(dict.fromkeys(CELL, str)).set_index(list(CELL))["mean"] for run in (published, trained)
    ]
    means = [_method_means(run) for run in (published, trained)]
    both = means[0].merge(means[1], on=[*keys, "explainer"], suffixes=("", "_trained"))
    rows = []
    for (*cell, metric), pair in both.groupby(keys, sort=False):
        orders = pair[["mean", "mean_trained"]].to_numpy().T
        rows.append(
            {
                **dict(zip(CELL, cell, strict=True)),
                "metric": metric,
                "accuracy": accuracies[0].get(tuple(cell), np.nan),
                "accuracy_trained": accuracies[1].get(tuple(cell), np.nan),
                "tau": float(kendall_tau(orders)[0, 1]) if len(pair) > 2 else np.nan,
                "largest": float(np.abs(orders[1] - orders[0]).max()),
            }
        )
    return pd.DataFrame(rows)


def _method_means(run: RunResults) -> pd.DataFrame:
    """Return the mean score of each method by cell and metric."""
    found = summarize(run)
    rows = found[~found["control"] & found["mean"].notna()]
    return rows[[*KEYS, "mean"]].astype(dict.fromkeys(KEYS, str))
