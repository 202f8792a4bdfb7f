"""Linear layers of all members of a stack."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

#: Weights of a member from which its product is computed by itself: it fills the processor without the others.
LARGE = 2**14


def linear(images: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """``[M, B, ...] -> [M, B, O]``; weight ``[M, O, I]``, bias ``[M, O]``."""
    rows = images.flatten(2)
    if weight[0].numel() >= LARGE and weight.device.type == "cpu" and weight.dtype == torch.float32:
        out: Tensor = _Large.apply(rows, weight)
        return out if bias is None else out + bias[:, None]
    # Samples along the last axis, where small layers are fast.
    columns = rows.mT
    return (weight @ columns if bias is None else torch.baddbmm(bias[:, :, None], weight, columns)).mT


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
