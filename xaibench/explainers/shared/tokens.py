"""Record the attention of any network, and locate the tokens of a transformer in the image.

Networks compute attention in three ways: with ``nn.MultiheadAttention`` (torchvision's ViT), with torch's fused
``scaled_dot_product_attention`` (timm and most others), or with a softmax between two matrix products (torchvision's
Swin, timm with fused attention disabled). The first two do not expose their weights. Here they are computed in the
third way (:func:`unfused`), which any :class:`~torch.overrides.TorchFunctionMode` can observe.

Tokens are located by evaluating the network on random noise, so nothing depends on names. The grid of patches is that
of the last feature map before the tokens. Tokens before the patches are class, distillation and register tokens.
Windows, shifted or not, contain rows of a map ``[N, h, w, D]``, which are recognized by their values. The head reads
those tokens that the output has a gradient with respect to.
"""

from __future__ import annotations

import inspect
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules import pooling

from xaibench.explainers.base import CONVOLUTIONS
from xaibench.explainers.registered import gradient_free_advice
from xaibench.network.calls import CallObserver, LayerRun, record_layer_runs
from xaibench.network.explained_output import UnsupportedModelError, network_of

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
    recorder = _AttentionRecorder()
    with recorder.observing(network_of(model)):
        yield recorder.seen


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


class _AttentionRecorder(CallObserver):
    """Record every softmax over the last axis whose result is multiplied by another tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Attention] = []
        self._tokens: Tensor | None = None
        self._batch = 0
        # Weights by the id of the network's tensor, which is kept alive so that its id stays unique.
        self._weights: dict[int, tuple[Tensor, Tensor]] = {}

    def enter(self, name: str, module: nn.Module, inputs: tuple[Any, ...]) -> None:
        """Note that a layer begins; the network itself, that a forward pass does."""
        if not self.running and inputs and isinstance(inputs[0], Tensor):
            self._batch, self._weights, self._tokens = len(inputs[0]), {}, None
        super().enter(name, module, inputs)

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        plain = unfused(func) if self.running else None
        if plain is not None:
            with self:
                return plain(*args, **kwargs)
        result = func(*args, **kwargs)
        called = getattr(func, "__name__", "")
        if self.running and isinstance(result, Tensor):
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
                self.seen.append(Attention(self.running[-1][0], weights, other, self._tokens))


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
    """Convert an attention mask to a summand of the scores: minus infinity where a boolean mask equals ``masked``."""
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


def is_map(run: LayerRun, runs: list[LayerRun], size: tuple[int, ...]) -> bool:
    """Return whether an output ``[1, C, h, w]`` is a feature map with (about) the aspect ratio of the image.

    The queries and weights of an attention have four dimensions too. They are recognized by the tokens that their
    parent layer receives. The number of slices of a volume does not matter: many networks reduce it later than rows
    and columns.
    """
    output = run.output
    if not isinstance(output, Tensor) or output.ndim != 2 + len(size) or len(output) != 1:
        return False
    return _has_aspect_ratio(output.shape[2:], size) and not _inside_tokens(run, runs)


def is_channels_last(run: LayerRun, runs: list[LayerRun], size: tuple[int, ...]) -> bool:
    """Return whether an output is a feature map ``[1, h, w, C]`` of more than one position."""
    output = run.output
    if not isinstance(output, Tensor) or output.ndim != 2 + len(size) or len(output) != 1:
        return False
    grid = output.shape[1:-1]
    return grid.numel() > 1 and _has_aspect_ratio(grid, size) and not _inside_tokens(run, runs)


def _has_aspect_ratio(grid: Sequence[int], size: Sequence[int]) -> bool:
    """Return whether rows and columns of a grid have about the same ratio as rows and columns of the image."""
    wide = grid[-2] * size[-1] / size[-2]  # approximate width with the aspect ratio of the image
    return abs(wide - grid[-1]) <= max(1.0, wide / 4)


def _inside_tokens(run: LayerRun, runs: list[LayerRun]) -> bool:
    """Return whether a parent of the layer receives tokens."""
    return any(_has_tokens(other.inputs) for other in runs if other.name and run.name.startswith(f"{other.name}."))


def _has_tokens(values: object) -> bool:
    values = values if isinstance(values, tuple) else (values,)
    return any(isinstance(value, Tensor) and value.ndim == 3 for value in values)


def is_tokens(output: object, grid: tuple[int, ...]) -> bool:
    """Return whether an output is a sequence of tokens ``[1, T, D]`` with at least one token per patch of the grid."""
    return isinstance(output, Tensor) and output.ndim == 3 and len(output) == 1 and output.shape[1] >= math.prod(grid)


def spatial_runs(runs: list[LayerRun], size: tuple[int, ...]) -> list[int]:
    """Return the indices of the runs whose output is a feature map of several positions.

    Outputs before the first convolution, outputs of pooling layers and channels-last maps are left out.
    """
    pooled = {id(run.output) for run in runs if type(run.module).__module__ == pooling.__name__}
    first = next((i for i, run in enumerate(runs) if isinstance(run.module, CONVOLUTIONS)), len(runs))
    found = []
    for i, run in enumerate(runs[first:], start=first):
        # A container that ends in a pooling layer returns the same tensor object as that layer.
        if isinstance(run.output, Tensor) and id(run.output) not in pooled and is_map(run, runs, size):
            grid = run.output.shape[2:]
            if grid.numel() > 1 and all(side <= whole for side, whole in zip(grid, size, strict=True)):
                found.append(i)
    return found


def is_patch_embedding(runs: list[LayerRun], last: int, size: tuple[int, ...]) -> bool:
    """Return whether the last feature map only embeds the patches of a transformer.

    That is the case if as many tokens as it has positions follow, possibly in windows.
    """
    output = runs[last].output
    assert isinstance(output, Tensor)
    positions = output.shape[2:].numel()
    later = [run.output for run in runs[last + 1 :]]
    return any(isinstance(x, Tensor) and x.ndim == 3 and x.shape[:2].numel() >= positions for x in later)


def patch_grid(runs: list[LayerRun], size: tuple[int, ...], tokens: object = None) -> tuple[int, ...] | None:
    """Return rows and columns of patches.

    They are taken from the last feature map. Without one, they are the square (for volumes, the cube) formed by
    ``tokens``.
    """
    maps = spatial_runs(runs, size)
    if maps:
        output = runs[maps[-1]].output
        assert isinstance(output, Tensor)
        return tuple(output.shape[2:])
    long = [side for side in size if side > 1]
    if isinstance(tokens, Tensor) and tokens.ndim == 3 and len(set(long)) == 1:
        side = round(tokens.shape[1] ** (1 / len(long)))
        # A square of patches, with or without a class token before it.
        if tokens.shape[1] - side ** len(long) in (0, 1):
            return tuple(side if whole > 1 else 1 for whole in size)
    return None


@dataclass(frozen=True, eq=False)
class Tokens:
    """The positions of the tokens of one attention.

    Attributes:
        grid: Rows and columns of patches (slices first for volumes), which are the last tokens, row by row.
        extra: Number of tokens before them: class token, distillation token, registers.
        places: ``[W, T]`` int64: the index among the ``extra + h·w`` tokens of each token of each window; -1 is
            padding. A single row 0, 1, 2, ... if there are no windows.
    """

    grid: tuple[int, ...]
    extra: int
    places: Tensor

    @property
    def count(self) -> int:
        """The number of all tokens, ``extra + h·w``."""
        return self.extra + math.prod(self.grid)

    def in_token_order(self, values: Tensor) -> Tensor:
        """Reorder values ``[B, T]`` (B = N·W) of the windows' tokens to ``[N, count]``, without padding."""
        windows, size = self.places.shape
        places = self.places.flatten().to(values.device)
        rows = values.reshape(-1, windows * size)
        return rows.new_zeros(len(rows), self.count).index_copy(1, places[places >= 0], rows[:, places >= 0])

    def on_grid(self, values: Tensor) -> Tensor:
        """Return the values ``[N, h, w]`` of the patches from the values ``[B, T]`` of the tokens."""
        return self.in_token_order(values)[:, self.extra :].reshape(-1, *self.grid)


@dataclass(frozen=True, eq=False)
class TokenLayout:
    """The tokens of all layers.

    Attributes:
        layers: The tokens of each attention, in the order in which they run.
        read: ``[count]`` bool: tokens of the last attention whose output the head reads: the class token, or all
            patches if they are averaged.
        attentions: The attentions for the noise.
        runs: Every call of a layer in that pass.
    """

    layers: tuple[Tokens, ...]
    read: Tensor
    attentions: tuple[Attention, ...]
    runs: tuple[LayerRun, ...]

    @property
    def reads_patches(self) -> bool:
        """Whether the head reads patches, for example their mean, and not only class tokens."""
        return bool(self.read[self.layers[-1].extra :].any())


def token_layout(owner: str, model: nn.Module, images: Tensor) -> TokenLayout:
    """Locate the tokens; this takes a few forward passes of one image, and one gradient.

    Args:
        owner: The explainer, for error messages.
        model: Maps images to ``[N, K]``.
        images: ``[N, C, H, W]``; only their shape matters.

    Returns:
        The layout, which is the same for all images of that size.

    Raises:
        UnsupportedModelError: If the network has no attention, or its tokens cannot be located in the image.
    """
    noise = _noise(images, 1)
    with (
        record_attention(model) as seen,
        record_layer_runs(network_of(model).named_modules()) as runs,
        torch.enable_grad(),
    ):
        outputs = model(noise.requires_grad_())
    if not seen:
        raise no_attention_error(owner, model)
    size = tuple(images.shape[2:])
    layers = tuple(_locate_tokens(owner, model, attention, runs, size) for attention in seen)
    if any(len(tokens.places) > 1 for tokens in layers):
        _check_order(owner, model, images, seen)
    _check_patches(owner, seen[0], layers[0], noise)
    read = _find_read_tokens(seen[-1], layers[-1], runs, outputs)
    return TokenLayout(layers, read, tuple(seen), tuple(runs))


def _noise(images: Tensor, rows: int) -> Tensor:
    noise = torch.randn(rows, *images.shape[1:], generator=torch.Generator().manual_seed(0))
    return noise.to(images.device, images.dtype)


def _locate_tokens(
    owner: str, model: nn.Module, attention: Attention, runs: Sequence[LayerRun], size: tuple[int, ...]
) -> Tokens:
    """Locate the tokens of one attention for one image."""
    batch, _, _, count = attention.weights.shape
    tokens = attention.tokens
    if tokens is not None and tokens.shape[:2] == (batch, count):
        for run in reversed(runs):
            if not isinstance(run.output, Tensor) or run.output.ndim != 2 + len(size):
                continue
            for output in (run.output, run.output.movedim(1, -1)):
                places = _match_rows(tokens.detach(), output.detach())
                if places is not None:
                    return Tokens(tuple(output.shape[1:-1]), 0, places)
    grid = patch_grid(list(runs), size, attention.weights[:, 0])
    if batch != 1 or grid is None or math.prod(grid) > count:
        windows = f", in {batch} windows" if batch > 1 else ""
        raise UnsupportedModelError(
            f"{owner}: the attention of layer {attention.name!r} ({type(network_of(model)).__name__}) is over {count} "
            f"tokens{windows}, but no layer has a grid of at most as many patches. Expected a convolution that cuts "
            "the image into patches, or windows of a map [N, h, w, D]. gradcam with layer='...', rise and occlusion "
            "work without."
        )
    return Tokens(grid, count - math.prod(grid), torch.arange(count)[None])


def _match_rows(tokens: Tensor, output: Tensor) -> Tensor | None:
    """Match tokens to positions of a map ``[1, h, w, D]`` by value: ``[W, T]``; ``None`` if one has no match."""
    rows = output.flatten(0, -2)
    if rows.shape[1] != tokens.shape[-1]:
        return None
    strongest = tokens.flatten(0, 1)[tokens.flatten(0, 1).abs().sum(1).argmax()]
    if len(rows) < 2 or not bool((rows == strongest).all(1).any()):
        return None
    _, which = torch.unique(torch.cat([rows, tokens.flatten(0, 1)]), dim=0, return_inverse=True)
    of_rows, of_tokens = which[: len(rows)], which[len(rows) :]
    position = torch.full((int(which.max()) + 1,), -1, device=which.device)
    position[of_rows] = torch.arange(len(rows), device=which.device)
    places = position[of_tokens]
    # Each position must occur once. Other tokens are padding if they are zero; otherwise they are of another kind.
    once = torch.equal(places[places >= 0].sort().values, torch.arange(len(rows), device=which.device))
    if not once or bool(tokens.flatten(0, 1)[places < 0].any()):
        return None
    return places.reshape(tokens.shape[:2]).cpu()


def _check_order(owner: str, model: nn.Module, images: Tensor, seen: Sequence[Attention]) -> None:
    """Require that the windows of an image are consecutive in the batch."""
    with record_attention(model) as both, torch.no_grad():
        model(_noise(images, 2))
    alone, of_two = seen[0].tokens, both[0].tokens
    assert alone is not None
    if of_two is None or not torch.allclose(of_two[: len(alone)], alone, rtol=1e-3, atol=1e-4):
        raise UnsupportedModelError(
            f"{owner}: the windows of layer {seen[0].name!r} are not ordered by image in the batch. Expected those of "
            "the first image first, as in Swin transformers. rise and occlusion explain any network."
        )


def _check_patches(owner: str, first: Attention, tokens: Tokens, noise: Tensor) -> None:
    """Require that the last tokens of the first attention are the patches, row by row."""
    if first.tokens is None or not first.tokens.requires_grad or len(tokens.places) > 1:
        return
    last = tuple(side - 1 for side in tokens.grid)
    for patch in {(*[0] * (len(last) - 1), min(1, last[-1])), last}:
        number = tokens.extra + int(np.ravel_multi_index(patch, tokens.grid))
        vector = first.tokens[0, number]
        weights = torch.linspace(1, 2, len(vector), dtype=vector.dtype, device=vector.device)
        (gradient,) = torch.autograd.grad((weights * vector).sum(), noise, retain_graph=True, allow_unused=True)
        if gradient is None:
            return
        seen = gradient[0].abs().sum(0)
        if not seen.any():  # a part of the image that the network does not receive
            continue
        for axis, (at, cells) in enumerate(zip(patch, tokens.grid, strict=True)):
            along = seen.sum([other for other in range(seen.ndim) if other != axis])
            middles = (torch.arange(len(along), device=along.device) + 0.5) * cells / len(along)
            center = float((along * middles).sum() / along.sum().clamp(min=1e-30))
            if abs(center - at - 0.5) > 1:
                raise UnsupportedModelError(
                    f"{owner}: token {number} of layer {first.name!r} depends on another part of the image than patch "
                    f"{patch} of {' by '.join(map(str, tokens.grid))}. Expected the patches to be the last tokens, row "
                    "by row. rise and occlusion explain any network."
                )


def _find_read_tokens(last: Attention, tokens: Tokens, runs: Sequence[LayerRun], outputs: Tensor) -> Tensor:
    """Return which tokens the head reads, by the gradient with respect to their rows of the last attention."""
    pooled = [run.inputs[0] for run in runs if isinstance(run.module, nn.Linear) and run.inputs]
    # A head of zeros, as torchvision's before training, has no gradient: then the input of the head is used.
    for result in (outputs, *pooled[-1:]):
        if not isinstance(result, Tensor) or not result.requires_grad or not last.weights.requires_grad:
            continue
        mixed = (result * torch.randn(result.shape, generator=torch.Generator().manual_seed(1)).to(result)).sum()
        (gradient,) = torch.autograd.grad(mixed, last.weights, allow_unused=True, retain_graph=True)
        if gradient is None or not gradient.any():
            continue
        rows = gradient.ne(0).any(3).any(1)
        if rows.shape == tokens.places.shape:
            return tokens.in_token_order(rows.float())[0] > 0
        # Separate queries, for example of a class token that alone attends: the first tokens.
        return torch.arange(tokens.count, device=rows.device) < min(tokens.extra, rows.shape[1])
    read = torch.zeros(tokens.count, dtype=torch.bool)
    read[: 1 if tokens.extra else None] = True
    return read
