"""Sobol' and HSIC attribution: masks on a coarse grid, given by a quasi-random design."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from xaibench.explainers.base import CheckedParameters, blocks, target_output
from xaibench.explainers.shared.layers import Resize, fastest_layout, forward_rows, resize_maps
from xaibench.explainers.shared.passes import Repeating
from xaibench.registry.info import ExplainerInfo
from xaibench.tensors.batching import BatchSize


@dataclass(frozen=True, kw_only=True)
class GridDesign(CheckedParameters):
    """Base class of explainers that fade out cells of a grid; each coordinate of a point in [0, 1]^F scales one cell.

    Attributes:
        grid_size: Cells along each side of the image, at most its number of pixels.
        baseline: The value that a cell fades to.
        resize: Interpolation of the map of cells to the size of the image: ``"bilinear"`` (without aligned corners) or
            ``"nearest"``, one value per cell.
        seed: Seed of the points, a scrambled Sobol' sequence; they are the same for all images.
        batch_size: Rows per forward pass; ``None``: chosen by the size of the images.
    """

    grid_size: int = 8
    baseline: float = 0.0
    resize: Resize = "bilinear"
    seed: int = 0
    batch_size: int | None = None

    def cells(self, images: Tensor) -> tuple[int, ...]:
        """Return the number of cells of the grid along each spatial axis.

        Args:
            images: ``[N, C, H, W]``.

        Returns:
            ``grid_size``, or the number of pixels if that is smaller.
        """
        return tuple(min(self.grid_size, side) for side in images.shape[2:])

    def points(self, n: int, dimensions: int) -> Tensor:
        """Return the first points of the sequence.

        Args:
            n: Number of points.
            dimensions: F.

        Returns:
            ``[n, F]`` float64, between 0 and 1.
        """
        engine: Any = torch.quasirandom.SobolEngine  # which has no types
        found: Tensor = engine(dimensions, scramble=True, seed=self.seed).draw(n, dtype=torch.float64)
        return found

    def outputs(self, model: nn.Module, images: Tensor, targets: Tensor, points: Tensor) -> Tensor:
        """Compute the target output for every image at every point.

        Args:
            model: See :class:`~xaibench.explainers.Explainer`.
            images: ``[N, C, H, W]``.
            targets: ``[N]``.
            points: ``[M, F]``; 1 leaves a cell unchanged.

        Returns:
            ``[N, M]`` float64.
        """
        found = torch.empty(len(images), len(points), dtype=torch.float64, device=images.device)
        size, layout = tuple(images.shape[2:]), fastest_layout(model, images)
        for samples, steps in blocks(len(images), len(points), forward_rows(images, self.batch_size)):
            masks = resize_maps(points[steps].to(images).reshape(-1, *self.cells(images)), size, "nearest")[:, None]
            some = images[samples, None]
            rows = (self.baseline + masks * (some - self.baseline)).flatten(0, 1).contiguous(memory_format=layout)
            classes = targets[samples].repeat_interleave(len(masks))
            found[samples, steps] = target_output(model, rows, classes).double().reshape(len(some), -1)
        return found

    def enlarge(self, values: Tensor, images: Tensor) -> Tensor:
        """Resize the values of the cells to maps ``[N, H, W]``.

        Args:
            values: ``[N, F]``.
            images: ``[N, C, H, W]``.

        Returns:
            Maps in the precision of the images.
        """
        maps = values.to(images).reshape(-1, *self.cells(images))
        return resize_maps(maps, tuple(images.shape[2:]), self.resize)


@ExplainerInfo(
    "Sobol'",
    family="Perturbations",
    needs_gradient=False,
    citation="Fel et al.: Look at the Variance! Efficient Black-box Explanations with Sobol-based Sensitivity "
    "Analysis. NeurIPS 2021.",
    exact_zero=True,
)
@dataclass(frozen=True, kw_only=True)
class Sobol(Repeating, GridDesign):
    """The total-order Sobol' index of each cell, with all cells faded out at random and independently.

    With A and B independent points and C_i the point A with coordinate i of B, Jansen's estimator is the sum of (f(A) -
    f(C_i))² over 2 n V, with V the variance of f(A). It is never negative and includes the interactions of a cell with
    others, so the indices of a network with interactions sum to more than 1. Where f does not vary, it is 0.

    Departures: the points of the authors' package Xplique are not scrambled and so have no seed; Xplique also evaluates
    B, which this estimator does not need, and it enlarges by cubic interpolation. At the same points, the indices agree
    with Xplique 2.0.2, which uses float32, to 10⁻⁶.

    Attributes:
        n_designs: Number of points n, a power of two, for which the sequence is balanced; 32 in the paper.
    """

    counted: ClassVar[str] = "n_designs"
    fewest: ClassVar[int] = 2

    n_designs: int = 32

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.n_designs < 2 or self.n_designs & (self.n_designs - 1):
            raise ValueError(f"Sobol(n_designs={self.n_designs!r}): expected a power of two, 2 or more.")

    def passes_each(self, images: Tensor) -> int:
        """Return the passes per image and point: one, and one per cell."""
        return math.prod(self.cells(images)) + 1

    def cheaper_each(self) -> str:
        """Return advice on other parameters that reduce the passes, for error messages."""
        return f"grid_size below {self.grid_size}"

    def affordable(self, count: int) -> int:
        """Return the largest power of two up to ``count``, or 0."""
        return 1 << count.bit_length() - 1 if count > 0 else 0

    def __call__(self, model: nn.Module, images: Tensor, targets: Tensor) -> Tensor:
        """Return maps ``[N, H, W]``."""
        dimensions = math.prod(self.cells(images))
        points = self.points(self.n_designs, 2 * dimensions)
        first, second = points[:, :dimensions], points[:, dimensions:]
        own = torch.eye(dimensions, dtype=torch.bool)[:, None]
        mixed = torch.where(own, second, first).flatten(0, 1)
        found = self.outputs(model, images, targets, torch.cat([first, mixed]))
        found = found.reshape(len(images), dimensions + 1, self.n_designs)
        whole, changed = found[:, :1], found[:, 1:]
        variance = whole.var(2)
        moved = (whole - changed).square().mean(2) / 2
        return self.enlarge(torch.where(variance > 0, moved / variance, 0.0), images)


#: Number of entries of the output kernel that are held at a time.
_MAX_NUMBERS = 2**22


@ExplainerInfo(
    "HSIC",
    family="Perturbations",
    needs_gradient=False,
    citation="Novello, Fel, Vigouroux: Making Sense of Dependence: Efficient Black-box Explanations Using "
    "Dependence Measure. NeurIPS 2022.",
    exact_zero=False,
)
@dataclass(frozen=True, kw_only=True)
class HSIC(Repeating, GridDesign):
    """The Hilbert-Schmidt independence criterion between the presence of a cell and the output, over random masks.

    Each mask keeps half of the cells. The biased estimate is the trace of K H L H divided by n², with the kernel K =
    1/2 - (m - m')² of a cell's masks and the kernel L = exp(-(y - y')² / 2 w²) of the outputs, w their median. It is
    never negative, and 0 up to the estimation error for a cell that the output does not depend on.

    Departures: the authors' package Xplique divides by n and enlarges by cubic interpolation; its points are not
    scrambled. The paper draws them as Latin hypercubes. With the same masks, the values agree with Xplique
    2.0.2, which uses float32, to 10⁻⁶ of the largest.

    Attributes:
        n_samples: Number of masks n; 500 in Xplique.
    """

    counted: ClassVar[str] = "n_samples"

    n_samples: int = 500

    def __call__(self, model: nn.Module, images: Tensor, targets: Tensor) -> Tensor:
        """Return maps ``[N, H, W]``."""
        masks = self.points(self.n_samples, math.prod(self.cells(images))).round().to(images.device)
        found = self.outputs(model, images, targets, masks)
        values = torch.stack([_dependence(masks, outputs) for outputs in found])
        return self.enlarge(values, images)


def _dependence(masks: Tensor, outputs: Tensor) -> Tensor:
    """Compute the criterion ``[F]`` between each column of the masks ``[n, F]`` and the outputs ``[n]``."""
    # A median of zero leaves no width: outputs then count as equal or different.
    width = outputs.quantile(0.5).abs().clamp(min=torch.finfo(outputs.dtype).tiny ** 0.5)
    # In (m - m')² = m + m' - 2 m m' only the product matters, since rows and columns of the centered kernel sum to
    # zero. The masks are centered instead of the kernel, which would have 10⁸ entries for ten thousand masks.
    centered, total = masks - masks.mean(0), torch.zeros_like(masks[0])
    for some in BatchSize(max(1, _MAX_NUMBERS // len(outputs))).slices(len(outputs)):
        kernel = torch.exp(-(((outputs[some, None] - outputs) / width).square() / 2))
        total += (centered[some] * (kernel @ centered)).sum(0)
    return 2 * total.clamp(min=0) / len(masks) ** 2
