"""Shapley sampling without most of the first layer, for networks that start with a linear layer on the flattened image.

Each step of a permutation changes a single value v of the image, so the output of that layer changes by the change
times column v of the weight. A cumulative sum of these replaces the matrix product: O(m) per step instead of O(D·m),
for D values and m units. In a 64×64 MLP, that product is nine tenths of the work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from xaibench.kernels.compilation import kernels_enabled

#: Tolerance between the outputs and those of a plain pass, relative to the largest of the block.
_TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4}


@dataclass(frozen=True)
class FlatLinear:
    """A linear layer that is applied once per forward pass, to the flattened image.

    Attributes:
        layer: The layer.
        columns: Its transposed weight, ``[D, m]``: one row per value of the image.
    """

    layer: nn.Linear
    columns: Tensor

    @classmethod
    def find(cls, model: nn.Module, image: Tensor) -> FlatLinear | None:
        """Return the layer whose input is the flattened image ``[1, C, H, W]``; ``None`` if there is none."""
        if not kernels_enabled():
            return None
        for layer in model.modules():
            # A subclass, hooks or an overridden forward may do more than the product.
            if not isinstance(layer, nn.Linear) or type(layer) is not nn.Linear or "forward" in vars(layer):
                continue
            if layer._forward_hooks or layer._forward_pre_hooks or layer.in_features != image.numel():
                continue
            if layer.weight.dtype == image.dtype and image.dtype in _TOLERANCE:
                with record_calls(layer) as calls, torch.no_grad():
                    model(image)
                if len(calls) == 1 and calls[0][0].equal(image.flatten(1)):
                    return cls(layer, layer.weight.detach().T.contiguous())
        return None

    def rows(self, images: int) -> int:
        """Return the number of rows per pass that occupy the memory of ``images`` images."""
        return max(images, images * self.layer.in_features // self.layer.out_features)

    def outputs(self, run: Callable[[Tensor], Tensor], ends: Tensor, joining: Tensor) -> Tensor | None:
        """Compute the outputs ``[n, s]`` at s steps of a permutation; ``None`` if that needs the full product.

        The layer's output is exact at the row before the first step, which bounds the rounding error, and is
        accumulated from there. The rest of the network receives it together with a row of the first sample as the
        image. If the network uses the image in another way too (a skip connection), the output at the last step differs
        from that of a plain pass, and ``None`` is returned.

        Args:
            run: Maps rows ``[n, k, D]`` to outputs ``[n, k]``.
            ends: Rows ``[n, 2, D]``: before the first step, and at the last.
            joining: The index of the value that changes at each step, ``[s]``.
        """
        samples, steps = len(ends), len(joining)
        with record_calls(self.layer) as calls:
            exact = run(ends)
        if len(calls) != 1 or calls[0][1].shape != (2 * samples, self.layer.out_features):
            return None
        with torch.no_grad():
            change = (ends[:, 1] - ends[:, 0])[:, joining]
            hidden = change[..., None] * self.columns[joining]
            # Along an axis other than the last, CUDA sums up with one thread per unit.
            hidden = hidden.cumsum_(1) if hidden.device.type == "cpu" else hidden.mT.contiguous().cumsum_(2).mT
            hidden += calls[0][1].reshape(samples, 2, -1)[:, :1]
        given = hidden.flatten(0, 1)
        with _replace_forward(
            self.layer, lambda x: given if len(x) == len(given) else nn.Linear.forward(self.layer, x)
        ):
            outputs = run(ends[:1, :1].expand(samples, steps, -1))  # a view: no memory is written
        tolerance = _TOLERANCE[ends.dtype]
        close = torch.allclose(outputs[:, -1], exact[:, 1], tolerance, tolerance * outputs.abs().max().item())
        return outputs if close else None


@contextmanager
def record_calls(layer: nn.Linear) -> Iterator[list[tuple[Tensor, Tensor]]]:
    """Record the inputs and outputs of each call of a layer."""
    calls: list[tuple[Tensor, Tensor]] = []

    def forward(x: Tensor) -> Tensor:
        calls.append((x, nn.Linear.forward(layer, x)))
        return calls[-1][1]

    with _replace_forward(layer, forward):
        yield calls


@contextmanager
def _replace_forward(layer: nn.Linear, forward: Callable[[Tensor], Tensor]) -> Iterator[None]:
    """Replace ``forward`` of the instance, which takes precedence over the method of its class."""
    vars(layer)["forward"] = forward
    try:
        yield
    finally:
        del vars(layer)["forward"]
