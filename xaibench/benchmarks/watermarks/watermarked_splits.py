"""Images with a watermark: training images of a regime, and test images with and without it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from xaibench.benchmarks.watermarks.banner import blend
from xaibench.benchmarks.watermarks.regimes import PLAIN, WATERMARKED
from xaibench.data.base import Split


class PairedSplit(Split):
    """Test images in pairs: with the watermark (even numbers) and without it (odd numbers).

    The two images of a pair form a group, and their names end in ``-watermarked`` and ``-plain``. The mask of both is
    the region of the watermark.
    """

    @property
    def watermarked(self) -> torch.Tensor:
        """``[N / 2, C, H, W]`` the images with the watermark."""
        return self.images[0::2]

    @property
    def plain(self) -> torch.Tensor:
        """``[N / 2, C, H, W]`` the same images without it."""
        return self.images[1::2]


def training_split(
    images: NDArray[np.float64],
    targets: NDArray[np.int64],
    mask: NDArray[np.bool_],
    rng: np.random.Generator,
    *,
    prevalence: Sequence[float],
    opacity: float,
    inverted: bool,
) -> Split:
    """Put the watermark on a share of the images of each class.

    Args:
        images: ``[N, C, H, W]`` in [0, 1].
        targets: ``[N]`` 0 or 1.
        mask: ``[H, W]``, the pixels of the watermark.
        rng: Draws the images with the watermark.
        prevalence: Share of the images of each class with the watermark.
        opacity: Opacity of the watermark in (0, 1].
        inverted: Replace every image ``x`` by ``1 - x`` afterwards, so that the watermark is dark.

    Returns:
        The images; the mask of each is the region of the watermark, whether it is there or not.
    """
    marked = np.zeros(len(targets), dtype=bool)
    for kind, share in enumerate(prevalence):
        members = rng.permutation(np.flatnonzero(targets == kind))
        marked[members[: round(share * len(members))]] = True
    shown = np.where(marked[:, None, None, None], blend(images, mask, opacity), images)
    return Split(*_tensors(shown, targets, mask, inverted=inverted))


def paired_split(
    images: NDArray[np.float64],
    targets: NDArray[np.int64],
    mask: NDArray[np.bool_],
    *,
    opacity: float,
    inverted: bool,
) -> PairedSplit:
    """Return every image with and without the watermark.

    Args:
        images: ``[N, C, H, W]`` in [0, 1].
        targets: ``[N]`` 0 or 1.
        mask: ``[H, W]``, the pixels of the watermark.
        opacity: Opacity of the watermark in (0, 1].
        inverted: Replace every image ``x`` by ``1 - x`` afterwards.

    Returns:
        ``2 N`` samples in pairs.
    """
    pairs = np.stack([blend(images, mask, opacity), images], axis=1).reshape(-1, *images.shape[1:])
    numbers = np.repeat(np.arange(len(images)), 2)
    forms = (WATERMARKED, PLAIN)
    return PairedSplit(
        *_tensors(pairs, np.repeat(targets, 2), mask, inverted=inverted),
        ids=[f"{number}-{forms[place % 2]}" for place, number in enumerate(numbers)],
        groups=numbers,
        groups_by="images, each with and without watermark",
    )


def _tensors(
    images: NDArray[np.float64], targets: NDArray[np.int64], mask: NDArray[np.bool_], *, inverted: bool
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    shown = 1 - images if inverted else images
    masks = torch.from_numpy(mask).expand(len(images), *mask.shape).clone()
    return torch.from_numpy(shown.astype(np.float32)), masks, torch.from_numpy(targets.astype(np.int64))
