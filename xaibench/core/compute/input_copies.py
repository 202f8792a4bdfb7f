"""A network that writes into what it is given, as ``x.sub_(0.5)`` does, is given copies.

Else the next pass, the next explainer and the user himself have other images than they think, and no error tells.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

#: The networks that were seen to write into their input.
_writers: weakref.WeakSet[Any] = weakref.WeakSet()


def remember_writer(model: object) -> None:
    """Note that a model was seen to write into its input; :func:`~.model_probe.probe` looks."""
    _writers.add(model)


def writes_input(model: object) -> bool:
    """Whether a model was seen to write into its input."""
    return model in _writers


@contextmanager
def sparing(model: nn.Module) -> Iterator[None]:
    """Inside the block, a network that was seen to write into its input is given copies.

    Gradients go through a copy unchanged, so explainers see no difference.

    Example:
        >>> import torch
        >>> from xaibench.core.compute.model_probe import probe
        >>> class Centred(nn.Module):
        ...     def forward(self, images):
        ...         return images.sub_(0.5).flatten(1)
        >>> model, images = Centred(), torch.ones(1, 1, 1, 2)
        >>> _ = probe(model, images)
        >>> with sparing(model):
        ...     _ = model(images)
        >>> images.flatten().tolist()
        [1.0, 1.0]
    """
    if not writes_input(model):
        yield
        return
    handle = model.register_forward_pre_hook(_copied)
    try:
        yield
    finally:
        handle.remove()


def _copied(_: nn.Module, given: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(one.clone() if isinstance(one, Tensor) else one for one in given)
