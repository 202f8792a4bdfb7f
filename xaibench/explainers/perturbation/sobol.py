"""Sobol' attribution: the share of the output's variance that involves a cell of the image."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from xaibench.component.info import ExplainerInfo
from xaibench.core.checks import check_count
from xaibench.explainers.perturbation.grid_designs import GridDesign
from xaibench.explainers.shared.passes import Repeating


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
        check_count("n_designs", self.n_designs, owner="Sobol")
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
