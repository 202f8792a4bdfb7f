"""Samples to look at, with every explainer's map of them: ``gallery.safetensors`` of the run folder.

Small pictures in whole numbers from 0 to 255. Samples stand in the order in which they are to be kept where there is no
room for all: three on which some method fails most, then one that nothing was asked of, and so on.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from xaibench.runner.plan.jobs import ExplainJob
from xaibench.runner.plan.planning import CellPlan
from xaibench.runner.stages.execution import chosen_training, has_maps, read_maps
from xaibench.runner.stages.sample_data import read_test_split
from xaibench.runner.store.result_store import Store

if TYPE_CHECKING:
    import pandas as pd
    import torch

#: Samples of each cell.
SHOWN = 24
#: Longest side in pixels of an image, and of a map.
IMAGE_SIDE, MAP_SIDE = 112, 64
#: Of maps with more pixels than this the brightest level stands for this quantile: one pixel would darken the rest.
MANY_PIXELS, TOP = 1024, 0.995

Floats: TypeAlias = NDArray[np.floating[Any]]
Levels: TypeAlias = NDArray[np.uint8]


class Gallery:
    """Gathers the pictures of one cell after the other."""

    def __init__(self) -> None:
        self._cells: list[dict[str, Any]] = []
        self._tensors: dict[str, torch.Tensor] = {}

    def add(self, cell: CellPlan, place: tuple[str, str], scores: pd.DataFrame, store: Store) -> None:
        """Add the samples of a cell.

        Args:
            cell: The cell; of its networks the first is shown.
            place: Its scenario and background.
            scores: Its rows of ``scores.parquet``.
            store: Where its maps are; explainers whose job failed are left out.
        """
        if not cell.scores:
            return
        network = cell.networks[0]
        seed = chosen_training(store, network)[1]
        explains = dict.fromkeys(score.explain for one, score in cell.scores if one == network)
        kept = [explain for explain in explains if has_maps(store, explain)]
        controls = {explain.explainer.name for explain in explains if explain.network is None}
        samples = choose(scores[(scores["seed"] == seed) & scores["correct"]], controls)
        if not kept or not samples:
            return
        number = len(self._cells)
        images, masks, labels = _samples(store, cell, samples)
        maps = np.stack([_maps(explain, store, samples) for explain in kept], axis=1)
        for name, array in (("images", images), ("masks", masks), ("maps", maps)):
            self._tensors[f"{number}/{name}"] = _tensor(array)
        self._cells.append(
            {
                **{"scenario": place[0], "background": place[1], "model": cell.model},
                **{"dataset": cell.label or cell.data.name, "data_seed": cell.data.seed, "seed": seed},
                **{"samples": samples, "labels": labels},
                "explainers": [explain.explainer.name for explain in kept],
                "photographs": bool(store.load_meta("data", cell.data.key).get("on_disk")),
            }
        )

    def content(self) -> bytes:
        """The file: tensors ``CELL/images [n,h,w,3]``, ``CELL/masks [n,h,w]``, ``CELL/maps [n,explainers,h,w]``, uint8.

        What each cell is, and whose maps it has, stands as JSON in the metadata, under ``cells``.
        """
        from safetensors.torch import save

        return save(self._tensors, metadata={"cells": json.dumps(self._cells, ensure_ascii=False)})


def choose(scores: pd.DataFrame, controls: Collection[str] = (), count: int = SHOWN) -> list[int]:
    """Samples to show, those to keep first in front.

    Three of four are failures: metric after metric the methods name, each in its turn, the sample of their worst score,
    then that of their second worst, and so on. Each fourth is simply the next of the test split.

    Args:
        scores: Rows of one network: ``sample, explainer, metric, value, higher_is_better``.
        controls: Explainers that name none.
        count: At most so many.

    Example:
        >>> import pandas as pd
        >>> rows = pd.DataFrame({"sample": range(6), "value": [5.0, 1, 9, 3, 4, 2]})
        >>> choose(rows.assign(explainer="lime", metric="iou", higher_is_better=True), count=5)
        [1, 5, 3, 0, 4]
    """
    every = sorted(int(sample) for sample in scores["sample"].unique())
    failures, plain = _failures(scores, controls), iter(every)
    chosen: dict[int, None] = {}
    while len(chosen) < min(count, len(every)):
        source = plain if len(chosen) % 4 == 3 else failures
        fresh = next((sample for sample in source if sample not in chosen), None)
        if fresh is None:  # no method has another score
            fresh = next(sample for sample in plain if sample not in chosen)
        chosen[fresh] = None
    return list(chosen)


def _failures(scores: pd.DataFrame, controls: Collection[str]) -> Iterator[int]:
    """The worst sample by each metric of each method, then the second worst, and so on; with repetitions."""
    rows = scores[scores["value"].notna() & ~scores["explainer"].isin(list(controls))]
    lists = []
    for _, of_metric in rows.groupby("metric", sort=False, observed=True):
        for _, part in of_metric.groupby("explainer", sort=False, observed=True):
            goodness = part["value"].to_numpy() * np.where(part["higher_is_better"], 1.0, -1.0)
            lists.append(part["sample"].to_numpy()[np.lexsort((part["sample"].to_numpy(), goodness))])
    for turn in range(max(map(len, lists), default=0)):
        yield from (int(samples[turn]) for samples in lists if turn < len(samples))


def _samples(store: Store, cell: CellPlan, samples: Sequence[int]) -> tuple[Levels, Levels, list[str]]:
    """``[n,h,w,3]``, ``[n,h,w]``, and a line of text for each: what the image is."""
    split = read_test_split(store, cell.data)
    meta = store.load_meta("data", cell.data.key)
    images, masks, labels = [], [], []
    for sample in samples:
        image, mask, target = split[sample]
        images.append(_picture(image.numpy(), photograph=bool(meta.get("on_disk"))))
        masks.append(_reduced(mask.numpy()[None].astype(np.float32), IMAGE_SIDE)[0] >= 0.5)
        name = f"Sample {sample}" if split.in_memory else split.ids[sample]
        labels.append(f"{name}: {meta['classes'][int(target)]}")
    return np.stack(images), np.stack(masks).astype(np.uint8), labels


def _picture(image: Floats, *, photograph: bool) -> Levels:
    """``[C,H,W]`` as ``[h,w,3]``: photographs as they are; generated ones grey, zero in the middle."""
    small = _reduced(image, IMAGE_SIDE)
    if not photograph or len(small) not in (1, 3):
        small = small.mean(0, keepdims=True)
        small = 0.5 + 0.5 * small / (np.abs(small).max() or 1.0)
    colours = np.broadcast_to(small, (3, *small.shape[1:])).transpose(1, 2, 0)
    return np.clip(np.rint(colours * 255), 0, 255).astype(np.uint8)


def _maps(explain: ExplainJob, store: Store, samples: Sequence[int]) -> Levels:
    """``[n,h,w]``: the magnitude of each map, from its smallest to its largest; a constant one is 0 everywhere."""
    maps = read_maps(store, explain)[list(samples)]
    return np.stack([_levels(np.abs(array)) for array in maps.float().numpy()])


def _levels(magnitude: Floats) -> Levels:
    small = _reduced(np.nan_to_num(magnitude, posinf=0.0)[None], MAP_SIDE)[0].astype(np.float64)
    low, top = small.min(), small.max()
    if small.size > MANY_PIXELS and (quantile := np.quantile(small, TOP)) > low:
        top = quantile
    shares = (small - low) / ((top - low) or 1.0)
    levels: Levels = np.rint(255 * np.clip(shares, 0, 1)).astype(np.uint8)
    return levels


def _reduced(array: Floats, side: int) -> Floats:
    """``[C,H,W]`` with no side longer than ``side``, by the means of areas."""
    scale = side / max(array.shape[1:])
    if scale >= 1:
        return array
    from torch.nn.functional import interpolate

    height, width = (max(round(length * scale), 1) for length in array.shape[1:])
    small: Floats = interpolate(_tensor(array)[None].float(), size=(height, width), mode="area")[0].numpy()
    return small


def _tensor(array: NDArray[Any]) -> torch.Tensor:
    import torch

    return torch.from_numpy(np.ascontiguousarray(array))
