"""Datasheet of a data set (Gebru et al. 2021, *Datasheets for Datasets*, CACM 64), from its parameters and samples.

All numbers are computed from the samples. Answers that are unknown are marked as missing.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import ModuleType

import torch

from xaibench._version import __version__
from xaibench.benchmarks.parts import datasheet as parts
from xaibench.benchmarks.xai_tris import datasheet as xai_tris
from xaibench.component.info import DatasetInfo
from xaibench.data import Dataset, Split
from xaibench.data.exchange.parquet_format import HUB_SPLITS
from xaibench.hub.card_text import code_block, escape_markdown, markdown_table
from xaibench.hub.license import is_generated_set

_BATCH = 256


@dataclass(frozen=True)
class DatasetFacts:
    """Statistics of the samples.

    Attributes:
        samples: Number of samples per split; splits have the names of ``datasets``.
        classes: Number of samples per class, by split.
        lowest: Smallest pixel value.
        highest: Largest pixel value.
        mean: Mean pixel value.
        std: Standard deviation of all pixel values.
        marked: Smallest, mean and largest fraction of an image that is masked.
        unmarked: Number of empty masks.
    """

    samples: Mapping[str, int]
    classes: Mapping[str, tuple[int, ...]]
    lowest: float
    highest: float
    mean: float
    std: float
    marked: tuple[float, float, float]
    unmarked: int


def measure_dataset(dataset: Dataset) -> DatasetFacts:
    """Compute the statistics, reading splits on disk in batches."""
    lowest, highest, total, squares, pixels = math.inf, -math.inf, 0.0, 0.0, 0
    shares: list[float] = []
    for name in HUB_SPLITS:
        split: Split = getattr(dataset, name)
        for start in range(0, len(split), _BATCH):
            images, masks, _ = split[start : min(start + _BATCH, len(split))]
            lowest, highest = min(lowest, float(images.min())), max(highest, float(images.max()))
            exact = images.double()
            total, squares, pixels = (
                total + float(exact.sum()),
                squares + float((exact**2).sum()),
                pixels + exact.numel(),
            )
            shares += masks.double().mean(dim=(1, 2)).tolist()
    mean = total / pixels if pixels else math.nan
    return DatasetFacts(
        samples={theirs: len(getattr(dataset, name)) for name, theirs in HUB_SPLITS.items()},
        classes={
            theirs: _class_counts(getattr(dataset, name), len(dataset.classes)) for name, theirs in HUB_SPLITS.items()
        },
        lowest=lowest,
        highest=highest,
        mean=mean,
        std=math.sqrt(max(0.0, squares / pixels - mean**2)) if pixels else math.nan,
        marked=(min(shares), math.fsum(shares) / len(shares), max(shares)) if shares else (math.nan,) * 3,
        unmarked=sum(share == 0 for share in shares),
    )


def _class_counts(split: Split, classes: int) -> tuple[int, ...]:
    return tuple(torch.bincount(split.targets, minlength=classes).tolist())


def render_datasheet(dataset: Dataset, facts: DatasetFacts, license: str, repo: str) -> str:
    """Render the body of the card.

    Args:
        dataset: The uploaded data set.
        facts: Its statistics.
        license: License as an identifier of the Hub.
        repo: ``"owner/name"``.
    """
    info = dataset.info
    sections = (
        f"# {escape_markdown(info.name)}\n\n{_describe_content(info)}\n\n{_USE.format(repo=repo)}",
        f"## Motivation\n\n{_motivation(info)}",
        f"## Composition\n\n{_composition(dataset, facts)}",
        f"## Collection process\n\n{_collection(dataset)}",
        f"## Preprocessing\n\n{_preprocessing(info, facts)}",
        f"## Uses\n\n{_uses(info)}",
        f"## Distribution\n\nLicense: `{license}`. Source to cite: "
        f"{escape_markdown(info.citation or 'none was given')}",
        f"## Maintenance\n\n{_MAINTENANCE.format(version=__version__, revision=info.revision, repo=repo)}",
    )
    return "\n\n".join(sections)


_USE = """```python
import xaibench as xb

data = xb.load("hf://{repo}")  # .train .val .test of (image, mask, target), bit-identical to the upload
```

```python
from datasets import load_dataset

data = load_dataset("{repo}")  # columns: image, mask (255 = important), target
```"""

_MAINTENANCE = (
    "The owner of this repository maintains it; use its Community tab. Written by xaibench {version} "
    "(revision {revision} of the data set). Changed data get a new commit, and "
    "`hf://{repo}@COMMIT` remains unchanged."
)


def _describe_content(info: DatasetInfo) -> str:
    if not is_generated_set(info):
        return "Images, their classes, and for each image a mask of the pixels that are important for its class."
    return (
        "Images whose important pixels are known by construction, to score saliency maps against. "
        f"{_texts(info).describe_images(info)}"
    )


def _texts(info: DatasetInfo) -> ModuleType:
    """Return the module of texts about a generated data set."""
    return parts if info.name.startswith("parts/") else xai_tris


def _motivation(info: DatasetInfo) -> str:
    if not is_generated_set(info):
        return "To score saliency maps against the masks. Why the images were collected, and by whom, was not stated."
    return (
        "To evaluate whether a saliency map marks the pixels that determine the class. In photographs these "
        "pixels are not known for certain; here they are known by construction. The design is that of the "
        "publication cited below; "
        "the samples were generated with xaibench by the owner of this repository. Funding: none was stated."
    )


def _composition(dataset: Dataset, facts: DatasetFacts) -> str:
    info = dataset.info
    shape = "×".join(map(str, info.image_shape))
    rows = [(theirs, facts.samples[theirs], *facts.classes[theirs]) for theirs in HUB_SPLITS.values()]
    low, mean, high = (f"{100 * share:.2f} %" for share in facts.marked)
    missing = (
        f"Nothing is missing. {_texts(info).describe_dependence(info)} No people, nothing confidential."
        if is_generated_set(info) and info.variant != "imagenet"
        else "It is unknown whether the images show people, or anything confidential or offensive; ask the "
        "owner of this repository."
    )
    return (
        f"Each sample is an image ({shape}: channels, height, width), a mask and a class.\n\n"
        f"{markdown_table(['split', 'samples', *info.classes], rows)}\n\n"
        f"- Pixel values: {facts.lowest:.6g} to {facts.highest:.6g}, mean {facts.mean:.6g}, standard deviation "
        f"{facts.std:.6g}.\n"
        f"- Fraction of an image that is masked: {low} to {high}, {mean} on average; {facts.unmarked:,} masks are "
        "empty.\n"
        f"- {missing}"
    )


def _collection(dataset: Dataset) -> str:
    info = dataset.info
    given = markdown_table(["parameter", "value"], [(name, repr(value)) for name, value in dataset.parameters.items()])
    if not is_generated_set(info):
        return f"Collected by the owner of this repository and read by xaibench with these parameters:\n\n{given}"
    arguments = "".join(f", {name}={value!r}" for name, value in dataset.parameters.items())
    images = " and the same folder of images" if info.variant == "imagenet" else ""
    return (
        f"Generated, with these parameters:\n\n{given}\n\nBit-identical data are generated by xaibench (revision "
        f"{info.revision} of this data set) with this call{images}:\n\n"
        + code_block(f"xb.load({json.dumps(info.name)}{arguments})", "python")
    )


def _preprocessing(info: DatasetInfo, facts: DatasetFacts) -> str:
    mask = "A mask is a PNG: 255 = important, 0 = not."
    if not is_generated_set(info):
        return (
            f"Images were scaled to {info.image_shape[1]}×{info.image_shape[2]} pixels, bilinearly and antialiased, "
            f"masks by the nearest pixel. {mask}"
        )
    return (
        f"{_texts(info).describe_mixture(info)} Nothing is clipped or rounded to bytes: `image` holds the float32 "
        f"values. {mask} {_texts(info).describe_masks(info)} `preview` is only for viewing: 8 bit, each "
        "image scaled by its own largest magnitude, 0 is gray, small images are enlarged."
    )


def _uses(info: DatasetInfo) -> str:
    if not is_generated_set(info):
        return (
            "Training image classifiers and scoring saliency maps of them, within the license. A mask shows "
            "what people "
            "find important, which may differ from what a network uses."
        )
    return (
        "Training image classifiers, explaining them, and scoring the maps against the masks, over samples that the "
        "network classifies correctly. Scores on these images show how a method performs if the ground truth "
        "is known; they "
        "do not prove the same for photographs. The images do not depict the real world."
    )
