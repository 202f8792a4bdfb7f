"""Explainers based on the plain gradient: Saliency, Integrated Gradients, Gradient SHAP.

They agree with the methods of the same name in Captum (tested), but bound their memory by ``batch_size``, keep the
precision of their inputs (Captum rounds the quadrature weights to float32) and use their own random generators.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from xaibench.compute.sample_random import normal_numbers, sample_generators
from xaibench.core.part_info import ExplainerInfo, described
from xaibench.explainers.base import (
    Attribution,
    Channels,
    blocks,
    reduce_channels,
    target_gradient,
)
from xaibench.explainers.shared.baselines import prepare_baselines
from xaibench.explainers.shared.passes import GRADIENT, Repeating


@described(
    ExplainerInfo(
        "Saliency",
        family="Gradients",
        citation="Simonyan, Vedaldi, Zisserman: Deep Inside Convolutional Networks. ICLR workshop 2014.",
        passes=2,
        exact_zero=True,
    )
)
@dataclass(frozen=True, kw_only=True)
class Saliency(Attribution):
    """The gradient of the target output with respect to the image, with its sign.

    Departure from Captum, whose default is the absolute value: the map stays signed, and metrics take the magnitude.
    The default of ``channels`` is ``"max_abs"``, as in the paper (section 3.1).
    """

    channels: Channels = "max_abs"

    def __call__(self, model: nn.Module, images: Tensor, targets: Tensor) -> Tensor:
        """Return maps ``[N, H, W]``."""
        return self.by_chunk(lambda x, y: target_gradient(model, x, y), images, targets)


@described(
    ExplainerInfo(
        "Integrated Gradients",
        family="Gradients",
        citation="Sundararajan, Taly, Yan: Axiomatic Attribution for Deep Networks. ICML 2017.",
        exact_zero=True,
    )
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
    along = images.new_tensor((1 + nodes) / 2).reshape(1, -1, 1, 1, 1)
    weight = images.new_tensor(weights / 2).reshape(1, -1, 1, 1, 1)
    total = torch.zeros_like(images)
    for samples, steps in blocks(len(images), n_steps, rows):
        start = baseline[samples, None] if isinstance(baseline, Tensor) else baseline
        points = start + along[:, steps] * (images[samples, None] - start)
        total[samples] += (weight[:, steps] * _gradients(model, points, targets[samples])).sum(1)
    return total * (images - baseline)


#: Cached, since thousands of points take a minute.
_quadrature = functools.cache(np.polynomial.legendre.leggauss)


@described(
    ExplainerInfo(
        "Gradient SHAP",
        family="Gradients",
        revision=2,
        citation="Lundberg, Lee: A Unified Approach to Interpreting Model Predictions. NeurIPS 2017.",
        exact_zero=True,
    )
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
        along = images.new_tensor(np.stack([places for places, _ in drawn])).reshape(*shape, 1, 1, 1)
        start = torch.as_tensor(np.stack([chosen for _, chosen in drawn]), device=images.device)
        total = torch.zeros_like(images)
        cut = list(blocks(*shape, self.rows(images), across=images.device.type != "cpu"))
        noise = normal_numbers(generators, images, cut)
        for samples, steps in cut:
            end = images[samples, None].expand(-1, steps.stop - steps.start, -1, -1, -1)
            if self.stdev:
                end = end + self.stdev * next(noise)
            difference = end - baselines[start[samples, steps]]
            points = end - (1 - along[samples, steps]) * difference
            total[samples] += (difference * _gradients(model, points, targets[samples])).sum(1)
        return reduce_channels(total / self.n_samples, self.channels)


def _gradients(model: nn.Module, points: Tensor, targets: Tensor) -> Tensor:
    """Return gradients ``[n, s, C, H, W]`` at the points ``[n, s, C, H, W]`` of n samples."""
    flat = target_gradient(model, points.flatten(0, 1), targets.repeat_interleave(points.shape[1]))
    return flat.reshape(points.shape)
