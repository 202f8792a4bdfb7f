"""Linear layers of all members of a stack; on a CPU, none of a member's numbers depends on the others."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

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
    if weight.dtype != torch.float32 or torch.is_autocast_enabled("cpu"):
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


class _Small(torch.autograd.Function):
    """The compiled loops (:mod:`xaibench.models.compiled.dense_loops`) over samples that lie side by side."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """``[M, B, I], [M, O, I], [M, O] -> [M, B, O]``."""
        from xaibench.models.compiled import dense_loops as loops  # loads numba

        members, outputs, inputs = weight.shape
        as_rows = outputs <= FEW and rows.stride(2) == 1 and not ctx.needs_input_grad[0]
        x = rows.contiguous().numpy() if as_rows else _padded(rows.mT, -(-inputs // 2) * 2)
        w = np.zeros((members, -(-outputs // 4) * 4, x.shape[2 if as_rows else 1]), np.float32)
        w[:, :outputs, :inputs] = weight.numpy()
        b = np.zeros(w.shape[:2], np.float32)
        if bias is not None:
            b[:, :outputs] = bias.numpy()
        out = np.empty((members, w.shape[1], rows.shape[1]), np.float32)
        (loops.forward_of_rows if as_rows else loops.forward)(x, w, b, out)
        ctx.saved = x, w, weight.shape, as_rows
        return torch.from_numpy(out)[:, :outputs].mT

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of rows (where needed), weight and bias."""
        from xaibench.models.compiled import dense_loops as loops

        x, w, (_, outputs, inputs), as_rows = ctx.saved
        g = _padded(gradients[0].mT, w.shape[1])
        gw, gb = np.zeros_like(w), np.zeros(w.shape[:2], np.float32)
        gx = np.empty((len(w), x.shape[1] if ctx.needs_input_grad[0] else 0, g.shape[2]), np.float32)
        if as_rows:
            loops.backward_of_rows(x, g, gw, gb)
        else:
            loops.backward(x, w, g, gw, gb, gx)
        of_rows = torch.from_numpy(gx)[:, :inputs].mT if ctx.needs_input_grad[0] else None
        of_bias = torch.from_numpy(gb)[:, :outputs] if ctx.needs_input_grad[2] else None
        return of_rows, torch.from_numpy(gw)[:, :outputs, :inputs], of_bias


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
