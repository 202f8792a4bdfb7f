"""Runs side by side: what moved from one to the other, and whether it is more than chance."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from xaibench.runfolder.tables import IMAGES, SCORES, RunFolderError
from xaibench.statistics import bootstrap_intervals, holm, paired_test

_KEYS = ["dataset", "model", "explainer", "metric"]
_SAMPLE = ["data_seed", "sample"]
#: What two runs know an image by: its hash, and which of several samples of that image it is.
_IMAGE = ["data_seed", "image", "copy"]
#: A difference below this share of the scores' own mean magnitude is that of rounding: float32 knows seven digits.
TOLERANCE = 1e-6


def compare_runs(folders: Sequence[Path]) -> pd.DataFrame:
    """Compare each run with the first, score by score.

    Samples are paired by their image, of which both run folders keep a hash (``images.parquet``), within the seed of
    the data set. A data set of which the runs share less than half of the images of the smaller, or of which a folder
    does not say which images they are, is compared without pairs: all scores of one run with all of the other, by
    Welch's t-test. Undefined scores are left out.

    Args:
        folders: Two or more run folders.

    Returns:
        One row for each run but the first, data set, model, explainer and metric that both have: ``run, dataset, model,
        explainer, metric, first, second`` (means, over the shared images where there are pairs), ``difference``
        (second minus first), ``low, high`` (95 % interval), ``p`` (sign-flip test of the pairs, or Welch's),
        ``p_holm`` (corrected for all rows of the run), ``paired``, ``n`` (pairs, or the scores of the smaller run),
        ``better`` (of the second: True, False, or None where p_holm is 5 % or more, or the difference no more than
        rounding, :data:`TOLERANCE`). Sorted by p.

    Raises:
        RunFolderError: If fewer than two folders are given, one is no run folder, or two have nothing in common.
    """
    if len(folders) < 2:
        raise RunFolderError(f"Expected two or more run folders to compare, got {len(folders)}.")
    runs = [_scores(Path(folder)) for folder in folders]
    tables = [_compare(runs[0], run, folder) for run, folder in zip(runs[1:], folders[1:], strict=True)]
    return pd.concat(tables, ignore_index=True)


def _scores(folder: Path) -> pd.DataFrame:
    """The defined scores, with the image of each; missing where the folder does not say."""
    if not (folder / SCORES.name).is_file():
        raise RunFolderError(f"{folder} is no run folder: there is no {SCORES.name}. Give a folder that `run` wrote.")
    table = SCORES.read(folder, [*_KEYS, *_SAMPLE, "seed", "value", "higher_is_better"])
    table = table.astype(dict.fromkeys(_KEYS, object)).dropna(subset=["value"])
    # A sample that was scored for several trainings of a network counts once, with its mean.
    grouped = table.groupby([*_KEYS, *_SAMPLE], observed=True, sort=False)
    means = grouped.agg(value=("value", "mean"), higher_is_better=("higher_is_better", "first")).reset_index()
    images = IMAGES.read(folder).astype({"dataset": object, "image": "Int64"})
    images["copy"] = images.groupby(["dataset", "data_seed", "image"], observed=True).cumcount()
    return means.merge(images, on=["dataset", *_SAMPLE], how="left")


def _compare(first: pd.DataFrame, second: pd.DataFrame, folder: Path) -> pd.DataFrame:
    found = []
    for name in sorted(set(first["dataset"]) & set(second["dataset"])):
        one, other = (run[run["dataset"] == name] for run in (first, second))
        found.append(_paired(one, other) if _share_images(one, other) else _unpaired(one, other))
    tables = [table for table in found if len(table)]
    if not tables:
        raise RunFolderError(f"{folder} has no score in common with the first run: other sets, models or explainers.")
    table = pd.concat(tables)
    table["p_holm"] = holm(table["p"])
    better = (table["difference"] > 0) == table["upwards"].astype(bool)
    beyond = table["difference"].abs() > TOLERANCE * table["scale"]
    table["better"] = better.astype(object).where((table["p_holm"] < 0.05) & beyond, None)
    table = table.reset_index().assign(run=str(folder)).sort_values(["p", "dataset"], kind="stable")
    columns = ["run", *_KEYS, "first", "second", "difference", "low", "high", "p", "p_holm", "paired", "n", "better"]
    return table[columns]


def _share_images(one: pd.DataFrame, other: pd.DataFrame) -> bool:
    if one["image"].isna().any() or other["image"].isna().any():
        return False
    images = [set(run[_IMAGE].itertuples(index=False, name=None)) for run in (one, other)]
    return 2 * len(images[0] & images[1]) >= min(map(len, images))


def _paired(one: pd.DataFrame, other: pd.DataFrame) -> pd.DataFrame:
    """The scores of the images that both have, image by image."""
    both = one.merge(other, on=[*_KEYS, *_IMAGE], suffixes=("_first", "_second"))
    if both.empty:
        return both
    both["difference"] = both["value_second"] - both["value_first"]
    both["scale"] = both[["value_first", "value_second"]].abs().max(axis=1)
    wide = both.pivot(index=_IMAGE, columns=_KEYS, values="difference")
    table = both.groupby(_KEYS, observed=True).agg(
        first=("value_first", "mean"),
        second=("value_second", "mean"),
        difference=("difference", "mean"),
        n=("difference", "size"),
        scale=("scale", "mean"),
        upwards=("higher_is_better_first", "first"),
    )
    table = table.reindex(wide.columns).assign(paired=True)
    differences = wide.to_numpy(dtype=np.float64)
    table[["low", "high"]] = bootstrap_intervals(differences)
    rounding = np.abs(differences) <= TOLERANCE * table["scale"].to_numpy()
    table["p"] = paired_test(np.where(rounding, 0.0, differences))
    return table


def _unpaired(one: pd.DataFrame, other: pd.DataFrame) -> pd.DataFrame:
    """All scores of both."""
    later = dict(list(other.groupby(_KEYS, observed=True, sort=False)))
    rows = [
        dict(zip(_KEYS, key, strict=True))
        | _welch(before["value"].to_numpy(dtype=np.float64), later[key]["value"].to_numpy(dtype=np.float64))
        | {"upwards": before["higher_is_better"].iloc[0], "paired": False}
        for key, before in one.groupby(_KEYS, observed=True, sort=False)
        if key in later
    ]
    return pd.DataFrame(rows).set_index(_KEYS) if rows else pd.DataFrame()


def _welch(first: NDArray[np.float64], second: NDArray[np.float64]) -> dict[str, Any]:
    """Test and interval of the difference of two means; undefined where a run has a single score."""
    means, scale = (first.mean(), second.mean()), max(np.abs(first).mean(), np.abs(second).mean())
    found: dict[str, Any] = {"first": means[0], "second": means[1], "difference": means[1] - means[0]}
    found |= {"n": min(len(first), len(second)), "scale": scale, "low": np.nan, "high": np.nan, "p": np.nan}
    if found["n"] < 2:
        return found
    with warnings.catch_warnings(action="ignore"):  # of scores that are all but equal
        test = stats.ttest_ind(second, first, equal_var=False)
        interval = test.confidence_interval()
    if np.isnan(test.pvalue):  # no run's scores differ at all
        same = abs(found["difference"]) <= TOLERANCE * scale
        return found | {"low": found["difference"], "high": found["difference"], "p": float(same)}
    return found | {"low": interval.low, "high": interval.high, "p": float(test.pvalue)}
