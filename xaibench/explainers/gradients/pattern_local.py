"""PatternLocal: from what a network reads near an image to what lies behind it in the training images near there."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from xaibench.core.part_info import ExplainerInfo, described
from xaibench.core.vocabulary import Output
from xaibench.explainers.gradients.smoothgrad import NoisyGradients
from xaibench.explainers.shared.fitted_data import NotFittedError, kept_images
from xaibench.explainers.shared.interface import Channels, chunks, reduce_channels, target_output


@described(
    ExplainerInfo(
        "PatternLocal",
        family="Patterns",
        citation="Gjølbye, Haufe, Hansen: Minimizing False-Positive Attributions in Explanations of Non-Linear Models. "
        "arXiv:2505.11210, 2025.",
    )
)
@dataclass(frozen=True, kw_only=True)
class PatternLocal(NoisyGradients):
    """The weights w of a linear surrogate near x, times the covariance of the training images near x: C w.

    Of a linear network and all training images alike it is the pattern of Haufe et al. (2014) but for a factor: a
    suppressor, which the network reads only to cancel noise elsewhere, gets nothing. Weights by distance leave it some.
    C is the covariance of the ``neighbor_fraction`` nearest training images in the Euclidean distance d, weighted by
    exp(-d² / 2 h²), h the median of their distances. As the solver ``local_covariance`` of the authors' package
    ``patternlocal`` (tested).

    Departures: the surrogate is the mean gradient over noisy copies (the paper: LIME, Kernel SHAP or gradients), with
    the network's own output at x. The margin is explained, so that the hyperplane on which the surrogate is zero is
    where the network decides.

    Attributes:
        n_samples: Noisy copies of each image.
        neighbor_fraction: Share of the training images that are near, above 0 and at most 1.
        project_to_boundary: Whether near means near to the point nearest x on which the surrogate is zero, as in the authors'
            package, or near to x.
        n_training_images: Training images that are kept, at most: drawn by :meth:`fit`.
        training_images: ``[B, C, H, W]``, those that are kept; ``None`` before :meth:`fit`.
    """

    channels: Channels = "sum"
    neighbor_fraction: float = 0.1
    project_to_boundary: bool = True
    n_training_images: int = 5000
    training_images: Tensor | None = field(default=None, repr=False, compare=False)
    #: What of the model is explained unless the caller says otherwise.
    explains: ClassVar[Output] = "margin"

    @property
    def once(self) -> int:
        """The output at the image, where it says how far the hyperplane is."""
        return int(self.project_to_boundary)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.neighbor_fraction <= 1:
            raise ValueError(
                f"PatternLocal(neighbor_fraction={self.neighbor_fraction!r}): expected a share above 0, at most 1."
            )

    @property
    def fitted(self) -> bool:
        """Whether it has training images."""
        return self.training_images is not None

    def fit(self, model: nn.Module, loader: Iterable[Any]) -> Self:
        """Draw and keep training images.

        Args:
            model: Not looked at.
            loader: Batches of images ``[N, C, H, W]``, or tuples that begin with them; the training data, by rights.

        Returns:
            This explainer with its training images.

        Raises:
            TypeError: If a batch does not begin with a floating tensor.
            ValueError: If the loader is empty, or yields single images.
        """
        return replace(
            self, training_images=kept_images(type(self).__name__, loader, self.n_training_images, self.seed)
        )

    def __call__(self, model: nn.Module, images: Tensor, targets: Tensor) -> Tensor:
        """Maps ``[N, H, W]``.

        Raises:
            NotFittedError: If :meth:`fit` was not called.
            ValueError: If it was, with images of another size.
        """
        if self.training_images is None:
            raise NotFittedError(
                "PatternLocal has no training images: fit it to them first, fitted = PatternLocal().fit(model, "
                "loader), and explain with what that returns, explain(fitted, model, images, targets)."
            )
        if self.training_images.shape[1:] != images.shape[1:]:
            raise ValueError(
                f"PatternLocal: fitted to images {list(self.training_images.shape[1:])}, got {list(images.shape[1:])}. Fit it "
                "to images of the size that is explained."
            )
        weights = torch.zeros_like(images)
        for samples, _, gradients in self.at_copies(model, images, targets):
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
        """C w ``[F]``, without C."""
        distances = (training - point).square().sum(1).sqrt()
        nearest = distances.argsort(stable=True)[: max(1, int(self.neighbor_fraction * len(training)))]
        distances = distances[nearest]
        width = distances.quantile(0.5).clamp(min=torch.finfo(distances.dtype).eps)
        kernel = torch.exp(-0.5 * (distances / width).square())
        kernel = kernel / kernel.sum()
        apart = training[nearest] - kernel @ training[nearest]
        return (kernel * (apart @ slope)) @ apart
