"""Ablation-CAM: feature maps weighted by the decrease of the output without them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from xaibench.component.info import ExplainerInfo
from xaibench.explainers.base import blocks, target_output
from xaibench.explainers.cam.gradcam import PerFeatureMapCAM, weighted_sum
from xaibench.explainers.shared.layers import Layer, captured, fastest_layout, forward_rows, zero_feature_map


@ExplainerInfo(
    "Ablation-CAM",
    family="Feature maps",
    needs_gradient=False,
    needs_convolution=True,
    citation="Desai, Ramaswamy: Ablation-CAM: Visual Explanations for Deep Convolutional Network via Gradient-free "
    "Localization. WACV 2020.",
    exact_zero=False,
)
@dataclass(frozen=True, kw_only=True)
class AblationCAM(PerFeatureMapCAM):
    """ReLU of the sum over k of w_k A_k, with w_k = y - y_k the decrease of the output if A_k is set to zero.

    In a transformer, a feature is set to zero in the patches, not in class and register tokens. It takes one forward
    row per k, and one for the image.

    Departures: the paper divides the decrease by y, one factor per sample. This is omitted, since a negative output
    would invert the map and show evidence against the class. The ``grad-cam`` package divides, and otherwise agrees if
    the smallest activation is zero, as after a ReLU (tested); in other cases it uses a value far below the smallest
    activation instead of the paper's zero.
    """

    def _maps(self, model: nn.Module, layer: Layer, images: Tensor, targets: Tensor) -> Tensor:
        with captured(layer) as capture:
            whole = target_output(model, images, targets)
        features, last = layer.as_maps(capture.output), capture.runs
        layout = fastest_layout(model, images)
        ablated = images.new_empty(features.shape[:2])
        for samples, channels in blocks(len(images), features.shape[1], forward_rows(images, self.batch_size)):
            some, maps = images[samples], torch.arange(channels.start, channels.stop, device=images.device)
            rows = some.repeat_interleave(len(maps), 0).contiguous(memory_format=layout)
            numbers = torch.arange(len(rows), device=images.device)
            with captured(layer, zero_feature_map(layer, last, numbers, maps.repeat(len(some)))):
                found = target_output(model, rows, targets[samples].repeat_interleave(len(maps)))
            ablated[samples, channels] = found.reshape(len(some), -1)
        return weighted_sum(whole[:, None] - ablated, features).relu()
