"""Test accuracy over signal-to-noise ratios, the ratio that XAI-TRIS chooses by it, and statements on both.

Clark, Wilming and Haufe (2023), section 4.1: of a range of ratios alpha, the one is chosen at which the mean test
accuracy of the trained networks is at or above 80 %.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pandas as pd

from xaibench.benchmarks.claims import Cell
from xaibench.runfolder.schema import CELL
from xaibench.scores.nested_draws import Floats
from xaibench.scores.results import RunResults, place
from xaibench.scores.summary import min_accuracy

#: Cell to ratio to mean test accuracies in percent ``[1 + R]``: that of the run, then those of the resamples.
Accuracies: TypeAlias = Mapping[Cell, Mapping[float, Floats]]


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


def resampled_accuracies(run: RunResults, datasets: str, resamples: int, seed: int) -> Accuracies:
    """Return the mean test accuracies of a run over ratios, and of resamples of its trainings.

    Args:
        run: The run.
        datasets: Ending of the names of the data sets.
        resamples: Number of resamples.
        seed: Seed of the resamples.
    """
    if "alpha" not in run.accuracy_keys:
        return {}
    rng, means = np.random.default_rng(seed), dict[Cell, dict[float, Floats]]()
    rows = run.trainings[run.trainings["dataset"].str.endswith(datasets)]
    for (subset, variant, model, _), group in rows.groupby([*CELL, "alpha"], sort=False):
        reached = group["test_accuracy"].to_numpy(float)
        drawn = rng.integers(len(reached), size=(resamples, len(reached)))
        of_cell = means.setdefault((str(subset), str(variant), str(model)), {})
        of_cell[float(group["alpha"].iloc[0])] = np.concatenate([[reached.mean()], reached[drawn].mean(axis=1)])
    return means


def _highest(accuracies: Accuracies) -> Iterator[Floats]:
    """Return the highest mean accuracy over the ratios and the cells."""
    if chosen := [mean for means in accuracies.values() for mean in means.values()]:
        yield np.max(chosen, axis=0)


def _compare(
    accuracies: Accuracies, number: Callable[[Mapping[float, Floats]], Floats], models: tuple[str, str]
) -> Iterator[Floats]:
    """Subtract a number of the second model's accuracies from that of the first, for each data set."""
    for cell, means in accuracies.items():
        other = accuracies.get((*cell[:2], models[1]))
        if cell[2] == models[0] and other:
            yield number(means) - number(other)


def _lead(accuracies: Accuracies, *, models: tuple[str, str]) -> Iterator[Floats]:
    """Subtract the mean accuracies over the ratios of two models."""
    return _compare(accuracies, lambda means: np.mean(list(means.values()), axis=0), models)


def _later(accuracies: Accuracies, *, models: tuple[str, str], reached: float) -> Iterator[Floats]:
    """Subtract the lowest ratios at which two models reach an accuracy in percent; 1 if no ratio suffices."""

    def lowest(means: Mapping[float, Floats]) -> Floats:
        ratios = np.array(sorted(means))
        suffices = np.array([means[ratio] for ratio in ratios]) >= reached
        return np.where(suffices.any(axis=0), ratios[suffices.argmax(axis=0)], 1.0)

    return _compare(accuracies, lowest, models)


#: Checks of accuracies by name: each yields ``[1 + R]`` per comparison, whose mean is the number of the claim.
ACCURACY_CHECKS: Mapping[str, Callable[..., Iterator[Any]]] = {"highest": _highest, "lead": _lead, "later": _later}
