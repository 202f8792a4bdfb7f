"""HSIC attribution: the dependence between the output and the presence of a cell of the image."""

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
from xaibench.tensors.batching import BatchSize

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

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("n_samples", self.n_samples, owner="HSIC")

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
