"""CelebAMask-HQ: faces with and without glasses, with masks of the glasses or the eyes."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from xaibench.data.disk.annotated_set import AnnotatedSet
from xaibench.data.disk.file_readers import DataFileError, opened_image, read_lines, wrap_file_errors
from xaibench.data.disk.image_files import image_size, open_image
from xaibench.data.disk.source import Source
from xaibench.registry.info import DatasetInfo

_LOGGER = logging.getLogger("xaibench")

_ATTRIBUTES, _IMAGES, _MASKS = "CelebAMask-HQ-attribute-anno.txt", "CelebA-HQ-img", "CelebAMask-HQ-mask-anno"
#: The parts of a face that are the mask of each class.
_PARTS = {"no_glasses": ("l_eye", "r_eye"), "glasses": ("eye_g",)}
#: Number of images whose masks are in one folder.
_PER_FOLDER = 2000


class Glasses(AnnotatedSet):
    """Glasses recognition on CelebAMask-HQ.

    The class is the attribute ``Eyeglasses``. The mask of a face with glasses are the glasses; that of a face without
    are both eyes, or the visible one. A face whose masks contradict its class (glasses without a mask, a mask of
    glasses on a face without, or no eye) counts as not annotated. The identities are not published, so a person may
    occur in two splits. The 885 images of the paper are a subset of these that it does not list.
    """

    info = DatasetInfo(
        "glasses",
        classes=("no_glasses", "glasses"),
        image_shape=(3, 224, 224),
        citation="Lee et al.: MaskGAN: Towards Diverse and Interactive Facial Image Manipulation, CVPR 2020",
        license=(
            "CelebAMask-HQ agreement: for non-commercial research purposes only; not to further copy, publish or "
            "distribute any portion of the dataset"
        ),
        address="[CelebAMask-HQ](http://mmlab.ie.cuhk.edu.hk/projects/CelebA/CelebAMask_HQ.html)",
        download_size="[3.15 GB](https://huggingface.co/datasets/liusq/CelebAMask-HQ/tree/main)",
        by_hand="read its agreement (non-commercial, no redistribution), then download it from Google Drive",
        how_to_get=(
            "1. Read the agreement, which forbids redistribution: "
            "http://mmlab.ie.cuhk.edu.hk/projects/CelebA/CelebAMask_HQ.html.\n"
            "2. Download CelebAMask-HQ.zip (3 GB) from there or from https://github.com/switchablenorms/CelebAMask-HQ "
            "(a mirror on the Hugging Face Hub: liusq/CelebAMask-HQ).\n"
            "3. Unpack it in DIR."
        ),
        published=(("images in Saliency-Bench", 885), ("faces with the attribute Eyeglasses", 1468)),
        benchmark_size=2614,
    )
    folders = ("CelebAMask-HQ", "")
    marker = _ATTRIBUTES
    contents: ClassVar = {
        "photographs": f"{_IMAGES}/*.jpg",
        "attributes of the faces": _ATTRIBUTES,
        "masks": f"{_MASKS}/*/*.png",
    }
    aliases: ClassVar[Mapping[str, str]] = {
        "eyeglasses": "glasses",
        "with_glasses": "glasses",
        "no_eyeglasses": "no_glasses",
        "without_glasses": "no_glasses",
    }

    def open(self, folder: Path, *, classes: tuple[str, ...], seed: int, balance: bool = True) -> Source:
        """Return the faces in the attribute file.

        Args:
            folder: Contains the attribute file, the images and the masks.
            classes: ``"no_glasses"`` and ``"glasses"``, in either order, or one of them.
            seed: Seed of the random choice of ``balance``.
            balance: Draw as many faces without glasses as there are annotated faces with glasses; there are twenty
                times as many. False = all faces.

        Raises:
            DataFileError: If the attribute file is malformed or has no image.
        """
        return _GlassesSource(folder, classes, seed if balance else None)


class _GlassesSource(Source):
    def __init__(self, folder: Path, classes: tuple[str, ...], seed: int | None) -> None:
        self.classes = classes
        self._folder = folder
        numbers, wearing = _read_attributes(folder / _ATTRIBUTES)
        drawn = {organ: np.isin(numbers, list(found)) for organ, found in _list_masks(folder / _MASKS).items()}
        annotated = np.where(wearing, drawn["eye_g"], (drawn["l_eye"] | drawn["r_eye"]) & ~drawn["eye_g"])
        with wrap_file_errors(folder / _IMAGES):
            stems = [name.removesuffix(".jpg") for name in os.listdir(folder / _IMAGES) if name.endswith(".jpg")]
        missing = ~np.isin(numbers, [int(stem) for stem in stems if stem.isdecimal()])
        selected = np.isin(wearing, [name == "glasses" for name in classes])
        if seed is not None:
            selected &= wearing | missing | _balance_classes(wearing, annotated & ~missing, seed)
        index = {name: classes.index(name) for name in classes}
        self._numbers = numbers[selected]
        self.annotated = annotated[selected]
        self.missing = missing[selected]
        self.targets = np.where(wearing[selected], index.get("glasses", -1), index.get("no_glasses", -1)).astype(
            np.int64
        )

    def image(self, index: int, size: int) -> Image.Image:
        return open_image(self._folder / self._file(index), size)

    def mask(self, index: int) -> NDArray[np.bool_] | None:
        """Read the mask ``[h, w]``, which has half the size of the image in the official download."""
        if not self.annotated[index]:
            return None
        number = int(self._numbers[index])
        stem = self._folder / _MASKS / str(number // _PER_FOLDER) / f"{number:05}"
        files = [Path(f"{stem}_{organ}.png") for organ in _PARTS[self.classes[self.targets[index]]]]
        # One of the eyes may be hidden. If neither file exists any more, the first one is reported as missing.
        files = [file for file in files if file.exists()] or files[:1]
        face = self._folder / self._file(index)
        masks = [_read_part(file, face) for file in files]
        if masks[-1].shape != masks[0].shape:
            sizes = [f"{mask.shape[0]}×{mask.shape[1]}" for mask in masks]
            raise DataFileError(
                f"{files[-1]} is {sizes[-1]}, but {files[0].name} is {sizes[0]} (height×width); they are of different "
                "versions."
            )
        drawn: NDArray[np.bool_] = np.logical_or.reduce(masks)
        return drawn

    def meta(self, index: int) -> dict[str, object]:
        number = str(self._numbers[index])
        return {"id": number, "file": self._file(index), "annotated": bool(self.annotated[index])}

    def _file(self, index: int) -> str:
        return f"{_IMAGES}/{self._numbers[index]}.jpg"


def _balance_classes(wearing: NDArray[np.bool_], annotated: NDArray[np.bool_], seed: int) -> NDArray[np.bool_]:
    """Draw as many annotated faces without glasses as there are with glasses."""
    without = np.flatnonzero(~wearing & annotated)
    count = min(len(without), int((wearing & annotated).sum()))
    chosen = np.random.default_rng([seed, 0x61A55E5]).choice(without, count, replace=False)
    return np.isin(np.arange(len(wearing)), chosen)


def _read_attributes(file: Path) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return the numbers of the images, and whether each has the attribute ``Eyeglasses``."""
    lines = read_lines(file)
    names = lines[1].split() if len(lines) > 1 else []
    if "Eyeglasses" not in names:
        raise DataFileError(f"{file} has no attribute 'Eyeglasses' in its second line; get the file again.")
    if not lines[0].isdecimal() or int(lines[0]) > len(lines) - 2:
        raise DataFileError(
            f"{file} is truncated: its first line is {lines[0][:20]!r}, expected the number of images, which is "
            f"{len(lines) - 2}; get the file again."
        )
    column = 1 + names.index("Eyeglasses")
    rows: dict[int, bool] = {}
    for line in lines[2:]:
        fields = line.split()
        number = fields[0].removesuffix(".jpg")
        if len(fields) == 1 + len(names) and number.isdecimal() and fields[column] in ("1", "-1"):
            rows[int(number)] = fields[column] == "1"
        else:
            shown = line if len(line) < 40 else f"{line[:40]}..."
            _LOGGER.warning("%s: the line %r is not an image and %d times ±1; left out.", file, shown, len(names))
    if not rows:
        raise DataFileError(f"{file} has no image; get the file again.")
    return np.array(list(rows), dtype=np.int64), np.array(list(rows.values()), dtype=np.bool_)


def _read_part(file: Path, face: Path) -> NDArray[np.bool_]:
    with opened_image(file) as image:
        mask = np.asarray(image.convert("L")) > 0
    height, width = image_size(face)
    if mask.shape[0] * width != mask.shape[1] * height:
        raise DataFileError(
            f"{file} is {mask.shape[0]}×{mask.shape[1]}, which does not fit its image {face.name} of {height}×{width} "
            "(height×width); they are of different versions."
        )
    return mask


def _list_masks(folder: Path) -> dict[str, set[int]]:
    """Return part to the numbers of the images with a mask of it. Takes 0.4 s for all 30,000 images."""
    numbers_of: dict[str, set[int]] = {organ: set() for organs in _PARTS.values() for organ in organs}
    with wrap_file_errors(folder):
        subfolders = [entry.path for entry in os.scandir(folder) if entry.name.isdecimal()]
    for name in (name for subfolder in subfolders for name in os.listdir(subfolder)):
        number, _, organ = name.removesuffix(".png").partition("_")
        if organ in numbers_of and number.isdecimal():
            numbers_of[organ].add(int(number))
    return numbers_of


glasses = Glasses()
