"""Base class of Sobol' and HSIC attribution: masks on a coarse grid, given by a quasi-random design."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, get_args

import torch
from torch import Tensor, nn

from xaibench.core.checks import check_choice, check_count
from xaibench.explainers.base import blocks, target_output
from xaibench.explainers.shared.layers import Resize, fastest_layout, forward_rows, resize_maps


@dataclass(frozen=True, kw_only=True)
class GridDesign:
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

    def __post_init__(self) -> None:
        owner = type(self).__name__
        check_count("grid_size", self.grid_size, owner=owner)
        check_choice("resize", self.resize, get_args(Resize), owner=owner)
        if self.batch_size is not None:
            check_count("batch_size", self.batch_size, owner=owner)

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
