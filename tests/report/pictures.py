"""Synthetic samples and jobs of a run folder."""

from dataclasses import replace

import numpy as np
import pandas as pd

from xaibench.core.pictures import cut_slices
from xaibench.runfolder.sample_file import (
    SAMPLES_FILE,
    SampleCell,
    Voxels,
    place_slices,
    read_samples,
    to_safetensors,
)
from xaibench.runfolder.schema import JOBS

#: Seconds of a job by stage.
SECONDS = {"data": 0.5, "train": 8.0, "explain": 0.4, "score": 0.02}
KEYS = ["subset", "variant", "model", "dataset", "data_seed", "seed"]


def make_samples(scores: pd.DataFrame, count: int = 6, side: int = 8) -> list[SampleCell]:
    """The first correct samples of each cell, of which the first is the example; maps are whole levels of 255."""
    rng = np.random.default_rng(0)
    cells = []
    for names, mine in scores[scores["correct"]].groupby(KEYS, sort=False):
        samples = sorted(mine["sample"].unique().tolist())[:count]
        explainers = tuple(mine["explainer"].unique().tolist())
        shape = (len(samples), side, side)
        levels = rng.integers(0, 256, (len(samples), len(explainers), side, side))
        levels[..., 0, :2] = 0, 255
        means = rng.random((len(explainers), side, side))
        cells.append(
            SampleCell(
                **{key: name if isinstance(name, str) else int(name) for key, name in zip(KEYS, names, strict=True)},
                samples=tuple(samples),
                labels=tuple(f"sample {i}: T" for i in samples),
                classes=("T",) * len(samples),
                predicted=("L",) * len(samples),
                probabilities=(0.9,) * len(samples),
                browsed=len(samples),
                sheet=(),
                example=0,
                explainers=explainers,
                photographs=False,
                images=np.repeat(rng.integers(0, 256, (*shape, 1), dtype=np.uint8), 3, axis=3),
                masks=(rng.random(shape) < 0.2).astype(np.uint8),
                maps=(levels / 255).astype(np.float16),
                means=(means / means.sum((1, 2), keepdims=True)).astype(np.float32),
            )
        )
    return cells


def make_volumes(cell: SampleCell, sides: tuple[int, int, int] = (4, 6, 8)) -> dict:
    """What makes the samples of a cell volumes of twice these sides, of which every second voxel is kept."""
    rng = np.random.default_rng(1)
    n, shape = len(cell.samples), (len(cell.samples), *sides)
    maps = rng.integers(0, 255, (n, len(cell.explainers), *sides), dtype=np.uint8)
    maps[..., 0, 0, :2] = 0, 255
    images, masks = rng.integers(0, 256, shape, dtype=np.uint8), (rng.random(shape) < 0.2).astype(np.uint8)
    slices = tuple(tuple(int(rng.integers(2 * side)) for side in sides) for _ in range(n))
    cut = [tuple(place // 2 for place in one) for one in slices]

    def flat(volumes, where):
        return np.stack([place_slices(cut_slices(one, at)) for one, at in zip(volumes, where, strict=True)])

    pictures = flat(images, cut)
    levels = np.stack([flat(own, cut) for own in maps.swapaxes(0, 1)], axis=1)
    return {
        "images": np.repeat(pictures[..., None], 3, axis=3),
        "masks": flat(masks, cut),
        "maps": (levels / 255).astype(np.float16),
        "means": levels[0].astype(np.float32),
        "voxels": Voxels(tuple(2 * side for side in sides), slices, images, masks, maps),
    }


def change_samples(folder, change) -> None:
    """Write the samples of a folder anew, each cell with what ``change`` gives for it; None leaves it out."""
    changed = [(cell, change(cell)) for cell in read_samples(folder)]
    cells = [replace(cell, **new) for cell, new in changed if new is not None]
    (folder / SAMPLES_FILE).write_bytes(to_safetensors(cells))


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
    return jobs.assign(peak_mb=500, failed=0)[list(JOBS.columns)]
