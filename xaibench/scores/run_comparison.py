"""Comparison of runs, score by score."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from xaibench.runfolder.schema import CELL, IMAGES, KEYS, SAMPLES, SCORES, RunFolderError, resolve_location
from xaibench.scores import NestedMeans, SamplingDesign, holm, nested_means, unpaired_difference
from xaibench.scores.rank_tests import kendall_tau
from xaibench.scores.results import RunResults
from xaibench.scores.summary import summarize

_KEYS = ["dataset", "model", "explainer", "metric"]
_SAMPLE = ["data_seed", "sample"]
#: Identifies an image across runs: its hash, and the index among samples of the same image.
_IMAGE = ["data_seed", "image", "copy"]
#: Differences below this share of the scores' mean magnitude are rounding errors of float32.
TOLERANCE = 1e-6


def compare_runs(folders: Sequence[str | os.PathLike[str]]) -> pd.DataFrame:
    """Compare each run with the first.

    Samples are paired by image within a data set seed, using the image hashes of both run folders (``images.parquet``).
    If the runs share less than half of the smaller run's images of a data set, or if a folder has no hashes, the scores
    are compared without pairs by a t-test for unequal variances. Undefined scores are left out. Intervals and tests
    account for the choice of data sets, or otherwise of trainings and samples, grouped by the patients and images of
    ``samples.csv`` (:mod:`xaibench.scores.nested_draws`). Trainings are paired if both runs have the same seeds,
    and averaged otherwise.

    Args:
        folders: Two or more run folders, or their addresses.

    Returns:
        One row per run other than the first, and per data set, model, explainer and metric that both have: ``run,
        dataset, model, explainer, metric, first, second`` (means, over the shared images if paired), ``difference``
        (second minus first), ``low, high`` (95 % interval), ``p`` (paired t-test, or unpaired), ``p_holm`` (corrected
        for all rows of the run), ``paired``, ``n`` (pairs, or scores of the smaller run), ``better`` (whether the
        second is better; None if ``p_holm`` is 5 % or more, or if the difference is within rounding,
        :data:`TOLERANCE`). Sorted by p.

    Raises:
        RunFolderError: If fewer than two folders are given, a folder is not a run folder, or two runs have nothing in
            common.
    """
    if len(folders) < 2:
        raise RunFolderError(f"Expected two or more run folders to compare, got {len(folders)}.")
    runs = [_Run.read(resolve_location(folder)) for folder in folders]
    tables = [_compare(runs[0], run, folder) for run, folder in zip(runs[1:], folders[1:], strict=True)]
    return pd.concat(tables, ignore_index=True)


@dataclass(frozen=True, eq=False)
class _Run:
    """The scores of a run with the images and groups of their samples, joined one data set at a time.

    Joining tens of millions of rows at once would need more memory than a laptop has.
    """

    scores: pd.DataFrame
    images: pd.DataFrame
    groups: pd.DataFrame

    @classmethod
    def read(cls, folder: Path) -> _Run:
        if not (folder / SCORES.name).is_file():
            raise RunFolderError(
                f"{folder} is not a run folder: it has no {SCORES.name}. Give a folder that `xaibench run` wrote."
            )
        table = SCORES.read(folder, [*_KEYS, *_SAMPLE, "seed", "value", "higher_is_better"])
        images = IMAGES.read(folder).astype({"dataset": object, "image": "Int64"})
        images["copy"] = images.groupby(["dataset", "data_seed", "image"], observed=True).cumcount()
        groups = SAMPLES.read(folder).astype({"dataset": object})[["dataset", *_SAMPLE, "group"]]
        groups["group"] = pd.to_numeric(groups["group"]).astype("Float64")
        return cls(table, images, groups)

    @property
    def datasets(self) -> set[str]:
        return set(self.scores["dataset"].cat.categories)

    def scores_of(self, dataset: str) -> pd.DataFrame:
        """Return the defined scores of a data set with their images; missing if the folder does not list them."""
        own = self.scores[(self.scores["dataset"] == dataset) & self.scores["value"].notna()]
        own = own.astype(dict.fromkeys(_KEYS, object))
        for known in (self.images, self.groups):
            own = own.merge(known[known["dataset"] == dataset], on=["dataset", *_SAMPLE], how="left")
        return own


def _compare(first: _Run, second: _Run, folder: str | os.PathLike[str]) -> pd.DataFrame:
    compared = []
    for name in sorted(first.datasets & second.datasets):
        one, other = first.scores_of(name), second.scores_of(name)
        compared.append(_compare_paired(one, other) if _share_images(one, other) else _compare_unpaired(one, other))
    tables = [table for table in compared if len(table)]
    if not tables:
        raise RunFolderError(
            f"{folder} has no score in common with the first run; expected the same data sets, models and explainers."
        )
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


def _compare_paired(one: pd.DataFrame, other: pd.DataFrame) -> pd.DataFrame:
    """Compare the scores of the shared images, image by image."""
    if set(one["seed"]) != set(other["seed"]):
        one, other = _average_trainings(one), _average_trainings(other)
    row = [*_IMAGE, "seed"]
    both = one.merge(other, on=[*_KEYS, *row], suffixes=("_first", "_second"))
    if both.empty:
        return both
    both["difference"] = both["value_second"] - both["value_first"]
    both["scale"] = both[["value_first", "value_second"]].abs().max(axis=1)
    wide = both.pivot(index=row, columns=_KEYS, values="difference")
    table = both.groupby(_KEYS, observed=True).agg(
        first=("value_first", "mean"),
        second=("value_second", "mean"),
        n=("difference", "size"),
        scale=("scale", "mean"),
        upwards=("higher_is_better_first", "first"),
    )
    table = table.reindex(wide.columns).assign(paired=True)
    differences = wide.to_numpy(dtype=np.float64)
    # Groups of the first run, which are the same in each of its data sets.
    known = both["group_first"].fillna(both["group_second"])
    groups = known.groupby([both[name] for name in row]).first().reindex(wide.index)
    drawn = _sampling_design(wide.index.to_frame(index=False).assign(group=groups.to_numpy()))
    means = nested_means(differences, drawn)
    table["difference"] = means.mean
    table[["low", "high"]] = means.intervals()
    rounding = np.abs(differences) <= TOLERANCE * table["scale"].to_numpy()
    table["p"] = nested_means(np.where(rounding, 0.0, differences), drawn).p_values()
    return table


def _average_trainings(scores: pd.DataFrame) -> pd.DataFrame:
    """Average each sample over the trainings of a network."""
    first = scores.groupby([*_KEYS, *_IMAGE], observed=True, sort=False)
    kept = {name: (name, "first") for name in ("higher_is_better", "group")}
    means: pd.DataFrame = first.agg(value=("value", "mean"), **kept)
    return means.reset_index().assign(seed=0)


def _sampling_design(rows: pd.DataFrame) -> SamplingDesign:
    """Return data set, training and group of each row; a sample without a group is its own group."""
    images = rows[[name for name in (*_IMAGE, "sample") if name in rows]].apply(tuple, axis=1)
    named = rows["group"].notna().to_numpy()
    groups = np.where(named, rows["group"].fillna(0).to_numpy(np.int64), -1 - pd.factorize(images)[0])
    return SamplingDesign.of(len(rows), data_sets=rows["data_seed"], trainings=rows["seed"], groups=groups)


def _compare_unpaired(one: pd.DataFrame, other: pd.DataFrame) -> pd.DataFrame:
    """Compare all scores of one run with all scores of the other."""
    later = dict(list(other.groupby(_KEYS, observed=True, sort=False)))
    rows = []
    for key, before in one.groupby(_KEYS, observed=True, sort=False):
        if key not in later:
            continue
        values = [run["value"].to_numpy(dtype=np.float64) for run in (before, later[key])]
        drawn = [_sampling_design(run[["data_seed", "sample", "seed", "group"]]) for run in (before, later[key])]
        means = [nested_means(*run) for run in zip(values, drawn, strict=True)]
        scale = max(np.abs(run).mean() for run in values)
        row = {"first": means[0].mean[0], "second": means[1].mean[0], "n": min(map(len, values)), "scale": scale}
        row |= _test_result(unpaired_difference(*means), TOLERANCE * scale)
        rows.append(dict(zip(_KEYS, key, strict=True)) | row | {"upwards": before["higher_is_better"].iloc[0]})
    return pd.DataFrame(rows).set_index(_KEYS).assign(paired=False) if rows else pd.DataFrame()


def _test_result(mean: NestedMeans, rounding: float) -> dict[str, float]:
    """Return the difference with its interval and p-value; NaN if a run has a single score."""
    difference, (low, high) = float(mean.mean[0]), mean.intervals()[0]
    p = float(mean.p_values()[0])
    if mean.variance[0] == 0:  # the scores of each run are all equal
        low, high, p = difference, difference, float(abs(difference) <= rounding)
    return {"difference": difference, "low": float(low), "high": float(high), "p": p}


def compare_trainings(published: RunResults, trained: RunResults) -> pd.DataFrame:
    """Compare a run on published networks with one on networks that were trained again.

    Args:
        published: The run on published networks.
        trained: The run of the same suite with ``train=True``.

    Returns:
        One row per cell and metric that both runs have: ``subset, variant, model, metric``; ``accuracy`` and
        ``accuracy_trained``, mean test accuracies in percent; ``tau``, Kendall's tau-b of the orders of the methods by
        their mean scores, in [-1, 1], 1 = the same order, NaN for fewer than three methods; ``largest``, the largest
        difference of a method's mean score. Controls are left out, for their scores do not depend on a network.
    """
    keys = [*CELL, "metric"]
    accuracies = [
        run.accuracy.astype(dict.fromkeys(CELL, str)).set_index(list(CELL))["mean"] for run in (published, trained)
    ]
    summaries = [summarize(run).astype(dict.fromkeys(KEYS, str)) for run in (published, trained)]
    means = [rows.loc[~rows["control"] & rows["mean"].notna(), [*KEYS, "mean"]] for rows in summaries]
    both = means[0].merge(means[1], on=[*keys, "explainer"], suffixes=("", "_trained"))
    rows = []
    for (*cell, metric), pair in both.groupby(keys, sort=False):
        orders = pair[["mean", "mean_trained"]].to_numpy().T
        rows.append(
            {
                **dict(zip(CELL, cell, strict=True)),
                "metric": metric,
                "accuracy": accuracies[0].get(tuple(cell), np.nan),
                "accuracy_trained": accuracies[1].get(tuple(cell), np.nan),
                "tau": float(kendall_tau(orders)[0, 1]) if len(pair) > 2 else np.nan,
                "largest": float(np.abs(orders[1] - orders[0]).max()),
            }
        )
    return pd.DataFrame(rows)
