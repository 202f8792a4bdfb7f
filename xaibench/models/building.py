"""Build a model from its name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from xaibench.component.parameters import named_parameters
from xaibench.models.networks.user_networks import check_outputs, check_parameters, make_own
from xaibench.models.registered import MODELS
from xaibench.tensors.random_numbers import isolated_rng


def build(name: str, in_shape: tuple[int, ...], num_classes: int, *, seed: int = 0, **parameters: Any) -> nn.Module:
    """Build a model, with pretrained weights if its name refers to them, otherwise with random ones from ``seed``.

    Args:
        name: A name of :data:`MODELS`, ``"timm:<name>"``, or ``"package.module:name"`` of a class, a factory or a
            module. A module is copied.
        in_shape: ``(C, H, W)`` of the images, or ``(C, D, H, W)`` of volumes.
        num_classes: Number of logits.
        seed: Seed of the initial weights; for a pretrained network, of its new last layer. The global random state is
            neither used nor changed.
        **parameters: Parameters of the model, such as ``weights=None``, ``head="pretrained"`` or ``fold="pet"`` for
            networks pretrained on ImageNet (see :class:`xaibench.models.networks.imagenet.Torchvision`).

    Returns:
        A model on the CPU that maps images ``[N, C, H, W]`` to logits ``[N, num_classes]``. Pretrained networks are in
        evaluation mode and take pixels in [0, 1]; the small ones are in training mode.

    Raises:
        UnknownNameError: If no model has that name.
        WeightsNotFoundError: If pretrained weights are neither on disk nor downloadable; gives the file and its folder.
        UnknownParameterError: If the model has no such parameter.
        TypeError: If a model of your own cannot be built with these arguments.
        ValueError: If the model does not accept images of that shape, or its outputs do not match ``num_classes``.

    Example:
        >>> import torch
        >>> model = build("cnn", in_shape=(1, 8, 8), num_classes=2)
        >>> tuple(model(torch.zeros(5, 1, 8, 8)).shape)
        (5, 2)
        >>> build("resnet18", (3, 64, 64), 2, weights=None).network.fc
        Linear(in_features=512, out_features=2, bias=True)
    """
    with isolated_rng(0):  # importing the user's module may draw random weights
        part = MODELS.resolve(name)
    shape = _check_shape(in_shape)
    known = MODELS.canonical(name) in MODELS
    with isolated_rng(seed):
        if known or MODELS.target(name) != name:
            check_parameters(part, name, parameters)
            model: nn.Module = part(shape, num_classes, **parameters)
        else:
            model = make_own(part, name, shape, num_classes, parameters)
        if not known:
            check_outputs(model, name, shape, num_classes)
    return model


def _check_shape(in_shape: object) -> tuple[int, ...]:
    sides = in_shape if isinstance(in_shape, Sequence) else ()
    if len(sides) in (3, 4) and all(isinstance(side, int | np.integer) and side > 0 for side in sides):
        return tuple(map(int, sides))
    raise ValueError(f"in_shape={in_shape!r}: expected (C, H, W) or (C, D, H, W), whole numbers above 0.")


def drawn_seed() -> int:
    """Draw a seed for a network inside another one, from the random state that :func:`build` has seeded."""
    return int(torch.randint(2**31, ()))


def as_it_comes(name: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of a network that is used without training.

    Args:
        name: As for :func:`build`.
        parameters: The parameters that are given.

    Returns:
        The parameters. For a pretrained network they include ``head="pretrained"``, because a new last layer would be
        random, unless ``head`` or ``fold`` is given.

    Example:
        >>> as_it_comes("resnet18", {}), as_it_comes("resnet18", {"fold": "pet"}), as_it_comes("mlp", {})
        ({'head': 'pretrained'}, {'fold': 'pet'}, {})
    """
    known = MODELS.canonical(name) in MODELS or MODELS.target(name) != name
    if not known or parameters.keys() & {"head", "fold"}:
        return dict(parameters)
    has_head = "head" in named_parameters(MODELS.resolve(name))
    return {**parameters, **({"head": "pretrained"} if has_head else {})}
