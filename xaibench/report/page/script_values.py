"""What the page's script works with, and the rows of its tables."""

from __future__ import annotations

import base64
from typing import Any

import matplotlib
import numpy as np
import pandas as pd

from xaibench.report.page.board_data import Boards, page_data
from xaibench.report.page.page_content import records
from xaibench.report.read.run_reading import KEYS, Run, place


def board_rows(boards: Boards) -> list[dict[str, Any]]:
    """The rows of the leaderboard over all cells, best first; empty where nothing was ranked."""
    everything = (None, None, None)
    if everything not in boards.cells:
        return []
    board = pd.DataFrame(boards.columns(everything)).sort_values("mean_rank", kind="stable")
    whole = ["place", *(name for name in board if str(name).startswith(("best:", "beats:", "exceeds:", "against:")))]
    return records(board.astype(dict.fromkeys(whole, "Int64")))


def summary_rows(run: Run, summary: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows of the table of all numbers, with ``codes``: what each is of, as places in the run's orders."""
    codes = [summary[key].cat.codes.astype(str) for key in KEYS] if len(summary) else []
    rows = records(summary.drop(columns=["outliers"]))
    return [row | {"codes": " ".join(of)} for row, of in zip(rows, zip(*codes, strict=True), strict=True)]


def page_values(run: Run, boards: Boards) -> dict[str, Any]:
    """What the script must know: names and labels, leaderboards, the cells that have samples, the colours of maps."""
    placed = [row for row in board_rows(boards) if row["place"] is not None]
    return {
        "scenarios": [{"name": name, "label": place(name)} for name in run.scenarios],
        "backgrounds": [{"name": name, "label": place(name)} for name in run.backgrounds],
        "models": [{"name": part.name, "label": part.label} for part in run.models.values()],
        "explainers": [
            {"name": part.name, "label": part.label, "control": part.control} for part in run.explainers.values()
        ],
        "metrics": [
            {"name": part.name, "label": part.label, "higher": part.higher_is_better} for part in run.metrics.values()
        ],
        **page_data(boards),
        "leader": placed[0]["explainer"] if placed else "",
        "palette": base64.b64encode(_palette().tobytes()).decode("ascii"),
    }


def _palette() -> np.ndarray[Any, np.dtype[np.uint8]]:
    """``[256, 3]``: the colour of each level of a map."""
    return np.ascontiguousarray(matplotlib.colormaps["inferno"](np.arange(256), bytes=True)[:, :3])
