"""Classifiers and their training.

:func:`build` makes a model by name, :func:`fit` trains it, :func:`fit_many` trains many of one shape together, and
:func:`accuracy` tests it. A model of your own is any ``torch.nn.Module`` from images ``[N, C, H, W]`` to logits
``[N, K]``; :func:`build` makes it from ``"package.module:name"``, a factory ``(in_shape, num_classes) -> Module``.
"""

from __future__ import annotations

from torch import nn

from xaibench.models.context import isolated_rng
from xaibench.models.tetromino import CNN, LLR, MLP, Network, he_normal_
from xaibench.models.train import Training, TrainingDivergedError, accuracy, fit, fit_many
from xaibench.registry import Registry

__all__ = [
    "CNN",
    "LLR",
    "MLP",
    "MODELS",
    "Network",
    "Training",
    "TrainingDivergedError",
    "accuracy",
    "build",
    "fit",
    "fit_many",
    "he_normal_",
]

#: Name -> factory ``(in_shape, num_classes) -> nn.Module``.
MODELS = Registry(
    "model",
    {
        "llr": "xaibench.models.tetromino:LLR",
        "mlp": "xaibench.models.tetromino:MLP",
        "cnn": "xaibench.models.tetromino:CNN",
    },
)


def build(name: str, in_shape: tuple[int, int, int], num_classes: int, *, seed: int = 0) -> nn.Module:
    """Make an untrained model with initial weights that ``seed`` decides.

    Args:
        name: A name of :data:`MODELS`, or ``"package.module:factory"``.
        in_shape: ``(C, H, W)`` of the images.
        num_classes: Number of logits.
        seed: Decides the initial weights. The global random state is neither used nor changed.

    Returns:
        A model on the CPU, in training mode, that maps images ``[N, C, H, W]`` to logits ``[N, num_classes]``.

    Raises:
        UnknownNameError: If no model has that name.
        ValueError: If the model takes no images of that shape.

    Example:
        >>> import torch
        >>> model = build("cnn", in_shape=(1, 8, 8), num_classes=2)
        >>> tuple(model(torch.zeros(5, 1, 8, 8)).shape)
        (5, 2)
    """
    factory = MODELS.resolve(name)
    with isolated_rng(seed):
        model: nn.Module = factory(tuple(in_shape), num_classes)
    return model
