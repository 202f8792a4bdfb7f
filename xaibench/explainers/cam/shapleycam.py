"""ShapleyCAM: Grad-CAM with the second-order Shapley values of the feature maps as weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

import torch
from torch import Tensor, nn

from xaibench.component.info import ExplainerInfo
from xaibench.core.checks import check_choice
from xaibench.explainers.base import spatial_axes
from xaibench.explainers.cam.gradcam import FeatureMaps, weighted_sum
from xaibench.explainers.shared.layers import Layer, activations_and_curvature

#: The value of the game whose players are the activations (see :class:`ShapleyCAM`).
Utility: TypeAlias = Literal["rest", "output"]


@ExplainerInfo(
    "ShapleyCAM",
    family="Feature maps",
    needs_convolution=True,
    citation="Cai: CAMs as Shapley Value-based Explainers. The Visual Computer, 2025. arXiv:2501.06261.",
    passes=3,
    exact_zero=False,
)
@dataclass(frozen=True, kw_only=True)
class ShapleyCAM(FeatureMaps):
    """ReLU of the sum over k of w_k A_k, with w_k the mean of (g - H A / 2) over the positions of map k.

    g and H are the gradient and the Hessian of the utility U with respect to all activations A of the layer. To second
    order, (g - H A / 2) A are the Shapley values of the activations in the game U. If U is linear in A, as is the logit
    of a network that ends in average pooling and one linear layer, H is zero and the map is that of Grad-CAM.

    The utility of the paper is the residual softmax target class (ReST), the logit plus the logarithm of its softmax
    probability: U = z_c + log p_c. It is defined for logits, so with another ``output`` that output is the utility.

    Attributes:
        utility: ``"rest"``: ReST. ``"output"``: the explained output itself, as in the ``grad-cam`` package by default.
    """

    utility: Utility = "rest"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("utility", self.utility, get_args(Utility), owner=type(self).__name__)

    def _maps(self, model: nn.Module, layer: Layer, images: Tensor, targets: Tensor) -> Tensor:
        game = _ReST(model) if self.utility == "rest" and getattr(model, "output", "logit") == "logit" else model
        features, gradients, curvature = activations_and_curvature("ShapleyCAM", game, layer, images, targets)
        return weighted_sum((gradients - curvature / 2).mean(spatial_axes(features)), features).relu()


class _ReST(nn.Module):
    """A network whose outputs are logits plus log-probabilities, ``[N, K]``."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.model(images)
        return logits + torch.log_softmax(logits, 1)
