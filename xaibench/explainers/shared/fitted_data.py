"""What explainers share that are fitted on data first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor


class NotFittedError(ValueError):
    """The explainer has not seen the data that it explains with."""


class NotFittedForModelError(ValueError):
    """What was fitted belongs to another network."""


def images_of(owner: str, loader: Iterable[Any]) -> Iterator[Tensor]:
    """The images of each batch.

    Args:
        owner: The explainer, for error messages.
        loader: Batches of images ``[N, C, H, W]``, or tuples that begin with them.

    Raises:
        TypeError: If a batch does not begin with a floating tensor.
        ValueError: If a batch has images of another shape, or there is none.
    """
    images = None
    for batch in loader:
        images = batch[0] if isinstance(batch, tuple | list) and batch else batch
        if not isinstance(images, Tensor) or not images.is_floating_point():
            got = images.dtype if isinstance(images, Tensor) else type(images).__name__
            raise TypeError(f"{owner}.fit: a batch begins with {got}, expected floating images [N, C, H, W].")
        if images.ndim != 4:
            raise ValueError(
                f"{owner}.fit: a batch has images {list(images.shape)}, expected [N, C, H, W]; put a data set into a "
                "torch.utils.data.DataLoader."
            )
        if len(images):
            yield images
    if images is None:
        raise ValueError(f"{owner}.fit: the loader yielded no batch, expected at least one.")


def kept_images(owner: str, loader: Iterable[Any], n: int, seed: int) -> Tensor:
    """At most n images of the batches, each as likely as the other, in one pass and in the memory of n.

    Args:
        owner: The explainer, for error messages.
        loader: As of :func:`images_of`.
        n: How many are kept.
        seed: Of the draw, which does not depend on how the images are cut into batches.

    Returns:
        ``[B, C, H, W]`` on the CPU, B the smaller of n and the images that there are.

    Raises:
        TypeError: As :func:`images_of`.
        ValueError: As :func:`images_of`.
    """
    rng, seen = np.random.default_rng(seed), 0
    kept: list[Tensor] = []
    for images in images_of(owner, loader):
        for image in images.detach().cpu():
            seen += 1
            if len(kept) < n:
                kept.append(image)
            # Image number s is kept with probability n / s, in the place of one of those before.
            elif (place := int(rng.integers(seen))) < n:
                kept[place] = image
    return torch.stack(kept)
