"""One sample per cell with every method's map, for readers without scripts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image

from xaibench.report.figures.samples import data_uri, overlay, palette
from xaibench.report.page.map_tables import PHOTOGRAPH, Tile, inside_share
from xaibench.report.page.sample_browser import Browser, levels
from xaibench.report.read.results import RunResults
from xaibench.runfolder.sample_file import SampleCell

#: Largest size of the previews in bytes.
PREVIEW_BYTES = 500_000


@dataclass(frozen=True)
class FirstSample:
    """Sample of a cell on which a method scores worst; the sample browser shows it first.

    Attributes:
        cell: Label of the cell.
        label: Label of the sample.
        answer: The network's prediction, as text; empty if unknown.
        wrong: Whether the prediction is wrong.
        image: The image.
        mask: The ground truth.
        maps: Explainer to its map and its scores by metric.
    """

    cell: str
    label: str
    answer: str
    wrong: bool
    image: Tile
    mask: Tile
    maps: dict[str, tuple[Tile, list[float | None]]]


def first_samples(run: RunResults, shown: Browser, leader: str) -> list[FirstSample]:
    """Return the first sample of as many cells as fit into :data:`PREVIEW_BYTES`.

    Args:
        run: The run.
        shown: Data of the sample browser.
        leader: Method whose worst samples come first; if it is empty or not in a cell, the cell's first method.
    """
    found: list[FirstSample] = []
    room = PREVIEW_BYTES
    for cell in shown.cells:
        place = (cell["subset"], cell["variant"], cell["model"])
        one = _first_sample(run, run.pictures[place], cell, leader)
        room -= sum(len(tile.uri) for tile in (one.image, one.mask, *(tile for tile, _ in one.maps.values())))
        if found and room < 0:
            break
        found.append(one)
    return found


def _first_sample(run: RunResults, samples: SampleCell, cell: dict[str, Any], leader: str) -> FirstSample:
    names = list(samples.explainers)
    ranks = cell["ranks"][0][names.index(leader) if leader in names else 0]
    known = [(rank, cell["samples"][number], number) for number, rank in enumerate(ranks) if rank is not None]
    number = min(known)[2] if known else 0
    maps = {}
    for place, name in enumerate(names):
        share = inside_share(samples.maps[number, place], samples.masks[number].astype(np.float64))
        tile = Tile(_encode_map(samples, number, place), f"Map of {run.explainers[name].label}{share}")
        maps[name] = tile, [scores[place][number] for scores in cell["scores"]]
    image, mask = samples.images[number], 255 * samples.masks[number]
    answer = samples.predicted[number] if samples.predicted else ""
    return FirstSample(
        cell=cell["label"],
        label=samples.labels[number],
        answer=f"{answer}, {samples.probabilities[number]:.1%}".replace("%", " %") if answer else "",
        wrong=bool(answer) and answer != samples.classes[number],
        image=Tile(_encode_image(samples, image), "The image"),
        mask=Tile(data_uri(Image.fromarray(mask), "png", optimize=True), "The ground truth"),
        maps=maps,
    )


def _encode_map(samples: SampleCell, number: int, place: int) -> str:
    if samples.photographs:
        return data_uri(Image.fromarray(overlay(samples, number, place, PHOTOGRAPH)), "jpeg", quality=75, optimize=True)
    return data_uri(Image.fromarray(palette()[levels(samples.maps[number, place])]), "png", optimize=True)


def _encode_image(samples: SampleCell, image: Any) -> str:
    picture = Image.fromarray(image)
    return data_uri(picture, "jpeg", quality=80) if samples.photographs else data_uri(picture, "png", optimize=True)
