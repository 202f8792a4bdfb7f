"""Finer-CAM: Grad-CAM of what tells a class from those most like it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from xaibench.core.checks import check_count
from xaibench.core.part_info import ExplainerInfo, described
from xaibench.explainers.feature_maps.one_layer import FeatureMaps, weighted_sum
from xaibench.explainers.shared.captured_maps import Layer, activations_and_gradients
from xaibench.explainers.shared.interface import UnsupportedModelError


@described(
    ExplainerInfo(
        "Finer-CAM",
        family="Feature maps",
        needs_convolution=True,
        citation="Zhang et al.: Finer-CAM: Spotting the Difference Reveals Finer Details for Visual Explanation. CVPR "
        "2025.",
        passes=2,
    )
)
@dataclass(frozen=True, kw_only=True)
class FinerCAM(FeatureMaps):
    """Grad-CAM of y - gamma times the mean output of the classes most like the target: what tells it from them.

    Those are the classes whose outputs lie closest to the target's; of two classes, the other one.

    Departure: the released code weighs the classes by their probabilities as well, which the paper does not; torch-cam
    does as here (tested).

    Attributes:
        gamma: How strongly the others count; 0 is Grad-CAM, 0.6 the paper's.
        n_references: How many other classes, at most; 3 in the paper.
    """

    gamma: float = 0.6
    n_references: int = 3

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("n_references", self.n_references, owner=type(self).__name__)
        if not self.gamma >= 0:
            raise ValueError(f"FinerCAM(gamma={self.gamma!r}): expected a number of at least 0.")

    def _maps(self, model: nn.Module, layer: Layer, images: Tensor, targets: Tensor) -> Tensor:
        compared = _Compared(model, targets, self.gamma, self.n_references)
        features, gradients = activations_and_gradients("FinerCAM", compared, layer, images, torch.zeros_like(targets))
        return weighted_sum(gradients.mean((2, 3)), features).relu()


class _Compared(nn.Module):
    """Of each image one output ``[N, 1]``: the target's, less those of the classes most like it."""

    def __init__(self, model: nn.Module, targets: Tensor, gamma: float, n_references: int) -> None:
        super().__init__()
        self.model, self.targets, self.gamma, self.n_references = model, targets[:, None], gamma, n_references

    def forward(self, images: Tensor) -> Tensor:
        outputs: Tensor = self.model(images)
        if outputs.shape[1] < 2:
            raise UnsupportedModelError(
                f"FinerCAM: the model has {outputs.shape[1]} output, expected two classes or more, of which it shows "
                "the difference. gradcam explains the output by itself."
            )
        own = outputs.gather(1, self.targets)
        apart = (outputs - own).detach().abs().scatter(1, self.targets, torch.inf)
        nearest = apart.argsort(stable=True, dim=1)[:, : min(self.n_references, outputs.shape[1] - 1)]
        return own - self.gamma * outputs.gather(1, nearest).mean(1, keepdim=True)
