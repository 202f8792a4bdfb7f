"""Selection of the example samples that a run folder shows, with every explainer's maps.

The page's sample browser shows three samples on which some explainer scores worst, then one in the order of the test
split, and so on. The figures show the first sample that counts of a generated set, or some photographs of each class.

The picture of a volume is three orthogonal slices through its ground truth: along each axis the slice with the most
voxels of the mask (the middle one of several), or the middle one if the mask is empty. They do not depend on the maps,
so that runs can be compared. With a known spacing, the pictures have its aspect ratio. The volume itself, reduced to at
most :data:`MOST_VOXELS` voxels, is kept for a slider.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from xaibench.core.pictures import cut_slices, fit, heaviest_slices
from xaibench.runfolder.sample_file import MOST_VOXELS, SIDE, SampleCell, Voxels, place_slices
from xaibench.runner.plan.jobs import DataJob, ExplainJob
from xaibench.runner.plan.plan import CellPlan
from xaibench.runner.stages.execute import has_maps, read_maps, read_predictions, select_training
from xaibench.runner.stages.samples import read_test_split
from xaibench.runner.store import Store

if TYPE_CHECKING:
    import pandas as pd

    from xaibench.data import Split

#: Number of samples per cell in the browser, and of photographs per cell on the sheet.
BROWSED, ON_SHEET = 24, 6
#: Number of signal-to-noise ratios at which a sample is shown.
RATIOS = 4

Floats: TypeAlias = NDArray[np.floating[Any]]


def picture_cell(cell: CellPlan, scores: pd.DataFrame, correct: NDArray[np.bool_], store: Store) -> SampleCell | None:
    """Return the example samples of a cell, with the maps of its first network; None if there are none.

    Args:
        cell: The cell.
        scores: Its rows of ``scores.parquet``.
        correct: Which test samples count, ``[n_test]`` bool.
        store: The store with the maps; explainers whose job failed are left out.
    """
    network = cell.networks[0]
    explains = dict.fromkeys(score.explain for one, score in cell.scores if one == network)
    kept = [job for job in explains if has_maps(store, job) and not job.explainer.info.reference]
    if not kept:
        return None
    seed = select_training(store, network)[1]
    meta = store.load_meta("data", cell.data.key)
    photographs = bool(meta.get("on_disk"))
    split = read_test_split(store, cell.data)
    explained = len(split) if kept[0].samples == "all" else min(kept[0].samples, len(split))
    counting = np.flatnonzero(correct[:explained])
    controls = {explain.explainer.name for explain in explains if explain.network is None}
    methods = scores["explainer"].isin([explain.explainer.name for explain in kept])
    browsed = choose(scores[(scores["seed"] == seed) & scores["scored"] & methods], controls)
    sheet = spread(split.targets[:explained].tolist()) if photographs else []
    example = counting[:1].tolist() if not photographs else []
    samples = list(dict.fromkeys([*browsed, *sheet, *example]))
    if not samples:
        return None
    views, images, masks, volumes = _read_samples(split, samples, photographs)
    predicted, probabilities = (each[samples].tolist() for each in read_predictions(store, network))
    shown = samples.index(example[0]) if example else None
    maps, means, volume_maps = _read_maps(
        kept, store, samples, [] if photographs else counting.tolist(), views, shown or 0
    )
    return SampleCell(
        **cell.names,
        seed=seed,
        samples=tuple(samples),
        labels=tuple(_name_samples(split, samples, meta["classes"])),
        classes=tuple(meta["classes"][target] for target in split.targets[samples].tolist()),
        predicted=tuple(meta["classes"][answer] for answer in predicted),
        probabilities=tuple(round(each, 6) for each in probabilities),
        browsed=len(browsed),
        sheet=tuple(samples.index(sample) for sample in sheet),
        example=shown,
        explainers=tuple(explain.explainer.name for explain in kept),
        photographs=photographs,
        images=images,
        masks=masks,
        maps=maps,
        means=means,
        voxels=None if volume_maps is None else _describe_volumes(views, volumes, volume_maps),
    )


def picture_ratios(data: Sequence[DataJob], store: Store) -> Iterator[SampleCell]:
    """Yield, per data set, its first test sample of class 0 at :data:`RATIOS` of its signal-to-noise ratios.

    Data sets with the same seed have the same patterns and noise at all ratios.
    """
    by_name: dict[str, list[DataJob]] = {}
    for job in dict.fromkeys(data):
        if job.seed == data[0].seed:
            by_name.setdefault(job.name, []).append(job)
    for name, jobs in by_name.items():
        jobs.sort(key=lambda job: job.parameters["alpha"])
        chosen = [jobs[i] for i in sorted({round(i) for i in np.linspace(0, len(jobs) - 1, RATIOS)})]
        splits = [read_test_split(store, job) for job in chosen]
        samples = [split.targets.tolist().index(0) for split in splits]
        pairs = [_read_samples(*pair, False)[1:3] for pair in zip(splits, [[each] for each in samples], strict=True)]
        images, masks = (np.concatenate(each) for each in zip(*pairs, strict=True))
        info = jobs[0].dataset.info
        yield SampleCell(
            subset=info.subset or name,
            variant=info.variant or "-",
            model="",
            dataset=name,
            data_seed=jobs[0].seed,
            seed=0,
            samples=tuple(samples),
            labels=tuple(f"{job.parameters['alpha']:g}" for job in chosen),
            images=images,
            masks=masks,
            maps=np.zeros((len(images), 0, *masks.shape[1:]), np.float16),
            means=np.zeros((0, *masks.shape[1:]), np.float32),
        )


def without_images(cell: SampleCell, copies: Collection[str]) -> SampleCell:
    """Return the cell with blank images and without file names, for data whose images may not be passed on.

    Args:
        cell: The cell.
        copies: Explainers whose map is the image itself; their maps are blanked too.
    """
    labels = tuple(f"Sample {sample}" for sample in cell.samples)
    blank = [number for number, name in enumerate(cell.explainers) if name in copies]
    maps, means = cell.maps.copy(), cell.means.copy()
    maps[:, blank] = 0
    if len(means):
        means[blank] = 0
    voxels = cell.voxels
    if voxels is not None:
        hidden = voxels.maps.copy()
        hidden[:, blank] = 0
        voxels = dataclasses.replace(voxels, images=np.full_like(voxels.images, 255), maps=hidden)
    white = np.full_like(cell.images, 255)
    return dataclasses.replace(cell, labels=labels, images=white, maps=maps, means=means, voxels=voxels)


def choose(scores: pd.DataFrame, controls: Collection[str] = (), count: int = BROWSED) -> list[int]:
    """Choose samples for the browser, the most important first.

    Three of four are failures: for each metric and each explainer in turn, the sample with the worst score, then the
    one with the second worst, and so on. Every fourth is the next one of the test split.

    Args:
        scores: Rows of one network: ``sample, explainer, metric, value, higher_is_better``.
        controls: Explainers whose failures are not considered.
        count: Maximum number of samples.

    Example:
        >>> import pandas as pd
        >>> rows = pd.DataFrame({"sample": range(6), "value": [5.0, 1, 9, 3, 4, 2]})
        >>> choose(rows.assign(explainer="lime", metric="iou", higher_is_better=True), count=5)
        [1, 5, 3, 0, 4]
    """
    every = sorted(int(sample) for sample in scores["sample"].unique())
    failures, plain = _worst_samples(scores, controls), iter(every)
    chosen: dict[int, None] = {}
    while len(chosen) < min(count, len(every)):
        source = plain if len(chosen) % 4 == 3 else failures
        unseen = next((sample for sample in source if sample not in chosen), None)
        if unseen is None:  # no explainer has a score of another sample
            unseen = next(sample for sample in plain if sample not in chosen)
        chosen[unseen] = None
    return list(chosen)


def _worst_samples(scores: pd.DataFrame, controls: Collection[str]) -> Iterator[int]:
    """Yield the worst sample per metric and explainer, then the second worst, and so on; samples may repeat."""
    rows = scores[scores["value"].notna() & ~scores["explainer"].isin(list(controls))]
    lists = []
    for _, of_metric in rows.groupby("metric", sort=False, observed=True):
        for _, part in of_metric.groupby("explainer", sort=False, observed=True):
            goodness = part["value"].to_numpy() * np.where(part["higher_is_better"], 1.0, -1.0)
            lists.append(part["sample"].to_numpy()[np.lexsort((part["sample"].to_numpy(), goodness))])
    for turn in range(max(map(len, lists), default=0)):
        yield from (int(samples[turn]) for samples in lists if turn < len(samples))


def spread(targets: Sequence[int], count: int = ON_SHEET) -> list[int]:
    """Choose up to ``count`` samples, balanced over the classes.

    Example:
        >>> spread([0, 0, 0, 1, 1], count=4)
        [0, 3, 1, 4]
    """
    turns: dict[int, int] = {}
    ranked = []
    for index, target in enumerate(targets):
        turns[target] = turns.get(target, 0) + 1
        ranked.append((turns[target], target, index))
    return [index for _, _, index in sorted(ranked)[:count]]


def _read_samples(
    split: Split, samples: Sequence[int], photographs: bool
) -> tuple[list[SampleView], NDArray[np.uint8], NDArray[np.uint8], list[Floats]]:
    """Return views, images ``[n, H, W, 3]``, masks ``[n, H, W]``, and gray volumes ``[d, h, w]`` of samples."""
    views, images, masks, volumes = [], [], [], []
    sizes = pixel_sizes(split, samples)
    for sample in samples:
        image, mask, _ = split[sample]
        view = SampleView(mask.numpy(), sizes)
        views.append(view)
        images.append(picture(view.flat(image.numpy()), photograph=photographs))
        masks.append(_downscale(view.flat(mask.numpy()[None].astype(np.float32)))[0] >= 0.5)
        if view.slices:
            volumes.append(_brightness(view.reduced(image.numpy()), photographs).mean(0))
    return views, np.stack(images), np.stack(masks).astype(np.uint8), volumes


def _describe_volumes(views: Sequence[SampleView], volumes: Sequence[Floats], maps: Floats) -> Voxels:
    return Voxels(
        views[0].mask.shape,
        tuple(view.slices for view in views),
        np.clip(np.rint(np.stack(volumes) * 255), 0, 255).astype(np.uint8),
        np.stack([view.reduced(view.mask[None].astype(np.float32))[0] >= 0.5 for view in views]).astype(np.uint8),
        np.rint(255 * maps).astype(np.uint8),
    )


def _name_samples(split: Split, samples: Sequence[int], classes: Sequence[str]) -> list[str]:
    """Return a caption for each sample."""
    names = [f"Sample {sample}" if split.in_memory else split.ids[sample] for sample in samples]
    return [f"{name}: {classes[int(split.targets[sample])]}" for name, sample in zip(names, samples, strict=True)]


def picture(image: Floats, *, photograph: bool) -> NDArray[np.uint8]:
    """Convert an image ``[C, H, W]`` to ``[h, w, 3]``: photographs in color, generated images in gray, zero at 0.5."""
    small = _brightness(_downscale(image), photograph)
    rgb = np.broadcast_to(small, (3, *small.shape[1:])).transpose(1, 2, 0)
    return np.clip(np.rint(rgb * 255), 0, 255).astype(np.uint8)


def _brightness(image: Floats, photograph: bool) -> Floats:
    """Return an image ``[C, ...]`` with values to display, in [0, 1], and one or three channels."""
    if photograph and len(image) in (1, 3):
        return image
    gray = image.mean(0, keepdims=True)
    return np.asarray(0.5 + 0.5 * gray / (np.abs(gray).max() or 1.0))


def _read_maps(
    explains: Sequence[ExplainJob],
    store: Store,
    samples: Sequence[int],
    counting: Sequence[int],
    views: Sequence[SampleView],
    shown: int,
) -> tuple[NDArray[np.float16], NDArray[np.float32], Floats | None]:
    """Return map magnitudes ``[n, M, h, w]`` of ``samples``, and their means ``[M, h, w]`` over ``counting``.

    Means of volumes are cut as the sample ``shown``. For volumes, also return the reduced maps ``[n, M, d, h, w]``,
    each scaled to maximum 1; otherwise None.
    """
    maps, means, volumes = [], [], []
    for explain in explains:  # one explainer at a time, to bound the memory
        found = read_maps(store, explain).abs().float().numpy()
        own = found[samples]
        maps.append(magnitudes(np.concatenate([view.flat(one[None]) for view, one in zip(views, own, strict=True)])))
        means += [_downscale(views[shown].flat(mean_share(found[counting])[None]))] if counting else []
        if views[0].slices:
            reduced = [view.reduced(one[None]) for view, one in zip(views, np.nan_to_num(own, posinf=0.0), strict=True)]
            volumes.append(_scaled(np.concatenate(reduced)))
    empty = np.zeros((0, *maps[0].shape[1:]))
    stacked = np.stack(volumes, axis=1) if volumes else None
    return np.stack(maps, axis=1), np.concatenate(means or [empty]).astype(np.float32), stacked


def magnitudes(maps: Floats) -> NDArray[np.float16]:
    """Return the magnitudes of maps ``[n, H, W]``, each scaled to maximum 1: ``[n, h, w]``; non-finite values are 0."""
    return _scaled(_downscale(np.nan_to_num(np.abs(maps), posinf=0.0))).astype(np.float16)


def _scaled(maps: Floats) -> Floats:
    """Scale magnitudes ``[n, ...]`` to maximum 1 each; zero maps stay zero."""
    largest = maps.max(axis=tuple(range(1, maps.ndim)), keepdims=True)
    shares: Floats = np.divide(maps, largest, out=np.zeros_like(maps), where=largest > 0)
    return shares


def mean_share(maps: Floats) -> Floats:
    """Return the mean ``[H, W]`` of magnitudes ``[n, H, W]``, each map scaled to sum 1; zero maps stay zero."""
    sums = maps.sum(axis=tuple(range(1, maps.ndim)), keepdims=True)
    shares = np.divide(maps, sums, out=np.zeros_like(maps), where=sums > 0)
    mean: Floats = np.nan_to_num(shares).mean(0)
    return mean


def _downscale(array: Floats) -> Floats:
    """Downscale ``[C, H, W]`` by area averaging, so that no side is longer than :data:`SIDE`."""
    return array if max(array.shape[1:]) <= SIDE else np.stack([fit(each, SIDE) for each in array])


class SampleView:
    """The slices of a sample in its picture, with their sizes in pixels.

    Args:
        mask: ``[H, W]`` or ``[D, H, W]`` bool.
        sizes: Sizes of a pixel along the spatial axes.

    Attributes:
        mask: ``[H, W]`` or ``[D, H, W]``.
        slices: Slice d, row h and column w; empty for an image.
        lengths: ``(d, h, w)`` pixels of the axes in the picture.
    """

    def __init__(self, mask: NDArray[np.bool_], sizes: NDArray[np.float64]) -> None:
        self.mask = mask
        self.slices: tuple[int, ...] = ()
        if mask.ndim == 3:
            self.slices = heaviest_slices(mask, middle=True) if mask.any() else tuple(side // 2 for side in mask.shape)
        pixels = np.array(mask.shape) * sizes / sizes.min()
        self.lengths = _at_most(pixels, SIDE / (pixels[0] + pixels[1:].max()))

    def flat(self, volumes: Floats) -> Floats:
        """Return pictures ``[K, h + d, w + d]`` of volumes ``[K, D, H, W]``; images are returned as they are."""
        if not self.slices:
            return volumes
        d, h, w = self.lengths
        panels = zip(cut_slices(np.moveaxis(volumes, 0, -1), self.slices), ((h, w), (h, d), (d, w)), strict=True)
        return place_slices([_resize(np.moveaxis(panel, -1, 0), size) for panel, size in panels])

    def reduced(self, volumes: Floats) -> Floats:
        """Return volumes ``[K, D, H, W]`` with at most :data:`MOST_VOXELS` voxels."""
        pixels = np.array(self.lengths, dtype=np.float64)
        return _resize(volumes, _at_most(pixels, (MOST_VOXELS / pixels.prod()) ** (1 / 3)))


def _at_most(pixels: NDArray[np.float64], scale: float) -> tuple[int, ...]:
    """Return whole numbers of pixels, reduced by ``scale`` if it is below 1."""
    return tuple(max(1, int(length)) for length in pixels * min(1.0, scale))


def _resize(arrays: Floats, size: tuple[int, ...]) -> Floats:
    """Resize ``[K, ...]`` to the given sides by area averaging."""
    import torch

    values = torch.from_numpy(np.ascontiguousarray(arrays, dtype=np.float32))[None]
    return np.asarray(torch.nn.functional.interpolate(values, size=size, mode="area")[0].numpy())


def pixel_sizes(split: Split, samples: Sequence[int]) -> NDArray[np.float64]:
    """Return the sizes of a pixel along the spatial axes: the median spacing of volumes, otherwise 1."""
    import torch

    axes = split[samples[0]][1].ndim
    spacing = split.metric_inputs(torch.tensor(list(samples))).get("spacing") if axes == 3 else None
    return np.ones(axes) if spacing is None else np.median(np.asarray(spacing, dtype=np.float64), axis=0)
