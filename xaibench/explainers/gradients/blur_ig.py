"""Blur Integrated Gradients: integrate along a path on which the image is progressively blurred."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from xaibench.core.checks import check_amount
from xaibench.explainers.base import Attribution, blocks, reduce_channels, target_gradient
from xaibench.explainers.shared.passes import GRADIENT, Repeating
from xaibench.registry.info import ExplainerInfo

#: The kernel is truncated at this many standard deviations, as in scipy.
_TRUNCATE = 4.0


@ExplainerInfo(
    "Blur IG",
    family="Gradients",
    citation="Xu, Venugopalan, Sundararajan: Attribution in Scale and Space. CVPR 2020.",
    exact_zero=True,
)
@dataclass(frozen=True, kw_only=True)
class BlurIG(Repeating, Attribution):
    """Minus the sum over sigma of the gradient at the blurred image times the change of that image with sigma.

    The integral over the scale of the Gaussian blur, from none to ``max_sigma``, is a Riemann sum of equal steps. The
    change with sigma is a difference quotient. The image is zero beyond its edges. This agrees with the authors'
    package ``saliency`` (tested). The only baseline is the blurred image. Volumes are blurred along all three axes; one
    of a single slice is blurred within that slice.

    Attributes:
        n_steps: Steps of sigma; 100 in the authors' package.
        max_sigma: Sigma of the strongest blur, in pixels; ``None``: a sixth of the image's larger side, which for 299
            pixels is about the 50 of the authors' package.
        grad_step: Step of the difference quotient, in pixels.
    """

    each: ClassVar[int] = GRADIENT
    counted: ClassVar[str] = "n_steps"

    n_steps: int = 100
    max_sigma: float | None = None
    grad_step: float = 0.01

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("max_sigma", "grad_step"):
            if getattr(self, name) is not None:
                check_amount(name, getattr(self, name), owner="BlurIG")

    def __call__(self, model: nn.Module, images: Tensor, targets: Tensor) -> Tensor:
        """Return maps ``[N, H, W]``; with many steps they sum to f(x) minus f of the blurred image."""
        largest = self.max_sigma or max(images.shape[2:]) / 6
        apart = largest / self.n_steps
        total = torch.zeros_like(images)
        # In double precision, since the difference quotient of a small step has few digits in single precision.
        exact = images.double()
        for samples, steps in blocks(len(images), self.n_steps, self.rows(images)):
            sigmas = [step * apart for step in range(steps.start, steps.stop)]
            points = torch.stack([_blur(exact[samples], sigma) for sigma in sigmas], 1)
            later = torch.stack([_blur(exact[samples], sigma + self.grad_step) for sigma in sigmas], 1)
            change = ((later - points) / self.grad_step).to(images.dtype)
            classes = targets[samples].repeat_interleave(len(sigmas))
            gradients = target_gradient(model, points.to(images.dtype).flatten(0, 1), classes).reshape(change.shape)
            total[samples] -= apart * (change * gradients).sum(1)
        return reduce_channels(total, self.channels)


def _blur(images: Tensor, sigma: float) -> Tensor:
    """Blur images ``[N, C, H, W]`` with a Gaussian of standard deviation ``sigma``; zero beyond their edges."""
    for slices in images.shape[2:-2]:  # of a volume
        if slices > 1:
            images = torch.einsum("de,ncehw->ncdhw", _kernel(slices, sigma, images), images)
    rows, columns = (_kernel(side, sigma, images) for side in images.shape[-2:])
    return rows @ images @ columns


def _kernel(side: int, sigma: float, like: Tensor) -> Tensor:
    """Return the blur of a row of ``side`` pixels as a symmetric matrix ``[side, side]``."""
    reach = int(_TRUNCATE * sigma + 0.5)
    if reach == 0:
        return torch.eye(side, dtype=like.dtype, device=like.device)
    places = torch.arange(-reach, reach + 1, dtype=like.dtype, device=like.device)
    weights = torch.exp(-0.5 * (places / sigma) ** 2)
    number = torch.arange(side, device=like.device)
    distance = (number[:, None] - number).abs()
    return torch.where(distance <= reach, (weights / weights.sum())[reach + distance.clamp(max=reach)], 0.0)
