"""A trigger planted in images, which counts as what a network uses once interventions have shown that it decides.

That a patch goes along with a label does not say that a network goes by it; Adebayo et al. (2022) and Zhou et al.
(2022) plant such signals and train on them. Here each image is asked: does the label go with the trigger, and come with
it? Only those of which both is true have the trigger as their ground truth. Adebayo, Muelly, Abelson, Kim: Post hoc
Explanations may be Ineffective for Detecting Unknown Spurious Correlation, ICLR 2022 (arXiv 2212.04629); Zhou, Booth,
Ribeiro, Shah: Do Feature Attribution Methods Correctly Attribute Features?, AAAI 2022 (arXiv 2104.14403).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from xaibench.core.checks import check_count
from xaibench.data.dataset import Split

#: Images that a network is asked about at a time.
_ROWS = 32


class PlantedSplit(Split):
    """Images with a trigger that decides what a network says of them; the mask is the trigger, the target its label.

    Attributes:
        originals: ``[N, C, H, W]``: the images without it.
        share: Of the images in which it was planted, those that are here, in [0, 1].
        found: How many of the images in which it was planted pass each intervention: ``{"planted": ..., "removed": ...,
            "moved": ...}``.
    """

    def __init__(
        self, images: Tensor, masks: Tensor, targets: Tensor, originals: Tensor, share: float, found: dict[str, int]
    ) -> None:
        super().__init__(images, masks, targets)
        self.originals = originals
        self.share = share
        self.found = found


def checkerboard(side: int, channels: int = 3) -> Tensor:
    """A patch that photographs do not hold: black and white pixels in turn.

    Args:
        side: Pixels along a side.
        channels: Of the images.

    Returns:
        ``[channels, side, side]`` float32 of 0 and 1, the first pixel white.

    Raises:
        ValueError: If a number is below 1.

    Example:
        >>> checkerboard(2, channels=1).tolist()
        [[[1.0, 0.0], [0.0, 1.0]]]
    """
    check_count("side", side)
    check_count("channels", channels)
    steps = torch.arange(side)
    return ((steps[:, None] + steps + 1) % 2).float().expand(channels, side, side).clone()


def plant_trigger(
    network: Callable[[Tensor], Tensor],
    images: Tensor,
    targets: Tensor,
    *,
    patch: Tensor,
    label: int,
    least: float = 0.5,
    seed: int = 0,
) -> PlantedSplit:
    """Put a patch on images, and keep those of which it is shown by intervention that it decides the network's answer.

    Of each image whose class is not ``label`` the network is asked three times. An image is kept if

    - *planted*: with the patch, at a place drawn at random, the network answers ``label``;
    - *removed*: without it, it answers something else;
    - *moved*: with the patch at the same place, another of the images, for which that holds too, is ``label`` as well.

    Args:
        network: From images ``[n, C, H, W]`` to logits ``[n, K]``, in evaluation mode: one whose head was trained on
            planted images (:func:`xaibench.models.fit_head`), or :func:`xaibench.models.triggered`.
        images: ``[N, C, H, W]`` float32.
        targets: ``[N]``, their classes.
        patch: ``[C, h, w]``, in the units of the images, such as :func:`checkerboard`.
        label: The class that it stands for.
        least: Smallest share of the images that must be kept, above 0 and up to 1.
        seed: Of the places, and of which image is the other one.

    Returns:
        The images that are kept, with the patch. The patch is what decides: nothing says that the network does not look
        at the rest of the image too, so ``mass_outside`` of a faithful map need not be 0.

    Raises:
        ValueError: If the patch does not fit, ``least`` is no such share, there are no two images of other classes, or
            fewer than ``least`` of them are kept: then the network does not go by the patch.

    Example:
        >>> brightest = lambda images: torch.stack([torch.full((len(images),), 0.5), images.amax((1, 2, 3))], 1)
        >>> dark = torch.rand(10, 1, 8, 8, generator=torch.Generator().manual_seed(0)) / 4
        >>> split = plant_trigger(brightest, dark, torch.zeros(10).long(), patch=torch.ones(1, 2, 2), label=1)
        >>> len(split), split.share, int(split.masks[0].sum())
        (10, 1.0, 4)
    """
    if not 0 < least <= 1:
        raise ValueError(f"least is {least!r}; expected a share above 0 and at most 1.")
    if patch.ndim != 3 or len(patch) != images.shape[1] or any(np.less(images.shape[2:], patch.shape[1:])):
        raise ValueError(
            f"patch is {list(patch.shape)}, which does not fit on images {list(images.shape)}; expected [C, h, w] of "
            "as many channels, and no larger than they are."
        )
    originals = images[targets.cpu() != label]
    if len(originals) < 2:
        raise ValueError(
            f"images: got {len(originals)} of another class than label {label}, expected at least 2; that a trigger "
            "decides can only be shown where the label is not true anyway."
        )
    rng = np.random.default_rng(seed)
    tops, lefts = (
        rng.integers(0, whole - side + 1, len(originals))
        for whole, side in zip(images.shape[2:], patch.shape[1:], strict=True)
    )
    others = _others(len(originals), rng)
    with_it, masks = _stamped(originals, patch, tops, lefts)
    moved, _ = _stamped(originals[others], patch, tops, lefts)
    removed = _answers(network, originals) != label
    passed = {
        "planted": _answers(network, with_it) == label,
        "removed": removed,
        "moved": (_answers(network, moved) == label) & removed[others],
    }
    kept = torch.stack(list(passed.values())).all(0)
    share, found = float(kept.double().mean()), {name: int(one.sum()) for name, one in passed.items()}
    if share < least:
        said = ", ".join(f"{name} {count}" for name, count in found.items())
        raise ValueError(
            f"of {len(originals)} images, {int(kept.sum())} pass all interventions ({said}), expected a share of "
            f"{least:g} or more; the network does not go by the patch. Train its head on images with it, take "
            "xaibench.models.triggered, or a larger patch."
        )
    labels = torch.full((int(kept.sum()),), label)
    return PlantedSplit(with_it[kept], masks[kept], labels, originals[kept], share, found)


def _others(count: int, rng: np.random.Generator) -> Tensor:
    """For each of so many images another one: the next in a circle drawn at random."""
    circle = rng.permutation(count)
    others = np.empty(count, dtype=np.int64)
    others[circle] = np.roll(circle, -1)
    return torch.from_numpy(others)


def _stamped(images: Tensor, patch: Tensor, tops: NDArray[np.int64], lefts: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
    """The images with the patch at these places, and the places ``[N, H, W]`` bool."""
    height, width = patch.shape[1:]
    stamped, masks = images.clone(), torch.zeros(len(images), *images.shape[2:], dtype=torch.bool)
    for number, (top, left) in enumerate(zip(tops.tolist(), lefts.tolist(), strict=True)):
        stamped[number, :, top : top + height, left : left + width] = patch
        masks[number, top : top + height, left : left + width] = True
    return stamped, masks


def _answers(network: Callable[[Tensor], Tensor], images: Tensor) -> Tensor:
    with torch.inference_mode():
        return torch.cat([network(part).argmax(1).cpu() for part in torch.split(images, _ROWS)])
