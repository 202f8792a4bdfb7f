"""Ablation-CAM: each feature map weighted by what the output loses without it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from xaibench.core.part_info import ExplainerInfo, described
from xaibench.explainers.feature_maps.one_layer import EveryMap, weighted_sum
from xaibench.explainers.shared.captured_maps import Layer, captured, without_map
from xaibench.explainers.shared.interface import blocks, target_output
from xaibench.explainers.shared.layer_activations import fastest_layout, forward_rows


@described(
    ExplainerInfo(
        "Ablation-CAM",
        family="Feature maps",
        needs_convolution=True,
        citation="Desai, Ramaswamy: Ablation-CAM: Visual Explanations for Deep Convolutional Network via Gradient-free "
        "Localization. WACV 2020.",
    )
)
@dataclass(frozen=True, kw_only=True)
class AblationCAM(EveryMap):
    """ReLU of the sum over k of w_k A_k, with w_k = y - y_k what the output loses where A_k is set to zero.

    In a transformer a feature is set to zero in the patches, not in class and register tokens. One forward pass row for
    each k, and one for the image.

    Departures: the paper divides the loss by y, one factor a sample, which is left out: where the output is negative it
    would turn the map around, and show what speaks against the class. The ``grad-cam`` package divides, and otherwise
    agrees where the smallest activation is zero, as after a ReLU (tested); elsewhere it puts a number far below the
    smallest one in place of the paper's zero.
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
            with captured(layer, without_map(layer, last, numbers, maps.repeat(len(some)))):
                found = target_output(model, rows, targets[samples].repeat_interleave(len(maps)))
            ablated[samples, channels] = found.reshape(len(some), -1)
        return weighted_sum(whole[:, None] - ablated, features).relu()
