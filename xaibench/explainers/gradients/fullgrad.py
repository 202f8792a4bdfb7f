"""FullGrad: the gradients with respect to the image and every bias."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias

import torch
from torch import Tensor, nn

from xaibench.core.types import Output
from xaibench.explainers.base import CONVOLUTIONS, CheckedParameters, check_has_gradient, chunks, spatial_axes
from xaibench.explainers.shared.layers import check_rows, interpolate_linearly
from xaibench.explainers.shared.tokens import record_attention
from xaibench.network.calls import observe_calls
from xaibench.network.explained_output import UnsupportedModelError, network_of
from xaibench.registry.info import ExplainerInfo
from xaibench.tensors.batching import default_batch_size

#: The maps that are scaled to [0, 1] together: each feature map, or the feature maps of a layer.
Rescale: TypeAlias = Literal["map", "layer"]


@ExplainerInfo(
    "FullGrad",
    family="Gradients",
    needs_convolution=True,
    citation="Srinivas, Fleuret: Full-Gradient Representation for Neural Network Visualization. NeurIPS 2019.",
    passes=2,
    exact_zero=False,
)
@dataclass(frozen=True, kw_only=True)
class FullGrad(CheckedParameters):
    """Image times gradient, and every bias of convolution and batch normalization times its gradient.

    The map is the sum of psi(x df/dx) and, over layers and channels c, of psi(b_c df/dz_c), with z the output of the
    layer. psi takes the magnitude, scales it to [0, 1] and enlarges it to the image. The bias of batch normalization is
    its total shift, beta - gamma mean / sqrt(variance + eps). Without psi, and including the linear layers, which have
    no place in the image, the sum equals the output of a ReLU network. For other activations and max-pooling, this
    holds to the extent that they are linear around the image. Never negative. The logit is explained by default, as in
    the paper.

    Departures: the authors' code aligns corners when enlarging and scales the maps of a layer together, as with
    ``rescale="layer"`` here. The ``grad-cam`` package scales each map (tested).

    Attributes:
        rescale: The maps that are scaled to [0, 1] together: ``"map"``, each feature map separately (the equation), or
            ``"layer"``, all feature maps of a layer, and all channels of the image.
        batch_size: Rows per forward pass; ``None``: chosen by the size of the images.
    """

    #: The explained output by default.
    explains: ClassVar[Output] = "logit"

    rescale: Rescale = "map"
    batch_size: int | None = None

    def __call__(self, model: nn.Module, images: Tensor, targets: Tensor) -> Tensor:
        """Return maps ``[N, H, W]``.

        Raises:
            UnsupportedModelError: If the network has no convolution, or has attention, whose output is not such a sum.
        """
        network = network_of(model)
        with record_attention(model) as seen, torch.no_grad():
            model(images[:1])
        if seen or not any(isinstance(module, CONVOLUTIONS) for module in network.modules()):
            reason = "attention" if seen else "no convolution"
            raise UnsupportedModelError(
                f"FullGrad: {type(network).__name__} has {reason}; expected a network of convolutions (nn.Conv2d, "
                "nn.Conv3d), whose biases have positions in the image. gradcam also explains transformers, "
                "integrated_gradients any differentiable network."
            )
        rows = self.batch_size or default_batch_size(images)
        return torch.cat([self._maps(model, x, y) for x, y in chunks(rows, images, targets)])

    def _maps(self, model: nn.Module, images: Tensor, targets: Tensor) -> Tensor:
        with _record_biases(network_of(model)) as found, torch.enable_grad():
            x = images.detach().clone().requires_grad_()
            output = model(x).gather(1, targets[:, None]).sum()
            check_has_gradient(output)
            for _, z in found:
                check_rows("FullGrad: a layer with a bias", z, images)
            gradients = torch.autograd.grad(output, [x, *(z for _, z in found)], allow_unused=True)
        factors = [images, *(bias.reshape(-1, *[1] * (z.ndim - 2)) for bias, z in found)]
        total = torch.zeros_like(images[:, 0])
        for factor, gradient in zip(factors, gradients, strict=True):
            if gradient is not None:
                shares = (factor * gradient).abs()
                over = spatial_axes(shares) if self.rescale == "map" else (1, *spatial_axes(shares))
                low, high = shares.amin(over, keepdim=True), shares.amax(over, keepdim=True)
                shares = torch.where(high > low, (shares - low) / (high - low), 0.0)  # constant maps become 0
                total += interpolate_linearly(shares.sum(1, keepdim=True), images.shape[2:])[:, 0]
        return total


@contextmanager
def _record_biases(network: nn.Module) -> Iterator[list[tuple[Tensor, Tensor]]]:
    """Record the bias ``[C]`` and output ``[n, C, h, w]`` of each call of a convolution or batch normalization."""
    found: list[tuple[Tensor, Tensor]] = []

    def keep(name: str, module: nn.Module, inputs: object, output: Tensor) -> Tensor | None:
        bias = _bias(module)
        if bias is None:
            return None
        found.append((bias, output))
        # The network continues with a copy, since an in-place ReLU would replace the gradient of this output.
        return output.clone()

    kinds = (*CONVOLUTIONS, nn.BatchNorm2d, nn.BatchNorm3d)
    with observe_calls([named for named in network.named_modules() if isinstance(named[1], kinds)], after=keep):
        yield found


def _bias(module: nn.Module) -> Tensor | None:
    """Return the constant ``[C]`` that the layer adds to each channel."""
    if isinstance(module, CONVOLUTIONS) or module.running_mean is None or module.running_var is None:
        return None if module.bias is None else torch.as_tensor(module.bias).detach()
    mean, variance = torch.as_tensor(module.running_mean), torch.as_tensor(module.running_var)
    scale = (variance + float(torch.as_tensor(module.eps))).rsqrt()
    gain, shift = (1.0 if module.weight is None else torch.as_tensor(module.weight).detach()), module.bias
    return (0.0 if shift is None else torch.as_tensor(shift).detach()) - gain * scale * mean
