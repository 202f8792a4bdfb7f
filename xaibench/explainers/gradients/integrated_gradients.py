"""Integrated Gradients.

It agrees with Captum (tested), but bounds its memory by ``batch_size`` and keeps the precision of its inputs (Captum
rounds the quadrature weights to float32).
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from xaibench.component.info import ExplainerInfo
from xaibench.explainers.base import (
    Attribution,
    append_axes,
    blocks,
    reduce_channels,
    target_gradient,
)
from xaibench.explainers.shared.passes import GRADIENT, Repeating


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
