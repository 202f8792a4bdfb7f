"""A sandboxed method as an explainer: a suite runs it like any other, and the method never sees more than it must."""

from __future__ import annotations

import atexit
import itertools
import json
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from xaibench.leaderboard.sandbox.sandbox import Sandbox, SandboxedProcess, SandboxError

#: The sandboxes of this process; one that was ended is started anew.
_running: dict[str, SandboxedProcess] = {}
_numbers = itertools.count(1)


@dataclass(frozen=True)
class SandboxedMethod:
    """Asks a method in its sandbox for maps.

    Attributes:
        settings: The fields of a :class:`~xaibench.leaderboard.sandbox.sandbox.Sandbox`, as JSON.
        seed: Handed on.
        number: Of a fit that lies in the sandbox; 0 for none.
    """

    settings: str
    seed: int = 0
    number: int = field(default=0, repr=False)

    def __call__(self, model: nn.Module, images: Tensor, targets: Tensor) -> Tensor:
        """Maps ``[N, H, W]``.

        Raises:
            SandboxError: If the method failed, or did what it may not do.
        """
        asked = {"number": self.number, "seed": self.seed, "network": getattr(model, "network", model)}
        _, maps = _ask(self.settings, "explain", images=images, targets=targets, **asked)
        if maps is None or len(maps) != len(images):
            raise SandboxError(f"it gave {None if maps is None else maps.shape}, expected maps of {len(images)} images")
        return torch.from_numpy(maps).to(images.device)


class FittedSandboxedMethod(SandboxedMethod):
    """A method that learns from the training samples first: from their images and targets, never from their masks."""

    #: Fitted when it first meets a network.
    fitted = False

    def fit(self, network: nn.Module, batches: Iterable[Any]) -> FittedSandboxedMethod:
        """Hand it the samples; it is fitted to the network that it is asked about next."""
        number = next(_numbers)
        _ask(
            self.settings,
            "fit",
            number=number,
            batches=[(images, targets) for images, _, targets in batches],
            seed=self.seed,
        )
        return replace(self, number=number)


def fits(settings: str) -> bool:
    """Whether a method learns from the training samples first; its sandbox stays open for what comes.

    Args:
        settings: As of :class:`SandboxedMethod`.

    Raises:
        SandboxError: If it cannot be imported, or did what it may not do.
    """
    return bool(_ask(settings, "describe")[0]["fits"])


def _ask(settings: str, call: str, **arguments: Any) -> Any:
    running = _running.get(settings)
    if running is None:
        known = json.loads(settings)
        running = SandboxedProcess(Sandbox(**known | {"hidden": tuple(known.get("hidden", ()))}))
        _running[settings] = running
    try:
        return running.ask(call, **arguments)
    except SandboxError:
        _running.pop(settings).close()
        raise


@atexit.register
def close() -> None:
    """End the sandboxes of this process."""
    while _running:
        _running.popitem()[1].close()
