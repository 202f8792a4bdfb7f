"""FullGrad: the gradients by the image and by every bias on the way."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias, get_args

import torch
from torch import Tensor, nn

from xaibench.core.checks import check_choice, check_count
from xaibench.core.compute.row_memory import default_rows
from xaibench.core.part_info import ExplainerInfo, described
from xaibench.core.vocabulary import Output
from xaibench.explainers.attention.attention_calls import attending
from xaibench.explainers.shared.explained_output import network_of
from xaibench.explainers.shared.interface import UnsupportedModelError, chunks

#: What is scaled to [0, 1] together: each feature map, or the feature maps of a layer.
Rescale: TypeAlias = Literal["map", "layer"]


@described(
    ExplainerInfo(
        "FullGrad",
        family="Gradients",
        needs_convolution=True,
        citation="Srinivas, Fleuret: Full-Gradient Representation for Neural Network Visualization. NeurIPS 2019.",
        passes=2,
    )
)
@dataclass(frozen=True, kw_only=True)
class FullGrad:
    """Image times gradient, and every bias of convolution and batch normalisation times the gradient by it.

    Sum of psi(x df/dx), and over layers and channels c of psi(b_c df/dz_c), z the layer's output, where psi
    takes the magnitude, scales to [0, 1] and enlarges to the image. The bias of batch normalisation is what it adds in
    all: beta - gamma mean / sqrt(variance + eps). Without psi, and with the linear layers, which have no place in the
    image, the sum is the output of a network of ReLUs; of other activations and of max-pooling in it this
    holds as far as they are linear where the image lies. Never negative. Whatever is explained, logits are what the
    paper explains.

    Departures: the authors' code aligns the corners of what it enlarges, and scales the maps of a layer together, as
    here with ``rescale="layer"``. The ``grad-cam`` package scales each map (tested).

    Attributes:
        rescale: What is scaled to [0, 1] together: ``"map"``, each feature map (the equation), or ``"layer"``, all
            feature maps of a layer, and all channels of the image.
        batch_size: Rows in one forward pass; ``None`` chooses by the size of the images.
    """

    #: What is explained unless the caller says otherwise.
    explains: ClassVar[Output] = "logit"

    rescale: Rescale = "map"
    batch_size: int | None = None

    def __post_init__(self) -> None:
        check_choice("rescale", self.rescale, get_args(Rescale), owner=type(self).__name__)
        if self.batch_size is not None:
            check_count("batch_size", self.batch_size, owner=type(self).__name__)

    def __call__(self, model: nn.Module, images: Tensor, targets: Tensor) -> Tensor:
        """Maps ``[N, H, W]``.

        Raises:
            UnsupportedModelError: If the network has no convolution, or has attention, whose output is no sum of such
                shares.
        """
        self._check(model, images)
        rows = self.batch_size or default_rows(images)
        return torch.cat([self._maps(model, x, y) for x, y in chunks(rows, images, targets)])

    def _check(self, model: nn.Module, images: Tensor) -> None:
        network = network_of(model)
        with attending(model) as seen, torch.no_grad():
            model(images[:1])
        if seen or not any(isinstance(module, nn.Conv2d) for module in network.modules()):
            found = "attention" if seen else "no convolution"
            raise UnsupportedModelError(
                f"FullGrad: {type(network).__name__} has {found}; expected a network of convolutions (nn.Conv2d), "
                "whose biases have places in the image. gradcam explains transformers too, integrated_gradients any "
                "network with gradients."
            )

    def _maps(self, model: nn.Module, images: Tensor, targets: Tensor) -> Tensor:
        with _biased(network_of(model)) as found, torch.enable_grad():
            x = images.detach().clone().requires_grad_()
            output = model(x).gather(1, targets[:, None]).sum()
            gradients = torch.autograd.grad(output, [x, *(z for _, z in found)], allow_unused=True)
        factors = [images, *(bias[:, None, None] for bias, _ in found)]
        total = torch.zeros_like(images[:, 0])
        for factor, gradient in zip(factors, gradients, strict=True):
            if gradient is not None:
                shares = self._scaled((factor * gradient).abs()).sum(1, keepdim=True)
                total += nn.functional.interpolate(shares, images.shape[2:], mode="bilinear")[:, 0]
        return total

    def _scaled(self, shares: Tensor) -> Tensor:
        """Shares ``[n, C, h, w]`` between 0 and 1; constant ones are 0."""
        over = (2, 3) if self.rescale == "map" else (1, 2, 3)
        low, high = shares.amin(over, keepdim=True), shares.amax(over, keepdim=True)
        return torch.where(high > low, (shares - low) / (high - low), 0.0)


@contextmanager
def _biased(network: nn.Module) -> Iterator[list[tuple[Tensor, Tensor]]]:
    """Hold the biases ``[C]`` and outputs ``[n, C, h, w]`` of convolutions and batch normalisations, run by run."""
    found: list[tuple[Tensor, Tensor]] = []

    def keep(module: nn.Module, inputs: object, output: Tensor) -> Tensor | None:
        bias = _bias(module)
        if bias is None:
            return None
        found.append((bias, output))
        # What follows works on a copy: an in-place ReLU would put its own gradient in place of this output's.
        return output.clone()

    layers = [module for module in network.modules() if isinstance(module, nn.Conv2d | nn.BatchNorm2d)]
    handles = [layer.register_forward_hook(keep) for layer in layers]
    try:
        yield found
    finally:
        for handle in handles:
            handle.remove()


def _bias(module: nn.Module) -> Tensor | None:
    """What the layer adds to each channel ``[C]``."""
    if isinstance(module, nn.Conv2d) or module.running_mean is None or module.running_var is None:
        return None if module.bias is None else torch.as_tensor(module.bias).detach()
    mean, variance = torch.as_tensor(module.running_mean), torch.as_tensor(module.running_var)
    scale = (variance + float(torch.as_tensor(module.eps))).rsqrt()
    gain, shift = (1.0 if module.weight is None else torch.as_tensor(module.weight).detach()), module.bias
    return (0.0 if shift is None else torch.as_tensor(shift).detach()) - gain * scale * mean
