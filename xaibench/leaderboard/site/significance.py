"""What a leaderboard says beside its numbers: who is not told apart from whom, and how fresh seeds compare."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from xaibench.report.numbers.inference import Floats
from xaibench.report.numbers.leaderboards import Boards
from xaibench.report.numbers.ranks_and_agreement import Ranking
from xaibench.report.numbers.suite_tests import pairs_over_cells
from xaibench.statistics.multiple_tests import ALPHA


def tied_ranks(ranking: Ranking, pairs: pd.DataFrame) -> dict[str, tuple[int, int]]:
    """Of each method the first and the last rank that it is not told apart from, its own among them.

    Args:
        ranking: By one metric.
        pairs: The paired tests of the cells.

    Returns:
        Ranks from 1; empty where no pair was tested. Two controls are not tested where there are many methods, and do
        not count.
    """
    tests = pairs_over_cells(pairs, ranking.metric)
    places = {name: number for number, name in enumerate(ranking.ranks)}
    tied = {name: [number] for name, number in places.items()}
    for one, other, p in tests[["first", "second", "p_holm"]].itertuples(index=False, name=None):
        if one in places and other in places and not p < ALPHA:
            tied[one].append(places[other])
            tied[other].append(places[one])
    return {name: (min(found) + 1, max(found) + 1) for name, found in tied.items()} if len(tests) else {}


@dataclass(frozen=True)
class PublicPrivateGap:
    """A method on fresh seeds, beside the public ones.

    Attributes:
        mean: On fresh seeds, over the cells that it was scored in on both.
        gap: That minus the mean on the public seeds in the same cells.
        low: Lower end of its 95 % interval over what was drawn, on both; None where too little was.
        high: Upper end.
    """

    mean: float
    gap: float
    low: float | None
    high: float | None


def public_private_gaps(public: Boards, fresh: Boards) -> dict[str, dict[str, PublicPrivateGap]]:
    """How much of its score each method keeps on fresh seeds.

    Args:
        public: By one kind of truth, on the seeds that everybody has.
        fresh: By the same, on those that nobody had.

    Returns:
        Metric to method to gap; the two share no data, so their resamples are put beside each other at random.
    """
    one, other = public.standings, fresh.standings
    cells = [(one.cells.index(cell), other.cells.index(cell)) for cell in other.cells if cell in one.cells]
    shuffled = np.random.default_rng(0).permutation(len(public.means))
    found: dict[str, dict[str, PublicPrivateGap]] = {}
    for metric in (name for name in one.leading if name in other.metrics):
        k, other_k = one.metrics.index(metric), other.metrics.index(metric)
        for name in (name for name in one.explainers if name in other.explainers):
            m, other_m = one.explainers.index(name), other.explainers.index(name)
            mine = _of(public, [cell for cell, _ in cells], k, m)
            theirs = _of(fresh, [cell for _, cell in cells], other_k, other_m)
            both = ~np.isnan(mine[0]) & ~np.isnan(theirs[0])
            if both.any():
                found.setdefault(metric, {})[name] = _gap(mine, theirs, both, shuffled)
    return found


def _of(boards: Boards, cells: list[int], metric: int, method: int) -> tuple[Floats, Floats, bool]:
    """``[c]`` means, ``[R, c]`` resamples of them, and whether each of the defined ones has an interval."""
    numbers = boards.standings.numbers
    mean, low = (numbers[name][cells, metric, method] for name in ("mean", "low"))
    return mean, boards.means[:, cells, metric, method], bool((np.isnan(mean) | ~np.isnan(low)).all())


def _gap(
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
