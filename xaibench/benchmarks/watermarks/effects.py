"""Effect of a watermark on the output of a network: whether the network uses it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from xaibench.benchmarks.watermarks.regimes import PairedSplit

_BATCH_SIZE = 64


@dataclass(frozen=True)
class WatermarkUse:
    """Comparison of the outputs for the same images with and without the watermark.

    The output is the difference of the second logit and the first. Changes are divided by its standard deviation over
    the images without watermark.

    Attributes:
        change: Mean change of the output when the watermark is added: positive = towards the second class.
        magnitude: Mean absolute change; 0 = the network provably does not use the watermark on these images.
        flipped: Share of the images whose predicted class changes.
        accuracy_watermarked: Share of the images with the watermark that are classified correctly.
        accuracy_plain: The same without the watermark.
    """

    change: float
    magnitude: float
    flipped: float
    accuracy_watermarked: float
    accuracy_plain: float


def watermark_use(network: Callable[[Tensor], Tensor], split: PairedSplit) -> WatermarkUse:
    """Measure whether a network uses the watermark, by removing it.

    Args:
        network: Maps images ``[n, C, H, W]`` to two logits ``[n, 2]``, in evaluation mode.
        split: Test images of a watermark set.

    Returns:
        The effect of the watermark on the output and the accuracy.

    Raises:
        TypeError: If the split has no pairs.
        ValueError: If the network does not return two logits, or all its outputs are equal.

    Example:
        >>> import xaibench as xb
        >>> split = xb.load("watermarks/none", n_samples=40).test
        >>> brightness = lambda images: torch.stack([torch.zeros(len(images)), images.mean((1, 2, 3))], 1)
        >>> use = watermark_use(brightness, split)
        >>> use.change == use.magnitude > 0
        True
    """
    if not isinstance(split, PairedSplit):
        raise TypeError(
            f"split is a {type(split).__name__}, expected the test images of a watermark set, in pairs with and "
            'without watermark: xb.load("watermarks/confounder").test.'
        )
    shown, plain = (_outputs(network, images) for images in (split.watermarked, split.plain))
    spread = float(plain.std())
    if not spread > 0:
        raise ValueError(
            f"The outputs for {len(plain)} images have the standard deviation {spread}; expected a trained network and "
            "at least two images, so that changes can be compared with it."
        )
    changes, targets = (shown - plain) / spread, split.targets[::2] == 1
    return WatermarkUse(
        change=float(changes.mean()),
        magnitude=float(changes.abs().mean()),
        flipped=float(((shown > 0) != (plain > 0)).double().mean()),
        accuracy_watermarked=float(((shown > 0) == targets).double().mean()),
        accuracy_plain=float(((plain > 0) == targets).double().mean()),
    )


def _outputs(network: Callable[[Tensor], Tensor], images: Tensor) -> Tensor:
    """Return the difference of the two logits, ``[N]`` in float64."""
    with torch.no_grad():
        logits = torch.cat([network(batch) for batch in torch.split(images, _BATCH_SIZE)]).double()
    if logits.ndim != 2 or logits.shape[1] != 2:
        raise ValueError(f"network returns {list(logits.shape)} for {len(images)} images, expected two logits [N, 2].")
    return logits[:, 1] - logits[:, 0]
