"""The segmented images of PASCAL VOC 2012, with one sample per wanted class in an image."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from xaibench.data.disk.annotated_set import AnnotatedSet, ProgressCallback
from xaibench.data.disk.cache_folders import cache_folder, digest_files, read_cached, write_cached
from xaibench.data.disk.downloads import Archive
from xaibench.data.disk.file_readers import DataFileError, MissingDataError, read_lines, wrap_file_errors
from xaibench.data.disk.image_files import open_image, read_indices
from xaibench.data.disk.image_lists import warn_about
from xaibench.data.disk.source import Source
from xaibench.registry.info import DatasetInfo

#: In the order of the palette: class ``i`` has label ``i + 1``; 0 is background, 255 void.
CLASSES = (
    "aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow", "diningtable", "dog",
    "horse", "motorbike", "person", "pottedplant", "sheep", "sofa", "train", "tvmonitor",
)  # fmt: skip
#: Part of the cache key; increased when label maps are cached differently.
_REVISION = 2
_VOID = 255
_ADDRESS = "http://host.robots.ox.ac.uk/pascal/VOC/voc2012/"


class Pascal(AnnotatedSet):
    """PASCAL VOC 2012 class segmentation.

    The mask of a sample are the pixels of its class in the label map. Void pixels (255, the borders of objects) are not
    evaluated in the challenge; here they count as outside. An image with two wanted classes gives two samples, which
    stay in one split. ``splits="official"`` uses VOC's ``train`` and ``val``, because the masks of its test set are not
    public. The paper counts the 11,540 images of the classification task, but only the segmented ones have masks.
    """

    info = DatasetInfo(
        "pascal",
        classes=CLASSES,
        image_shape=(3, 224, 224),
        citation="Everingham et al.: The PASCAL Visual Object Classes (VOC) Challenge, IJCV 88, 2010",
        license='The images are from "flickr"; their use must respect the flickr terms of use. For research.',
        address=f"[host.robots.ox.ac.uk]({_ADDRESS})",
        download_size=(
            "[2.0 GB](https://huggingface.co/datasets/JimmyUnleashed/Pascal_VOC/commit/dd873d3cf7b375ce99012a6c4d64729ab0d76602)"
        ),
        by_hand="nothing: `download=True`",
        how_to_get=(
            f"1. Download VOCtrainval_11-May-2012.tar (2 GB; 'Development Kit') from {_ADDRESS}.\n2. Unpack it in DIR."
        ),
        published=(("segmented images", 2913), ("images in the Saliency-Bench release", 11540)),
        benchmark_size=4318,
    )
    folders = ("VOCdevkit/VOC2012", "VOC2012", "")
    marker = "SegmentationClass"
    contents: ClassVar = {
        "photographs": "JPEGImages/*.jpg",
        "masks": "SegmentationClass/*.png",
        "lists of the images": "ImageSets/Segmentation/*.txt",
    }
    archives = (
        Archive(
            "https://thor.robots.ox.ac.uk/pascal/VOC/voc2012/VOCtrainval_11-May-2012.tar",
            "6cd6e144f989b92b3379bac3b3de84fd",
            1_999_639_040,
        ),
    )
    aliases: ClassVar[Mapping[str, str]] = {
        "airplane": "aeroplane",
        "plane": "aeroplane",
        "bike": "bicycle",
        "motorcycle": "motorbike",
        "tv": "tvmonitor",
        "table": "diningtable",
        "plant": "pottedplant",
    }

    def open(self, folder: Path, *, classes: tuple[str, ...], seed: int) -> Source:
        """Return the segmented images of VOC's lists ``train`` and ``val``."""
        return _PascalSource(_Files(folder), classes)

    def prepare(self, folder: Path, *, workers: int = 1, progress: ProgressCallback | None = None) -> None:
        """Read and cache all label maps (:mod:`xaibench.data.photographs.pascal_voc`)."""
        _Files(folder).read_maps(workers=workers, progress=progress)

    def is_ready(self, folder: Path) -> bool | None:
        """Return whether an image of the classes is on disk; None (unknown) until the label maps are cached."""
        return super().is_ready(folder) if _Files(folder).cached.exists() else None


class _Files:
    """The files of the segmented images."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.lists = {
            split: read_lines(folder / "ImageSets" / "Segmentation" / f"{split}.txt") for split in ("train", "val")
        }
        self.names = sorted({name for split in self.lists.values() for name in split})
        with wrap_file_errors(folder / "JPEGImages"):
            on_disk = set(os.listdir(folder / "JPEGImages"))
        self.missing = np.array([f"{name}.jpg" not in on_disk for name in self.names], dtype=np.bool_)

        self.masks = [folder / "SegmentationClass" / f"{name}.png" for name in self.names]
        self.images = [
            None if missing else folder / "JPEGImages" / f"{name}.jpg"
            for name, missing in zip(self.names, self.missing.tolist(), strict=True)
        ]
        # The size of a map is compared with its image when it is read, so both files are part of the key.
        key = digest_files(file for file in (*self.masks, *filter(None, self.images)) if file.exists())
        self.cached = cache_folder("pascal", folder) / f"labels-{key}-{_REVISION}.npz"

    def read_maps(self, *, workers: int = 1, progress: ProgressCallback | None = None) -> LabelMaps:
        known = [0, *range(1, len(CLASSES) + 1), _VOID]
        return read_label_maps(self.masks, self.images, known, cached=self.cached, workers=workers, progress=progress)


class _PascalSource(Source):
    def __init__(self, files: _Files, classes: tuple[str, ...]) -> None:
        self.classes = classes
        self._folder = files.folder
        self._maps = files.read_maps()
        self._names = np.array(files.names, dtype=np.str_)
        self._labels = np.array([CLASSES.index(name) + 1 for name in classes])
        shown = np.nonzero(self._maps.shown[:, self._labels])
        self._images, self.targets = (column.astype(np.int64) for column in shown)
        self.groups = self._images  # all samples of an image stay in one split
        self.groups_by = "photographs"
        self.missing = files.missing[self._images]
        self.annotated = np.ones(len(self.targets), dtype=np.bool_)
        self.official = {
            split: np.flatnonzero(np.isin(self._names[self._images], names)) for split, names in files.lists.items()
        }

    def image(self, index: int, size: int) -> Image.Image:
        return open_image(self._folder / self._file(index), size)

    def mask(self, index: int) -> NDArray[np.bool_]:
        return self._maps.where(int(self._images[index]), int(self._labels[self.targets[index]]))

    def meta(self, index: int) -> dict[str, object]:
        name = self._names[self._images[index]]
        return {"id": f"{name}/{self.classes[self.targets[index]]}", "file": self._file(index), "annotated": True}

    def _file(self, index: int) -> str:
        return f"JPEGImages/{self._names[self._images[index]]}.jpg"


pascal = Pascal()


_LOGGER = logging.getLogger("xaibench")
#: Runs of a map that cannot be used.
_NO_RUNS = (np.empty(0, dtype=np.uint32), np.empty(0, dtype=np.uint8))


@dataclass(frozen=True, eq=False)
class LabelMaps:
    """``N`` label maps, each as runs ``(length, label)`` in row-major order.

    Attributes:
        shapes: ``[N, 2]`` int64 height and width.
        starts: ``[N + 1]`` int64: map ``i`` has the runs from ``starts[i]`` to ``starts[i + 1]`` (exclusive).
        lengths: ``[runs]`` uint32.
        labels: ``[runs]`` uint8.
        shown: ``[N, 256]`` bool: whether map ``i`` has a pixel of a label.
        broken: ``[B]`` error messages of the maps that could not be read; such a map has size 0×0.

    Example:
        >>> maps = LabelMaps.of([np.array([[0, 0, 7], [7, 7, 0]], dtype=np.uint8)])
        >>> maps.lengths.tolist(), maps.labels.tolist()
        ([2, 3, 1], [0, 7, 0])
        >>> maps.where(0, 7).astype(int).tolist()
        [[0, 0, 1], [1, 1, 0]]
    """

    shapes: NDArray[np.int64]
    starts: NDArray[np.int64]
    lengths: NDArray[np.uint32]
    labels: NDArray[np.uint8]
    shown: NDArray[np.bool_]
    broken: NDArray[np.str_] = field(default_factory=lambda: np.empty(0, dtype=np.str_))

    @classmethod
    def of(cls, maps: Sequence[NDArray[np.uint8]]) -> LabelMaps:
        """Encode maps ``[h, w]``, none of them empty."""
        return cls._concatenate([_encode_runs(labels) for labels in maps], [labels.shape for labels in maps])

    @classmethod
    def _concatenate(
        cls,
        runs: Sequence[tuple[NDArray[np.uint32], NDArray[np.uint8]]],
        shapes: Sequence[tuple[int, ...]],
        broken: Sequence[str] = (),
    ) -> LabelMaps:
        counts = np.array([len(lengths) for lengths, _ in runs], dtype=np.int64)
        shown = np.zeros((len(runs), 256), dtype=np.bool_)
        for row, (_, labels) in zip(shown, runs, strict=True):
            row[labels] = True
        return cls(
            shapes=np.array(shapes, dtype=np.int64).reshape(-1, 2),
            starts=np.append(0, counts.cumsum()).astype(np.int64),
            lengths=np.concatenate([lengths for lengths, _ in runs] or [np.empty(0, np.uint32)]),
            labels=np.concatenate([labels for _, labels in runs] or [np.empty(0, np.uint8)]),
            shown=shown,
            broken=np.array(broken, dtype=np.str_),
        )

    def __len__(self) -> int:
        return len(self.shapes)

    def where(self, number: int, label: int) -> NDArray[np.bool_]:
        """Return the mask ``[h, w]`` of the pixels of map ``number`` with ``label``."""
        runs = slice(self.starts[number], self.starts[number + 1])
        return np.repeat(self.labels[runs] == label, self.lengths[runs]).reshape(self.shapes[number])


def read_label_maps(
    masks: Sequence[Path],
    images: Sequence[Path | None],
    known: Collection[int],
    *,
    cached: Path,
    workers: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> LabelMaps:
    """Read the label maps of palette or gray PNG files, or their cached copy.

    A damaged cache is built again. It is a warning, not an error, if the cache is not writable, or if a map is missing,
    cannot be read, has colors instead of labels, has an unknown label, or differs in size from its image.

    Args:
        masks: The label map files.
        images: The image of each map, which must have the same size; None = the image is missing.
        known: The allowed labels.
        cached: The cache file; its name must change when the masks do.
        workers: Number of threads.
        progress: Called with the number of maps read so far and their total.

    Raises:
        DataFileError: If no map can be used; the message has the first error.
    """
    maps = read_cached(cached, lambda arrays: _maps_from_cache(arrays, len(masks)))
    if maps is None:
        maps = _read_all(masks, images, known, cached, workers, progress)
        if len(maps.broken) == len(masks) > 0:
            raise DataFileError(f"None of {len(masks)} label maps can be used; the first error: {maps.broken[0]}")
        write_cached(cached, "The label maps", vars(maps))
    elif progress is not None:
        progress(len(masks), len(masks))
    warn_about("label maps that cannot be used, left out", maps.broken.tolist())
    return maps


def _read_all(
    masks: Sequence[Path],
    images: Sequence[Path | None],
    known: Collection[int],
    cached: Path,
    workers: int,
    progress: Callable[[int, int], None] | None,
) -> LabelMaps:
    _LOGGER.info("Reading %d label maps; they are cached in %s.", len(masks), cached.parent)
    allowed = np.isin(np.arange(256), list(known))
    runs, shapes, broken = [], [], []
    with ThreadPoolExecutor(workers) as pool:
        for one, shape, reason in pool.map(lambda mask, image: _read_map(mask, image, allowed), masks, images):
            runs.append(one)
            shapes.append(shape)
            broken += [reason] if reason else []
            if progress is not None:
                progress(len(runs), len(masks))
    return LabelMaps._concatenate(runs, shapes, broken)


def _read_map(
    mask: Path, image: Path | None, allowed: NDArray[np.bool_]
) -> tuple[tuple[NDArray[np.uint32], NDArray[np.uint8]], tuple[int, ...], str]:
    """Return the runs of a map, its shape, and an error message if it cannot be used."""
    try:
        labels = read_indices(mask, like=image)
    except (DataFileError, MissingDataError) as error:
        return _NO_RUNS, (0, 0), str(error)
    lengths, labels_of = _encode_runs(labels)
    if allowed[labels_of].all():
        return (lengths, labels_of), labels.shape, ""
    strange = sorted(set(labels_of[~allowed[labels_of]].tolist()))
    return _NO_RUNS, (0, 0), f"{mask} has the label(s) {strange}, which the data set does not have; get the file again."


def _encode_runs(labels: NDArray[np.uint8]) -> tuple[NDArray[np.uint32], NDArray[np.uint8]]:
    flat = labels.ravel()
    ends = np.append(np.flatnonzero(flat[1:] != flat[:-1]) + 1, flat.size)
    return np.diff(ends, prepend=0).astype(np.uint32), flat[ends - 1]


def _maps_from_cache(arrays: Mapping[str, NDArray[Any]], count: int) -> LabelMaps:
    maps = LabelMaps(**{one.name: arrays[one.name] for one in fields(LabelMaps)})
    if len(maps) != count:
        raise ValueError(f"it has {len(maps)} maps")
    return maps
