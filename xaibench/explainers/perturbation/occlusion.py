"""Occlusion: the decrease of the output when a window of the image is covered."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from xaibench.explainers.base import CheckedParameters, blocks, chunks, target_output
from xaibench.explainers.shared.layers import fastest_layout, forward_rows
from xaibench.explainers.shared.passes import budget_error
from xaibench.kernels.pixel_updates.incremental_passes import IncrementalPasses, Steps
from xaibench.registry.info import ExplainerInfo


@ExplainerInfo(
    "Occlusion",
    family="Perturbations",
    needs_gradient=False,
    citation="Zeiler, Fergus: Visualizing and Understanding Convolutional Networks. ECCV 2014.",
    exact_zero=True,
)
@dataclass(frozen=True, kw_only=True)
class Occlusion(CheckedParameters):
    """The mean of f(x) - f(x with the window covered) over the windows that cover a pixel.

    The windows cover all channels; those at the lower and right border are cut off there. Agrees with Captum's
    ``Occlusion`` (tested). The paper (section 4.2) instead shows the output at the position of the window, for one gray
    square. On a CPU, small networks compute only the changes caused by a window
    (:mod:`xaibench.kernels.pixel_updates.incremental_passes`).

    Attributes:
        window: Side of the square (for volumes, cubic) window in pixels; ``None``: a fourteenth of the shorter side of
            the image, rounded up (16 at 224×224, 5 at 64×64, 1 at 8×8). For volumes, the middle one of the three sides
            takes the place of the shorter one; a volume with fewer slices than that is covered from end to end.
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

    def passes(self, images: Tensor) -> int:
        """Return the number of passes for these images.

        Args:
            images: ``[N, C, H, W]``.

        Returns:
            One per image and one per window.
        """
        window, stride = self._sizes(images)
        return len(images) * (1 + math.prod(len(_window_starts(side, window, stride)) for side in images.shape[2:]))

    def cheaper(self) -> str:
        """Return advice on reducing the number of passes, for error messages.

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
        for stride in range(1, _shorter_side(images) + 1):
            found = replace(self, stride=stride, window=max(window, stride))
            if found.passes(images[:1]) <= budget:
                return found
        raise budget_error("Occlusion", budget, found.passes(images[:1]))

    def _sizes(self, images: Tensor) -> tuple[int, int]:
        """Return window and stride for these images."""
        window = self.window or math.ceil(_shorter_side(images) / 14)
        return window, self.stride or max(1, window // 2)

    def __call__(self, model: nn.Module, images: Tensor, targets: Tensor) -> Tensor:
        """Return maps ``[N, H, W]``.

        Raises:
            ValueError: If the stride is larger than the window, which would leave out pixels, or the window is larger
                than the image.
        """
        sides = images.shape[2:]
        window, stride = self._sizes(images)
        if not stride <= window <= _shorter_side(images):
            raise ValueError(
                f"Occlusion(window={window}, stride={stride}): expected stride <= window <= {_shorter_side(images)}, "
                f"the {'shorter' if len(sides) == 2 else 'middle'} side of the images ({'×'.join(map(str, sides))})."
            )
        starts = [_window_starts(side, window, stride).to(images.device) for side in sides]
        corners = torch.cartesian_prod(*starts)
        per_pass = forward_rows(images, self.batch_size)
        whole = torch.cat([target_output(model, x, y) for x, y in chunks(per_pass, images, targets)])
        times = torch.ones((), dtype=torch.int64, device=images.device)
        for along, side in zip(starts, sides, strict=True):
            times = times[..., None] * _covered(along, window, side).sum(0)
        total = images.new_zeros(len(images), *sides)
        passes = IncrementalPasses.find(model, images, images.shape[1] * window ** len(sides))
        incremental = (
            None if passes is None else self._incremental_outputs(passes, images, targets, corners, window, per_pass)
        )
        layout = fastest_layout(model, images)
        for samples, steps in blocks(len(images), len(corners), per_pass):
            covered = _window_masks(corners[steps], window, sides)
            if incremental is None:
                rows = torch.where(covered[:, None], self.baseline, images[samples, None]).flatten(0, 1)
                classes = targets[samples].repeat_interleave(len(covered))
                outputs = target_output(model, rows.contiguous(memory_format=layout), classes)
            else:
                outputs = incremental[samples, steps]
            fall = whole[samples, None] - outputs.reshape(-1, len(covered))
            total[samples] += torch.einsum("ns,s...->n...", fall, covered.to(fall))
        return total / times

    def _incremental_outputs(
        self, passes: IncrementalPasses, images: Tensor, targets: Tensor, corners: Tensor, window: int, per_pass: int
    ) -> Tensor | None:
        """Compute the outputs ``[n, s]`` with each window covered incrementally; corners are ``[s, 2]``."""
        covered = _window_masks(corners, window, images.shape[2:])
        channels, area = images.shape[1], covered[0].numel()
        counts = covered.flatten(1).sum(1) * channels
        pixels = covered.flatten(1).nonzero()[:, 1:]
        which = (pixels + area * torch.arange(channels)).reshape(1, -1)
        steps = Steps(which, nn.functional.pad(counts.cumsum(0), (1, 0))[None])
        ends = images.masked_fill(covered[-1], self.baseline)
        last = torch.cat([target_output(passes.model, x, y) for x, y in chunks(per_pass, ends, targets)])
        to = images.new_full((1, 1), self.baseline).expand(len(images), which.shape[1])
        return passes.outputs(images, steps, to, targets, last, carry=False)


def _window_starts(side: int, window: int, stride: int) -> Tensor:
    """Return the start of each window along a side, up to the first window that reaches the end."""
    return torch.arange(max(0, math.ceil((side - window) / stride)) + 1) * stride


def _shorter_side(images: Tensor) -> int:
    """Return the shorter side of images, and the middle one of volumes, which may have few slices."""
    return sorted(images.shape[2:])[-2]


def _window_masks(corners: Tensor, window: int, sides: Sequence[int]) -> Tensor:
    """Return masks ``[n, H, W]`` of the windows with upper left corners ``[n, 2]``."""
    found = torch.ones(len(corners), dtype=torch.bool, device=corners.device)
    for starts, side in zip(corners.T, sides, strict=True):
        along = _covered(starts, window, side)
        found = found[..., None] & along.reshape(len(along), *[1] * (found.ndim - 1), side)
    return found


def _covered(starts: Tensor, window: int, side: int) -> Tensor:
    """Return whether each window ``[n]`` covers each position of a side, ``[n, side]``."""
    offset = torch.arange(side, device=starts.device) - starts[:, None]
    return (offset >= 0) & (offset < window)
