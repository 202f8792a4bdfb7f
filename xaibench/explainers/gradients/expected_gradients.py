"""Expected Gradients: Integrated Gradients averaged over the training images as baselines."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

from torch import Tensor, nn

from xaibench.component.info import ExplainerInfo
from xaibench.explainers.base import Attribution
from xaibench.explainers.gradients.gradient_shap import GradientSHAP
from xaibench.explainers.shared.fitting import not_fitted, sample_images
from xaibench.explainers.shared.passes import GRADIENT, Repeating


@ExplainerInfo(
    "Expected Gradients",
    family="Gradients",
    citation="Erion et al.: Improving performance of deep learning models with axiomatic attribution priors and "
    "expected gradients. Nature Machine Intelligence 3, 2021.",
    exact_zero=True,
)
@dataclass(frozen=True, kw_only=True)
class ExpectedGradients(Repeating, Attribution):
    """The mean of (x - x') times the gradient at x' + a (x - x'), x' a training image, a uniform in [0, 1].

    Both are drawn for each sample. The mean converges to that of Integrated Gradients over all training images as
    baselines. It is Gradient SHAP without noise, with these baselines.

    Departure: for a large training split, the baselines are ``n_baselines`` images that :meth:`fit` draws and keeps.

    Attributes:
        n_samples: Draws per image; 200 in the paper.
        n_baselines: Maximum number of training images that are kept.
        seed: Seed of both draws. The draws of an image do not depend on its position in the batch.
        baselines: ``[B, C, H, W]``, the kept training images; ``None`` before :meth:`fit`.
    """

    each: ClassVar[int] = GRADIENT
    counted: ClassVar[str] = "n_samples"

    n_samples: int = 200
    n_baselines: int = 200
    seed: int = 0
    baselines: Tensor | None = field(default=None, repr=False, compare=False)

    @property
    def fitted(self) -> bool:
        """Whether there are baselines."""
        return self.baselines is not None

    def fit(self, model: nn.Module, loader: Iterable[Any]) -> Self:
        """Keep a random sample of the training images, in one pass.

        Args:
            model: Not used.
            loader: Batches of images ``[N, C, H, W]``, or tuples that begin with them, usually the training data.

        Returns:
            This explainer with its baselines.

        Raises:
            TypeError: If a batch does not begin with a floating-point tensor.
            ValueError: If the loader is empty, or yields single images.
        """
        return replace(self, baselines=sample_images(type(self).__name__, loader, self.n_baselines, self.seed))

    def __call__(self, model: nn.Module, images: Tensor, targets: Tensor) -> Tensor:
        """Return maps ``[N, H, W]``; their expectation sums to f(x) minus the mean of f over the baselines.

        Raises:
            NotFittedError: If :meth:`fit` was not called.
            ValueError: If it was called with images of another size.
        """
        if self.baselines is None:
            raise not_fitted("ExpectedGradients")
        drawn = GradientSHAP(
            n_samples=self.n_samples,
            baselines=self.baselines,
            seed=self.seed,
            channels=self.channels,
            batch_size=self.batch_size,
        )
        return drawn(model, images, targets)
