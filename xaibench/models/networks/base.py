"""Base class of small networks that can be trained in a stack, their initialization, and zero-shot heads."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from xaibench.core.messages import kind_of
from xaibench.tensors.normal_numbers import normal_numbers


class Network(nn.Sequential):
    """A sequence of layers; inputs of linear layers are flattened first.

    Called with images ``[N, C, H, W]``, or volumes ``[N, C, D, H, W]``, returns logits ``[N, K]``.

    Attributes:
        explain_dtype: Dtype in which explainers run these networks. In float32, the softmax of a confident prediction
            saturates and its gradient becomes exactly zero.
    """

    explain_dtype = torch.float64

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Classify images.

        Args:
            input: Images ``[N, C, H, W]``, or volumes ``[N, C, D, H, W]``.

        Returns:
            Logits ``[N, K]``.
        """
        for layer in self:
            if isinstance(layer, nn.Linear):
                input = input.flatten(1)
            input = layer(input)
        return input


def he_normal_(model: nn.Module) -> None:
    """Initialize all linear and convolution layers, with the same bits on every machine.

    Weights are from N(0, 2 / fan_in) (He et al. 2015, equation 10), biases uniform in ±1 / sqrt(fan_in), as PyTorch's
    are. PyTorch's own normal numbers differ in their last bits between processors, and training turns that into other
    networks. One number is drawn from the global generator, which :func:`xaibench.models.build` seeds and restores.

    Args:
        model: Changed in place.
    """
    seed = int(torch.randint(2**62, ()))
    layers = [layer for layer in model.modules() if isinstance(layer, nn.Linear | nn.Conv2d | nn.Conv3d)]
    with torch.no_grad():
        for index, layer in enumerate(layers):
            fan_in = layer.weight[0].numel()
            weights = np.empty(tuple(layer.weight.shape))
            normal_numbers(np.random.SeedSequence((seed, index, 0)), weights)
            layer.weight.copy_(torch.from_numpy(weights * math.sqrt(2 / fan_in)))
            if layer.bias is not None:
                bits = np.random.Philox(np.random.SeedSequence((seed, index, 1))).random_raw(len(layer.bias))
                shares = (bits >> np.uint64(11)).astype(np.float64) * 2.0**-52 - 1  # in [-1, 1), exact
                layer.bias.copy_(torch.from_numpy(shares / math.sqrt(fan_in)))


def image_side(name: str, in_shape: tuple[int, ...], num_classes: int) -> int:
    """Check the arguments of the XAI-TRIS networks and return the side of the images."""
    if tuple(in_shape) not in ((1, 8, 8), (1, 64, 64), (1, 16, 16, 16)):
        raise ValueError(
            f"{name}: in_shape is {tuple(in_shape)}, but the XAI-TRIS networks take (1, 8, 8), (1, 64, 64) or "
            "(1, 16, 16, 16). For other images, give your own model as 'package.module:name'."
        )
    if num_classes < 2:
        raise ValueError(f"{name}: num_classes is {num_classes}, but a classifier needs at least 2.")
    return in_shape[1]


class _ZeroShot(nn.Module):
    """A classifier whose logits are similarities of an image to texts."""

    text_embeddings: Tensor
    scale: Tensor
    bias: Tensor

    def __init__(
        self,
        encoder: nn.Module,
        text_embeddings: Tensor,
        scale: float,
        bias: float,
        embed: Callable[[nn.Module, Tensor], Any] | None,
    ) -> None:
        super().__init__()
        self.encoder, self.embed = encoder, embed
        self.register_buffer("text_embeddings", functional.normalize(text_embeddings, dim=1))
        self.register_buffer("scale", torch.as_tensor(scale, dtype=text_embeddings.dtype))
        self.register_buffer("bias", torch.as_tensor(bias, dtype=text_embeddings.dtype))

    def forward(self, images: Tensor) -> Tensor:
        """Compare images with the texts.

        Args:
            images: ``[N, C, H, W]``, as the encoder expects them.

        Returns:
            Logits ``[N, K]``: scale times cosine similarity, plus bias.

        Raises:
            ValueError: If the encoder returns no embeddings ``[N, D]`` of the length of the text embeddings.
        """
        embeddings = self.encoder(images) if self.embed is None else self.embed(self.encoder, images)
        size = self.text_embeddings.shape[1]
        if not isinstance(embeddings, Tensor) or embeddings.ndim != 2 or embeddings.shape[1] != size:
            got = list(embeddings.shape) if isinstance(embeddings, Tensor) else kind_of(embeddings)
            raise ValueError(
                f"zero_shot_head: the encoder returned {got}, expected embeddings [N, {size}]. Select them with "
                "embed=, such as embed=lambda model, images: model.get_image_features(images)."
            )
        return functional.linear(functional.normalize(embeddings, dim=1), self.text_embeddings) * self.scale + self.bias


def zero_shot_head(
    encoder: nn.Module,
    text_embeddings: Tensor,
    *,
    scale: float = 100.0,
    bias: float = 0.0,
    embed: Callable[[nn.Module, Tensor], Any] | None = None,
) -> nn.Module:
    """Make a classifier of an image encoder and the embeddings of texts, one per class.

    The logit of a class is ``scale`` times the cosine similarity of the image and its text, plus ``bias``. CLIP takes
    the softmax of the logits (``output="probability"``), SigLIP the sigmoid (``output="sigmoid"``).

    Args:
        encoder: Returns embeddings ``[N, D]`` of images ``[N, C, H, W]``; a model of image and text with ``embed``.
        text_embeddings: ``[K, D]``, floating-point, of any length; computed once, with the text encoder.
        scale: Factor of the similarity: ``model.logit_scale.exp()``, 100 for the trained models of CLIP.
        bias: Added afterwards: ``model.logit_bias`` of SigLIP.
        embed: ``(encoder, images) -> embeddings``, if calling the encoder does not return them.

    Returns:
        The classifier, on the device of the encoder as soon as it is moved there; the encoder is not copied.

    Raises:
        ValueError: If the text embeddings are not ``[K, D]``, or one is zero.
        TypeError: If they are not a floating-point tensor.

    Example:
        >>> encoder = torch.nn.Flatten()
        >>> model = zero_shot_head(encoder, torch.tensor([[1.0, 0.0], [3.0, 3.0]]), scale=10.0)
        >>> model(torch.tensor([1.0, 0.0]).reshape(1, 1, 1, 2)).round(decimals=2).tolist()
        [[10.0, 7.070000171661377]]
    """
    if not isinstance(text_embeddings, Tensor) or not text_embeddings.is_floating_point():
        got = text_embeddings.dtype if isinstance(text_embeddings, Tensor) else kind_of(text_embeddings)
        raise TypeError(f"text_embeddings: got {got}, expected a floating-point tensor [K, D].")
    if text_embeddings.ndim != 2 or not (text_embeddings != 0).any(1).all():
        raise ValueError(
            f"text_embeddings: got {list(text_embeddings.shape)}, expected [K, D], a vector other than zero per class."
        )
    return _ZeroShot(encoder, text_embeddings.detach().clone(), float(scale), float(bias), embed)
