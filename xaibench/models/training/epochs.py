"""The epochs of a training: who gets better, who is done, and what is written down of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from xaibench.core.rich_results import html_table
from xaibench.models.training.batches import Batches
from xaibench.models.training.graphed_steps import LearningStep, LossFunction
from xaibench.models.training.network_stack import Single, Stack


class TrainingDivergedError(ValueError):
    """The loss of a model in training is no longer a finite number."""


@dataclass(frozen=True, repr=False)
class Training:
    """What happened in the training of one model.

    Attributes:
        train_loss: Mean training loss of each epoch that was trained, taken while the weights move.
        val_loss: Mean validation loss after each epoch.
        best_epoch: Index of the lowest validation loss (the first, if tied): the epoch whose weights were kept.
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
        return f"Training({', '.join(f'{name} {value}' for name, value in self._said())})"

    def _repr_html_(self) -> str:
        return html_table(self._said(), title="Training")

    def _said(self) -> list[tuple[str, str]]:
        """What matters of it, in words: the lists of losses are long."""
        return [
            ("epochs", str(len(self.train_loss))),
            ("kept the epoch", str(self.best_epoch)),
            ("training loss", f"{self.train_loss[self.best_epoch]:.4g}"),
            ("validation loss", f"{self.best_val_loss:.4g}"),
            ("validation accuracy", f"{self.val_accuracy:.3f}"),
        ]


@dataclass
class _Course:
    """The training of one member so far."""

    name: str
    train_loss: list[float] = field(default_factory=list)
    val_loss: list[float] = field(default_factory=list)
    best: int = 0
    accuracy: float = 0.0

    def add(self, train_loss: float, val_loss: float, accuracy: float) -> bool:
        """Write an epoch down, and say whether it is the best one so far."""
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
    """Train all members of the learner, which keeps the best weights of each; who is done leaves the stack."""
    courses = [_Course(name) for name in names]
    present = courses
    step = LearningStep(learner, loss)
    for epoch in range(epochs):
        train_loss = _learn(step, train)
        val_loss, accurate = _validate(learner, val, loss)
        seen = zip(present, train_loss.tolist(), val_loss.tolist(), accurate.tolist(), strict=True)
        learner.keep(torch.tensor([course.add(*values) for course, *values in seen]))
        bar.update()
        staying = [patience is None or epoch - course.best < patience for course in present]
        if not any(staying):
            bar.update(epochs - epoch - 1)
            break
        if not all(staying):
            present = [course for course, stays in zip(present, staying, strict=True) if stays]
            for each in (learner, train, val, step):
                each.retain(torch.tensor(staying))
    return [
        Training(tuple(course.train_loss), tuple(course.val_loss), course.best, course.accuracy) for course in courses
    ]


def _learn(step: LearningStep, batches: Batches) -> Tensor:
    """Mean loss of each member ``[M]`` on the CPU, over one epoch in which the weights move."""
    lost, count = torch.zeros(()), 0
    for images, targets in batches.epoch():
        lost = lost + step(images, targets)
        count += targets.shape[1]
    if count == 0:
        raise ValueError("The training data hold no sample.")
    return (lost / count).cpu()


@torch.no_grad()
def _validate(learner: Stack | Single, batches: Batches, loss: LossFunction) -> tuple[Tensor, Tensor]:
    """Mean loss and share of correct samples of each member, both ``[M]`` on the CPU."""
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
