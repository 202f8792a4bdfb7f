"""Convolution, ReLU and max-pooling of M networks as one Triton kernel, on a CUDA GPU and in single precision.

Triton comes with torch for CUDA. Where it does not work (it needs a C compiler), training uses other forms of the same
layers.
"""

from __future__ import annotations

import functools
import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from xaibench.core.messages import first_line
from xaibench.kernels.compilation import kernels_enabled
from xaibench.kernels.training.dense_blocks import IntPair, convolution_and_pooling, pair

_LOGGER = logging.getLogger("xaibench")

#: Filters and pixels per program: in the forward pass, for the gradient of the weights, and for that of the images.
_FILTERS, _BLOCK = 8, 256
_WEIGHT_FILTERS, _WEIGHT_BLOCK = 8, 64
_INPUT_BLOCK, _UNROLL = 256, 4

#: Largest number of channels or filters, which a program holds in registers, and of unrolled products, which take long
#: to compile. cuDNN is faster with many channels.
_MAX_CHANNELS, _MAX_UNROLLED = 32, 100

#: Weights per program of Adam.
_ADAM_BLOCK = 1024

#: Number of programs that sum the gradient of each weight.
_CHUNKS = 64


@dataclass(frozen=True)
class GpuBlock:
    """A convolution with ReLU and max-pooling, for images of one shape.

    Attributes:
        padding: Of the convolution.
        window: Size of the pooling windows.
        in_shape: ``(C, H, W)``.
        out_shape: ``(F, H, W)`` after pooling.
    """

    padding: IntPair
    window: IntPair
    in_shape: tuple[int, int, int]
    out_shape: tuple[int, int, int]

    @staticmethod
    def of(layers: Sequence[nn.Module], in_shape: tuple[int, ...], like: Tensor) -> GpuBlock | None:
        """Return the block that the layers begin with, for weights like ``like``; None if no kernel applies."""
        found = convolution_and_pooling(layers)
        if found is None or len(in_shape) != 3 or like.dtype != torch.float32 or not has_triton(like.device):
            return None
        conv, window = found
        kernel, padding = pair(conv.kernel_size), pair(conv.padding)
        high, wide = ((in_shape[1 + i] + 2 * padding[i] - kernel[i] + 1) // window[i] for i in range(2))
        unrolled = math.prod(kernel) * math.prod(window)
        large = max(conv.in_channels, conv.out_channels) > _MAX_CHANNELS or unrolled > _MAX_UNROLLED
        if large or min(high, wide) < 1:
            return None
        return GpuBlock(padding, window, (in_shape[0], in_shape[1], in_shape[2]), (conv.out_channels, high, wide))

    def __call__(self, images: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """Map ``[M, B, ...]`` to ``[M, B, *out_shape]``; weight ``[M, F, C, KH, KW]``, bias ``[M, F]``."""
        if bias is None:
            bias = weight.new_zeros(weight.shape[:2])
        out: Tensor = _Block.apply(images, weight, bias, self)
        return out

    def forward(self, images: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
        """Return the output, and which pixel of each pooling window it is."""
        from xaibench.kernels.training import gpu_loops as loops

        members, samples = images.shape[:2]
        out = images.new_empty(members, samples, *self.out_shape)
        chosen = torch.empty_like(out, dtype=torch.uint8)
        count, filters = samples * math.prod(self.out_shape[1:]), math.gcd(self.out_shape[0], _FILTERS)
        loops.forward[(-(-count // _BLOCK), members * self.out_shape[0] // filters)](
            images, weight.permute(0, 2, 3, 4, 1).contiguous(), bias.contiguous(), out, chosen, count, *self._sizes,
            C=self.in_shape[0], F=self.out_shape[0], KH=weight.shape[3], KW=weight.shape[4], VH=self.window[0],
            VW=self.window[1], FILTERS=filters, BLOCK=_BLOCK, DEAD=loops.DEAD,
        )  # fmt: skip
        return out, chosen

    def weight_gradients(
        self, images: Tensor, weight: Tensor, gradient: Tensor, chosen: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the gradients of weight and bias."""
        from xaibench.kernels.training import gpu_loops as loops

        count, filters = math.prod(gradient[0, :, 0].shape), math.gcd(self.out_shape[0], _WEIGHT_FILTERS)
        chunk = -(-count // (_CHUNKS * _WEIGHT_BLOCK)) * _WEIGHT_BLOCK
        parts = -(-count // chunk)
        found, found_bias = (weight.new_empty(parts, *shape) for shape in (weight.shape, weight.shape[:2]))
        rows, columns = weight.shape[3:]
        grid = parts, len(weight) * self.out_shape[0] // filters, self.in_shape[0] * rows
        loops.weight_gradient[grid](
            images, gradient, chosen, found, found_bias, count, *self._sizes, chunk, C=self.in_shape[0],
            F=self.out_shape[0], KH=rows, KW=columns, VH=self.window[0], VW=self.window[1], BLOCK=_WEIGHT_BLOCK,
            FILTERS=filters, TAPS=_power_of_two(columns), DEAD=loops.DEAD,
        )  # fmt: skip
        return found.sum(0), found_bias.sum(0)

    def input_gradient(self, images: Tensor, weight: Tensor, gradient: Tensor, chosen: Tensor) -> Tensor:
        """Return the gradient of the images."""
        from xaibench.kernels.training import gpu_loops as loops

        found = torch.empty_like(images)
        count, channels = images[0, :, 0].numel(), self.in_shape[0]
        loops.input_gradient[(-(-count // _INPUT_BLOCK), len(images))](
            weight.permute(0, 1, 3, 4, 2).contiguous(), gradient, chosen, found, count, *self._sizes, C=channels,
            F=self.out_shape[0], KH=weight.shape[3], KW=weight.shape[4], VH=self.window[0], VW=self.window[1],
            CHANNELS=_power_of_two(channels), UNROLL=math.gcd(self.out_shape[0], _UNROLL), BLOCK=_INPUT_BLOCK,
            DEAD=loops.DEAD,
        )  # fmt: skip
        return found

    @property
    def _sizes(self) -> tuple[int, ...]:
        return (*self.in_shape[1:], *self.out_shape[1:], *self.padding)


class _Block(torch.autograd.Function):
    """Autograd function of :class:`GpuBlock`."""

    @staticmethod
    def forward(ctx: Any, images: Tensor, weight: Tensor, bias: Tensor, block: GpuBlock) -> Tensor:
        images = images.reshape(*images.shape[:2], *block.in_shape).contiguous()
        out, chosen = block.forward(images, weight, bias)
        ctx.save_for_backward(images, weight, chosen)
        ctx.block = block
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        images, weight, chosen = ctx.saved_tensors
        gradient = gradients[0].contiguous()
        of_weight, of_bias = ctx.block.weight_gradients(images, weight, gradient, chosen)
        needed = ctx.needs_input_grad[0]
        of_images = ctx.block.input_gradient(images, weight, gradient, chosen) if needed else None
        return of_images, of_weight, of_bias, None


def adam_step(
    weights: Tensor, gradient: Tensor, mean: Tensor, square: Tensor, lr: Tensor, first: Tensor, second: Tensor
) -> None:
    """Take a step of Adam in place.

    Args:
        weights: ``[M, P]``.
        gradient: ``[M, P]``.
        mean: ``[M, P]``, of the gradients.
        square: ``[M, P]``, the mean of their squares.
        lr: Learning rates ``[M, 1]``.
        first: Bias correction of ``mean``, of one number.
        second: Bias correction of ``square``, of one number.
    """
    from xaibench.kernels.training import gpu_loops as loops

    members, width = weights.shape
    loops.adam[(-(-width // _ADAM_BLOCK), members)](
        weights, gradient, mean, square, lr, first, second, width, BLOCK=_ADAM_BLOCK
    )


def _power_of_two(number: int) -> int:
    """Return the smallest power of two of at least ``number``."""
    return 1 << (number - 1).bit_length()


@functools.cache
def has_triton(device: torch.device) -> bool:
    """Return whether Triton can compile kernels for the device; if it should but cannot, log a warning."""
    if device.type != "cuda" or not kernels_enabled():
        return False
    try:
        row = torch.zeros(1, 1, device=device)
        adam_step(row, row.clone(), row.clone(), row.clone(), row.clone(), row[0, 0] + 1, row[0, 0] + 1)
    except Exception as error:  # it may lack a compiler, or the device may be too old
        _LOGGER.warning("Triton does not work here (%s); networks are trained with slower kernels.", first_line(error))
        return False
    return True
