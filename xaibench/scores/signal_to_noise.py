"""Test accuracy over signal-to-noise ratios, and the ratio that XAI-TRIS chooses by it.

Clark, Wilming and Haufe (2023), section 4.1: of a range of ratios alpha, the one is chosen at which the mean test
accuracy of the trained networks is at or above 80 %.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd

from xaibench.runfolder.schema import CELL
from xaibench.scores.results import RunResults, place
from xaibench.scores.summary import min_accuracy


@dataclass(frozen=True)
class ChosenRatio:
    """The lowest signal-to-noise ratios of a data set at which networks reach the suite's ``min_accuracy``.

    Attributes:
        subset: Scenario.
        variant: Background.
        lowest: Ratio by model; None if no ratio of the run suffices.
        ours: The lowest ratio at which the mean accuracies of all networks suffice that the paper trains on the data
            set; None if there is none.
        paper: The ratio that the paper chose; None if it is not in the run.
    """

    subset: str
    variant: str
    lowest: Mapping[str, float | None]
    ours: float | None
    paper: float | None


def chosen_ratios(run: RunResults) -> list[ChosenRatio]:
    """Apply the rule of the paper to each data set of a run over signal-to-noise ratios; empty for other runs."""
    if "alpha" not in run.accuracy_keys:
        return []
    least, chosen = min_accuracy(run), []
    for (subset, variant), rows in run.accuracy.groupby(["subset", "variant"], sort=False):
        table = rows.pivot(index="alpha", columns="model", values="mean").sort_index()
        published = rows[rows["paper"].notna()]
        of_paper = table[list(published["model"].unique())] if len(published) else table
        chosen.append(
            ChosenRatio(
                str(subset),
                str(variant),
                {str(model): _first(table[model] >= least) for model in table},
                _first(of_paper.min(axis=1, skipna=False) >= least),
                float(published["alpha"].iloc[0]) if len(published) else None,
            )
        )
    return chosen


def _first(suffices: pd.Series) -> float | None:
    return float(suffices.index.to_numpy()[suffices.argmax()]) if suffices.any() else None


def accuracy_summary(run: RunResults) -> pd.DataFrame:
    """Return, to print, the ratios of :func:`chosen_ratios`; or the accuracies, if the run has one ratio per cell."""
    if chosen := chosen_ratios(run):
        return pd.DataFrame(
            {"subset": place(one.subset), "variant": place(one.variant)}
            | {f"{info.label} from": _in_words(one.lowest.get(name)) for name, info in run.models.items()}
            | {"chosen": _in_words(one.ours), "paper": _in_words(one.paper)}
            for one in chosen
        )
    return run.accuracy[[*CELL, "mean", "low", "high", "paper"]].round(1).astype(object).fillna("")


def _in_words(ratio: float | None) -> str:
    return "none" if ratio is None else f"{ratio:g}"
