"""Forest plot of the leaderboards of a run, which opens its page."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd
from matplotlib.figure import Figure

from xaibench import plots
from xaibench.report.numbers.leaderboards import Boards
from xaibench.report.read.results import RunResults

#: Largest number of panels, and of methods.
MAX_PANELS, MAX_METHODS = 3, 14
#: Width of the panels together, in inches; with the labels, the figure fits a phone.
_PANELS_WIDTH = 2.9


@dataclass(frozen=True)
class Forest:
    """Content of the forest plot.

    Attributes:
        metrics: The metrics of the panels.
        methods: The methods of the rows, best first.
        left_out: Number of methods that are not drawn, which come after the others.
    """

    metrics: tuple[str, ...]
    methods: tuple[str, ...]
    left_out: int


def forest_content(run: RunResults, boards: Mapping[str, Boards]) -> Forest | None:
    """Choose panels and methods: the leading metrics of one kind of truth, or the first one of each of several.

    Returns:
        The content; None if nothing was ranked.
    """
    leading = [found.standings.leading for found in boards.values()]
    chosen = leading[0] if len(leading) == 1 else tuple(names[0] for names in leading if names)
    order = list(dict.fromkeys(name for found in boards.values() for name in found.order))
    methods = [name for name in order if not run.explainers[name].control] or order
    if not chosen or not methods:
        return None
    return Forest(chosen[:MAX_PANELS], tuple(methods[:MAX_METHODS]), len(methods[MAX_METHODS:]))


def forest_figure(run: RunResults, boards: Mapping[str, Boards]) -> Figure | None:
    """Draw means and intervals over all cells. Filled markers show the methods that share the first place."""
    content = forest_content(run, boards)
    if content is None:
        return None
    rows, best = [], {}
    for metric in content.metrics:
        board = boards[run.metrics[metric].truth].columns((None, None, None))
        first = dict(zip(board["explainer"], board[f"first:{metric}"], strict=True))
        best[metric] = [name for name, rank in first.items() if rank == 1]
        numbers = zip(*(board[f"{name}:{metric}"] for name in ("mean", "low", "high")), strict=True)
        known = dict(zip(board["explainer"], numbers, strict=True))
        controls = [name for name, part in run.explainers.items() if part.control]
        for name in dict.fromkeys([*content.methods, *controls]):  # a run may have controls only
            mean, low, high = known.get(name, (math.nan,) * 3)
            rows.append({"metric": metric, "method": name, "mean": mean, "low": low, "high": high})
    parts = [run.metrics[metric] for metric in content.metrics]
    return plots.forest(
        pd.DataFrame(rows),
        metrics={part.name: f"{part.label} {'↑' if part.higher_is_better else '↓'}" for part in parts},
        controls=[name for name, part in run.explainers.items() if part.control],
        best=best,
        labels={name: part.label for name, part in run.explainers.items()},
        panel_width=_PANELS_WIDTH / len(parts),
    )
