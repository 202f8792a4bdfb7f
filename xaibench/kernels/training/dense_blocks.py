"""Convolution blocks of tiny images as matrix products.

Grouped convolutions with few channels are slow, and products of small matrices are fast. For an 8x8 image, the matrix
of a whole block is small enough to be stored. This is used where the compiled loops of
:mod:`xaibench.kernels.training.convolution_blocks` do not apply: on accelerators and in double precision.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

IntPair: TypeAlias = tuple[int, int]

#: Largest number of elements of :attr:`DenseBlock.placement`; beyond it, the convolution itself is faster.
MAX_ELEMENTS = 2**20


@dataclass(frozen=True)
class DenseBlock:
    """Convolution, ReLU and max-pooling of M networks as one batched matrix product and a maximum.

    In the first block of a network, images are cut into fields. A pooled pixel depends on a small field of the image
    (3x3 for kernels of 2), and all fields meet the same weights. Since images do not change during training, they are
    cut once, and the matrix only spans one field (at 8x8, this needs one sixth of the multiplications).

    Attributes:
        placement: ``[weights, V * F * P]``, maps the weights of the convolution to the matrix ``[V * F, P]``: 1 if a
            weight connects input p with pixel v of the pooling window of output f. Pixels outside all windows are left
            out.
        windows: V, the number of pixels in a pooling window.
        out_shape: ``(C, H, W)`` after pooling.
        fields: In the first block, how to cut an image: height and width, stride, and padding.
    """

    placement: Tensor
    windows: int
    out_shape: tuple[int, int, int]
    fields: tuple[IntPair, IntPair, IntPair] | None = None

    def cut(self, images: Tensor) -> Tensor:
        """Return the images ``[N, C, H, W]`` as fields ``[N, Q, P]`` in the first block, otherwise unchanged."""
        if self.fields is None:
            return images
        size, stride, padding = self.fields
        return F.unfold(images, size, 1, padding, stride).transpose(1, 2).contiguous()

    def __call__(self, images: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """Map ``[M, B, ...]`` to ``[M, B, *out_shape]``; weight ``[M, O, C, kh, kw]``, bias ``[M, O]``."""
        members, filters = weight.shape[:2]
        rows = images.flatten(2) if self.fields is None else images.flatten(1, 2)
        # On a CPU, one member after another: in a joint product, results would depend on the number of members.
        flat = weight.flatten(1)
        each = torch.split(flat, 1) if flat.device.type == "cpu" else (flat,)
        matrix = torch.cat([one @ self.placement for one in each]).view(members, -1, rows.shape[2])
        repeats = matrix.shape[1] // (self.windows * filters)
        if bias is None:
            bias = weight.new_zeros(members, filters)
        if repeats > 1:
            bias = bias[:, :, None].expand(-1, -1, repeats).flatten(1)
        out: Tensor = _MatmulMaxRelu.apply(matrix, rows.mT, bias, self.windows)
        if self.fields is not None:  # [M, O, B * Q] -> [M, O * Q, B]
            out = out.view(members, filters, images.shape[1], -1).transpose(2, 3).flatten(1, 2)
        return out.mT.reshape(*images.shape[:2], *self.out_shape)  # a view

    @staticmethod
    def of(layers: Sequence[nn.Module], in_shape: tuple[int, ...], like: Tensor, *, first: bool) -> DenseBlock | None:
        """The block that the layers begin with, for images ``in_shape``; None where there is none, or none so small."""
        found = convolution_and_pooling(layers)
        if found is None or len(in_shape) != 3:
            return None
        conv, window = found
        kernel, padding = pair(conv.kernel_size), pair(conv.padding)
        size = (kernel[0] + window[0] - 1, kernel[1] + window[1] - 1)
        height, width = ((in_shape[1 + i] + 2 * padding[i] - size[i]) // window[i] + 1 for i in range(2))
        windows = math.prod(window)
        elements = conv.weight.numel() * windows * conv.out_channels * height * width * math.prod(in_shape)
        if elements > MAX_ELEMENTS or min(height, width) < 1:
            return None
        # 1 where kernel entry k meets pixel p of a field, seen from pixel v of its window; then of all fields q.
        field = F.unfold(torch.eye(math.prod(size)).view(-1, 1, *size), kernel)[..., None]  # [p, k, v, q=1]
        if not first:
            image = torch.eye(math.prod(in_shape[1:])).view(-1, 1, *in_shape[1:])
            # [p: pixel of the image, f: pixel of the field, q: field]
            seen = F.unfold(image, size, padding=padding, stride=window)
            field = torch.einsum("fkv,pfq->pkvq", field[..., 0], seen)
        filters, channels = torch.eye(conv.out_channels), torch.eye(conv.in_channels)
        placement = torch.einsum("pkvq,ab,cd->ackvbqdp", field, filters, channels).flatten(0, 2).flatten(1)
        out_shape = (conv.out_channels, height, width)
        return DenseBlock(placement.to(like), windows, out_shape, (size, window, padding) if first else None)


class _MatmulMaxRelu(torch.autograd.Function):
    """Compute relu(max over V of (matrix @ columns) + bias), where the rows of the matrix are ordered (V, F).

    Equal to relu after bias and before max, since both are monotone, but on a fraction of the numbers. Samples are the
    last axis, so that operations run over long rows. The backward pass is written by hand because the boolean masks
    that autograd would store cost more than the products. A tied maximum divides the gradient equally (``max_pool2d``
    gives all of it to the first). Ties occur between patches that are all zero, where both give the same gradient of
    the weights, or between equal pixels.
    """

    @staticmethod
    def forward(ctx: Any, matrix: Tensor, columns: Tensor, bias: Tensor, windows: int) -> Tensor:
        """Map ``[M, V * F, P]``, ``[M, P, B]`` and ``[M, F]`` to ``[M, F, B]``."""
        each = torch.bmm(matrix, columns).view(len(matrix), windows, bias.shape[1], -1)
        largest = each.amax(1, keepdim=True)
        share = each.eq_(largest)
        share.div_(share.sum(1, keepdim=True))
        out = largest.squeeze(1).add_(bias[:, :, None]).relu_()
        ctx.save_for_backward(matrix, columns, share, out)
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor | None, Tensor, None]:
        """Compute the gradients of matrix, columns (if needed) and bias."""
        matrix, columns, share, out = ctx.saved_tensors
        # The same function as in relu's backward pass: zero where the output is zero.
        gradient: Tensor = torch.ops.aten.threshold_backward(gradients[0], out, 0)
        each = share.mul_(gradient[:, None]).flatten(1, 2)  # in place, since there is one backward pass
        of_columns = torch.bmm(matrix.mT, each) if ctx.needs_input_grad[1] else None
        return torch.bmm(each, columns.mT), of_columns, gradient.sum(2), None


def convolution_and_pooling(layers: Sequence[nn.Module]) -> tuple[nn.Conv2d, IntPair] | None:
    """Return the convolution and the pooling window if the layers begin with plain ones that a block can replace."""
    match list(layers[:3]):
        case [nn.Conv2d() as conv, nn.ReLU(), nn.MaxPool2d() as pool]:
            window = pair(pool.kernel_size)
            plain_conv = conv.groups == 1 and conv.padding_mode == "zeros" and not isinstance(conv.padding, str)
            plain_conv = plain_conv and conv.stride == (1, 1) and conv.dilation == (1, 1)
            plain_pool = not pool.ceil_mode and pair(pool.padding) == (0, 0) and pair(pool.dilation) == (1, 1)
            return (conv, window) if plain_conv and plain_pool and pair(pool.stride) == window else None
    return None


def pair(value: Any) -> IntPair:
    """Return a pair: the same number for both directions, or the two given ones."""
    return (value, value) if isinstance(value, int) else (value[0], value[1])


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
