"""Checks of models, data and arguments before training."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from xaibench.compute.device import check_precision, stored_dtype
from xaibench.compute.network_outputs import check_classes, check_plain_logits, probe
from xaibench.compute.random_numbers import isolated_rng
from xaibench.core.checks import check_amount, check_count
from xaibench.core.messages import unknown
from xaibench.core.types import Precision
from xaibench.models.training.batches import TrainingData, in_memory, loader_of


def check_data(model: nn.Module, train: TrainingData, val: TrainingData) -> tuple[int, ...]:
    """Check model and data, and return the shape ``(C, H, W)`` of the images; the model is called on one of each set.

    Raises:
        ValueError: If data hold no sample, targets are not int64 classes of the model, or it does not accept the
            images.
    """
    check_trainable(model)
    for name, data in (("training", train), ("validation", val)):
        images, targets = in_memory(data, shuffled=False) or _first_batch(data)
        check_target_dtype(targets, name)
        logits = probe(model, images[:1], what=f"the {name} images", finite=False, select=check_plain_logits)
        check_classes(targets, logits.shape[1], f"{name} targets")
    return tuple(images.shape[1:])


def check_trainable(model: nn.Module) -> None:
    """Check that a model has weights."""
    if next(model.parameters(), None) is None:
        raise ValueError("The model has no weights to train; give one that has.")


def check_target_dtype(targets: Tensor, name: str) -> None:
    """Check that there are targets, of dtype int64; ``name`` is ``"training"`` or ``"validation"``."""
    if len(targets) == 0:
        raise ValueError(f"The {name} data hold no sample, expected at least one.")
    if targets.dtype != torch.int64:
        raise ValueError(f"{name} targets are {targets.dtype}, expected int64 class indices; convert with .long().")


def _first_batch(data: TrainingData) -> tuple[Tensor, Tensor]:
    with isolated_rng(0):
        batch = next(iter(loader_of(data, 1, None)), (torch.zeros(0), torch.zeros(0)))
    return batch[0], batch[-1]


def check_arguments(
    models: Sequence[nn.Module], each: dict[str, Sequence[Any]], loss: str, losses: Iterable[str]
) -> None:
    """Check that models and arguments match in number."""
    count = len(models)
    if count == 0:
        raise ValueError("models is empty; give at least one.")
    for name, values in each.items():
        if len(values) != count:
            raise ValueError(f"{count} models but {len(values)} {name}; give one per model.")
    if len({id(model) for model in models}) < count:
        raise ValueError("models has the same model twice; build one for each training.")
    if loss not in losses:
        raise ValueError(unknown("Unknown loss", loss, losses))


def check_ranges(*, epochs: int, batch_size: int | None, stack: int, lr: float, patience: int | None = None) -> None:
    """Check that numbers are in their range."""
    check_count("epochs", epochs)
    check_count("patience", patience, none="for no early stop")
    check_count("batch_size", batch_size, none="for the loader's own, or 512")
    check_count("stack", stack)
    check_amount("lr", lr)


def check_precision_of(models: Sequence[nn.Module], precision: Precision | None) -> None:
    """Check that a precision exists and fits the dtype of the weights."""
    if precision is None:
        return
    check_precision(precision)
    for model in models:
        kept = next(model.parameters()).dtype
        if (kept == torch.float64) != (stored_dtype(precision) == torch.float64):
            turned = "double" if precision == "float64" else "float"
            raise ValueError(
                f"precision={precision!r}: the model's weights are {kept}, expected {stored_dtype(precision)}; train "
                f"model.{turned}()."
            )
