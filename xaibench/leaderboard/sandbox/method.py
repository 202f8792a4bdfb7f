"""Explainer that forwards to a method in a sandbox, so that a suite can run it like any other explainer."""

from __future__ import annotations

import atexit
import itertools
import json
import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from xaibench.leaderboard.sandbox.protocol import Answer, SandboxError
from xaibench.leaderboard.sandbox.sandbox import Sandbox, SandboxedProcess

#: Running sandboxes by their settings; an ended one is removed and started again on the next call.
_sandboxes: dict[str, SandboxedProcess] = {}
_fit_numbers = itertools.count(1)


@dataclass(frozen=True)
class SandboxedMethod:
    """Explainer that computes maps in a sandbox.

    Attributes:
        settings: The fields of a :class:`~xaibench.leaderboard.sandbox.sandbox.Sandbox`, as JSON.
        seed: Seed of the method.
        number: Number of the fitted method in the sandbox; 0 for a method without ``fit``.
    """

    settings: str
    seed: int = 0
    number: int = field(default=0, repr=False)

    def __call__(self, model: nn.Module, images: Tensor, targets: Tensor) -> Tensor:
        """Return maps ``[N, H, W]``.

        Raises:
            SandboxError: If the method failed or did something forbidden.
        """
        asked = {"number": self.number, "seed": self.seed, "network": getattr(model, "network", model)}
        expected = (len(images), *images.shape[2:])
        largest = 8 * math.prod(expected)
        maps = _call_sandbox(self.settings, "explain", largest=largest, images=images, targets=targets, **asked).maps
        if maps is None or maps.shape != expected:
            raise SandboxError(
                f"it returned maps {None if maps is None else list(maps.shape)}, expected {list(expected)}"
            )
        return torch.from_numpy(maps).to(images.device)


class FittedSandboxedMethod(SandboxedMethod):
    """Method with ``fit``. It receives the images and targets of the training samples, never their masks."""

    @property
    def fitted(self) -> bool:
        """Whether the training samples were sent; the sandbox fits the method when it first explains a network."""
        return self.number > 0

    def fit(self, network: nn.Module, batches: Iterable[Any]) -> FittedSandboxedMethod:
        """Send the training samples to the sandbox; the method is fitted when it first explains a network."""
        number = next(_fit_numbers)
        _call_sandbox(
            self.settings,
            "fit",
            number=number,
            batches=[(images, targets) for images, _, targets in batches],
            seed=self.seed,
        )
        return replace(self, number=number)


def has_fit(settings: str) -> bool:
    """Return whether a method has ``fit``. The sandbox stays open for later calls.

    Args:
        settings: As in :class:`SandboxedMethod`.

    Raises:
        SandboxError: If the method cannot be imported or did something forbidden.
    """
    return _call_sandbox(settings, "describe").fits


def _call_sandbox(settings: str, call: str, **arguments: Any) -> Answer:
    running = _sandboxes.get(settings)
    if running is None:
        running = _sandboxes[settings] = SandboxedProcess(Sandbox(**json.loads(settings)))
    try:
        return running.call(call, **arguments)
    except SandboxError:
        _sandboxes.pop(settings).close()
        raise


@atexit.register
def close_all() -> None:
    """End all sandboxes of this process."""
    while _sandboxes:
        _sandboxes.popitem()[1].close()
