"""Integrated Gradients from a constant baseline and from random noise, Gradient SHAP and Expected Gradients.

Integrated Gradients and Gradient SHAP agree with Captum (tested), but bound their memory by ``batch_size``. Integrated
Gradients keeps the precision of its inputs (Captum rounds the quadrature weights to float32); Gradient SHAP uses its
own random generators.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor, nn

from xaibench.explainers.base import (
    Attribution,
    append_axes,
    blocks,
    prepare_baselines,
    reduce_channels,
    target_gradient,
)
from xaibench.explainers.shared.fitting import not_fitted, sample_images
from xaibench.explainers.shared.passes import GRADIENT, Repeating
from xaibench.registry.info import ExplainerInfo
from xaibench.tensors.random_numbers import normal_numbers, sample_generators


@ExplainerInfo(
    "Integrated Gradients",
    family="Gradients",
    citation="Sundararajan, Taly, Yan: Axiomatic Attribution for Deep Networks. ICML 2017.",
    exact_zero=True,
)
@dataclass(frozen=True, kw_only=True)
class IntegratedGradients(Repeating, Attribution):
    """(x - x') times the mean gradient on the straight line from the baseline x' to x (equation 1).

    The integral is computed by Gauss-Legendre quadrature, Captum's default (the paper's equation 3 is a Riemann sum).

    Attributes:
        n_steps: Points of the quadrature.
        baseline: Value of every pixel of x'.
    """

    each: ClassVar[int] = GRADIENT
    counted: ClassVar[str] = "n_steps"

    n_steps: int = 50
    baseline: float = 0.0

    def __call__(self, model: nn.Module, images: Tensor, targets: Tensor) -> Tensor:
        """Return maps ``[N, H, W]``; they sum to f(x) - f(x') up to the error of the quadrature."""
        found = integrated_gradients(model, images, targets, self.baseline, self.n_steps, self.rows(images))
        return reduce_channels(found, self.channels)


def integrated_gradients(
    model: nn.Module, images: Tensor, targets: Tensor, baseline: Tensor | float, n_steps: int, rows: int
) -> Tensor:
    """Compute integrated gradients ``[N, C, H, W]`` by Gauss-Legendre quadrature, before channels are reduced.

    Args:
        model: See :class:`~xaibench.explainers.Explainer`.
        images: ``[N, C, H, W]``.
        targets: ``[N]``.
        baseline: ``[N, C, H, W]``, or the value of every pixel.
        n_steps: Points of the quadrature.
        rows: Rows per forward pass.
    """
    nodes, weights = _quadrature(n_steps)
    along = append_axes(images.new_tensor((1 + nodes) / 2)[None], images[:, None])
    weight = append_axes(images.new_tensor(weights / 2)[None], images[:, None])
    total = torch.zeros_like(images)
    for samples, steps in blocks(len(images), n_steps, rows):
        start = baseline[samples, None] if isinstance(baseline, Tensor) else baseline
        points = start + along[:, steps] * (images[samples, None] - start)
        total[samples] += (weight[:, steps] * gradients_at(model, points, targets[samples])).sum(1)
    return total * (images - baseline)


#: Cached, since thousands of points take a minute.
_quadrature = functools.cache(np.polynomial.legendre.leggauss)


def gradients_at(model: nn.Module, points: Tensor, targets: Tensor) -> Tensor:
    """Return gradients ``[n, s, C, H, W]`` at the points ``[n, s, C, H, W]`` of n samples."""
    flat = target_gradient(model, points.flatten(0, 1), targets.repeat_interleave(points.shape[1]))
    return flat.reshape(points.shape)


@ExplainerInfo(
    "Random-baseline IG",
    family="Gradients",
    citation="Sturmfels, Lundberg, Lee: Visualizing the Impact of Feature Attribution Baselines. Distill, 2020.",
    exact_zero=True,
)
@dataclass(frozen=True, kw_only=True)
class RandomBaselineIG(Repeating, Attribution):
    """The mean of Integrated Gradients over baselines of independent uniform noise.

    With a constant baseline, a pixel of that value gets zero, regardless of the network; with random baselines, no
    pixel does. The noise ranges from the smallest to the largest value of the image.

    Attributes:
        n_baselines: Number of baselines.
        n_steps: Points of the quadrature for each baseline.
        seed: Seed of the baselines. The draws of an image do not depend on its position in the batch.
    """

    counted: ClassVar[str] = "n_baselines"

    n_baselines: int = 5
    n_steps: int = 20
    seed: int = 0

    def passes_each(self, images: Tensor) -> int:
        """Return the passes per image and baseline: a gradient at each point of the quadrature."""
        return GRADIENT * self.n_steps

    def cheaper_each(self) -> str:
        """Return advice on other parameters that reduce the passes, for error messages."""
        return f"n_steps below {self.n_steps}"

    def __call__(self, model: nn.Module, images: Tensor, targets: Tensor) -> Tensor:
        """Return maps ``[N, H, W]``; they sum to about f(x) minus the mean of f over the baselines."""
        generators = sample_generators(self.seed, images)
        low, high = (append_axes(end, images) for end in images.flatten(1).aminmax(dim=1))
        total = torch.zeros_like(images)
        for _ in range(self.n_baselines):
            drawn = images.new_tensor(np.stack([rng.random(images.shape[1:]) for rng in generators]))
            baseline = low + (high - low) * drawn
            total += integrated_gradients(model, images, targets, baseline, self.n_steps, self.rows(images))
        return reduce_channels(total / self.n_baselines, self.channels)


@ExplainerInfo(
    "Gradient SHAP",
    family="Gradients",
    revision=2,
    citation="Lundberg, Lee: A Unified Approach to Interpreting Model Predictions. NeurIPS 2017.",
    exact_zero=True,
)
@dataclass(frozen=True, kw_only=True)
class GradientSHAP(Repeating, Attribution):
    """The mean of (x - b) times the gradient at a random point between x and a random baseline b.

    Attributes:
        n_samples: Random points per image.
        stdev: Standard deviation of the Gaussian noise added to the image at each point.
        baselines: ``[B, C, H, W]``, from which one is drawn for each point; ``None``: zeros.
        seed: Seed of the random points. The draws of an image do not depend on its position in the batch.
    """

    each: ClassVar[int] = GRADIENT
    counted: ClassVar[str] = "n_samples"

    n_samples: int = 5
    stdev: float = 0.0
    baselines: Tensor | None = field(default=None, repr=False, compare=False)
    seed: int = 0

    def __call__(self, model: nn.Module, images: Tensor, targets: Tensor) -> Tensor:
        """Return maps ``[N, H, W]``."""
        # The generators draw one number after another, so the blocks do not change the draws.
        generators = sample_generators(self.seed, images)
        shape = (len(images), self.n_samples)
        baselines = prepare_baselines(self.baselines, images)
        drawn = [(rng.random(self.n_samples), rng.integers(len(baselines), size=self.n_samples)) for rng in generators]
        along = images.new_tensor(np.stack([places for places, _ in drawn]))
        along = append_axes(along, images[:, None])
        start = torch.as_tensor(np.stack([chosen for _, chosen in drawn]), device=images.device)
        total = torch.zeros_like(images)
        cut = list(blocks(*shape, self.rows(images), across=images.device.type != "cpu"))
        noise = normal_numbers(generators, images, cut)
        for samples, steps in cut:
            end = images[samples, None].expand(-1, steps.stop - steps.start, *images.shape[1:])
            if self.stdev:
                end = end + self.stdev * next(noise)
            difference = end - baselines[start[samples, steps]]
            points = end - (1 - along[samples, steps]) * difference
            total[samples] += (difference * gradients_at(model, points, targets[samples])).sum(1)
        return reduce_channels(total / self.n_samples, self.channels)


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
