"""XGrad-CAM: Grad-CAM with gradients weighted by the activations."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from xaibench.component.info import ExplainerInfo
from xaibench.explainers.base import spatial_axes
from xaibench.explainers.cam.gradcam import FeatureMaps, weighted_sum
from xaibench.explainers.shared.layers import Layer, activations_and_gradients


@ExplainerInfo(
    "XGrad-CAM",
    family="Feature maps",
    needs_convolution=True,
    citation="Fu et al.: Axiom-based Grad-CAM: Towards Accurate Visualization and Explanation of CNNs. BMVC 2020.",
    passes=2,
    exact_zero=False,
)
@dataclass(frozen=True, kw_only=True)
class XGradCAM(FeatureMaps):
    """ReLU of the sum over k of w_k A_k, with w_k the mean of g_k weighted by A_k over the positions.

    w_k = sum over the positions of g_k A_k / sum over the positions of A_k. A feature map that sums to zero has no
    weight (the ``grad-cam`` package and torch-cam add a small number to the denominator instead).
    """

    def _maps(self, model: nn.Module, layer: Layer, images: Tensor, targets: Tensor) -> Tensor:
        features, gradients = activations_and_gradients("XGradCAM", model, layer, images, targets)
        axes = spatial_axes(features)
        area = features.sum(axes)
        weights = torch.where(area == 0, 0.0, (gradients * features).sum(axes) / area)
        return weighted_sum(weights, features).relu()
