"""Images of the user, from folders and other sources, as an audit takes them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor

from xaibench.core.progress import ProgressBar
from xaibench.data.image_collection import ImageBatch, ImageCollection

#: Images that are read at a time.
_BATCH_SIZE = 16


def read_samples(
    collection: ImageCollection,
    samples: int | None,
    classes: Sequence[str] | None,
    outputs: int,
    seed: int,
    progress: bool = False,
) -> dict[str, Any]:
    """Read images with their labels, masks and groups.

    Args:
        collection: The images.
        samples: Number of images, drawn at random; None = all.
        classes: Names of the network's classes, if known.
        outputs: Number of the network's classes.
        seed: Seed of the choice.
        progress: Show a progress bar.

    Returns:
        Arguments of :func:`xaibench.auditing.subject.make_subject`: images, labels, masks, ids, groups and classes.
    """
    numbers = np.arange(len(collection))
    if samples is not None and samples < len(numbers):
        numbers = np.sort(np.random.default_rng(seed).choice(numbers, samples, replace=False))
    batch = _read(collection, numbers.tolist(), progress)
    groups = collection.samples.groups
    empty = torch.zeros(batch.images.shape[2:], dtype=torch.bool)
    masks = torch.stack([empty if mask is None else mask for mask in batch.masks])
    labels = (
        batch.targets if batch.targets is None else _number_labels(batch.targets, collection.classes, classes, outputs)
    )
    own = collection.classes is not None and labels is not None and classes is None
    return {
        "images": batch.images,
        "labels": labels,
        "masks": masks if bool(masks.any()) else None,
        "ids": batch.ids,
        "groups": None if groups is None else groups[numbers],
        "classes": collection.classes if own else classes,
    }


def _read(collection: ImageCollection, numbers: list[int], progress: bool) -> ImageBatch:
    """Read images in batches, with a progress bar."""
    parts = []
    with ProgressBar("reading", len(numbers), "image", shown=progress) as bar:
        for start in range(0, max(1, len(numbers)), _BATCH_SIZE):
            parts.append(collection[numbers[start : start + _BATCH_SIZE]])
            bar.advance(len(parts[-1].ids))
    ids, images, masks, targets = zip(*parts, strict=True)
    known = [part for part in targets if part is not None]
    return ImageBatch(list(chain(*ids)), torch.cat(images), list(chain(*masks)), torch.cat(known) if known else None)


def _number_labels(
    targets: Tensor | None, names: Sequence[str] | None, classes: Sequence[str] | None, outputs: int
) -> Tensor | None:
    """Return the network's class numbers of the labels; None if the classes of the images are not its classes."""
    if targets is None or names is None:
        return None
    if classes is not None:
        if not set(names) <= set(classes):
            return None
        return torch.tensor([list(classes).index(name) for name in names])[targets]
    return targets if len(names) == outputs else None
