"""Shapley sampling on a network that starts with a linear layer on the flattened image, without most of that layer.

From one step of a permutation to the next a single value v of the image changes, so the output of such a layer changes
by that value's change times column v of the weight. A cumulative sum of those replaces the product with the image:
O(m) a step instead of O(D·m), for D values and m units. Of a 64×64 MLP that product is nine tenths of the work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from xaibench.core.compiled_loops import kernels_enabled

#: How far rounding may take the outputs from those of a plain pass, relative to the largest of the block.
_TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4}


@dataclass(frozen=True)
class FlatLinear:
    """A linear layer that is applied, once in a forward pass, to the flattened image.

    Attributes:
        layer: The layer.
        columns: Its weight, ``[D, m]``: a row for each value of the image.
    """

    layer: nn.Linear
    columns: Tensor

    @classmethod
    def find(cls, model: nn.Module, image: Tensor) -> FlatLinear | None:
        """The layer that gets an image ``[1, C, H, W]`` flattened in a forward pass; ``None`` if there is none."""
        if not kernels_enabled():
            return None
        for layer in model.modules():
            # Another class, hooks or a forward of the instance's own may do more than the product.
            if not isinstance(layer, nn.Linear) or type(layer) is not nn.Linear or "forward" in vars(layer):
                continue
            if layer._forward_hooks or layer._forward_pre_hooks or layer.in_features != image.numel():
                continue
            if layer.weight.dtype == image.dtype and image.dtype in _TOLERANCE:
                with recorded(layer) as calls, torch.no_grad():
                    model(image)
                if len(calls) == 1 and calls[0][0].equal(image.flatten(1)):
                    return cls(layer, layer.weight.detach().T.contiguous())
        return None

    def outputs(self, run: Callable[[Tensor], Tensor], ends: Tensor, joining: Tensor) -> Tensor | None:
        """The outputs ``[n, s]`` at s steps of a permutation; ``None`` if they cannot be had without the product.

        The layer's output is exact at the row before the first step, which bounds the rounding; from there it is summed
        up. The rest of the network gets it with that row as the image. Whether it also depends on the image in another
        way (a skip connection) shows at the last step, where the output must be that of a plain pass.

        Args:
            run: Outputs ``[n, k]`` of rows ``[n, k, D]``.
            ends: Rows ``[n, 2, D]``: before the first step, and at the last.
            joining: The value that joins at each step, ``[s]``.
        """
        samples, steps = len(ends), len(joining)
        with recorded(self.layer) as calls:
            exact = run(ends)
        if len(calls) != 1 or calls[0][1].shape != (2 * samples, self.layer.out_features):
            return None
        with torch.no_grad():
            change = (ends[:, 1] - ends[:, 0])[:, joining]
            hidden = (change[..., None] * self.columns[joining]).cumsum_(1)
            hidden += calls[0][1].reshape(samples, 2, -1)[:, :1]
        given = hidden.flatten(0, 1)
        with _replaced(self.layer, lambda x: given if len(x) == len(given) else nn.Linear.forward(self.layer, x)):
            outputs = run(ends[:, :1].expand(-1, steps, -1))
        tolerance = _TOLERANCE[ends.dtype]
        close = torch.allclose(outputs[:, -1], exact[:, 1], tolerance, tolerance * outputs.abs().max().item())
        return outputs if close else None


@contextmanager
def recorded(layer: nn.Linear) -> Iterator[list[tuple[Tensor, Tensor]]]:
    """The inputs and outputs of a layer, call by call."""
    calls: list[tuple[Tensor, Tensor]] = []

    def forward(x: Tensor) -> Tensor:
        calls.append((x, nn.Linear.forward(layer, x)))
        return calls[-1][1]

    with _replaced(layer, forward):
        yield calls


@contextmanager
def _replaced(layer: nn.Linear, forward: Callable[[Tensor], Tensor]) -> Iterator[None]:
    """An attribute of the instance goes before the method of its class, until it is deleted."""
    vars(layer)["forward"] = forward
    try:
        yield
    finally:
        del vars(layer)["forward"]
