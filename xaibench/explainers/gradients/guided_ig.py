"""Guided Integrated Gradients: integrate along a path that moves the pixels with small gradients first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from xaibench.explainers.base import Attribution, target_gradient
from xaibench.explainers.shared.passes import GRADIENT, Repeating
from xaibench.registry.info import ExplainerInfo


@ExplainerInfo(
    "Guided IG",
    family="Gradients",
    citation="Kapishnikov et al.: Guided Integrated Gradients: An Adaptive Path Method for Removing Noise. CVPR 2021.",
    exact_zero=True,
)
@dataclass(frozen=True, kw_only=True)
class GuidedIG(Repeating, Attribution):
    """The sum of gradient times step along a path from the baseline to x that avoids large gradients.

    Each step reduces the L1 distance to x by the same amount. It moves only the ``fraction`` of the values with the
    smallest partial derivatives, and no value deviates from the straight line by more than ``max_dist`` of its way,
    ahead or behind. If these values do not suffice, the next ones follow. This agrees with the authors' package
    ``saliency`` (tested with version 0.2.1, which runs on NumPy 2.4 only with a patch, since it calls ``np.quantile``
    with ``interpolation=``).

    Attributes:
        n_steps: Steps of the path; each needs one pass and depends on the previous one. 200 in the authors' package.
        fraction: Fraction of the values that move in a step, between 0 and 1.
        max_dist: Maximum deviation of a value from the straight line, as a fraction of its way; 0 is Integrated
            Gradients by a Riemann sum, 1 is no constraint.
        baseline: Value of every pixel at the beginning of the path.
    """

    each: ClassVar[int] = GRADIENT
    counted: ClassVar[str] = "n_steps"

    n_steps: int = 200
    fraction: float = 0.25
    max_dist: float = 0.02
    baseline: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("fraction", "max_dist"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"GuidedIG({name}={getattr(self, name)!r}): expected a number from 0 to 1.")

    def __call__(self, model: nn.Module, images: Tensor, targets: Tensor) -> Tensor:
        """Return maps ``[N, H, W]``; with many steps they sum to f(x) - f(baseline)."""
        return self.by_chunk(lambda x, y: self._follow_path(model, x, y), images, targets)

    def _follow_path(self, model: nn.Module, images: Tensor, targets: Tensor) -> Tensor:
        # In double precision, since each step ends when a distance is reached to nine digits, and on the CPU, since
        # every iteration would synchronize with the GPU.
        end = images.flatten(1).cpu().double()
        path = _Path(end, torch.full_like(end, self.baseline), self.fraction, self.max_dist)
        for step in range(self.n_steps):
            gradient = target_gradient(model, path.at.to(images).reshape(images.shape), targets)
            path.advance((step + 1) / self.n_steps, gradient.flatten(1).cpu().double())
        return path.total.to(images).reshape(images.shape)


class _Path:
    """The paths of n images: ``at`` is the current point, ``total`` the attribution so far, ``[n, F]``."""

    def __init__(self, end: Tensor, start: Tensor, fraction: float, max_dist: float) -> None:
        self.end, self.start, self.max_dist = end, start, max_dist
        self.place = int(fraction * (end.shape[1] - 1))
        self.length = (end - start).abs().sum(1)
        self.at, self.total = start.clone(), torch.zeros_like(end)

    def advance(self, share: float, gradient: Tensor) -> None:
        """Move each path until ``1 - share`` of its length is left, and add gradient times step to ``total``."""
        least, most = max(share - self.max_dist, 0.0), min(share + self.max_dist, 1.0)
        behind, ahead = (self.start + (self.end - self.start) * limit for limit in (least, most))
        left, way = self.length * (1 - share), self.end - self.start
        size, going = gradient.abs(), self.length > 0
        while going.any():
            gone = torch.where(way != 0, (self.at - self.start) / way, most)
            at = torch.where(gone < least, behind, self.at)
            now = (at - self.end).abs().sum(1)
            arrived = (now - left).abs() <= 1e-9 * torch.maximum(now, left).clamp(min=1.0)
            # Values that have reached the limit are not chosen again in this step.
            size = size.masked_fill(at == ahead, torch.inf)
            chosen = (size <= size.sort(1).values[:, self.place, None]) & size.isfinite()
            reach = ((at - ahead).abs() * chosen).sum(1)
            needed = torch.where(reach > 0, (now - left).clamp(min=0) / reach, torch.inf)
            moved = torch.where(needed[:, None] > 1, ahead, at + (ahead - at) * needed[:, None].clamp(max=1))
            at = torch.where(chosen & ~arrived[:, None], moved, at)
            at = torch.where(going[:, None], at, self.at)
            self.total += (at - self.at) * gradient
            self.at = at
            going &= ~arrived & (needed > 1) & (size.isfinite().any(1))
