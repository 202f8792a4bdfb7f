"""Convolution blocks of tiny images as matrix products.

Grouped convolutions with few channels are slow, and products of small matrices are fast. For an 8x8 image, the matrix
of a whole block is small enough to be stored. This is used where the compiled loops of
:mod:`xaibench.kernels.training.convolution_blocks` do not apply: on accelerators and in double precision.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

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
