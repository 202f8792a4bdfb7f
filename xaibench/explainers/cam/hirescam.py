"""HiResCAM: each feature map times its own gradient, position by position."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from xaibench.component.info import ExplainerInfo
from xaibench.explainers.cam.gradcam import FeatureMaps
from xaibench.explainers.shared.layers import Layer, activations_and_gradients


@ExplainerInfo(
    "HiResCAM",
    family="Feature maps",
    needs_convolution=True,
    citation="Draelos, Carin: Use HiResCAM instead of Grad-CAM for faithful explanations of convolutional neural "
    "networks. arXiv:2011.08891, 2020.",
    passes=2,
    exact_zero=False,
)
@dataclass(frozen=True, kw_only=True)
class HiResCAM(FeatureMaps):
    """Sum over k of g_k A_k, position by position: Grad-CAM without averaging the gradient over the positions.

    If one linear layer follows the feature maps, pooled or flattened, the map before resizing sums to the logit minus
    the bias. LayerCAM uses the positive gradients only.

    Departures: signed, since the definition has no ReLU. The ``grad-cam`` package clips the map at zero before it
    enlarges it. Scaled to [0, 1], its maps of SqueezeNet differ by up to 0.9 from this map clipped after enlarging, and
    by 1.2e-7 from this map clipped before.
    """

    def _maps(self, model: nn.Module, layer: Layer, images: Tensor, targets: Tensor) -> Tensor:
        features, gradients = activations_and_gradients("HiResCAM", model, layer, images, targets)
        return (gradients * features).sum(1)
