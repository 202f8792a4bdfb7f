"""PatternLocal: transform a local linear surrogate into a pattern, using the training images near the image."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from xaibench.core.part_info import ExplainerInfo, described
from xaibench.core.vocabulary import Output
from xaibench.explainers.base import Channels, chunks, reduce_channels, target_output
from xaibench.explainers.gradients.smoothgrad import NoisyGradients
from xaibench.explainers.shared.fitted_data import NotFittedError, sample_images


@described(
    ExplainerInfo(
        "PatternLocal",
        family="Patterns",
        citation="Gjølbye, Haufe, Hansen: Minimizing False-Positive Attributions in Explanations of Non-Linear Models. "
        "arXiv:2505.11210, 2025.",
        exact_zero=False,
    )
)
@dataclass(frozen=True, kw_only=True)
class PatternLocal(NoisyGradients):
    """The weights w of a linear surrogate near x, times the covariance C of the training images near x: C w.

    For a linear network with equal weights of all training images, this is the pattern of Haufe et al. (2014) up to a
    factor: a suppressor, which the network uses only to cancel noise elsewhere, gets zero. With weights by distance it
    may get a small value. C is the covariance of the ``neighbor_fraction`` nearest training images in the Euclidean
    distance d, weighted by exp(-d² / 2 h²), with h the median of their distances. This agrees with the solver
    ``local_covariance`` of the authors' package ``patternlocal`` (tested).

    Departures: the surrogate is the mean gradient over noisy copies (LIME, Kernel SHAP or gradients in the paper),
    together with the network's output at x. The margin is explained, so that the surrogate is zero at the decision
    boundary.

    Attributes:
        n_samples: Noisy copies per image.
        neighbor_fraction: Fraction of the training images that count as near, above 0 and at most 1.
        project_to_boundary: Whether near means near to the projection of x onto the hyperplane where the surrogate is
            zero, as in the authors' package, or near to x itself.
        n_training_images: Maximum number of training images that :meth:`fit` draws and keeps.
        training_images: ``[B, C, H, W]``, the kept training images; ``None`` before :meth:`fit`.
    """

    channels: Channels = "sum"
    neighbor_fraction: float = 0.1
    project_to_boundary: bool = True
    n_training_images: int = 5000
    training_images: Tensor | None = field(default=None, repr=False, compare=False)
    #: The explained output by default.
    explains: ClassVar[Output] = "margin"

    @property
    def once(self) -> int:
        """The pass for the output at the image, which determines the distance to the hyperplane."""
        return int(self.project_to_boundary)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.neighbor_fraction <= 1:
            raise ValueError(
                f"PatternLocal(neighbor_fraction={self.neighbor_fraction!r}): expected a number above 0, at most 1."
            )

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

    def __call__(self, model: nn.Module, images: Tensor, targets: Tensor) -> Tensor:
        """Return maps ``[N, H, W]``.

        Raises:
            NotFittedError: If :meth:`fit` was not called.
            ValueError: If it was called with images of another size.
        """
        if self.training_images is None:
            raise NotFittedError(
                "PatternLocal is not fitted. Fit it to the training images first, fitted = PatternLocal().fit(model, "
                "loader), and use the result, explain(fitted, model, images, targets)."
            )
        if self.training_images.shape[1:] != images.shape[1:]:
            raise ValueError(
                f"PatternLocal: fitted to images {list(self.training_images.shape[1:])}, got {list(images.shape[1:])}. "
                "Fit it to images of the size that is explained."
            )
        weights = torch.zeros_like(images)
        for samples, _, gradients in self.noisy_gradients(model, images, targets):
            weights[samples] += gradients.sum(1) / self.n_samples
        training = self.training_images.to(images).flatten(1)
        found = []
        for x, y, w in chunks(self.rows(images), images, targets, weights):
            points, slopes = x.flatten(1), w.flatten(1)
            if self.project_to_boundary:
                length = slopes.square().sum(1)
                away = torch.where(length > 0, target_output(model, x, y) / length, 0.0)
                points = points - away[:, None] * slopes
            near = [self._pattern(training, point, slope) for point, slope in zip(points, slopes, strict=True)]
            found.append(torch.stack(near).reshape(x.shape))
        return reduce_channels(torch.cat(found), self.channels)

    def _pattern(self, training: Tensor, point: Tensor, slope: Tensor) -> Tensor:
        """Compute C w ``[F]`` without forming C."""
        distances = (training - point).square().sum(1).sqrt()
        nearest = distances.argsort(stable=True)[: max(1, int(self.neighbor_fraction * len(training)))]
        distances = distances[nearest]
        width = distances.quantile(0.5).clamp(min=torch.finfo(distances.dtype).eps)
        kernel = torch.exp(-0.5 * (distances / width).square())
        kernel = kernel / kernel.sum()
        apart = training[nearest] - kernel @ training[nearest]
        return (kernel * (apart @ slope)) @ apart
