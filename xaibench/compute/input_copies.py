"""Input protection for networks that modify their input in place, for example by ``x.sub_(0.5)``.

Such a network gets copies. Otherwise the next pass, the next explainer and the caller would silently continue with
changed images.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

#: Networks that are known to modify their input.
_writers: weakref.WeakSet[Any] = weakref.WeakSet()


def remember_writer(model: object) -> None:
    """Record that a model modifies its input; :func:`~.model_probe.probe` detects this."""
    _writers.add(model)


def writes_input(model: object) -> bool:
    """Return whether a model is known to modify its input."""
    return model in _writers


@contextmanager
def protect_input(model: nn.Module) -> Iterator[None]:
    """Give copies of the input to a model that is known to modify its input, inside the block.

    Gradients pass through the copy unchanged.

    Example:
        >>> import torch
        >>> from xaibench.compute.model_probe import probe
        >>> class Centered(nn.Module):
        ...     def forward(self, images):
        ...         return images.sub_(0.5).flatten(1)
        >>> model, images = Centered(), torch.ones(1, 1, 1, 2)
        >>> _ = probe(model, images)
        >>> with protect_input(model):
        ...     _ = model(images)
        >>> images.flatten().tolist()
        [1.0, 1.0]
    """
    if not writes_input(model):
        yield
        return
    handle = model.register_forward_pre_hook(_copy_inputs)
    try:
        yield
    finally:
        handle.remove()


def _copy_inputs(_: nn.Module, given: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(one.clone() if isinstance(one, Tensor) else one for one in given)
