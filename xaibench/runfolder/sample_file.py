"""Samples to look at, with every explainer's map of them: ``samples.safetensors`` of the run folder.

The figures of maps, the sheets of photographs and the page's browser of samples are all drawn from it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xaibench.runfolder.legible_text import all_legible
from xaibench.runfolder.tables import damaged

PICTURES = "samples.safetensors"

#: Longest side in pixels of an image and of a map: that of a tile in a figure.
SIDE = 150


@dataclass(frozen=True, eq=False)
class SampleCell:
    """Samples of one network to look at.

    Attributes:
        scenario: As in the scores; so are ``background``, ``model``, ``dataset``, ``data_seed`` and ``seed``.
        samples: ``n`` numbers of the test split.
        labels: What each image shows.
        browsed: So many of the first are for the browser, those to keep first in front.
        sheet: Which of the samples (from 0) stand on the sheet of maps over photographs.
        example: Which of them is the example of the figure of maps; None without one.
        explainers: ``M`` names, in the order of the maps.
        photographs: Whether maps are to lie over the images.
        images: ``[n, H, W, 3]`` uint8; of generated ones, zero is in the middle.
        masks: ``[n, H, W]`` uint8, 1 = important.
        maps: ``[n, M, H, W]`` float16, magnitudes, each map divided by its largest.
        classes: The class of each sample; empty where a folder does not say. So are the next two.
        predicted: The class that the network puts each sample in.
        probabilities: That class's softmax probability.
        means: ``[M, H, W]`` float32, of generated sets: the mean over the correctly classified samples of the
            magnitudes, each map scaled to sum one. ``[0, H, W]`` without.
    """

    scenario: str
    background: str
    model: str
    dataset: str
    data_seed: int
    seed: int
    samples: tuple[int, ...]
    labels: tuple[str, ...]
    browsed: int
    sheet: tuple[int, ...]
    example: int | None
    explainers: tuple[str, ...]
    photographs: bool
    images: NDArray[np.uint8]
    masks: NDArray[np.uint8]
    maps: NDArray[np.float16]
    means: NDArray[np.float32]
    classes: tuple[str, ...] = ()
    predicted: tuple[str, ...] = ()
    probabilities: tuple[float, ...] = ()

    @property
    def cell(self) -> tuple[str, str, str]:
        """Scenario, background and model."""
        return self.scenario, self.background, self.model

    def lowest(self, count: int) -> SampleCell:
        """The same cell with so many of its samples at most: the lowest numbers, of which every run keeps some.

        What is of all samples, the means, stays.
        """
        kept = sorted(np.argsort(self.samples, kind="stable")[:count].tolist())
        changed: dict[str, Any] = {name: getattr(self, name)[kept] for name in ("images", "masks", "maps")}
        for name in ("samples", "labels", *_OPTIONAL):
            each = getattr(self, name)
            changed[name] = tuple(each[number] for number in kept) if each else each
        return replace(
            self,
            **changed,
            browsed=sum(number < self.browsed for number in kept),
            sheet=tuple(kept.index(number) for number in self.sheet if number in kept),
            example=kept.index(self.example) if self.example in kept else None,
        )


_DTYPES = {"images": np.uint8, "masks": np.uint8, "maps": np.float16, "means": np.float32}
_WORDS = tuple(each.name for each in fields(SampleCell) if each.name not in _DTYPES)
_OPTIONAL = ("classes", "predicted", "probabilities")


def to_safetensors(cells: Sequence[SampleCell]) -> bytes:
    """The content of the file: arrays ``CELL/images`` and so on; what each cell is stands as JSON in the metadata.

    Images without colours have one channel in the file.
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
    words = [{name: getattr(cell, name) for name in _WORDS} for cell in cells]
    return save(arrays, metadata={"cells": json.dumps(words, ensure_ascii=False)})


def read_samples(folder: Path) -> list[SampleCell]:
    """The samples of a run folder to look at; none where there is no such file.

    Raises:
        RunFolderError: If the file is damaged, or does not say what it holds.
    """
    from safetensors.numpy import load

    file = folder / PICTURES
    if not file.exists():
        return []
    try:
        # Whole: it is a few megabytes, wherever it lies.
        content = file.read_bytes()
        arrays, described = load(content), all_legible(json.loads(_metadata(content)["cells"]))
        return [_cell(arrays, number, words) for number, words in enumerate(described)]
    except Exception as error:  # safetensors raises a bare Exception subclass of its own
        raise damaged(file, error) from error


def _metadata(content: bytes) -> dict[str, str]:
    """The words of a safetensors file: in the header, whose length stands in the first eight bytes."""
    length = int.from_bytes(content[:8], "little")
    found: dict[str, str] = json.loads(content[8 : 8 + length]).get("__metadata__") or {}
    return found


def _cell(arrays: Mapping[str, Any], number: int, words: dict[str, Any]) -> SampleCell:
    found: dict[str, Any] = {name: arrays[f"{number}/{name}"] for name in _DTYPES}
    if found["images"].shape[-1:] == (1,):
        found["images"] = np.repeat(found["images"], 3, axis=-1)
    known = {name: words[name] for name in _WORDS if name in words or name not in _OPTIONAL}
    found |= {name: tuple(value) if isinstance(value, list) else value for name, value in known.items()}
    cell = SampleCell(**found)
    count, shape = len(cell.samples), cell.images.shape[1:3]
    expected = {
        "images": (count, *shape, 3),
        "masks": (count, *shape),
        "maps": (count, len(cell.explainers), *shape),
        "means": (len(cell.means) and len(cell.explainers), *shape),
    }
    for name, array in expected.items():
        if (got := getattr(cell, name).shape) != array:
            raise ValueError(f"{name} of cell {number} have the shape {list(got)}, expected {list(array)}")
    for name in _OPTIONAL:
        if (entries := len(getattr(cell, name))) not in (0, count):
            raise ValueError(f"{name} of cell {number} have {entries} entries, expected none or {count}")
    return cell
