"""``build``: from a name to a network."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from xaibench.core.compute.random_state import isolated_rng
from xaibench.models.model_table import MODELS
from xaibench.models.networks.own_networks import check_outputs, check_parameters, make_own


def build(
    name: str, in_shape: tuple[int, int, int], num_classes: int, *, seed: int = 0, **parameters: Any
) -> nn.Module:
    """Make a model: pretrained where its name stands for pretrained weights, else with weights that ``seed`` decides.

    Args:
        name: A name of :data:`MODELS`, ``"timm:<name>"``, or ``"package.module:name"``: a class, a factory, or a
            module, of which a copy is taken.
        in_shape: ``(C, H, W)`` of the images.
        num_classes: Number of logits.
        seed: Decides the initial weights (of a pretrained network: of its new last layer). The global random state is
            neither used nor changed.
        **parameters: The model's own, such as ``weights=None``, ``head="pretrained"`` or ``fold="pet"`` of the networks
            pretrained on ImageNet (see :class:`xaibench.models.networks.imagenet.Torchvision`).

    Returns:
        A model on the CPU that maps images ``[N, C, H, W]`` to logits ``[N, num_classes]``. Pretrained networks are in
        evaluation mode and take pixels in [0, 1]; the small ones are in training mode.

    Raises:
        UnknownNameError: If no model has that name.
        WeightsNotFoundError: If pretrained weights are not here and cannot be downloaded; says which file goes where.
        TypeError: If a parameter is not known, or a model of your own cannot be made so.
        ValueError: If the model takes no images of that shape, or its outputs are not the classes.

    Example:
        >>> import torch
        >>> model = build("cnn", in_shape=(1, 8, 8), num_classes=2)
        >>> tuple(model(torch.zeros(5, 1, 8, 8)).shape)
        (5, 2)
        >>> build("resnet18", (3, 64, 64), 2, weights=None).network.fc
        Linear(in_features=512, out_features=2, bias=True)
    """
    with isolated_rng(0):  # a module of your own may draw weights when it is imported
        part = MODELS.resolve(name)
    shape = _shape(in_shape)
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


def _shape(in_shape: object) -> tuple[int, int, int]:
    sides = in_shape if isinstance(in_shape, Sequence) else ()
    if len(sides) == 3 and all(isinstance(side, int | np.integer) and side > 0 for side in sides):
        return int(sides[0]), int(sides[1]), int(sides[2])
    raise ValueError(f"in_shape={in_shape!r}: expected (C, H, W), three whole numbers above 0.")


def drawn_seed() -> int:
    """A seed for a network inside of another, drawn from the state that :func:`build` has seeded for that one."""
    return int(torch.randint(2**31, ()))


def as_it_comes(name: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters with which a network is built that is not to be trained any more.

    Args:
        name: As for :func:`build`.
        parameters: Those that are stated.

    Returns:
        The same; of a pretrained network with the last layer that its weights come with, where nothing else is said of
        its classes: a new one would be random.

    Example:
        >>> as_it_comes("resnet18", {}), as_it_comes("resnet18", {"fold": "pet"}), as_it_comes("mlp", {})
        ({'head': 'pretrained'}, {'fold': 'pet'}, {})
    """
    known = MODELS.canonical(name) in MODELS or MODELS.target(name) != name
    if not known or parameters.keys() & {"head", "fold"}:
        return dict(parameters)
    takes = inspect.signature(MODELS.resolve(name)).parameters
    return {**parameters, **({"head": "pretrained"} if "head" in takes else {})}
