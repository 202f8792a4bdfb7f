"""What training the networks anew changes: accuracy, and the order of the methods."""

from __future__ import annotations

import numpy as np
import pandas as pd
from scipy.stats import kendalltau

from xaibench.report.read.results import RunResults
from xaibench.runfolder.tables import CELL


def compare_trainings(published: RunResults, trained: RunResults) -> pd.DataFrame:
    """Compare a run on published networks with one on networks that were trained anew.

    Args:
        published: The run on published networks.
        trained: The run of the same suite with ``train=True``.

    Returns:
        One row per cell and metric that both runs have: ``subset, variant, model, metric``; ``accuracy`` and
        ``accuracy_trained``, mean test accuracies in percent; ``tau``, Kendall's tau-b of the orders of the methods by
        their mean scores, in [-1, 1], 1 = the same order, NaN for fewer than three methods; ``largest``, the largest
        difference of a method's mean score. Controls are left out, for their scores do not depend on a network.
    """
    accuracies = [
        run.accuracy.astype(dict.fromkeys(CELL, str)).set_index(list(CELL))["mean"] for run in (published, trained)
    ]
    means = [_mean_scores(run) for run in (published, trained)]
    both = means[0].to_frame("published").join(means[1].to_frame("trained"), how="inner")
    rows = []
    for key, pair in both.groupby(level=[*CELL, "metric"], sort=False):
        cell, metric = key[:-1], key[-1]
        tau = kendalltau(pair["published"], pair["trained"]).statistic if len(pair) > 2 else np.nan
        rows.append(
            {
                **dict(zip(CELL, cell, strict=True)),
                "metric": metric,
                "accuracy": accuracies[0].get(cell, np.nan),
                "accuracy_trained": accuracies[1].get(cell, np.nan),
                "tau": float(tau),
                "largest": float((pair["trained"] - pair["published"]).abs().max()),
            }
        )
    return pd.DataFrame(rows)


def _mean_scores(run: RunResults) -> pd.Series[float]:
    """Return the mean score of each method by cell and metric, over correctly classified samples."""
    methods = [name for name, part in run.explainers.items() if not part.control]
    scores = run.scores[run.scores["correct"] & run.scores["explainer"].isin(methods)]
    keys = [*CELL, "metric", "explainer"]
    means: pd.Series[float] = scores.astype(dict.fromkeys(keys, str)).groupby(keys, sort=False)["value"].mean().dropna()
    return means
