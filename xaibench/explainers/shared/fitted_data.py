"""What explainers share that are fitted on data first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

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
