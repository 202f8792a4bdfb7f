"""Robustness of a metric's ranking of the methods to the metric's own parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy.stats import rankdata

from xaibench.report.numbers.inference import Floats, cell_matrices, resampled_means
from xaibench.report.read.run_results import RunResults
from xaibench.runfolder.robust_rankings import RobustRanking
from xaibench.statistics.multiple_tests import LEVEL
from xaibench.statistics.rank_agreement import kendall_tau

#: Resamples of the intervals.
RESAMPLES = 400


def rank_robustness(run: RunResults, metric: str, settings: Mapping[str, Mapping[str, Any]]) -> RobustRanking:
    """Compare the rankings of the methods under several settings of a metric.

    In each cell the methods are ranked by their mean scores. A method's overall rank under a setting is its mean rank
    over the cells. Rankings are compared by Kendall's tau-b. The intervals account for the choice of data sets,
    trainings and samples; all settings share the same resamples (:func:`.inference.resampled_means`).

    Args:
        run: A run whose metrics are the settings.
        metric: Name of the metric.
        settings: Parameters of each setting by its name in the run.

    Returns:
        The rankings and their agreement. Controls are left out, and so are methods without a score in some cell, which
        are listed.

    Raises:
        ValueError: If fewer than two methods have a score in every cell under every setting.
    """
    names = list(settings)
    matrices = [cell for cell in cell_matrices(run) if set(names) <= set(cell.metrics)]
    means = resampled_means(matrices, RESAMPLES)
    known = {name for cell in matrices for name in cell.methods}
    methods = [name for name, part in run.explainers.items() if name in known and not part.control]
    there = [name for name in methods if all(_is_scored(cell, means[cell.cell], names, name) for cell in matrices)]
    if len(there) < 2:
        raise ValueError(
            f"{metric}: got {len(there)} methods with a score in each of {len(matrices)} cells under every setting, "
            "expected two or more; run the suite with more explainers, or look at its failures."
        )
    directions = run.scores.groupby("metric", observed=True)["higher_is_better"].first()
    signs = np.array([-1.0 if directions[name] else 1.0 for name in names])[:, None]
    ranks = np.mean(
        [rankdata(signs * _select(cell, means[cell.cell], names, there), axis=-1) for cell in matrices], axis=0
    )
    tau = kendall_tau(ranks)  # [1 + R, S, S]
    low, high = np.nanquantile(tau[1:], [LEVEL / 2, 1 - LEVEL / 2], axis=0)
    return RobustRanking(
        metric=metric,
        settings=tuple(dict(settings[name]) for name in names),
        methods=tuple(there),
        mean_ranks=ranks[0],
        tau=tau[0],
        low=np.fmin(low, tau[0]),
        high=np.fmax(high, tau[0]),
        cells=len(matrices),
        left_out=tuple(name for name in methods if name not in there),
    )


def _select(cell: Any, means: Floats, names: Sequence[str], methods: Sequence[str]) -> Floats:
    """Return ``[1 + R, S, M]``, the means of some metrics and methods of a cell."""
    return means[:, [cell.metrics.index(name) for name in names]][:, :, [cell.methods.index(name) for name in methods]]


def _is_scored(cell: Any, means: Floats, names: Sequence[str], method: str) -> bool:
    return method in cell.methods and not np.isnan(_select(cell, means[:1], names, [method])).any()
