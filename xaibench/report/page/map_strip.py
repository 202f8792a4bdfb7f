"""One sample with the maps of a few methods, at the top of the page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image

from xaibench.core.slices import name_slices
from xaibench.report.figures.samples import data_uri, overlay, palette
from xaibench.report.page.map_tables import PHOTOGRAPH, Tile, inside_share
from xaibench.report.page.sample_browser import levels
from xaibench.report.read.results import RunResults
from xaibench.runfolder.sample_file import SampleCell

#: Number of best methods in the strip.
_BEST = 3


@dataclass(frozen=True)
class MapStrip:
    """One sample with the maps of a few methods.

    Attributes:
        cell: Label of the cell.
        sample: Label of the sample.
        tiles: The image, the ground truth and the maps, each with the text below it.
        controls: The texts that name controls.
    """

    cell: str
    sample: str
    tiles: list[tuple[str, Tile]]
    controls: list[str]


def map_strip(run: RunResults, order: Sequence[str]) -> MapStrip | None:
    """Return one sample with the maps of the three best methods, the last one and the best control.

    Args:
        run: The run.
        order: Methods and controls, best first.

    Returns:
        The strip; None if no sample has a map.
    """
    samples = next((samples for samples in run.pictures.values() if len(samples.images) and samples.explainers), None)
    if samples is None:
        return None
    known = [name for name in order if name in samples.explainers]
    methods = [name for name in known if not run.explainers[name].control]
    controls = [name for name in known if run.explainers[name].control]
    chosen = dict.fromkeys([*methods[:_BEST], *methods[-1:], *controls[:1]])
    number = samples.example or 0
    tiles = [
        ("Image", Tile(_encode_image(samples, samples.images[number]), "The image")),
        ("Ground truth", Tile(_encode_mask(samples, number), "The ground truth")),
    ]
    truth = samples.masks[number].astype(np.float64)
    for name in chosen:
        place = samples.explainers.index(name)
        label, share = run.explainers[name].label, inside_share(samples.maps[number, place], truth, samples)
        tiles.append((label, Tile(_encode_map(samples, number, place), f"Map of {label}{share}")))
    shown = [run.explainers[name].label for name in controls[:1]]
    slices = [] if samples.voxels is None else name_slices(samples.voxels.slices[number])
    return MapStrip(run.words_of(samples.cell), ", ".join([samples.labels[number], *slices]), tiles, shown)


def _encode_mask(samples: SampleCell, number: int) -> str:
    return data_uri(Image.fromarray(255 * samples.masks[number]), "png", optimize=True)


def _encode_map(samples: SampleCell, number: int, place: int) -> str:
    if samples.photographs:
        return data_uri(Image.fromarray(overlay(samples, number, place, PHOTOGRAPH)), "jpeg", quality=75, optimize=True)
    return data_uri(Image.fromarray(palette()[levels(samples.maps[number, place])]), "png", optimize=True)


def _encode_image(samples: SampleCell, image: Any) -> str:
    picture = Image.fromarray(image)
    return data_uri(picture, "jpeg", quality=80) if samples.photographs else data_uri(picture, "png", optimize=True)
