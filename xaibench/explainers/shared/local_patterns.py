"""Base class of explainers that turn the weights of a local linear surrogate into a pattern."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from xaibench.core.types import Output
from xaibench.explainers.base import Attribution, Channels, reduce_channels
from xaibench.explainers.shared.fitted_data import KeepsTrainingImages, NotFittedError


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
            raise NotFittedError(
                f"{name} is not fitted. Fit it to the training images first, fitted = {name}().fit(model, loader), "
                "and use the result, explain(fitted, model, images, targets)."
            )
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
        width = distances.quantile(0.5).clamp(min=torch.finfo(distances.dtype).eps)
        kernel = torch.exp(-0.5 * (distances / width).square())
        kernel = kernel / kernel.sum()
        apart = training[nearest] - kernel @ training[nearest]
        pattern = (kernel * (apart @ weights)) @ apart
        if not self.shrinkage:
            return pattern
        variance = (kernel @ apart.square()).mean()
        return (1 - self.shrinkage) * pattern + self.shrinkage * variance * weights
