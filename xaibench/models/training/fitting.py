"""Training as in XAI-TRIS, of one model or of a stack of models, and test accuracy.

Source: Clark, Wilming, Haufe (2024), section 3.2 and appendix A: Adam without regularization, batches of 512, 500
epochs, learning rate 0.004 (8x8 LIN, MULT, XOR), 0.0004 (8x8 RIGID) or 0.0005 (64x64); the weights of the epoch with
the lowest validation loss are kept. Departure: models are evaluated in evaluation mode (the released code leaves
dropout on).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from tqdm.auto import tqdm

from xaibench.core.markup import html_table
from xaibench.core.types import Precision
from xaibench.kernels.compilation import kernels_enabled
from xaibench.models.networks.base import Network
from xaibench.models.training.batches import (
    EVALUATION_BATCH,
    Batches,
    LoaderBatches,
    MemoryBatches,
    TrainingData,
    batch_size_of,
    check_arguments,
    check_data,
    check_precision_of,
    check_ranges,
    in_memory,
    loader_of,
)
from xaibench.models.training.network_stack import Single, Stack
from xaibench.network.lending import evaluation_mode
from xaibench.tensors.device import precision_context, resolve_device
from xaibench.tensors.random_numbers import isolated_rng

__all__ = ["Loss", "Training", "TrainingDivergedError", "accuracy", "fit", "fit_many"]

#: ``"logits"``: cross-entropy of the logits. ``"probabilities"``: as in the released code, cross-entropy with softmax
#: probabilities in place of logits.
Loss: TypeAlias = Literal["logits", "probabilities"]

#: Loss of each sample ``[M, B]``, from logits ``[M, B, K]`` and targets ``[M, B]``.
LossFunction: TypeAlias = Callable[[Tensor, Tensor], Tensor]

#: Models per stack; more are hardly faster on one thread.
STACK = 12

#: Number of weights above which a model is trained alone on a CPU. In a stack, such models would not fit the cache.
ALONE = 2**16


def fit(
    model: nn.Module,
    train: TrainingData,
    val: TrainingData,
    *,
    epochs: int = 500,
    patience: int | None = None,
    lr: float = 0.004,
    batch_size: int | None = None,
    loss: Loss = "logits",
    seed: int = 0,
    device: str | torch.device = "auto",
    precision: Precision | None = None,
    progress: bool = True,
) -> Training:
    """Train a model in place; it ends with the weights of the epoch with the lowest validation loss.

    Args:
        model: Maps images ``[N, C, H, W]`` to logits ``[N, K]``.
        train: Training samples: a data set of ``(image, ..., target)`` or a loader of batches of them. If the data set
            has tensors ``images`` and ``targets`` and the loader is an ordinary shuffled one, batches are cut from the
            tensors on the device, in an order decided by ``seed``. Any other loader is used as it is.
        val: Validation samples, which select the best epoch; of the same kinds.
        epochs: Passes over ``train``.
        patience: Number of epochs without a lower validation loss after which training stops; None = never, as in
            XAI-TRIS.
        lr: Learning rate of Adam.
        batch_size: None = that of the loader; 512 for a data set.
        loss: ``"logits"``: cross-entropy of the softmax of the model's output. ``"probabilities"``: as in the released
            code of XAI-TRIS, softmax is applied twice, so that the loss cannot fall below log(1 + (K-1)/e) (0.3133 for
            two classes).
        seed: Seed of the order of the samples and of dropout. Global random state is neither used nor changed.
        device: Where to train; ``"auto"`` is CUDA if available, otherwise the CPU.
        precision: Precision of float32 arithmetic, as in :func:`xaibench.explain`; None: exact. ``"float64"`` needs a
            model in float64.
        progress: Show a progress bar.

    Returns:
        The history of the training. The model is in evaluation mode, on its original device.

    Raises:
        TrainingDivergedError: If the loss becomes infinite or nan.
        ValueError: If data are empty, targets are not classes of the model, or an argument is out of its range.

    Example:
        >>> from xaibench.models import build
        >>> images, targets = torch.zeros(64, 1, 8, 8), torch.arange(64) % 2
        >>> images[targets == 1, 0, 2, 2] = 1.0
        >>> images[targets == 0, 0, 5, 5] = 1.0
        >>> data = torch.utils.data.TensorDataset(images, targets)
        >>> model = build("llr", in_shape=(1, 8, 8), num_classes=2)
        >>> training = fit(model, data, data, epochs=20, lr=0.1, progress=False)
        >>> training.val_accuracy, training.best_epoch
        (1.0, 19)
    """
    return fit_many(
        [model],
        [train],
        [val],
        epochs=epochs,
        patience=patience,
        lr=lr,
        batch_size=batch_size,
        loss=loss,
        seeds=[seed],
        device=device,
        precision=precision,
        progress=progress,
    )[0]


def fit_many(
    models: Sequence[nn.Module],
    trains: Sequence[TrainingData],
    vals: Sequence[TrainingData],
    *,
    epochs: int = 500,
    patience: int | None = None,
    lr: float | Sequence[float] = 0.004,
    batch_size: int | None = None,
    loss: Loss = "logits",
    seeds: Sequence[int] | None = None,
    stack: int = STACK,
    device: str | torch.device = "auto",
    precision: Precision | None = None,
    progress: bool = True,
) -> list[Training]:
    """Train several models of one architecture in place, together in stacks (:class:`.network_stack.Stack`).

    Each model is trained as :func:`fit` trains it alone with its seed: bit-identical on a CPU, regardless of the other
    models in its stack; on an accelerator up to rounding, which may grow. Some models are trained one after another:
    models with buffers (batch norm) or frozen weights, models other than this library's with dropout, models with data
    that are not tensors in memory, and on a CPU models that are too large for a stack to be faster (the MLP at 64x64);
    without kernels (``XAIBENCH_KERNELS=0``), all of them, which is faster than a stack.

    Args:
        models: Models with equal layers, each with its own weights.
        trains: Training samples of each model, equal in number. Models may share them.
        vals: Validation samples of each model, equal in number. Models may share them.
        epochs: As in :func:`fit`.
        patience: As in :func:`fit`, for each model separately. A model that stops early is removed from the stack; the
            others are unaffected.
        lr: One for all, or one per model.
        batch_size: As in :func:`fit`.
        loss: As in :func:`fit`.
        seeds: One per model; None = 0, 1, 2, ...
        stack: Largest number of models per stack.
        device: As in :func:`fit`.
        precision: As in :func:`fit`.
        progress: As in :func:`fit`.

    Returns:
        The history of each training, in the order of the models.

    Raises:
        TrainingDivergedError: If a loss becomes infinite or nan; names the model.
        ValueError: As :func:`fit`; and if models or data differ in shape, or the arguments in number.
    """
    count = len(models)
    rates = [float(lr)] * count if isinstance(lr, int | float) else [float(rate) for rate in lr]
    seeds = list(range(count)) if seeds is None else list(seeds)
    check_arguments(models, {"trains": trains, "vals": vals, "lr": rates, "seeds": seeds}, loss, _LOSSES)
    check_ranges(epochs=epochs, patience=patience, batch_size=batch_size, stack=stack, lr=min(rates))
    in_shapes = [check_data(*one) for one in zip(models, trains, vals, strict=True)]
    where = resolve_device(device)
    check_precision_of(models, precision)
    together = [
        kernels_enabled()
        and _is_stackable(model, count, where)
        and in_memory(train, shuffled=True) is not None
        and in_memory(val, shuffled=False) is not None
        for model, train, val in zip(models, trains, vals, strict=True)
    ]
    if where.type == "cpu" and _count_weights(models[0]) > ALONE:
        stack = 1
    groups = _group_models(together, stack)
    results: list[Training] = []
    with tqdm(total=epochs * len(groups), unit="epoch", desc="Training", disable=not progress) as bar:
        for group in groups:
            start = group.start
            # The seed also decides dropout, which uses the global generator.
            with isolated_rng(seeds[start], where), precision_context(precision, where):
                batch = batch_size or batch_size_of(trains[start])
                dtype = next(models[start].parameters()).dtype
                learner: Stack | Single
                if together[start]:
                    learner = Stack(models[group], in_shapes[start], rates[group], seeds[group], where)
                else:
                    learner = Single(models[start], rates[start], where)
                batches = _make_batches(trains[group], batch, seeds[group], where, dtype, learner.prepare)
                val = _make_batches(vals[group], EVALUATION_BATCH, None, where, dtype, learner.prepare)
                names = [f"model {start + i} of {count} (seed {seed})" for i, seed in enumerate(seeds[group])]
                try:
                    results += run_epochs(learner, batches, val, _LOSSES[loss], epochs, patience, names, bar)
                finally:  # also when interrupted: the best weights so far
                    learner.write_back()
    return results


#: The loss ``[M, B]`` of each sample, from logits ``[M, B, K]`` and targets ``[M, B]``. Classes are moved before
#: samples, as a stack has them in memory: torch is slow for a last axis of length two.
_LOSSES: dict[str, LossFunction] = {
    "logits": lambda logits, targets: F.cross_entropy(logits.mT, targets, reduction="none"),
    "probabilities": lambda logits, targets: F.cross_entropy(logits.mT.softmax(1), targets, reduction="none"),
}


def accuracy(model: nn.Module, data: TrainingData, *, batch_size: int = EVALUATION_BATCH) -> float:
    """Return the share of samples whose target has the largest logit.

    Args:
        model: Maps images ``[N, C, H, W]`` to logits ``[N, K]``; evaluated in evaluation mode on its own device. Its
            training mode is restored.
        data: A data set of ``(image, ..., target)`` or a loader of batches of them.
        batch_size: Samples per pass, if ``data`` is not a loader.

    Returns:
        Between 0 and 1; higher is better.

    Raises:
        ValueError: If the data hold no sample.

    Example:
        >>> data = torch.utils.data.TensorDataset(torch.tensor([[[[1.0, 0.0]]], [[[0.0, 1.0]]]]), torch.tensor([0, 0]))
        >>> accuracy(nn.Flatten(), data)
        0.5
    """
    like = next(model.parameters(), torch.zeros(()))
    correct = total = 0
    with torch.no_grad(), evaluation_mode(model), isolated_rng(0), precision_context(device=like.device):
        for images, targets in _make_batches([data], batch_size, None, like.device, like.dtype).epoch():
            # A copy, since a network may modify its input.
            correct += int((model(images[0].clone()).argmax(-1) == targets[0]).sum())
            total += targets.numel()
    if total == 0:
        raise ValueError("accuracy: the data hold no sample.")
    return correct / total


def _make_batches(
    data: Sequence[TrainingData],
    batch_size: int,
    seeds: Sequence[int] | None,
    device: torch.device,
    dtype: torch.dtype,
    prepare: Callable[[Tensor], Tensor] = lambda images: images,
) -> Batches:
    """Return batches cut from memory if possible, otherwise the loader's; shuffled if there are seeds."""
    members = [in_memory(each, shuffled=seeds is not None) for each in data]
    if all(members):
        return MemoryBatches([member for member in members if member], batch_size, seeds, device, dtype, prepare)
    return LoaderBatches(loader_of(data[0], batch_size, None if seeds is None else seeds[0]), device, dtype)


def _count_weights(model: nn.Module) -> int:
    return sum(weight.numel() for weight in model.parameters())


def _group_models(together: Sequence[bool], stack: int) -> list[slice]:
    """Group the models: up to ``stack`` neighbors that can be stacked, or one model that cannot."""
    groups: list[slice] = []
    for i, stacks in enumerate(together):
        before = groups[-1] if groups else None
        if stacks and before and together[before.start] and i - before.start < stack:
            groups[-1] = slice(before.start, i + 1)
        else:
            groups.append(slice(i, i + 1))
    return groups


def _is_stackable(model: nn.Module, count: int, where: torch.device) -> bool:
    """Return whether a stack can hold the model: it has no buffers, no frozen weights and only plain dropout.

    On a CPU this does not depend on ``count``, so that results do not either; large models other than this library's
    gain nothing there. On an accelerator, such a model may use operations that ``torch.func.vmap`` does not support,
    so it is trained as it is if it is the only one.
    """
    random = [layer for layer in model.modules() if isinstance(layer, nn.modules.dropout._DropoutNd)]
    plain = isinstance(model, Network) and all(type(layer) in (nn.Linear, nn.ReLU, nn.Dropout) for layer in model)
    gains = _count_weights(model) <= ALONE if where.type == "cpu" else count > 1
    return (
        (gains or isinstance(model, Network))
        and (not random or (plain and all(0 < layer.p < 1 for layer in random)))
        and next(model.buffers(), None) is None
        and all(weight.requires_grad for weight in model.parameters())
    )


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
    for epoch in range(epochs):
        train_loss = _train_epoch(learner, train, loss)
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
            for each in (learner, train, val):
                each.retain(torch.tensor(staying))
    return [
        Training(tuple(history.train_loss), tuple(history.val_loss), history.best, history.accuracy)
        for history in histories
    ]


@torch.enable_grad()
def _train_epoch(learner: Stack | Single, batches: Batches, loss: LossFunction) -> Tensor:
    """Train for one epoch and return the mean loss of each member, ``[M]`` on the CPU."""
    lost, count = torch.zeros(()), 0
    for images, targets in batches.epoch():
        losses = loss(learner.logits(images, True), targets)
        learner.descend(losses.mean(1).sum())
        lost = lost + losses.detach().sum(1)
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
