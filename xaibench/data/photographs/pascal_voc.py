"""The segmented images of PASCAL VOC 2012, with one sample per wanted class in an image."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from xaibench.component.info import DatasetInfo
from xaibench.data.disk.annotated_set import AnnotatedSet, ProgressCallback
from xaibench.data.disk.cache_folders import cache_folder, digest_files
from xaibench.data.disk.file_readers import read_lines, wrap_file_errors
from xaibench.data.disk.image_files import open_image
from xaibench.data.disk.source import Source
from xaibench.data.masks.label_maps import LabelMaps, read_label_maps

#: In the order of the palette: class ``i`` has label ``i + 1``; 0 is background, 255 void.
CLASSES = (
    "aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow", "diningtable", "dog",
    "horse", "motorbike", "person", "pottedplant", "sheep", "sofa", "train", "tvmonitor",
)  # fmt: skip
#: Part of the cache key; increased when label maps are cached differently.
_REVISION = 2
_VOID = 255


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
        address="[host.robots.ox.ac.uk](http://host.robots.ox.ac.uk/pascal/VOC/voc2012/)",
        download_size=(
            "[2.0 GB](https://huggingface.co/datasets/JimmyUnleashed/Pascal_VOC/commit/dd873d3cf7b375ce99012a6c4d64729ab0d76602)"
        ),
        by_hand="nothing: `xaibench prepare pascal --root DIR --download`",
        how_to_get=(
            "Run: xaibench prepare pascal --root DIR --download\n"
            "or download VOCtrainval_11-May-2012.tar (2 GB; http://host.robots.ox.ac.uk/pascal/VOC/voc2012/, "
            "'Development Kit') and unpack it in DIR, so that there is DIR/VOCdevkit/VOC2012."
        ),
        published=(("segmented images", 2913), ("images in the Saliency-Bench release", 11540)),
        benchmark_size=4318,
    )
    folders = ("VOCdevkit/VOC2012", "VOC2012", "")
    marker = "SegmentationClass"
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

    def download(self, root: Path) -> None:
        """Download, verify and unpack the archive listed in torchvision."""
        from torchvision.datasets.voc import DATASET_YEAR_DICT

        from xaibench.data.disk.downloads import fetch_archive

        release = DATASET_YEAR_DICT["2012"]
        fetch_archive(release["url"], root, md5=release["md5"])

    def prepare(self, folder: Path, *, workers: int = 1, progress: ProgressCallback | None = None) -> None:
        """Read and cache all label maps (:mod:`xaibench.data.masks.label_maps`)."""
        _Files(folder).read_maps(workers=workers, progress=progress)

    def is_ready(self, folder: Path) -> bool | None:
        """Return whether an image on disk shows a class; None if the label maps are not cached."""
        return super().is_ready(folder) if _Files(folder).cached.exists() else None


class _Files:
    """The files of the segmented images."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.lists = {
            part: read_lines(folder / "ImageSets" / "Segmentation" / f"{part}.txt") for part in ("train", "val")
        }
        self.names = sorted({name for part in self.lists.values() for name in part})
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
            part: np.flatnonzero(np.isin(self._names[self._images], names)) for part, names in files.lists.items()
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
