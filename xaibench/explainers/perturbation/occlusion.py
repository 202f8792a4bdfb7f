"""Occlusion: the decrease of the output when a window of the image is covered."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from xaibench.core.checks import check_count
from xaibench.core.part_info import ExplainerInfo, described
from xaibench.explainers.base import blocks, chunks, target_output
from xaibench.explainers.shared.layer_activations import fastest_layout, forward_rows
from xaibench.explainers.shared.passes import budget_error
from xaibench.kernels.pixel_updates.incremental_passes import IncrementalPasses, Steps


@described(
    ExplainerInfo(
        "Occlusion",
        family="Perturbations",
        needs_gradient=False,
        citation="Zeiler, Fergus: Visualizing and Understanding Convolutional Networks. ECCV 2014.",
        exact_zero=True,
    )
)
@dataclass(frozen=True, kw_only=True)
class Occlusion:
    """The mean of f(x) - f(x with the window covered) over the windows that cover a pixel.

    The windows cover all channels; those at the lower and right border are cut off there. Agrees with Captum's
    ``Occlusion`` (tested). The paper (section 4.2) instead shows the output at the position of the window, for one gray
    square. On a CPU, small networks compute only the changes caused by a window
    (:mod:`xaibench.kernels.pixel_updates.incremental_passes`).

    Attributes:
        window: Side of the square window in pixels; ``None``: a fourteenth of the shorter side of the image, rounded up
            (16 at 224×224, 5 at 64×64, 1 at 8×8).
        stride: Step of the window in pixels, at most ``window``; ``None``: half of it, at least 1, which gives 729
            windows at 224×224 and 1024 at 64×64.
        baseline: Value of covered pixels.
        batch_size: Rows per forward pass; ``None``: chosen by the size of the images. It bounds the memory and changes
            the maps by rounding only.
    """

    window: int | None = None
    stride: int | None = None
    baseline: float = 0.0
    batch_size: int | None = None

    def __post_init__(self) -> None:
        for name in ("window", "stride", "batch_size"):
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name), owner="Occlusion")

    def passes(self, images: Tensor) -> int:
        """Return the number of passes for these images.

        Args:
            images: ``[N, C, H, W]``.

        Returns:
            One per image and one per window.
        """
        sides = images.shape[-2:]
        window, stride = self._sizes(images)
        return len(images) * (1 + math.prod(math.ceil((side - window) / stride) + 1 for side in sides))

    def cheaper(self) -> str:
        """Return how to reduce the number of passes, for messages.

        Returns:
            The change in words.
        """
        return "a larger stride (and window)"

    def alike(self, images: Tensor) -> list[list[int]]:
        """Group the images by cost.

        Args:
            images: ``[N, C, H, W]``.

        Returns:
            One group with all images.
        """
        return [list(range(len(images)))]

    def within(self, budget: int, images: Tensor) -> Occlusion:
        """Return a copy with the smallest stride that the budget allows.

        Args:
            budget: Maximum number of passes per image.
            images: ``[N, C, H, W]``.

        Returns:
            The explainer with that stride, and with a window at least as large as the stride.

        Raises:
            ValueError: If the budget is too small even for a single window.
        """
        window, _ = self._sizes(images)
        for stride in range(1, min(images.shape[-2:]) + 1):
            found = replace(self, stride=stride, window=max(window, stride))
            if found.passes(images[:1]) <= budget:
                return found
        raise budget_error("Occlusion", budget, found.passes(images[:1]))

    def _sizes(self, images: Tensor) -> tuple[int, int]:
        """Return window and stride for these images."""
        window = self.window or math.ceil(min(images.shape[-2:]) / 14)
        return window, self.stride or max(1, window // 2)

    def __call__(self, model: nn.Module, images: Tensor, targets: Tensor) -> Tensor:
        """Return maps ``[N, H, W]``.

        Raises:
            ValueError: If the stride is larger than the window, which would leave out pixels, or the window is larger
                than the image.
        """
        height, width = images.shape[-2:]
        window, stride = self._sizes(images)
        if not stride <= window <= min(height, width):
            raise ValueError(
                f"Occlusion(window={window}, stride={stride}): expected stride <= window <= {min(height, width)}, the "
                f"shorter side of the images ({height}×{width})."
            )
        tops, lefts = (_window_starts(side, window, stride).to(images.device) for side in (height, width))
        corners = torch.cartesian_prod(tops, lefts)
        per_pass = forward_rows(images, self.batch_size)
        whole = torch.cat([target_output(model, x, y) for x, y in chunks(per_pass, images, targets)])
        times = _coverage(tops, window, height)[:, None] * _coverage(lefts, window, width)
        total = images.new_zeros(len(images), height, width)
        passes = IncrementalPasses.find(model, images, images.shape[1] * window**2)
        incremental = (
            None if passes is None else self._incremental_outputs(passes, images, targets, corners, window, per_pass)
        )
        layout = fastest_layout(model, images)
        for samples, steps in blocks(len(images), len(corners), per_pass):
            covered = _window_masks(corners[steps], window, height, width)
            if incremental is None:
                rows = torch.where(covered[:, None], self.baseline, images[samples, None]).flatten(0, 1)
                classes = targets[samples].repeat_interleave(len(covered))
                outputs = target_output(model, rows.contiguous(memory_format=layout), classes)
            else:
                outputs = incremental[samples, steps]
            fall = whole[samples, None] - outputs.reshape(-1, len(covered))
            total[samples] += torch.einsum("ns,shw->nhw", fall, covered.to(fall))
        return total / times

    def _incremental_outputs(
        self, passes: IncrementalPasses, images: Tensor, targets: Tensor, corners: Tensor, window: int, per_pass: int
    ) -> Tensor | None:
        """Compute the outputs ``[n, s]`` with each window covered incrementally; corners are ``[s, 2]``."""
        covered = _window_masks(corners, window, images.shape[2], images.shape[3])
        channels, area = images.shape[1], covered[0].numel()
        counts = covered.sum((1, 2)) * channels
        pixels = covered.flatten(1).nonzero()[:, 1:]
        which = (pixels + area * torch.arange(channels)).reshape(1, -1)
        steps = Steps(which, nn.functional.pad(counts.cumsum(0), (1, 0))[None])
        ends = images.masked_fill(covered[-1], self.baseline)
        last = torch.cat([target_output(passes.model, x, y) for x, y in chunks(per_pass, ends, targets)])
        to = images.new_full((1, 1), self.baseline).expand(len(images), which.shape[1])
        return passes.outputs(images, steps, to, targets, last, carry=False)


def _window_starts(side: int, window: int, stride: int) -> Tensor:
    """Return the start of each window along a side, up to the first window that reaches the end."""
    return torch.arange(math.ceil((side - window) / stride) + 1) * stride


def _window_masks(corners: Tensor, window: int, height: int, width: int) -> Tensor:
    """Return masks ``[n, H, W]`` of the windows with upper left corners ``[n, 2]``."""
    row = torch.arange(height, device=corners.device) - corners[:, :1]
    column = torch.arange(width, device=corners.device) - corners[:, 1:]
    return ((row >= 0) & (row < window))[:, :, None] & ((column >= 0) & (column < window))[:, None]


def _coverage(starts: Tensor, window: int, side: int) -> Tensor:
    """Return the number of windows that cover each position of a side."""
    offset = torch.arange(side, device=starts.device) - starts[:, None]
    return ((offset >= 0) & (offset < window)).sum(0)
