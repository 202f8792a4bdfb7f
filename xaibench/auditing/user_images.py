"""Images of the user, from folders and other sources, as an audit takes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from xaibench.data.image_collection import ImageCollection


def read_samples(
    collection: ImageCollection, samples: int | None, classes: Sequence[str] | None, outputs: int, seed: int
) -> dict[str, Any]:
    """Read images and what is known of them.

    Args:
        collection: The images.
        samples: Number of images, drawn at random; None = all.
        classes: Names of the network's classes, if known.
        outputs: Number of the network's classes.
        seed: Seed of the choice.

    Returns:
        Arguments of :func:`xaibench.auditing.subject.make_subject`: images, labels, masks, ids, groups and classes.
    """
    numbers = np.arange(len(collection))
    if samples is not None and samples < len(numbers):
        numbers = np.sort(np.random.default_rng(seed).choice(numbers, samples, replace=False))
    batch = collection[numbers.tolist()]
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
