"""Use functions written for EXACT, the benchmark platform of the authors of XAI-TRIS, as explainers.

Such a function is ``XAI_Method(data, target, model)``. It takes flattened images ``[N, 64]``, targets ``[N]`` and a
network of flattened images, and returns maps ``[N, 64]``.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from xaibench.tensors.random_numbers import seeded_globals

#: Parameter names of the template, in its order; those of xaibench are (model, images, targets).
PARAMETERS = ("data", "target", "model")


def is_exact(part: Any) -> bool:
    """Return whether a part is a function with the three parameters of EXACT's template."""
    return inspect.isfunction(part) and tuple(inspect.signature(part).parameters)[:3] == PARAMETERS


@dataclass(frozen=True)
class ExactMethod:
    """A function written for EXACT's template, as an explainer.

    Attributes:
        method: ``(data [N, C * H * W], target [N], model) -> maps`` of the shape of ``data``.
        seed: Seed of the global random generators, from which such functions draw. Their state is restored afterwards.
    """

    method: Callable[..., Any]
    seed: int = 0

    @property
    def __name__(self) -> str:
        method = self.method
        while isinstance(method, functools.partial):
            method = method.func
        return str(getattr(method, "__name__", type(method).__name__))

    def __call__(self, model: nn.Module, images: Tensor, targets: Tensor) -> Tensor:
        """Return maps ``[N, H, W]``, summed over the channels.

        Raises:
            ValueError: If the function does not return a tensor of the shape of its ``data``.
        """
        data = images.flatten(1)
        with seeded_globals(self.seed, images.device), torch.enable_grad():
            maps = self.method(data, targets, FlatImages(model, tuple(images.shape[1:])))
        if not isinstance(maps, Tensor) or maps.shape != data.shape:
            got = f"shape {list(maps.shape)}" if isinstance(maps, Tensor) else type(maps).__name__
            raise ValueError(
                f"{self.__name__}: got {got}, expected a tensor of the shape of data, {list(data.shape)}. "
                "Return one value per pixel of each image."
            )
        return maps.detach().reshape(images.shape).sum(dim=1)


class FlatImages(nn.Module):
    """Wrap a network so that it takes flattened images.

    Args:
        network: Takes images ``[N, C, H, W]``.
        shape: ``(C, H, W)``.
    """

    def __init__(self, network: nn.Module, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.network = network
        self.shape = shape
        self.train(network.training)

    def forward(self, data: Tensor) -> Tensor:
        """Return the logits ``[N, K]`` of flattened images ``[N, C * H * W]``."""
        logits: Tensor = self.network(torch.reshape(data, (len(data), *self.shape)))
        return logits
