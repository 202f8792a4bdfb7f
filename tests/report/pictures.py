"""What a run folder holds for the browser of samples and for the page of time, made up."""

import json

import numpy as np
import pandas as pd

#: Seconds of a job by stage.
SECONDS = {"data": 0.5, "train": 8.0, "explain": 0.4, "score": 0.02}


def make_gallery(scores: pd.DataFrame, count: int = 6, side: int = 8) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Arrays and metadata of ``gallery.safetensors``: the first correct samples of each cell."""
    rng = np.random.default_rng(0)
    arrays, cells = {}, []
    keys = ["scenario", "background", "model", "dataset", "data_seed", "seed"]
    for number, (names, mine) in enumerate(scores[scores["correct"]].groupby(keys, sort=False)):
        samples = sorted(mine["sample"].unique().tolist())[:count]
        explainers = mine["explainer"].unique().tolist()
        shape = (len(samples), side, side)
        arrays[f"{number}/images"] = np.repeat(rng.integers(0, 256, (*shape, 1), dtype=np.uint8), 3, axis=3)
        arrays[f"{number}/masks"] = (rng.random(shape) < 0.2).astype(np.uint8)
        arrays[f"{number}/maps"] = rng.integers(0, 256, (len(samples), len(explainers), side, side), dtype=np.uint8)
        about = dict(zip(keys, names, strict=True)) | {"samples": samples, "explainers": explainers}
        cells.append(about | {"labels": [f"sample {i}: T" for i in samples], "photographs": False})
    return arrays, {"cells": json.dumps(cells)}


def make_jobs(scores: pd.DataFrame) -> pd.DataFrame:
    """``jobs.csv`` with a job for each data set, cell, explainer and metric of the scores."""
    levels = {"data": [], "train": ["model"], "explain": ["model", "explainer"]}
    levels["score"] = ["model", "explainer", "metric"]
    tables = []
    for stage, level in levels.items():
        table = scores[["dataset", "data_seed", *level]].drop_duplicates()
        seconds = SECONDS[stage]
        tables.append(table.assign(stage=stage, seconds=seconds, cpu_seconds=0.75 * seconds))
    jobs = pd.concat(tables, ignore_index=True).fillna("")
    jobs["key"] = [f"{number:020x}" for number in range(len(jobs))]
    jobs["worker"] = [f"host:{number % 2}" for number in range(len(jobs))]
    columns = ["stage", "key", "dataset", "data_seed", "model", "explainer", "metric"]
    return jobs.assign(peak_mb=500, failed=0)[[*columns, "seconds", "cpu_seconds", "peak_mb", "worker", "failed"]]
