"""Linear layers of all members of a stack. On a CPU, results of a member do not depend on the others."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

#: Number of weights from which oneDNN is faster than the compiled loops.
LARGE = 2**14

#: Largest number of outputs for which images are not transposed first.
FEW_OUTPUTS = 8


def linear(images: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Map ``[M, B, ...]`` to ``[M, B, O]``; weight ``[M, O, I]``, bias ``[M, O]``."""
    rows = images.flatten(2)
    if weight.device.type != "cpu":
        # Small layers are faster with samples along the last axis.
        columns = rows.mT
        return (weight @ columns if bias is None else torch.baddbmm(bias[:, :, None], weight, columns)).mT
    if weight.dtype != torch.float32 or torch.is_autocast_enabled("cpu"):
        # Copies, since the algorithm of a library depends on the memory alignment.
        biases = [None] * len(weight) if bias is None else list(bias)
        single = [F.linear(x.clone(), w.clone(), b) for x, w, b in zip(rows, weight, biases, strict=True)]
        return torch.stack(single)
    out: Tensor
    if weight[0].numel() < LARGE:
        out = _SmallLinear.apply(rows, weight, bias)
        return out
    out = _LargeLinear.apply(rows, weight)
    return out if bias is None else out + bias[:, None]


def perceptron(images: Tensor, layers: Sequence[tuple[Tensor, Tensor | None]]) -> Tensor:
    """Apply linear layers with ReLU between them: ``[M, B, ...] -> [M, B, O]``.

    Small layers are a single autograd node, since torch's overhead per layer exceeds the time of the loops. For two
    samples or more, results are bit-identical to one layer after another; for a single sample, equal up to rounding.

    Args:
        images: ``[M, B, ...]``.
        layers: Weight ``[M, O, I]`` and bias ``[M, O]`` of each.
    """
    weight = layers[0][0]
    small = all(each[0].numel() < LARGE for each, _ in layers) and not torch.is_autocast_enabled("cpu")
    if small and weight.device.type == "cpu" and weight.dtype == torch.float32:
        out: Tensor = _SmallLinear.apply(images.flatten(2), *itertools.chain(*layers))
        return out
    for number, (weight, bias) in enumerate(layers):
        images = linear(images.relu() if number else images, weight, bias)
    return images


class _SmallLinear(torch.autograd.Function):
    """Autograd function of the compiled loops (:mod:`xaibench.kernels.training.dense_loops`)."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, *given: Tensor | None) -> Tensor:
        """Map ``[M, B, I]`` to ``[M, B, O]``, given weight ``[M, O, I]`` and bias ``[M, O]`` of each layer."""
        from xaibench.kernels.training import dense_loops as loops

        layers: list[Any] = list(zip(given[::2], given[1::2], strict=True))
        ctx.saved, ctx.shapes = [], [weight.shape for weight, _ in layers]
        x: Any = None
        for (weight, bias), (members, outputs, inputs) in zip(layers, ctx.shapes, strict=True):
            as_rows = x is None and outputs <= FEW_OUTPUTS and rows.stride(2) == 1 and not ctx.needs_input_grad[0]
            if x is None:
                x = rows.contiguous().numpy() if as_rows else _pad_rows(rows.mT, -(-inputs // 2) * 2)
            w = np.zeros((members, -(-outputs // 4) * 4, x.shape[2 if as_rows else 1]), np.float32)
            w[:, :outputs, :inputs] = weight.numpy()
            b = np.zeros(w.shape[:2], np.float32)
            if bias is not None:
                b[:, :outputs] = bias.numpy()
            out = np.empty((members, w.shape[1], rows.shape[1]), np.float32)
            ctx.saved.append((x, w, as_rows))
            (loops.linear_forward_rows if as_rows else loops.linear_forward)(x, w, b, out, len(ctx.saved) < len(layers))
            x = out
        return torch.from_numpy(x)[:, : ctx.shapes[-1][1]].mT

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Compute the gradients of the rows (if needed), and of weight and bias of each layer."""
        from xaibench.kernels.training import dense_loops as loops

        found: list[Tensor | None] = []
        g = _pad_rows(gradients[0].mT, ctx.saved[-1][1].shape[1])
        for number in reversed(range(len(ctx.saved))):
            (x, w, as_rows), (_, outputs, inputs) = ctx.saved[number], ctx.shapes[number]
            gw, gb = np.zeros_like(w), np.zeros(w.shape[:2], np.float32)
            wanted = number > 0 or ctx.needs_input_grad[0]
            gx = np.empty((len(w), x.shape[1] if wanted else 0, g.shape[2]), np.float32)
            if as_rows:
                loops.linear_backward_rows(x, g, gw, gb)
            else:
                loops.linear_backward(x, w, g, gw, gb, gx, number > 0)
            of_bias = torch.from_numpy(gb)[:, :outputs] if ctx.needs_input_grad[2 + 2 * number] else None
            found = [torch.from_numpy(gw)[:, :outputs, :inputs], of_bias, *found]
            g = gx
        return torch.from_numpy(gx)[:, :inputs].mT if ctx.needs_input_grad[0] else None, *found


def _pad_rows(columns: Tensor, height: int) -> Any:
    """Return ``[M, I, B]`` as a contiguous array ``[M, height, B]``, padded with rows of zeros."""
    over = height - columns.shape[1]
    return (F.pad(columns, (0, 0, 0, over)) if over else columns).contiguous().numpy()


class _LargeLinear(torch.autograd.Function):
    """Autograd function of ``rows @ weight.mT``, one member after another, by :func:`product`."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, weight: Tensor) -> Tensor:
        """Map ``[M, B, I]`` and ``[M, O, I]`` to ``[M, B, O]``."""
        ctx.save_for_backward(rows, weight)
        return _multiply_members(rows, weight)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor]:
        """Compute the gradients of the rows (if needed) and the weight."""
        rows, weight = ctx.saved_tensors
        of_rows = _multiply_members(gradients[0], weight.mT) if ctx.needs_input_grad[0] else None
        return of_rows, _multiply_members(gradients[0].mT, rows.mT)


def _multiply_members(left: Tensor, right: Tensor) -> Tensor:
    found = [product(a, b) for a, b in zip(left, right, strict=True)]
    return torch.stack(found) if len(found) > 1 else found[0][None]


def product(left: Tensor, right: Tensor) -> Tensor:
    """Return ``left @ right.T`` in single precision on the CPU: ``[N, I], [O, I] -> [N, O]``.

    This uses oneDNN if torch has it. Torch's default, MKL, takes twice as long on processors other than Intel's.
    """
    if hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        out: Tensor = torch.ops.mkldnn._linear_pointwise(left, right, None, "none", [], "")
        return out
    return left @ right.T
