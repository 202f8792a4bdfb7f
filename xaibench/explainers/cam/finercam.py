"""Finer-CAM: Grad-CAM of the difference between a class and the most similar classes."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from xaibench.component.info import ExplainerInfo
from xaibench.core.checks import check_amount, check_count
from xaibench.explainers.base import spatial_axes
from xaibench.explainers.cam.gradcam import FeatureMaps, weighted_sum
from xaibench.explainers.shared.layers import Layer, activations_and_gradients
from xaibench.network.explained_output import UnsupportedModelError


@ExplainerInfo(
    "Finer-CAM",
    family="Feature maps",
    needs_convolution=True,
    citation="Zhang et al.: Finer-CAM: Spotting the Difference Reveals Finer Details for Visual Explanation. CVPR "
    "2025.",
    passes=2,
    exact_zero=False,
)
@dataclass(frozen=True, kw_only=True)
class FinerCAM(FeatureMaps):
    """Grad-CAM of y - gamma times the mean output of the most similar classes: what distinguishes the target from them.

    The most similar classes are those whose outputs are closest to that of the target; of two classes, the other one.

    Departure: the released code also weights the classes by their probabilities, which the paper does not; torch-cam
    agrees with this implementation (tested).

    Attributes:
        gamma: Weight of the other classes; 0 is Grad-CAM, the paper uses 0.6.
        n_references: Maximum number of other classes; 3 in the paper.
    """

    gamma: float = 0.6
    n_references: int = 3

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("n_references", self.n_references, owner=type(self).__name__)
        check_amount("gamma", self.gamma, above=False, owner="FinerCAM")

    def _maps(self, model: nn.Module, layer: Layer, images: Tensor, targets: Tensor) -> Tensor:
        compared = _ClassDifference(model, targets, self.gamma, self.n_references)
        features, gradients = activations_and_gradients("FinerCAM", compared, layer, images, torch.zeros_like(targets))
        return weighted_sum(gradients.mean(spatial_axes(features)), features).relu()


class _ClassDifference(nn.Module):
    """Return one output per image ``[N, 1]``: that of the target minus the mean of similar classes, times gamma."""

    def __init__(self, model: nn.Module, targets: Tensor, gamma: float, n_references: int) -> None:
        super().__init__()
        self.model, self.targets, self.gamma, self.n_references = model, targets[:, None], gamma, n_references

    def forward(self, images: Tensor) -> Tensor:
        outputs: Tensor = self.model(images)
        if outputs.shape[1] < 2:
            raise UnsupportedModelError(
                f"FinerCAM: the model has {outputs.shape[1]} output, expected two or more classes, whose "
                "difference it explains. gradcam explains a single output."
            )
        own = outputs.gather(1, self.targets)
        apart = (outputs - own).detach().abs().scatter(1, self.targets, torch.inf)
        nearest = apart.argsort(stable=True, dim=1)[:, : min(self.n_references, outputs.shape[1] - 1)]
        return own - self.gamma * outputs.gather(1, nearest).mean(1, keepdim=True)
