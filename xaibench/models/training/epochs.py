"""The epoch loop: training, validation, early stopping and the history of each model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from xaibench.core.markup import html_table
from xaibench.models.training.batches import Batches
from xaibench.models.training.graphed_steps import LearningStep, LossFunction
from xaibench.models.training.network_stack import Single, Stack


class TrainingDivergedError(ValueError):
    """The loss of a model became infinite or nan."""


@dataclass(frozen=True, repr=False)
class Training:
    """History of the training of one model.

    Attributes:
        train_loss: Mean training loss of each epoch, measured while the weights change.
        val_loss: Mean validation loss after each epoch.
        best_epoch: Index of the lowest validation loss (the first, if tied), whose weights were kept.
        val_accuracy: Share of validation samples that the kept weights classify correctly, 0 to 1.
    """

    train_loss: tuple[float, ...]
    val_loss: tuple[float, ...]
    best_epoch: int
    val_accuracy: float

    @property
    def best_val_loss(self) -> float:
        """The lowest validation loss."""
        return self.val_loss[self.best_epoch]

    def __repr__(self) -> str:
        return f"Training({', '.join(f'{name} {value}' for name, value in self._summary())})"

    def _repr_html_(self) -> str:
        return html_table(self._summary(), title="Training")

    def _summary(self) -> list[tuple[str, str]]:
        return [
            ("epochs", str(len(self.train_loss))),
            ("kept the epoch", str(self.best_epoch)),
            ("training loss", f"{self.train_loss[self.best_epoch]:.4g}"),
            ("validation loss", f"{self.best_val_loss:.4g}"),
            ("validation accuracy", f"{self.val_accuracy:.3f}"),
        ]


@dataclass
class _History:
    """History of one member during training."""

    name: str
    train_loss: list[float] = field(default_factory=list)
    val_loss: list[float] = field(default_factory=list)
    best: int = 0
    accuracy: float = 0.0

    def add(self, train_loss: float, val_loss: float, accuracy: float) -> bool:
        """Add an epoch and return whether it is the best so far."""
        epoch = len(self.val_loss)
        for value in (train_loss, val_loss):
            if not math.isfinite(value):
                raise TrainingDivergedError(
                    f"{self.name}: the loss is {value} in epoch {epoch}. Lower the learning rate, or look for nan and "
                    "infinity in the images. The model has the best weights of the epochs before."
                )
        self.train_loss.append(train_loss)
        self.val_loss.append(val_loss)
        better = epoch == 0 or val_loss < self.val_loss[self.best]
        if better:
            self.best, self.accuracy = epoch, accuracy
        return better


def run_epochs(
    learner: Stack | Single,
    train: Batches,
    val: Batches,
    loss: LossFunction,
    epochs: int,
    patience: int | None,
    names: Sequence[str],
    bar: Any,
) -> list[Training]:
    """Train all members of the learner, which keeps the best weights of each; members that stop early are removed."""
    histories = [_History(name) for name in names]
    present = histories
    step = LearningStep(learner, loss)
    for epoch in range(epochs):
        train_loss = _train_epoch(step, train)
        val_loss, accurate = _validate(learner, val, loss)
        seen = zip(present, train_loss.tolist(), val_loss.tolist(), accurate.tolist(), strict=True)
        learner.keep(torch.tensor([history.add(*values) for history, *values in seen]))
        bar.update()
        staying = [patience is None or epoch - history.best < patience for history in present]
        if not any(staying):
            bar.update(epochs - epoch - 1)
            break
        if not all(staying):
            present = [history for history, stays in zip(present, staying, strict=True) if stays]
            for each in (learner, train, val, step):
                each.retain(torch.tensor(staying))
    return [
        Training(tuple(history.train_loss), tuple(history.val_loss), history.best, history.accuracy)
        for history in histories
    ]


def _train_epoch(step: LearningStep, batches: Batches) -> Tensor:
    """Train for one epoch and return the mean loss of each member, ``[M]`` on the CPU."""
    lost, count = torch.zeros(()), 0
    for images, targets in batches.epoch():
        lost = lost + step(images, targets)
        count += targets.shape[1]
    if count == 0:
        raise ValueError("The training data hold no sample.")
    return (lost / count).cpu()


@torch.no_grad()
def _validate(learner: Stack | Single, batches: Batches, loss: LossFunction) -> tuple[Tensor, Tensor]:
    """Return mean loss and accuracy of each member, both ``[M]`` on the CPU."""
    lost = correct = torch.zeros(())
    count = 0
    for images, targets in batches.epoch():
        logits = learner.logits(images, False)
        correct = correct + (logits.argmax(2) == targets).sum(1)
        lost = lost + loss(logits, targets).sum(1)
        count += targets.shape[1]
    if count == 0:
        raise ValueError("The validation data hold no sample.")
    return (lost / count).cpu(), (correct / count).cpu()
