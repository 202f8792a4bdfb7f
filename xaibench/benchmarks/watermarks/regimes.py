"""The training regimes of the watermark sets, the network of their suite, and the effect of a watermark on an output.

Clark, Oliveira, Wilming, Haufe: Feature salience, not task-informativeness, drives machine learning model explanations,
2026, arXiv 2602.09238. The defaults of their code are kept: a white watermark at the top of the image with opacity 0.8;
in training it is on 20 % of the images of the first class and 80 % of the second (*confounder*), on half of each
class (*suppressor*), or on none (*none*); 70, 15 and 15 % of the images are for training, validation and test.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from types import MappingProxyType
from typing import Literal, TypeAlias, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from xaibench.core.checks import check_count
from xaibench.data.base import Split
from xaibench.models.networks.base import Network, he_normal_
from xaibench.network.outputs import check_plane
from xaibench.registry.info import ModelInfo

Regime: TypeAlias = Literal["confounder", "suppressor", "none"]
REGIMES: tuple[Regime, ...] = get_args(Regime)

#: Share of the training images of each of the two classes that have the watermark.
PREVALENCE: Mapping[str, tuple[float, float]] = MappingProxyType(
    {"confounder": (0.2, 0.8), "suppressor": (0.5, 0.5), "none": (0.0, 0.0)}
)
CITATION = (
    "Clark, Oliveira, Wilming, Haufe: Feature salience, not task-informativeness, drives machine learning model "
    "explanations, 2026, arXiv 2602.09238"
)
#: Endings of the names of the two forms of a test image.
WATERMARKED, PLAIN = "watermarked", "plain"


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
        ids=[f"{number}-{forms[position % 2]}" for position, number in enumerate(numbers)],
        groups=numbers,
        groups_by="images, each with and without watermark",
    )


def _tensors(
    images: NDArray[np.float64], targets: NDArray[np.int64], mask: NDArray[np.bool_], *, inverted: bool
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    shown = 1 - images if inverted else images
    masks = torch.from_numpy(mask).expand(len(images), *mask.shape).clone()
    return torch.from_numpy(shown.astype(np.float32)), masks, torch.from_numpy(targets.astype(np.int64))


#: The letters M, A, R and K in dots; each is 5 wide and 7 high.
_LETTERS = (
    ("#...#", "##.##", "#.#.#", "#...#", "#...#", "#...#", "#...#"),
    (".###.", "#...#", "#...#", "#####", "#...#", "#...#", "#...#"),
    ("####.", "#...#", "#...#", "####.", "#.#..", "#..#.", "#...#"),
    ("#...#", "#..#.", "#.#..", "##...", "#.#..", "#..#.", "#...#"),
)
#: The banner in dots: 4 letters side by side, each with an empty margin, 32 wide and 11 high.
_DOTS = np.zeros((11, 32), dtype=bool)
for _number, _letter in enumerate(_LETTERS):
    _DOTS[2:9, 8 * _number + 1 : 8 * _number + 6] = [[dot == "#" for dot in row] for row in _letter]

#: Smallest side of an image, at which a dot of the banner is a pixel.
LEAST_SIDE = 32


def banner_mask(side: int) -> NDArray[np.bool_]:
    """Return the pixels of the watermark in a square image: letters at the top, over the whole width.

    Args:
        side: Height and width of the image, at least 32.

    Returns:
        ``[side, side]``, ``True`` = a pixel of a letter.

    Raises:
        ValueError: If the image is smaller than the banner.

    Example:
        >>> mask = banner_mask(64)
        >>> int(mask.sum()), int(mask.any(1).nonzero()[0].max())
        (268, 17)
    """
    check_count("side", side, least=LEAST_SIDE)
    dots = np.arange(side) * LEAST_SIDE // side
    mask = np.zeros((side, side), dtype=bool)
    inside = dots < len(_DOTS)
    mask[inside] = _DOTS[dots[inside]][:, dots]
    return mask


def blend(images: NDArray[np.float64], mask: NDArray[np.bool_], opacity: float) -> NDArray[np.float64]:
    r"""Blend a white watermark into images: :math:`(1 - a)\,x + a` at its pixels, with opacity :math:`a`.

    Args:
        images: ``[..., H, W]`` in [0, 1].
        mask: ``[H, W]``, the pixels of the watermark.
        opacity: In (0, 1]; 1 hides what is behind the letters.

    Returns:
        Images of the same shape; pixels outside of the mask are unchanged.

    Raises:
        ValueError: If the opacity is out of range.
    """
    if not 0 < opacity <= 1:
        raise ValueError(f"opacity={opacity!r}: expected a number in (0, 1]; 0 would leave no watermark.")
    return np.where(mask, (1 - opacity) * images + opacity, images)


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


@ModelInfo("Small CNN", citation=CITATION)
class SmallCNN(Network):
    """Three blocks of 3×3 convolution, ReLU and max-pooling (8, 12 and 16 filters), and a linear layer.

    The convolutional part has the form of the network of Clark et al. 2026 (arXiv 2602.09238). Departures: 8, 12 and 16
    filters instead of 64, 128 and 256, no batch normalization, and one linear layer instead of three with dropout.

    Args:
        in_shape: ``(C, H, W)``; height and width are multiples of 8.
        num_classes: Number of logits.

    Raises:
        ValueError: If the images cannot be halved three times, or there are fewer than 2 classes.

    Example:
        >>> model = SmallCNN((1, 64, 64))
        >>> sum(weight.numel() for weight in model.parameters())
        4750
    """

    def __init__(self, in_shape: tuple[int, ...] = (1, 64, 64), num_classes: int = 2) -> None:
        check_plane("SmallCNN", in_shape)
        channels, height, width = in_shape
        if min(in_shape) < 1 or height % 8 or width % 8:
            raise ValueError(
                f"SmallCNN: in_shape is {tuple(in_shape)}, expected (channels, height, width) with a height and a "
                "width that are multiples of 8, as images are halved three times."
            )
        if num_classes < 2:
            raise ValueError(f"SmallCNN: num_classes is {num_classes}, but a classifier needs at least 2.")
        layers: list[nn.Module] = []
        for before, after in pairwise((channels, 8, 12, 16)):
            layers += [nn.Conv2d(before, after, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
        super().__init__(*layers, nn.Linear(16 * (height // 8) * (width // 8), num_classes))
        he_normal_(self)
