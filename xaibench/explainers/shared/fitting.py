"""Explainers that are fitted to data first."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor, nn

from xaibench.core.types import Output
from xaibench.explainers.base import Attribution, Channels, reduce_channels, unsupported_by_torch
from xaibench.network.explained_output import network_of
from xaibench.network.lending import place_network, restore_model_state
from xaibench.network.outputs import probe


class NotFittedError(ValueError):
    """The explainer was called before it was fitted."""


def not_fitted(owner: str, data: str = "the training images", call: str = "fit(model, loader)") -> NotFittedError:
    """Return the error of an explainer that was called before it was fitted to some data."""
    return NotFittedError(
        f"{owner} is not fitted. Fit it to {data} first, fitted = {owner}().{call}, and use the result, "
        "explain(fitted, model, images, targets)."
    )


class NotFittedForModelError(ValueError):
    """The explainer was fitted to another network."""


def iterate_images(owner: str, loader: Iterable[Any]) -> Iterator[Tensor]:
    """Yield the images of each batch.

    Args:
        owner: The explainer, for error messages.
        loader: Batches of images ``[N, C, H, W]``, or tuples that begin with them.

    Raises:
        TypeError: If a batch does not begin with a floating-point tensor.
        ValueError: If a batch has images of another shape, or the loader is empty.
    """
    images = None
    for batch in loader:
        images = batch[0] if isinstance(batch, tuple | list) and batch else batch
        if not isinstance(images, Tensor) or not images.is_floating_point():
            got = images.dtype if isinstance(images, Tensor) else type(images).__name__
            raise TypeError(f"{owner}.fit: a batch begins with {got}, expected floating-point images [N, C, H, W].")
        if images.ndim not in (4, 5):
            raise ValueError(
                f"{owner}.fit: a batch has images {list(images.shape)}, expected [N, C, H, W]; wrap the data set in "
                "a torch.utils.data.DataLoader."
            )
        if len(images):
            yield images
    if images is None:
        raise ValueError(f"{owner}.fit: the loader yielded no batch, expected at least one.")


@contextmanager
def network_for_fitting(owner: str, model: nn.Module) -> Iterator[nn.Module]:
    """Yield the network in evaluation mode and in its ``explain_dtype``, and restore its state afterwards.

    Raises:
        UnsupportedModelError: If torch cannot differentiate or observe the network; the message names ``owner``.
    """
    # A copy that is made in inference mode could not be differentiated.
    with torch.inference_mode(False):
        network = network_of(model)
        own = getattr(network, "explain_dtype", None)
        network = place_network(network, None, own if isinstance(own, torch.dtype) else None)
        with restore_model_state(network) as restored, unsupported_by_torch(f"{owner}.fit", restored):
            yield restored


def iterate_parts(
    owner: str, loader: Iterable[Any], network: nn.Module, rows: Callable[[Tensor], int]
) -> Iterator[Tensor]:
    """Yield the images of each batch on the device and in the precision of a network, in parts that fit into one pass.

    The network is called with the first images, to check that it takes them.

    Args:
        owner: The explainer, for error messages.
        loader: See :func:`iterate_images`.
        network: The network.
        rows: Returns the number of rows per forward pass for images of one size.

    Raises:
        TypeError: See :func:`iterate_images`.
        ValueError: See :func:`iterate_images`, or if the network fails on the images.
    """
    is_first = True
    for batch in iterate_images(owner, loader):
        parameter = next(network.parameters(), batch)
        # Autograd cannot record tensors created in inference mode, but clones of them.
        images = batch.to(parameter.device) if not batch.is_inference() else batch.to(parameter.device).clone()
        # Small parts stay in the CPU cache, but each one is added to sums of the size of the weights.
        for part in torch.split(images, rows(images)):
            if is_first:
                probe(network, part[:2], name=f"{owner}.fit: the model", finite=False, select=lambda found, *_: found)
            is_first = False
            yield part.to(parameter.dtype)


def sample_images(owner: str, loader: Iterable[Any], n: int, seed: int) -> Tensor:
    """Draw at most n images uniformly from the batches (reservoir sampling: one pass, memory of n images).

    Args:
        owner: The explainer, for error messages.
        loader: See :func:`iterate_images`.
        n: Maximum number of images.
        seed: Seed of the draw. The result does not depend on how the images are batched.

    Returns:
        ``[B, C, H, W]`` on the CPU, with B the smaller of n and the number of images.

    Raises:
        TypeError: See :func:`iterate_images`.
        ValueError: See :func:`iterate_images`.
    """
    rng, seen = np.random.default_rng(seed), 0
    kept: list[Tensor] = []
    for images in iterate_images(owner, loader):
        for image in images.detach().cpu():
            seen += 1
            if len(kept) < n:
                kept.append(image)
            # Image number s is kept with probability n / s and replaces a random earlier one.
            elif (place := int(rng.integers(seen))) < n:
                kept[place] = image
    return torch.stack(kept)


@dataclass(frozen=True, kw_only=True)
class KeepsTrainingImages:
    """Mixin of explainers that are fitted by keeping a random sample of the training images.

    Attributes:
        n_training_images: Maximum number of training images that :meth:`fit` draws and keeps.
        training_images: ``[B, C, H, W]``, the kept training images; ``None`` before :meth:`fit`.
        seed: Seed of the draws.
    """

    n_training_images: int
    training_images: Tensor | None = field(default=None, repr=False, compare=False)
    seed: int = 0

    @property
    def fitted(self) -> bool:
        """Whether there are training images."""
        return self.training_images is not None

    def fit(self, model: nn.Module, loader: Iterable[Any]) -> Self:
        """Keep a random sample of the training images, in one pass.

        Args:
            model: Not used.
            loader: Batches of images ``[N, C, H, W]``, or tuples that begin with them, usually the training data.

        Returns:
            This explainer with its training images.

        Raises:
            TypeError: If a batch does not begin with a floating-point tensor.
            ValueError: If the loader is empty, or yields single images.
        """
        return replace(
            self, training_images=sample_images(type(self).__name__, loader, self.n_training_images, self.seed)
        )


def mean_mask(owner: str, loader: Iterable[Any]) -> Tensor:
    """Return the share of images whose mask contains a pixel, exactly: a sum of integers and one division.

    Args:
        owner: The explainer, for error messages.
        loader: Batches of ``(images, masks, targets)`` with masks ``[N, H, W]``. Images whose mask is empty or not
            finite do not count.

    Returns:
        ``[H, W]`` float64 on the CPU.

    Raises:
        NotFittedError: If no image has a mask.
        TypeError: If the masks of a batch are not a tensor ``[N, H, W]``.
        ValueError: If masks differ in size, or are not binary.
    """
    total, count = None, 0
    for batch in loader:
        if (masks := _known_masks(owner, batch)) is None:
            continue
        if total is not None and masks.shape[1:] != total.shape:
            raise ValueError(f"{owner}.fit: masks {list(masks.shape[1:])} follow masks {list(total.shape)}.")
        inside = masks.sum(0)
        total, count = inside if total is None else total + inside, count + len(masks)
    if total is None or not count:
        raise NotFittedError(
            f"{owner}.fit: no training image has a mask, expected at least one. Fit it to the training split of a data "
            "set with masks, or leave it out for this data set."
        )
    return total.double() / count


def _known_masks(owner: str, batch: Any) -> Tensor | None:
    """Return the masks ``[n, H, W]`` bool of a batch that are finite and not empty, on the CPU; None without masks."""
    masks = batch[1] if isinstance(batch, tuple | list) and len(batch) > 2 else None
    if masks is None:
        return None
    if not isinstance(masks, Tensor) or masks.ndim not in (3, 4):
        got = list(masks.shape) if isinstance(masks, Tensor) else type(masks).__name__
        raise TypeError(
            f"{owner}.fit: a batch has masks {got}, expected (images, masks, targets) with masks [N, H, W]."
        )
    masks = masks.detach().cpu()
    masks = masks[masks.isfinite().flatten(1).all(1)]
    if not ((masks == 0) | (masks == 1)).all():
        raise ValueError(f"{owner}.fit: a batch has masks with values other than 0 and 1.")
    masks = masks.bool()
    return masks[masks.flatten(1).any(1)]


@dataclass(frozen=True, kw_only=True)
class LocalPattern(KeepsTrainingImages, Attribution, ABC):
    """Base class: the weights w of a linear surrogate at x, times the covariance C of the training images near x: C w.

    C is the covariance of the ``neighbor_fraction`` nearest training images in the Euclidean distance d, weighted by
    exp(-d² / 2 h²), with h the median of their distances. This agrees with the solver ``local_covariance`` of the
    package ``patternlocal`` by the authors of PatternLocal (tested), as does the shrinkage of C.

    Attributes:
        shrinkage: Weight of the mean variance times the identity in C, from 0 to 1; the covariance has the rest. It
            regularizes C if few images are near.
        neighbor_fraction: Fraction of the training images that count as near, above 0 and at most 1.
        project_to_boundary: Whether near means near to the projection of x onto the hyperplane where the surrogate is
            zero, as in the authors' package, or near to x itself.
        n_training_images: Maximum number of training images that :meth:`fit` draws and keeps.
        training_images: ``[B, C, H, W]``, the kept training images; ``None`` before :meth:`fit`.
        seed: Seed of the draws. The draws of an image do not depend on its position in the batch.
    """

    channels: Channels = "sum"
    shrinkage: float = 0.0
    neighbor_fraction: float = 0.1
    project_to_boundary: bool = True
    n_training_images: int = 5000
    #: The explained output by default, which is zero at the decision boundary.
    explains: ClassVar[Output] = "margin"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.shrinkage <= 1:
            raise ValueError(f"{type(self).__name__}(shrinkage={self.shrinkage!r}): expected a number from 0 to 1.")
        if not 0 < self.neighbor_fraction <= 1:
            raise ValueError(
                f"{type(self).__name__}(neighbor_fraction={self.neighbor_fraction!r}): expected a number above 0, at "
                "most 1."
            )

    def __call__(self, model: nn.Module, images: Tensor, targets: Tensor) -> Tensor:
        """Return maps ``[N, H, W]``.

        Raises:
            NotFittedError: If :meth:`fit` was not called.
            ValueError: If it was called with images of another size.
        """
        name = type(self).__name__
        if self.training_images is None:
            raise not_fitted(name)
        if self.training_images.shape[1:] != images.shape[1:]:
            raise ValueError(
                f"{name}: fitted to images {list(self.training_images.shape[1:])}, got {list(images.shape[1:])}. "
                "Fit it to images of the size that is explained."
            )
        training = self.training_images.to(images).flatten(1)
        weights, values = self._surrogates(model, images, targets, training)
        points = images.flatten(1)
        if self.project_to_boundary:
            length = weights.square().sum(1)
            points = points - torch.where(length > 0, values / length, 0.0)[:, None] * weights
        patterns = [self._pattern(training, point, w) for point, w in zip(points, weights, strict=True)]
        return reduce_channels(torch.stack(patterns).reshape(images.shape), self.channels)

    @abstractmethod
    def _surrogates(self, model: nn.Module, images: Tensor, targets: Tensor, training: Tensor) -> tuple[Tensor, Tensor]:
        """Return the weights ``[N, V]`` of the surrogates and their values ``[N]`` at the images.

        Args:
            model: See :class:`~xaibench.explainers.Explainer`.
            images: ``[N, C, H, W]``, with V = C·H·W values each.
            targets: ``[N]``.
            training: ``[B, V]``, the training images.
        """

    def _pattern(self, training: Tensor, point: Tensor, weights: Tensor) -> Tensor:
        """Compute C w ``[V]`` without forming C."""
        distances = (training - point).square().sum(1).sqrt()
        nearest = distances.argsort(stable=True)[: max(1, int(self.neighbor_fraction * len(training)))]
        distances = distances[nearest]
        exactly = distances.to(torch.promote_types(distances.dtype, torch.float32))  # which quantile needs
        width = exactly.quantile(0.5).to(distances).clamp(min=torch.finfo(distances.dtype).eps)
        kernel = torch.exp(-0.5 * (distances / width).square())
        kernel = kernel / kernel.sum()
        apart = training[nearest] - kernel @ training[nearest]
        pattern = (kernel * (apart @ weights)) @ apart
        if not self.shrinkage:
            return pattern
        variance = (kernel @ apart.square()).mean()
        return (1 - self.shrinkage) * pattern + self.shrinkage * variance * weights
