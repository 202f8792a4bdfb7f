"""Record the attention of any network during a forward pass: the weights of each layer and head, with their gradients.

Networks compute attention in three ways: with ``nn.MultiheadAttention`` (torchvision's ViT), with torch's fused
``scaled_dot_product_attention`` (timm and most others), or with a softmax between two matrix products (torchvision's
Swin, timm with fused attention disabled). The first two do not expose their weights. Here they are computed in the
third way (:func:`unfused`), which any :class:`~torch.overrides.TorchFunctionMode` can observe.
"""

from __future__ import annotations

import inspect
import itertools
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from xaibench.compute.output import UnsupportedModelError, network_of
from xaibench.explainers.shared.gradient_free import gradient_free_advice

#: Matrix products, by the name under which torch reports a call.
PRODUCTS = ("matmul", "bmm", "__matmul__", "einsum")
#: Operations between the softmax and the product with the values that do not change a value in evaluation mode.
_VALUE_PRESERVING = ("dropout", "dropout_", "to", "type_as", "float", "contiguous", "clone", "detach")


@dataclass(frozen=True, eq=False)
class Attention:
    """One attention of a forward pass.

    Attributes:
        name: The name of the layer in ``network.named_modules()``.
        weights: ``[B, heads, T, S]``: the weight of token s for token t; rows sum to 1. It is the tensor that the
            network continues with, so the output has a gradient with respect to it. B is the number of images N, or N·W
            with W windows, where the windows of an image are consecutive.
        values: ``[B, heads, S, d]`` (``[B·heads, S, d]`` if the network stores them so).
        tokens: ``[B, T, D]``: the input of the linear layer that computed the queries, or queries, keys and values;
            ``None`` if there was none.
    """

    name: str
    weights: Tensor
    values: Tensor
    tokens: Tensor | None = None


@contextmanager
def record_attention(model: nn.Module) -> Iterator[list[Attention]]:
    """Record every attention of the forward passes in the block, in the order in which they run.

    Example:
        >>> model = nn.MultiheadAttention(4, num_heads=2, batch_first=True)
        >>> x = torch.rand(1, 3, 4)
        >>> with record_attention(model) as seen:
        ...     _ = model(x, x, x)
        >>> [attention.weights.shape for attention in seen]
        [torch.Size([1, 2, 3, 3])]
    """
    network = network_of(model)
    recorder = _AttentionRecorder()
    handles = []
    try:
        for name, module in network.named_modules():
            handles.append(module.register_forward_pre_hook(recorder.enter(name)))
            handles.append(module.register_forward_hook(recorder.leave))
        with recorder:
            yield recorder.seen
    finally:
        for handle in handles:
            handle.remove()


def attention_gradients(
    owner: str, model: nn.Module, images: Tensor, targets: Tensor
) -> tuple[list[Attention], list[Tensor]]:
    """Return every attention for the images, and the gradients of the target outputs with respect to the weights.

    Args:
        owner: The explainer, for error messages.
        model: Maps images to ``[N, K]``.
        images: ``[N, C, H, W]``.
        targets: ``[N]``.

    Returns:
        The attentions, and as many gradients, each ``[B, heads, T, S]``; zero where the output does not depend on them.

    Raises:
        UnsupportedModelError: If the network has no attention, or the output has no gradient.
    """
    with record_attention(model) as seen, torch.enable_grad():
        outputs = model(images.detach().requires_grad_()).gather(1, targets[:, None])
    if not seen:
        raise no_attention_error(owner, model)
    weights = [attention.weights for attention in seen]
    if not outputs.requires_grad or not all(each.requires_grad for each in weights):
        raise UnsupportedModelError(
            f"{owner}: the explained output has no gradient with respect to the attention of "
            f"{type(network_of(model)).__name__}. {gradient_free_advice()}"
        )
    found = torch.autograd.grad(outputs.sum(), weights, allow_unused=True)
    return seen, [torch.zeros_like(w) if g is None else g for w, g in zip(weights, found, strict=True)]


def no_attention_error(owner: str, model: nn.Module) -> UnsupportedModelError:
    """Return the error for a network without attention."""
    return UnsupportedModelError(
        f"{owner}: {type(network_of(model)).__name__} has no attention: no nn.MultiheadAttention, "
        "scaled_dot_product_attention, or softmax whose result is multiplied by values. Use a transformer (vit_b_16, "
        "one of timm), or gradcam or rise."
    )


def unfused(func: Callable[..., Any]) -> Callable[..., Any] | None:
    """Return an equivalent of a fused attention in matrix products and a softmax; ``None`` for other functions.

    Call it with the :class:`~torch.overrides.TorchFunctionMode` active, so that the mode observes these operations.
    """
    if func is functional.scaled_dot_product_attention:
        return _attend
    return _attend_with_heads if func is functional.multi_head_attention_forward else None


class _AttentionRecorder(TorchFunctionMode):
    """Record every softmax over the last axis whose result is multiplied by another tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Attention] = []
        self._running: list[str] = []
        self._tokens: Tensor | None = None
        self._batch = 0
        # Weights by the id of the network's tensor, which is kept alive so that its id stays unique.
        self._weights: dict[int, tuple[Tensor, Tensor]] = {}

    def enter(self, name: str) -> Callable[[nn.Module, Any], None]:
        def note(module: nn.Module, inputs: Any) -> None:
            if not self._running and inputs and isinstance(inputs[0], Tensor):
                self._batch, self._weights, self._tokens = len(inputs[0]), {}, None
            self._running.append(name)

        return note

    def leave(self, *_: Any) -> None:
        self._running.pop()

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        plain = unfused(func) if self._running else None
        if plain is not None:
            with self:
                return plain(*args, **kwargs)
        result = func(*args, **kwargs)
        called = getattr(func, "__name__", "")
        if self._running and isinstance(result, Tensor):
            if called == "linear" and args[0].ndim == 3:
                self._tokens = args[0]
            elif called == "softmax" and result.ndim in (3, 4):
                return self._record_softmax(result)
            elif called in _VALUE_PRESERVING and id(args[0]) in self._weights:
                self._weights[id(result)] = self._weights[id(args[0])][0], result
            elif called in PRODUCTS:
                self._record_product(args)
        return result

    def _record_softmax(self, result: Tensor) -> Tensor:
        # Heads that share an axis with the images (bmm) are separated, so that each has a gradient.
        weights = result if result.ndim == 4 else result.reshape(self._batch or len(result), -1, *result.shape[1:])
        goes_on = weights if result.ndim == 4 else weights.flatten(0, 1)
        self._weights[id(goes_on)] = weights, goes_on
        return goes_on

    def _record_product(self, args: tuple[Any, ...]) -> None:
        for factor, other in itertools.pairwise(args):
            weights, _ = self._weights.pop(id(factor), (None, None))
            if weights is not None:
                self.seen.append(Attention(self._running[-1], weights, other, self._tokens))


def _attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Compute ``scaled_dot_product_attention`` from matrix products and a softmax."""
    if enable_gqa:
        key, value = (x.repeat_interleave(query.shape[-3] // x.shape[-3], -3) for x in (key, value))
    scores = query @ key.transpose(-2, -1) * (1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    if is_causal:
        attn_mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
    if attn_mask is not None:
        scores = scores + _mask_bias(attn_mask, scores, masked=False)
    weights = functional.softmax(scores, -1)
    return (functional.dropout(weights, dropout_p) if dropout_p else weights) @ value


def _mask_bias(mask: Tensor, scores: Tensor, masked: bool) -> Tensor:
    """Return what a mask adds to the scores: minus infinity where a boolean mask equals ``masked``."""
    if mask.dtype != torch.bool:
        return mask
    return torch.zeros_like(mask, dtype=scores.dtype).masked_fill(mask == masked, -math.inf)


def _attend_with_heads(*args: Any, **kwargs: Any) -> tuple[Tensor, Tensor | None]:
    """Compute ``multi_head_attention_forward``, all of ``nn.MultiheadAttention``; tokens are ``[T, N, D]``."""
    call = inspect.signature(functional.multi_head_attention_forward).bind(*args, **kwargs)
    call.apply_defaults()
    given = call.arguments
    query, key, value, heads = given["query"], given["key"], given["value"], given["num_heads"]
    rare = ("bias_k", "bias_v", "static_k", "static_v")
    if query.ndim != 3 or given["add_zero_attn"] or any(given[name] is not None for name in rare):
        raise UnsupportedModelError(
            f"The attention of nn.MultiheadAttention for tokens {list(query.shape)} with bias_kv, zero_attn or static "
            "keys, or without batch dimension, cannot be recorded. Expected one without add_bias_kv and add_zero_attn, "
            "for tokens [N, T, D]."
        )
    bias = given["in_proj_bias"]
    biases = (None, None, None) if bias is None else bias.chunk(3)
    if given["use_separate_proj_weight"]:
        weights = given["q_proj_weight"], given["k_proj_weight"], given["v_proj_weight"]
    else:
        weights = given["in_proj_weight"].chunk(3)
    # [N, T, D], so that the tokens can be recorded, then [N, heads, T, d].
    q, k, v = (
        functional.linear(x.transpose(0, 1), w, b).reshape(*x.shape[1::-1], heads, -1).transpose(1, 2)
        for x, w, b in zip((query, key, value), weights, biases, strict=True)
    )
    scores = q @ k.transpose(-2, -1) * (1 / math.sqrt(q.shape[-1]))
    mask, padding = given["attn_mask"], given["key_padding_mask"]
    if mask is not None:
        scores = scores + _mask_bias(
            mask.reshape(-1, heads, *mask.shape[1:]) if mask.ndim == 3 else mask, scores, masked=True
        )
    if padding is not None:
        scores = scores + _mask_bias(padding[:, None, None], scores, masked=True)
    attention = functional.softmax(scores, -1)
    dropout = given["dropout_p"] if given["training"] else 0.0
    mixed = (functional.dropout(attention, dropout) if dropout else attention) @ v
    output = functional.linear(mixed.transpose(1, 2).flatten(2), given["out_proj_weight"], given["out_proj_bias"])
    if not given["need_weights"]:
        return output.transpose(0, 1), None
    return output.transpose(0, 1), attention.mean(1) if given["average_attn_weights"] else attention
