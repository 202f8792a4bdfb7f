"""Reading a split batch by batch, in an order that is given; and refusing splits that a model cannot be trained on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from xaibench.core.compute.model_probe import check_classes, probe
from xaibench.core.messages import listed
from xaibench.models.training.training_checks import check_targets, check_trainable


class Samples(Protocol):
    """A split: indexing with a list of indices reads a batch ``(images [n, C, H, W], ..., targets [n])``."""

    @property
    def targets(self) -> Tensor:
        """``[N]`` int64 class indices."""
        ...

    def __len__(self) -> int: ...

    def __getitem__(self, index: list[int], /) -> tuple[Any, ...]:
        """The samples of these indices."""
        ...


class _Batched(Dataset[tuple[Tensor, Tensor]]):
    """What a loader asks for one batch at a time."""

    def __init__(self, split: Samples) -> None:
        self.split = split

    def __getitem__(self, index: list[int]) -> tuple[Tensor, Tensor]:
        batch = self.split[index]
        return batch[0], batch[-1]


def read_batches(
    split: Samples, batches: Sequence[list[int]], *, workers: int = 0, seed: int = 0
) -> Iterator[tuple[Tensor, Tensor]]:
    """Images ``[n, C, H, W]`` and targets ``[n]`` of each batch, in order.

    Args:
        split: The samples.
        batches: The indices of each batch.
        workers: Processes that read ahead; 0: this one reads.
        seed: Of the random numbers that a split draws in the worker processes.
    """
    generator = torch.Generator().manual_seed(seed)
    # Without batch_size, every element of the sampler is one index of the data set: here a whole batch.
    yield from DataLoader(_Batched(split), batch_size=None, sampler=batches, num_workers=workers, generator=generator)


def check_samples(model: nn.Module, train: Samples, val: Samples) -> None:
    """Refuse what cannot be trained, after trying the model on one image.

    Raises:
        ValueError: If a split is empty, a target is no class, a class has no training sample, or the model does not
            take the images, does not return ``[N, K]`` or returns NaN.
    """
    check_trainable(model)
    for name, split in (("training", train), ("validation", val)):
        check_targets(split.targets[: len(split)], name)
    classes = probe(model, train[[0]][0], what="the training images").shape[1]
    for name, split in (("training", train), ("validation", val)):
        check_classes(split.targets, classes, f"{name} targets")
    counts = torch.bincount(train.targets, minlength=classes)
    missing = (counts == 0).nonzero().flatten().tolist()
    if missing:
        raise ValueError(
            f"The model has {classes} outputs, but {len(missing)} of these classes have no training sample "
            f"({listed(missing, most=5)}). Build it with num_classes= the number of classes of the set, or take "
            "samples of every class."
        )
