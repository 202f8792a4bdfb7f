"""Blur Integrated Gradients: along the path on which the image is blurred away."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from xaibench.core.part_info import ExplainerInfo, described
from xaibench.explainers.shared.counted_passes import GRADIENT, Repeating
from xaibench.explainers.shared.interface import Attribution, blocks, reduce_channels, target_gradient

#: Beyond so many standard deviations the kernel ends, as scipy's.
_REACH = 4.0


@described(
    ExplainerInfo(
        "Blur IG",
        family="Gradients",
        citation="Xu, Venugopalan, Sundararajan: Attribution in Scale and Space. CVPR 2020.",
    )
)
@dataclass(frozen=True, kw_only=True)
class BlurIG(Repeating, Attribution):
    """Minus the sum over sigma of the gradient at the blurred image times what the blur changes there.

    The integral over the scale of the Gaussian blur, from none to ``max_sigma``, by a Riemann sum of equal steps; the
    change by sigma is a difference quotient. Beyond its edges the image is zero. As the authors' package ``saliency``
    does (tested). There is no baseline but the blurred image.

    Attributes:
        n_steps: Of sigma; 100 in the authors' package.
        max_sigma: Of the strongest blur, in pixels; ``None``: a sixth of the image's larger side, which of 299 pixels
            is about the 50 of the authors' package.
        grad_step: Of the difference quotient, in pixels.
    """

    each: ClassVar[int] = GRADIENT
    counted: ClassVar[str] = "n_steps"

    n_steps: int = 100
    max_sigma: float | None = None
    grad_step: float = 0.01

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("max_sigma", "grad_step"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(f"BlurIG({name}={value!r}): expected a number above 0.")

    def __call__(self, model: nn.Module, images: Tensor, targets: Tensor) -> Tensor:
        """Maps ``[N, H, W]``; with many steps they sum to f(x) less f of the blurred image."""
        largest = self.max_sigma or max(images.shape[-2:]) / 6
        apart = largest / self.n_steps
        total = torch.zeros_like(images)
        # In double precision: a difference quotient of so small a step has few digits in single.
        exact = images.double()
        for samples, steps in blocks(len(images), self.n_steps, self.rows(images)):
            sigmas = [step * apart for step in range(steps.start, steps.stop)]
            points = torch.stack([_blurred(exact[samples], sigma) for sigma in sigmas], 1)
            later = torch.stack([_blurred(exact[samples], sigma + self.grad_step) for sigma in sigmas], 1)
            change = ((later - points) / self.grad_step).to(images.dtype)
            classes = targets[samples].repeat_interleave(len(sigmas))
            gradients = target_gradient(model, points.to(images.dtype).flatten(0, 1), classes).reshape(change.shape)
            total[samples] -= apart * (change * gradients).sum(1)
        return reduce_channels(total, self.channels)


def _blurred(images: Tensor, sigma: float) -> Tensor:
    """Images ``[N, C, H, W]`` under a Gaussian of that standard deviation, zero beyond their edges."""
    rows, columns = (_kernel(side, sigma, images) for side in images.shape[-2:])
    return rows @ images @ columns


def _kernel(side: int, sigma: float, like: Tensor) -> Tensor:
    """What a row of so many pixels gets of each other: ``[side, side]``, symmetric."""
    reach = int(_REACH * sigma + 0.5)
    if reach == 0:
        return torch.eye(side, dtype=like.dtype, device=like.device)
    places = torch.arange(-reach, reach + 1, dtype=like.dtype, device=like.device)
    weights = torch.exp(-0.5 * (places / sigma) ** 2)
    number = torch.arange(side, device=like.device)
    distance = (number[:, None] - number).abs()
    return torch.where(distance <= reach, (weights / weights.sum())[reach + distance.clamp(max=reach)], 0.0)
