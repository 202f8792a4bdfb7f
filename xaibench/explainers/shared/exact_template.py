"""Methods written to the template of EXACT, the benchmark platform of XAI-TRIS's authors, unchanged.

A method there is a function ``XAI_Method(data, target, model)`` of flat images ``[N, 64]``, targets ``[N]`` and a
network of flat images, which returns maps ``[N, 64]``.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from xaibench.core.compute.random_state import seeded_globals

#: What the template calls its parameters, in its order; ours are (model, images, targets).
PARAMETERS = ("data", "target", "model")


def is_exact(part: Any) -> bool:
    """Whether a part is a function of EXACT's three parameters."""
    return inspect.isfunction(part) and tuple(inspect.signature(part).parameters)[:3] == PARAMETERS


@dataclass(frozen=True)
class ExactMethod:
    """A function of EXACT's template as an explainer.

    Attributes:
        method: ``(data [N, C * H * W], target [N], model) -> maps`` of the shape of ``data``.
        seed: Of the global generators, from which such methods draw; their state is put back.
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
        """Maps ``[N, H, W]``; of several channels their sum, as Captum's attributions are summed here.

        Raises:
            ValueError: If the function returns something else than a tensor of the shape of its ``data``.
        """
        data = images.flatten(1)
        with seeded_globals(self.seed, images.device), torch.enable_grad():
            maps = self.method(data, targets, FlatImages(model, tuple(images.shape[1:])))
        if not isinstance(maps, Tensor) or maps.shape != data.shape:
            got = f"shape {list(maps.shape)}" if isinstance(maps, Tensor) else type(maps).__name__
            raise ValueError(
                f"{self.__name__}: got {got}, expected a tensor of the shape of data, {list(data.shape)}. "
                "Return one value for each pixel of each image."
            )
        return maps.detach().reshape(images.shape).sum(dim=1)


class FlatImages(nn.Module):
    """A network that takes its images flat, as those of XAI-TRIS do.

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
        """Logits ``[N, K]`` of flat images ``[N, C * H * W]``."""
        logits: Tensor = self.network(torch.reshape(data, (len(data), *self.shape)))
        return logits
