"""Zero-shot classification: the similarity of an image to texts, as in CLIP and SigLIP."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from xaibench.core.messages import kind_of


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
        found = self.encoder(images) if self.embed is None else self.embed(self.encoder, images)
        size = self.text_embeddings.shape[1]
        if not isinstance(found, Tensor) or found.ndim != 2 or found.shape[1] != size:
            got = list(found.shape) if isinstance(found, Tensor) else kind_of(found)
            raise ValueError(
                f"zero_shot_head: the encoder returned {got}, expected embeddings [N, {size}]. Select them with "
                "embed=, such as embed=lambda model, images: model.get_image_features(images)."
            )
        return functional.linear(functional.normalize(found, dim=1), self.text_embeddings) * self.scale + self.bias


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
