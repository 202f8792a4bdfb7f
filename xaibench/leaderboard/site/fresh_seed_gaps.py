"""Difference of scores between public and fresh seeds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from xaibench.report.numbers.inference import Floats
from xaibench.report.numbers.leaderboards import Boards
from xaibench.statistics.rank_tests import ALPHA


@dataclass(frozen=True)
class PublicPrivateGap:
    """Score of a method on fresh seeds compared with the public seeds.

    Attributes:
        mean: Mean on fresh seeds, over the cells that were scored on both.
        gap: ``mean`` minus the mean on public seeds in the same cells.
        low: Lower end of the 95 % interval of the gap; None if too few data sets or trainings were drawn.
        high: Upper end.
    """

    mean: float
    gap: float
    low: float | None
    high: float | None


def public_private_gaps(public: Boards, fresh: Boards) -> dict[str, dict[str, PublicPrivateGap]]:
    """Compute the gap of each method by each leading metric.

    Args:
        public: Leaderboard of one kind of truth on public seeds.
        fresh: The same on fresh seeds.

    Returns:
        Metric to method to gap. Both share no data, so their resamples are paired at random.
    """
    one, other = public.standings, fresh.standings
    cells = [(one.cells.index(cell), other.cells.index(cell)) for cell in other.cells if cell in one.cells]
    shuffled = np.random.default_rng(0).permutation(len(public.means))
    found: dict[str, dict[str, PublicPrivateGap]] = {}
    for metric in (name for name in one.leading if name in other.metrics):
        k, other_k = one.metrics.index(metric), other.metrics.index(metric)
        for name in (name for name in one.explainers if name in other.explainers):
            m, other_m = one.explainers.index(name), other.explainers.index(name)
            mine = _means_and_resamples(public, [cell for cell, _ in cells], k, m)
            theirs = _means_and_resamples(fresh, [cell for _, cell in cells], other_k, other_m)
            both = ~np.isnan(mine[0]) & ~np.isnan(theirs[0])
            if both.any():
                found.setdefault(metric, {})[name] = _make_gap(mine, theirs, both, shuffled)
    return found


def _means_and_resamples(boards: Boards, cells: list[int], metric: int, method: int) -> tuple[Floats, Floats, bool]:
    """Return means ``[c]``, their resamples ``[R, c]``, and whether every defined mean has an interval."""
    numbers = boards.standings.numbers
    mean, low = (numbers[name][cells, metric, method] for name in ("mean", "low"))
    return mean, boards.means[:, cells, metric, method], bool((np.isnan(mean) | ~np.isnan(low)).all())


def _make_gap(
    mine: tuple[Floats, Floats, bool],
    theirs: tuple[Floats, Floats, bool],
    both: NDArray[np.bool_],
    order: NDArray[np.int64],
) -> PublicPrivateGap:
    mean = float(theirs[0][both].mean())
    drawn = theirs[1][:, both].mean(axis=1) - mine[1][order][:, both].mean(axis=1)
    low, high = (float(end) for end in np.quantile(drawn, [ALPHA / 2, 1 - ALPHA / 2]))
    sure = mine[2] and theirs[2]
    return PublicPrivateGap(mean, mean - float(mine[0][both].mean()), low if sure else None, high if sure else None)
