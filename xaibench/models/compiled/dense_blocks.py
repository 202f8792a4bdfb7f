"""A convolution of a tiny image as what it also is: a linear map.

Grouped convolutions with few channels are slow, and plain products of small matrices are fast. On an 8x8 image the
matrix of a whole block is small enough to be written out. For what the compiled loops of
:mod:`xaibench.models.compiled.convolution_blocks` do not take: accelerators, and double precision.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Pair: TypeAlias = tuple[int, int]

#: Most elements of :attr:`DenseBlock.placement`; beyond, the convolution itself is cheaper.
LIMIT = 2**20


@dataclass(frozen=True)
class DenseBlock:
    """Convolution, ReLU and max-pooling of M networks as one batched matrix product and a maximum.

    The first block of a network goes further. A pooled pixel sees a small field of the image (3x3 for kernels of 2),
    and all fields meet the same weights. Since the images of a data set do not change, they are cut into fields once,
    and the matrix need span one field only (at 8x8 a sixth of the multiplications).

    Attributes:
        placement: ``[weights, V * F * P]``, what makes the matrix ``[V * F, P]`` out of the weights of the convolution:
            1 where a weight joins input p to pixel v of the pooling window of output f. Pixels that no window holds
            do not occur.
        windows: V, the number of pixels in a pooling window.
        out_shape: ``(C, H, W)`` after pooling.
        fields: In the first block, how to cut an image: height and width, stride, and padding around the image.
    """

    placement: Tensor
    windows: int
    out_shape: tuple[int, int, int]
    fields: tuple[Pair, Pair, Pair] | None = None

    def cut(self, images: Tensor) -> Tensor:
        """The images ``[N, C, H, W]`` as fields ``[N, Q, P]``, in the first block; else as they are."""
        if self.fields is None:
            return images
        size, stride, padding = self.fields
        return F.unfold(images, size, 1, padding, stride).transpose(1, 2).contiguous()

    def __call__(self, images: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """``[M, B, ...] -> [M, B, *out_shape]``; weight ``[M, O, C, kh, kw]``, bias ``[M, O]``."""
        members, filters = weight.shape[:2]
        rows = images.flatten(2) if self.fields is None else images.flatten(1, 2)
        # On a CPU one member after another: in the product of all, its numbers would depend on how many there are.
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
        if elements > LIMIT or min(height, width) < 1:
            return None
        # 1 where kernel entry k meets pixel p of a field, seen from pixel v of its window; then of all fields q.
        field = F.unfold(torch.eye(math.prod(size)).view(-1, 1, *size), kernel)[..., None]  # [p, k, v, q=1]
        if not first:
            image = torch.eye(math.prod(in_shape[1:])).view(-1, 1, *in_shape[1:])
            seen = F.unfold(image, size, padding=padding, stride=window)  # [image p, field p, q]
            field = torch.einsum("fkv,pfq->pkvq", field[..., 0], seen)
        filters, channels = torch.eye(conv.out_channels), torch.eye(conv.in_channels)
        placement = torch.einsum("pkvq,ab,cd->ackvbqdp", field, filters, channels).flatten(0, 2).flatten(1)
        out_shape = (conv.out_channels, height, width)
        return DenseBlock(placement.to(like), windows, out_shape, (size, window, padding) if first else None)


class _MatmulMaxRelu(torch.autograd.Function):
    """relu(max over V of (matrix @ columns) + bias), where the rows of the matrix are ordered (V, F).

    The same as relu after bias and before max, since both are monotone, on a fraction of the numbers. Samples lie
    along the last axis, so that every operation runs over long rows. Written by hand because the boolean masks that
    autograd would keep cost more than the products. A tied maximum shares the gradient equally (``max_pool2d`` gives
    all to the first); ties are between patches that are all zero, where either gives the same gradient of the weights,
    or between equal pixels.
    """

    @staticmethod
    def forward(ctx: Any, matrix: Tensor, columns: Tensor, bias: Tensor, windows: int) -> Tensor:
        """``[M, V * F, P], [M, P, B], [M, F] -> [M, F, B]``."""
        each = torch.bmm(matrix, columns).view(len(matrix), windows, bias.shape[1], -1)
        largest = each.amax(1, keepdim=True)
        share = each.eq_(largest)
        share.div_(share.sum(1, keepdim=True))
        out = largest.squeeze(1).add_(bias[:, :, None]).relu_()
        ctx.save_for_backward(matrix, columns, share, out)
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor | None, Tensor, None]:
        """Gradients of matrix, columns (where needed) and bias."""
        matrix, columns, share, out = ctx.saved_tensors
        # What relu's own backward calls: zero where the output is zero.
        gradient: Tensor = torch.ops.aten.threshold_backward(gradients[0], out, 0)
        each = share.mul_(gradient[:, None]).flatten(1, 2)  # in place: a stack goes backward once
        of_columns = torch.bmm(matrix.mT, each) if ctx.needs_input_grad[1] else None
        return torch.bmm(each, columns.mT), of_columns, gradient.sum(2), None


def convolution_and_pooling(layers: Sequence[nn.Module]) -> tuple[nn.Conv2d, Pair] | None:
    """The convolution and the pooling window, if the layers begin with the plain kinds that a block can stand for."""
    match list(layers[:3]):
        case [nn.Conv2d() as conv, nn.ReLU(), nn.MaxPool2d() as pool]:
            window = pair(pool.kernel_size)
            plain_conv = conv.groups == 1 and conv.padding_mode == "zeros" and not isinstance(conv.padding, str)
            plain_conv = plain_conv and conv.stride == (1, 1) and conv.dilation == (1, 1)
            plain_pool = not pool.ceil_mode and pair(pool.padding) == (0, 0) and pair(pool.dilation) == (1, 1)
            return (conv, window) if plain_conv and plain_pool and pair(pool.stride) == window else None
    return None


def pair(value: Any) -> Pair:
    """One number for both directions, or one for each."""
    return (value, value) if isinstance(value, int) else (value[0], value[1])
