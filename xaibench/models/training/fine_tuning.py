"""Training of a whole network on images that are read from disk batch by batch."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from tqdm.auto import tqdm

from xaibench.models.training.batches import IndexedSplit, read_batches
from xaibench.models.training.fitting import Training, TrainingDivergedError
from xaibench.tensors.batching import BatchSize
from xaibench.tensors.random_numbers import isolated_rng


def fine_tune(
    model: nn.Module,
    train: IndexedSplit,
    val: IndexedSplit,
    *,
    epochs: int,
    lr: float,
    batch_size: int,
    seed: int,
    device: torch.device,
    workers: int,
    progress: bool,
) -> Training:
    """Train all weights that require a gradient. Arguments and result are as in :func:`xaibench.models.fit_head`."""
    home = next(model.parameters()).device
    with isolated_rng(seed, device):
        model.to(device)
        learner = _Learner(model, lr, batch_size)
        order = torch.Generator().manual_seed(seed)
        lost: list[float] = []
        val_lost: list[float] = []
        best, best_weights, accurate = math.inf, _copy(model), 0.0
        try:
            for epoch in tqdm(range(epochs), unit="epoch", desc="Fine-tuning", disable=not progress):
                shuffled = torch.randperm(len(train), generator=order).tolist()
                batches = [shuffled[rows] for rows in BatchSize(batch_size).slices(len(train))]
                lost.append(learner.learn(train, batches, workers, seed=epoch))
                loss, accuracy = learner.test(val, workers)
                val_lost.append(loss)
                if not math.isfinite(lost[-1] + loss):
                    raise TrainingDivergedError(
                        f"The loss is {lost[-1]} (validation: {loss}) in epoch {epoch}. Lower the learning rate, or "
                        "look for NaN in the images. The model has the best weights of the epochs before."
                    )
                if loss < best:
                    best, best_weights, accurate = loss, _copy(model), accuracy
        finally:  # also when interrupted: the best weights so far
            model.load_state_dict(best_weights)
            model.zero_grad()
            model.to(home).eval()
    return Training(tuple(lost), tuple(val_lost), val_lost.index(best), accurate)


class _Learner:
    """A network with its optimizer and its current batch sizes."""

    def __init__(self, model: nn.Module, lr: float, batch_size: int) -> None:
        self.model = model
        self._adam = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=lr)
        self._batch_size = batch_size
        self._rows, self._test_rows = BatchSize(batch_size), BatchSize(2 * batch_size)  # a test needs no gradients
        self._like = next(model.parameters())

    def learn(self, split: IndexedSplit, batches: list[list[int]], workers: int, seed: int) -> float:
        """Train for one epoch and return the mean loss, measured while the weights change."""
        self.model.train()
        lost: list[Tensor] = []  # per step, on the device: reading one would wait for the step
        for images, targets in read_batches(split, batches, workers=workers, seed=seed):
            x, y = images.to(self._like), targets.to(self._like.device)

            def backward(rows: slice, x: Tensor = x, y: Tensor = y) -> Tensor:
                losses = F.cross_entropy(self.model(x[rows]), y[rows], reduction="none")
                (losses.sum() / len(y)).backward()  # type: ignore[no-untyped-call]
                return losses.detach()

            lost.append(self._rows.each(len(y), backward, again=self._adam.zero_grad).sum())
            self._adam.step()
        return _sum_parts(lost) / len(split)

    def test(self, split: IndexedSplit, workers: int) -> tuple[float, float]:
        """Return mean loss and accuracy."""
        self.model.eval()
        lost: list[Tensor] = []
        correct: list[Tensor] = []
        in_order = list(range(len(split)))
        batches = [in_order[rows] for rows in BatchSize(2 * self._batch_size).slices(len(split))]
        with torch.no_grad():
            for images, targets in read_batches(split, batches, workers=workers):
                x, y = images.to(self._like), targets.to(self._like.device)
                logits = self._test_rows.each(len(y), lambda rows, x=x: self.model(x[rows]))  # type: ignore[misc]
                lost.append(F.cross_entropy(logits, y, reduction="sum"))
                correct.append((logits.argmax(1) == y).sum())
        return _sum_parts(lost) / len(split), _sum_parts(correct) / len(split)


def _sum_parts(parts: list[Tensor]) -> float:
    """Sum the parts in float64, one after another."""
    return float(sum(torch.stack(parts).tolist()))


def _copy(model: nn.Module) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in model.state_dict().items()}
