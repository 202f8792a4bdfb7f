"""Example samples with every explainer's maps: ``samples.safetensors`` of the run folder.

It is the source of the map figures, the photograph sheets and the page's sample browser.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xaibench.runfolder.sanitize import sanitize_json
from xaibench.runfolder.schema import damaged_file

SAMPLES_FILE = "samples.safetensors"

#: Longest side of images and maps in pixels, which is the size of a tile in a figure; and the largest number of voxels
#: of a volume, as many as pixels of an image.
SIDE = 150
MOST_VOXELS = SIDE**2


@dataclass(frozen=True, eq=False)
class Voxels:
    """The volumes of a cell's samples, reduced to at most :data:`MOST_VOXELS` voxels, for a slider over their slices.

    Attributes:
        shape: ``(D, H, W)`` before the reduction.
        slices: Slice d, row h and column w of each sample's pictures, before the reduction.
        images: ``[n, d, h, w]`` uint8, gray.
        masks: ``[n, d, h, w]`` uint8, 1 = important.
        maps: Map magnitudes ``[n, M, d, h, w]`` uint8, each map scaled to maximum 255.
    """

    shape: tuple[int, ...]
    slices: tuple[tuple[int, ...], ...]
    images: NDArray[np.uint8]
    masks: NDArray[np.uint8]
    maps: NDArray[np.uint8]

    @property
    def sides(self) -> tuple[int, ...]:
        """``(d, h, w)``."""
        return self.images.shape[1:]

    def __getitem__(self, kept: list[int]) -> Voxels:
        return Voxels(
            self.shape,
            tuple(self.slices[number] for number in kept),
            *(getattr(self, name)[kept] for name in _VOXEL_ARRAYS),
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class SampleCell:
    """Example samples of one network. The picture of a volume is three orthogonal slices (:func:`place_slices`).

    Attributes:
        subset: As in the scores; so are ``variant``, ``model``, ``dataset``, ``data_seed`` and ``seed``.
        samples: Indices of the ``n`` samples in the test split.
        labels: Caption of each image.
        browsed: Number of samples for the browser: the first ones, in order of importance.
        sheet: Positions (from 0) of the samples on the sheet of maps over photographs.
        example: Position of the sample in the map figure, or None.
        explainers: ``M`` names, in the order of the maps.
        photographs: Whether maps are displayed over the images.
        images: ``[n, H, W, 3]`` uint8; in generated images, zero is mapped to the middle.
        masks: ``[n, H, W]`` uint8, 1 = important.
        maps: Map magnitudes ``[n, M, H, W]`` float16, each map scaled to maximum 1.
        classes: Class of each sample; empty in folders of older versions, like the next two.
        predicted: Predicted class of each sample.
        probabilities: Softmax probability of the predicted class.
        voxels: The volumes, if the samples are volumes.
        means: Mean map magnitudes over the correctly classified samples, each map scaled to sum 1, ``[M, H, W]``
            float32; for data sets other than generated ones ``[0, H, W]``.
    """

    subset: str
    variant: str
    model: str
    dataset: str
    data_seed: int
    seed: int
    samples: tuple[int, ...]
    labels: tuple[str, ...]
    browsed: int = 0
    sheet: tuple[int, ...] = ()
    example: int | None = None
    explainers: tuple[str, ...] = ()
    photographs: bool = False
    images: NDArray[np.uint8]
    masks: NDArray[np.uint8]
    maps: NDArray[np.float16]
    means: NDArray[np.float32]
    classes: tuple[str, ...] = ()
    predicted: tuple[str, ...] = ()
    probabilities: tuple[float, ...] = ()
    voxels: Voxels | None = None

    @property
    def cell(self) -> tuple[str, str, str]:
        """Subset, variant and model."""
        return self.subset, self.variant, self.model

    def lowest(self, count: int) -> SampleCell:
        """Return the cell with at most ``count`` samples, those with the lowest indices; ``means`` is not changed.

        Every run keeps samples with low indices, so that runs can be compared on them.
        """
        kept = sorted(np.argsort(self.samples, kind="stable")[:count].tolist())
        changed: dict[str, Any] = {name: getattr(self, name)[kept] for name in ("images", "masks", "maps")}
        for name in ("samples", "labels", *_OPTIONAL):
            values = getattr(self, name)
            changed[name] = tuple(values[number] for number in kept) if values else values
        changed["voxels"] = None if self.voxels is None else self.voxels[kept]
        return replace(
            self,
            **changed,
            browsed=sum(number < self.browsed for number in kept),
            sheet=tuple(kept.index(number) for number in self.sheet if number in kept),
            example=kept.index(self.example) if self.example in kept else None,
        )


_DTYPES = {"images": np.uint8, "masks": np.uint8, "maps": np.float16, "means": np.float32}
_VOXEL_ARRAYS = ("images", "masks", "maps")
_JSON_FIELDS = tuple(each.name for each in fields(SampleCell) if each.name not in (*_DTYPES, "voxels"))
_OPTIONAL = ("classes", "predicted", "probabilities")


def to_safetensors(cells: Sequence[SampleCell]) -> bytes:
    """Return the content of the file: arrays such as ``CELL/images``, and the other fields as JSON in the metadata.

    Gray images are stored with one channel.
    """
    from safetensors.numpy import save

    arrays = {
        f"{number}/{name}": np.ascontiguousarray(getattr(cell, name), dtype=dtype)
        for number, cell in enumerate(cells)
        for name, dtype in _DTYPES.items()
    }
    for name, array in arrays.items():
        if name.endswith("/images") and (array == array[..., :1]).all():
            arrays[name] = np.ascontiguousarray(array[..., :1])
    words = [{name: getattr(cell, name) for name in _JSON_FIELDS} for cell in cells]
    for number, cell in enumerate(cells):
        if cell.voxels is not None:
            words[number]["voxels"] = {"shape": cell.voxels.shape, "slices": cell.voxels.slices}
            for name in _VOXEL_ARRAYS:
                arrays[f"{number}/voxels/{name}"] = np.ascontiguousarray(getattr(cell.voxels, name), dtype=np.uint8)
    return save(arrays, metadata={"cells": json.dumps(words, ensure_ascii=False)})


def read_samples(folder: Path) -> list[SampleCell]:
    """Read the example samples of a run folder; empty if it has none.

    Raises:
        RunFolderError: If the file is damaged, or lacks its metadata.
    """
    from safetensors.numpy import load

    file = folder / SAMPLES_FILE
    if not file.exists():
        return []
    try:
        # Read the whole file, also from remote storage, because it has only a few megabytes.
        content = file.read_bytes()
        arrays, described = load(content), sanitize_json(json.loads(_metadata(content)["cells"]))
        return [_read_cell(arrays, number, values) for number, values in enumerate(described)]
    except Exception as error:  # the exceptions of safetensors have no common base class but Exception
        raise damaged_file(file, error) from error


def _metadata(content: bytes) -> dict[str, str]:
    """Return the metadata of a safetensors file, from its header; the first eight bytes are the header's length."""
    length = int.from_bytes(content[:8], "little")
    metadata: dict[str, str] = json.loads(content[8 : 8 + length]).get("__metadata__") or {}
    return metadata


def _read_cell(arrays: Mapping[str, Any], number: int, values: dict[str, Any]) -> SampleCell:
    attributes: dict[str, Any] = {name: arrays[f"{number}/{name}"] for name in _DTYPES}
    if attributes["images"].shape[-1:] == (1,):
        attributes["images"] = np.repeat(attributes["images"], 3, axis=-1)
    known = {name: values[name] for name in _JSON_FIELDS if name in values or name not in _OPTIONAL}
    attributes |= {name: tuple(value) if isinstance(value, list) else value for name, value in known.items()}
    if "voxels" in values:
        stored = (arrays[f"{number}/voxels/{name}"] for name in _VOXEL_ARRAYS)
        slices = tuple(map(tuple, values["voxels"]["slices"]))
        attributes["voxels"] = Voxels(tuple(values["voxels"]["shape"]), slices, *stored)
    cell = SampleCell(**attributes)
    count, methods, shape = len(cell.samples), len(cell.explainers), cell.images.shape[1:3]
    expected = {"masks": (count, *shape), "maps": (count, methods, *shape)}
    _check_shapes(
        cell, expected | {"images": (count, *shape, 3), "means": (len(cell.means) and methods, *shape)}, number
    )
    if (voxels := cell.voxels) is not None:
        sides = voxels.images.shape[1:]
        expected = {"images": (count, *sides), "masks": (count, *sides), "maps": (count, methods, *sides)}
        _check_shapes(voxels, expected, number)
        if not len(voxels.shape) == len(sides) == 3 or [len(one) for one in voxels.slices] != [3] * count:
            raise ValueError(f"voxels of cell {number} have slices {voxels.slices}, expected three for each of {count}")
    for name in _OPTIONAL:
        if (entries := len(getattr(cell, name))) not in (0, count):
            raise ValueError(f"{name} of cell {number} has {entries} entries, expected 0 or {count}")
    return cell


def _check_shapes(arrays: SampleCell | Voxels, expected: Mapping[str, tuple[int, ...]], number: int) -> None:
    for name, shape in expected.items():
        if (got := getattr(arrays, name).shape) != shape:
            raise ValueError(f"{name} of cell {number} has shape {list(got)}, expected {list(shape)}")


def place_slices(panels: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Return the picture of a volume: slice d ``[h, w]``, to its right column w ``[h, d]``, and below row h ``[d, w]``.

    Args:
        panels: The three slices, as :func:`xaibench.core.pictures.cut_slices` returns them, with equal leading axes.

    Returns:
        ``[..., h + d, w + d]``, 0 in the corner below the second panel.
    """
    first, second, third = panels
    below = np.concatenate([third, np.zeros((*third.shape[:-1], second.shape[-1]), third.dtype)], axis=-1)
    return np.concatenate([np.concatenate([first, second], axis=-1), below], axis=-2)
