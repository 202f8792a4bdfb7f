"""Runs side by side: what moved from one to the other, and whether it is more than chance."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from xaibench.runfolder.tables import SCORES, RunFolderError
from xaibench.statistics import bootstrap_intervals, holm, paired_test

_KEYS = ["dataset", "model", "explainer", "metric"]
_SAMPLE = ["data_seed", "sample"]


def compare_runs(folders: Sequence[Path]) -> pd.DataFrame:
    """Compare each run with the first, score by score.

    Samples are paired by the set's seed and their number; a score that either run lacks is left out. Where the runs'
    sets were made with different parameters the pairs are of unlike images, which costs power and is still valid.

    Args:
        folders: Two or more run folders.

    Returns:
        One row for each run but the first, data set, model, explainer and metric that both have: ``run, dataset, model,
        explainer, metric, first, second`` (means over the shared samples), ``difference`` (second minus first), ``low,
        high`` (95 % interval), ``p`` (paired sign-flip test), ``p_holm`` (corrected for all rows of the run), ``n``
        (shared samples), ``better`` (of the second: True, False, or None where p_holm is 5 % or more). Sorted by p.

    Raises:
        RunFolderError: If fewer than two folders are given, one is no run folder, or two have nothing in common.
    """
    if len(folders) < 2:
        raise RunFolderError(f"Expected two or more run folders to compare, got {len(folders)}.")
    runs = [_scores(Path(folder)) for folder in folders]
    tables = [_compare(runs[0], run, folder) for run, folder in zip(runs[1:], folders[1:], strict=True)]
    return pd.concat(tables, ignore_index=True)


def _scores(folder: Path) -> pd.DataFrame:
    if not (folder / SCORES.name).is_file():
        raise RunFolderError(f"{folder} is no run folder: there is no {SCORES.name}. Give a folder that `run` wrote.")
    table = SCORES.read(folder, [*_KEYS, *_SAMPLE, "seed", "value", "higher_is_better"])
    table = table.astype(dict.fromkeys(_KEYS, object))
    # A sample that was scored for several trainings of a network counts once, with its mean.
    grouped = table.groupby([*_KEYS, *_SAMPLE], observed=True, sort=False)
    means: pd.DataFrame = grouped.agg(value=("value", "mean"), higher_is_better=("higher_is_better", "first"))
    return means.reset_index()


def _compare(first: pd.DataFrame, second: pd.DataFrame, folder: Path) -> pd.DataFrame:
    both = first.merge(second, on=[*_KEYS, *_SAMPLE], suffixes=("_first", "_second"))
    both = both.dropna(subset=["value_first", "value_second"])
    if both.empty:
        raise RunFolderError(f"{folder} has no score in common with the first run: other sets, models or explainers.")
    both["difference"] = both["value_second"] - both["value_first"]
    wide = both.pivot(index=_SAMPLE, columns=_KEYS, values="difference")
    differences = wide.to_numpy(dtype=np.float64)
    grouped = both.groupby(_KEYS, observed=True)
    table = grouped.agg(
        first=("value_first", "mean"),
        second=("value_second", "mean"),
        difference=("difference", "mean"),
        n=("difference", "size"),
        upwards=("higher_is_better_first", "first"),
    ).reindex(wide.columns)
    table[["low", "high"]] = bootstrap_intervals(differences)
    table["p"] = paired_test(differences)
    table["p_holm"] = holm(table["p"])
    better = (table["difference"] > 0) == table.pop("upwards")
    table["better"] = better.astype(object).where(table["p_holm"] < 0.05, None)
    table = table.reset_index().assign(run=str(folder)).sort_values(["p", "dataset"], kind="stable")
    columns = ["run", *_KEYS, "first", "second", "difference", "low", "high", "p", "p_holm", "n", "better"]
    return table[columns]
