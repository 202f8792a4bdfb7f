"""Linear layers of all members of a stack; on a CPU, none of a member's numbers depends on the others."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from xaibench.core.compiled_loops import kernels_enabled

#: Weights of a member from which its product is computed by oneDNN, which is then faster than the compiled loops.
LARGE = 2**14

#: Outputs up to which images are not turned into columns first.
FEW = 8


def linear(images: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """``[M, B, ...] -> [M, B, O]``; weight ``[M, O, I]``, bias ``[M, O]``."""
    rows = images.flatten(2)
    if weight.device.type != "cpu":
        # Samples along the last axis, where small layers are fast.
        columns = rows.mT
        return (weight @ columns if bias is None else torch.baddbmm(bias[:, :, None], weight, columns)).mT
    if weight.dtype != torch.float32 or torch.is_autocast_enabled("cpu") or not kernels_enabled():
        # Copies: where in memory a matrix begins decides how a library multiplies it.
        biases = [None] * len(weight) if bias is None else list(bias)
        single = [F.linear(x.clone(), w.clone(), b) for x, w, b in zip(rows, weight, biases, strict=True)]
        return torch.stack(single)
    out: Tensor
    if weight[0].numel() < LARGE:
        out = _Small.apply(rows, weight, bias)
        return out
    out = _Large.apply(rows, weight)
    return out if bias is None else out + bias[:, None]


def perceptron(images: Tensor, layers: Sequence[tuple[Tensor, Tensor | None]]) -> Tensor:
    """Linear layers with ReLU between them: ``[M, B, ...] -> [M, B, O]``.

    Small ones are one node of autograd: what torch does around each takes longer than its loops. Of two samples or
    more the numbers are those of one layer after another, to the bit; of a single one, up to rounding.

    Args:
        images: ``[M, B, ...]``.
        layers: Weight ``[M, O, I]`` and bias ``[M, O]`` of each.
    """
    weight = layers[0][0]
    small = all(each[0].numel() < LARGE for each, _ in layers) and not torch.is_autocast_enabled("cpu")
    small = small and kernels_enabled()
    if small and weight.device.type == "cpu" and weight.dtype == torch.float32:
        out: Tensor = _Small.apply(images.flatten(2), *itertools.chain(*layers))
        return out
    for number, (weight, bias) in enumerate(layers):
        images = linear(images.relu() if number else images, weight, bias)
    return images


class _Small(torch.autograd.Function):
    """The compiled loops (:mod:`xaibench.models.compiled.dense_loops`) over samples that lie side by side."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, *given: Tensor | None) -> Tensor:
        """``[M, B, I], [M, O, I], [M, O] -> [M, B, O]``; of several layers, weight and bias of each."""
        from xaibench.models.compiled import dense_loops as loops  # loads numba

        layers: list[Any] = list(zip(given[::2], given[1::2], strict=True))
        ctx.saved, ctx.shapes = [], [weight.shape for weight, _ in layers]
        x: Any = None
        for (weight, bias), (members, outputs, inputs) in zip(layers, ctx.shapes, strict=True):
            as_rows = x is None and outputs <= FEW and rows.stride(2) == 1 and not ctx.needs_input_grad[0]
            if x is None:
                x = rows.contiguous().numpy() if as_rows else _padded(rows.mT, -(-inputs // 2) * 2)
            w = np.zeros((members, -(-outputs // 4) * 4, x.shape[2 if as_rows else 1]), np.float32)
            w[:, :outputs, :inputs] = weight.numpy()
            b = np.zeros(w.shape[:2], np.float32)
            if bias is not None:
                b[:, :outputs] = bias.numpy()
            out = np.empty((members, w.shape[1], rows.shape[1]), np.float32)
            ctx.saved.append((x, w, as_rows))
            (loops.forward_of_rows if as_rows else loops.forward)(x, w, b, out, len(ctx.saved) < len(layers))
            x = out
        return torch.from_numpy(x)[:, : ctx.shapes[-1][1]].mT

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of rows (where needed), and of weight and bias of each layer."""
        from xaibench.models.compiled import dense_loops as loops

        found: list[Tensor | None] = []
        g = _padded(gradients[0].mT, ctx.saved[-1][1].shape[1])
        for number in reversed(range(len(ctx.saved))):
            (x, w, as_rows), (_, outputs, inputs) = ctx.saved[number], ctx.shapes[number]
            gw, gb = np.zeros_like(w), np.zeros(w.shape[:2], np.float32)
            wanted = number > 0 or ctx.needs_input_grad[0]
            gx = np.empty((len(w), x.shape[1] if wanted else 0, g.shape[2]), np.float32)
            if as_rows:
                loops.backward_of_rows(x, g, gw, gb)
            else:
                loops.backward(x, w, g, gw, gb, gx, number > 0)
            of_bias = torch.from_numpy(gb)[:, :outputs] if ctx.needs_input_grad[2 + 2 * number] else None
            found = [torch.from_numpy(gw)[:, :outputs, :inputs], of_bias, *found]
            g = gx
        return torch.from_numpy(gx)[:, :inputs].mT if ctx.needs_input_grad[0] else None, *found


def _padded(columns: Tensor, height: int) -> Any:
    """``[M, I, B]`` as a contiguous array ``[M, height, B]``, with rows of zeros."""
    over = height - columns.shape[1]
    return (F.pad(columns, (0, 0, 0, over)) if over else columns).contiguous().numpy()


class _Large(torch.autograd.Function):
    """``rows @ weight.mT``, one member after another, by :func:`product`."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, weight: Tensor) -> Tensor:
        """``[M, B, I], [M, O, I] -> [M, B, O]``."""
        ctx.save_for_backward(rows, weight)
        return _products(rows, weight)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor]:
        """Gradients of rows (where needed) and weight."""
        rows, weight = ctx.saved_tensors
        of_rows = _products(gradients[0], weight.mT) if ctx.needs_input_grad[0] else None
        return of_rows, _products(gradients[0].mT, rows.mT)


def _products(left: Tensor, right: Tensor) -> Tensor:
    found = [product(a, b) for a, b in zip(left, right, strict=True)]
    return torch.stack(found) if len(found) > 1 else found[0][None]


def product(left: Tensor, right: Tensor) -> Tensor:
    """``left @ right.T`` of single precision on the CPU: ``[N, I], [O, I] -> [N, O]``.

    By oneDNN, where torch has it: torch's own choice, MKL, takes twice the time on processors that are not Intel's.
    """
    if hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        out: Tensor = torch.ops.mkldnn._linear_pointwise(left, right, None, "none", [], "")
        return out
    return left @ right.T
