"""Controls: maps that use no model. A useful explainer scores above them.

The edge filters are from ``scipy.ndimage``, with its default border: the image is mirrored about the edge of its
last pixel (``mode="reflect"``).
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import ndimage
from torch import Tensor, nn

from xaibench.core.checks import check_amount
from xaibench.explainers.base import Attribution, Channels, reduce_channels
from xaibench.explainers.shared.fitting import mean_mask, not_fitted
from xaibench.registry.info import ExplainerInfo
from xaibench.tensors.random_numbers import sample_generators

Direction: TypeAlias = Literal["both", "horizontal", "vertical"]


@ExplainerInfo("Sobel", family="Controls", control=True, passes=0, exact_zero=False)
@dataclass(frozen=True, kw_only=True)
class Sobel(Attribution):
    """The Sobel filter of the image.

    Attributes:
        direction: ``"both"``: the magnitude of the two derivatives (of the three of a volume), never negative.
            ``"horizontal"``: the derivative along a row (used by the released XAI-TRIS runs); ``"vertical"``: along a
            column. Both are signed.
    """

    channels: Channels = "max_abs"
    direction: Direction = "both"

    def __call__(self, model: nn.Module | None, images: Tensor, targets: Tensor) -> Tensor:
        """Return maps ``[N, H, W]``; model and targets are ignored."""
        pixels = _pixels(images)
        if self.direction == "both":
            edges = functools.reduce(np.hypot, (_derivative(pixels, along=axis) for axis in _filtered_axes(pixels)))
        else:
            edges = _derivative(pixels, along=-1 if self.direction == "horizontal" else -2)
        return reduce_channels(torch.from_numpy(edges).to(images), self.channels)


@ExplainerInfo("Laplace", family="Controls", control=True, passes=0, exact_zero=False)
@dataclass(frozen=True, kw_only=True)
class Laplace(Attribution):
    """The Laplace filter of the image: the sum of the second differences along all spatial axes."""

    channels: Channels = "max_abs"

    def __call__(self, model: nn.Module | None, images: Tensor, targets: Tensor) -> Tensor:
        """Return maps ``[N, H, W]``; model and targets are ignored."""
        pixels = _pixels(images)
        second = [ndimage.correlate1d(pixels, [1, -2, 1], axis=axis) for axis in _filtered_axes(pixels)]
        return reduce_channels(torch.from_numpy(functools.reduce(np.add, second)).to(images), self.channels)


@ExplainerInfo("Uniform", family="Controls", control=True, revision=2, passes=0, exact_zero=False)
@dataclass(frozen=True)
class Uniform:
    """Random noise, uniform in [-1, 1).

    Attributes:
        seed: Seed of the noise. The draws of an image do not depend on its position in the batch.
    """

    seed: int = 0

    def __call__(self, model: nn.Module | None, images: Tensor, targets: Tensor) -> Tensor:
        """Return maps ``[N, H, W]``; the image only seeds the random numbers."""
        generators = sample_generators(self.seed, images)
        return images.new_tensor(np.stack([rng.uniform(-1, 1, images.shape[2:]) for rng in generators]))


@ExplainerInfo("Input", family="Controls", control=True, passes=0, exact_zero=False)
@dataclass(frozen=True, kw_only=True)
class Input(Attribution):
    """The image itself."""

    def __call__(self, model: nn.Module | None, images: Tensor, targets: Tensor) -> Tensor:
        """Return maps ``[N, H, W]``; model and targets are ignored."""
        return reduce_channels(images.clone(), self.channels)


@ExplainerInfo("Center prior", family="Controls", control=True, passes=0, exact_zero=False)
@dataclass(frozen=True)
class CenterPrior:
    """A Gaussian in the center of the image, where photographers tend to place objects.

    Attributes:
        width: Its standard deviation, as a fraction of each side.
    """

    width: float = 0.25

    def __post_init__(self) -> None:
        check_amount("width", self.width, owner="CenterPrior")

    def __call__(self, model: nn.Module | None, images: Tensor, targets: Tensor) -> Tensor:
        """Return maps ``[N, H, W]`` with 1 at the center; only the shape of the images is used."""
        sides = [np.exp(-((((np.arange(side) + 0.5) / side - 0.5) / self.width) ** 2) / 2) for side in images.shape[2:]]
        one = images.new_tensor(functools.reduce(np.multiply.outer, sides))
        return one.expand(len(images), *one.shape).clone()


@ExplainerInfo("Mask prior", family="Controls", control=True, passes=0, exact_zero=False)
@dataclass(frozen=True)
class Prior:
    """The mean ground-truth mask of the training split, the same map for every image.

    This is the best map that uses neither the image nor the network: it shows how much of a score follows from where
    the ground truth usually is.

    Attributes:
        mask: ``[H, W]`` float64, the share of training images whose mask contains the pixel; ``None`` before
            :meth:`fit`.
    """

    mask: Tensor | None = field(default=None, repr=False, compare=False)

    @property
    def fitted(self) -> bool:
        """Whether the mean mask is known."""
        return self.mask is not None

    def fit(self, model: nn.Module | None, loader: Iterable[Any]) -> Self:
        """Average the masks of the training images, in one pass. The mean does not depend on how they are batched.

        Args:
            model: Not used.
            loader: Batches of ``(images, masks, targets)`` with masks ``[N, H, W]``, usually the training data. Images
                whose mask is empty or not finite do not count.

        Returns:
            This explainer with its mean mask.

        Raises:
            NotFittedError: If no training image has a mask.
            TypeError: If the masks of a batch are not a tensor ``[N, H, W]``.
            ValueError: If masks differ in size, or are not binary.
        """
        return replace(self, mask=mean_mask(type(self).__name__, loader))

    def __call__(self, model: nn.Module | None, images: Tensor, targets: Tensor) -> Tensor:
        """Return maps ``[N, H, W]``; only the number of images is used.

        Raises:
            NotFittedError: If :meth:`fit` was not called.
            ValueError: If it was fitted to masks of another size.
        """
        if self.mask is None:
            raise not_fitted("Prior", "the training split", "fit(None, batches of (images, masks, targets))")
        if self.mask.shape != images.shape[2:]:
            raise ValueError(
                f"Prior: fitted to masks {list(self.mask.shape)}, got images {list(images.shape[2:])}. Fit it to masks "
                "of the size that is explained."
            )
        return self.mask.to(images).expand(len(images), *self.mask.shape).clone()


def _pixels(images: Tensor) -> NDArray[np.float64]:
    pixels: NDArray[np.float64] = images.detach().cpu().double().numpy()
    return pixels


def _derivative(pixels: NDArray[np.float64], *, along: int) -> NDArray[np.float64]:
    # ndimage.sobel would smooth over samples and channels too; these are its one-dimensional filters.
    found: NDArray[np.float64] = ndimage.correlate1d(pixels, [-1, 0, 1], axis=along)
    for axis in _filtered_axes(pixels):
        if axis != along:
            found = ndimage.correlate1d(found, [1, 2, 1], axis=axis)
    return found


def _filtered_axes(pixels: NDArray[np.float64]) -> range:
    """Return the spatial axes, from the last one; a single slice of a volume is filtered as an image."""
    return range(-1, -3 if pixels.shape[2] == 1 else 1 - pixels.ndim, -1)
