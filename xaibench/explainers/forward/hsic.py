"""HSIC attribution: how much the output depends on whether a cell of the image is there."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from xaibench.core.checks import check_count
from xaibench.core.compute.row_memory import Rows
from xaibench.core.part_info import ExplainerInfo, described
from xaibench.explainers.forward.grid_designs import GridDesign
from xaibench.explainers.shared.counted_passes import Repeating

#: Of the kernel of the outputs, how many numbers are held at a time.
_NUMBERS = 2**22


@described(
    ExplainerInfo(
        "HSIC",
        family="Perturbations",
        citation="Novello, Fel, Vigouroux: Making Sense of Dependence: Efficient Black-box Explanations Using "
        "Dependence Measure. NeurIPS 2022.",
    )
)
@dataclass(frozen=True, kw_only=True)
class HSIC(Repeating, GridDesign):
    """The Hilbert-Schmidt independence criterion of each cell's being there and the output, over random masks.

    Half of the cells are there in each mask. The biased estimate, the trace of K H L H over n², with the kernel
    K = 1/2 - (m - m')² of a cell's masks, and of the outputs L = exp(-(y - y')² / 2 w²), w their median. Never
    negative, and 0 for a cell on which the output does not depend, but for the error of the estimate.

    Departures: the authors' Xplique divides by n, and enlarges by cubic interpolation; its points are not scrambled,
    and the paper draws them by Latin hypercubes. With the same masks the values are those of Xplique 2.0.2, which
    computes them in float32, to 10⁻⁶ of the largest.

    Attributes:
        n_samples: Masks n; 500 in Xplique.
    """

    counted: ClassVar[str] = "n_samples"

    n_samples: int = 500

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("n_samples", self.n_samples, owner="HSIC")

    def __call__(self, model: nn.Module, images: Tensor, targets: Tensor) -> Tensor:
        """Maps ``[N, H, W]``."""
        masks = self.points(self.n_samples, math.prod(self.cells(images))).round().to(images.device)
        found = self.outputs(model, images, targets, masks)
        values = torch.stack([_dependence(masks, outputs) for outputs in found])
        return self.enlarged(values, images)


def _dependence(masks: Tensor, outputs: Tensor) -> Tensor:
    """The criterion ``[F]`` of each column of the masks ``[n, F]`` and the outputs ``[n]``."""
    # Of a median of zero no width is left: outputs are then alike or not.
    width = outputs.quantile(0.5).abs().clamp(min=torch.finfo(outputs.dtype).tiny ** 0.5)
    # Of (m - m')² = m + m' - 2 m m' only the product is left, since rows and columns of the centred kernel sum to zero;
    # and the masks are centred in its place, so that it need not be held: of ten thousand masks it has 10⁸ numbers.
    centred, total = masks - masks.mean(0), torch.zeros_like(masks[0])
    for some in Rows(max(1, _NUMBERS // len(outputs))).parts(len(outputs)):
        kernel = torch.exp(-(((outputs[some, None] - outputs) / width).square() / 2))
        total += (centred[some] * (kernel @ centred)).sum(0)
    return 2 * total.clamp(min=0) / len(masks) ** 2
