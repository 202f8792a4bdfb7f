"""Reading a split batch by batch in a given order, and checks that a model can be trained on it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from xaibench.compute.network_outputs import check_classes, check_plain_logits, probe
from xaibench.core.messages import listed
from xaibench.models.training.training_checks import check_target_dtype, check_trainable


class IndexedSplit(Protocol):
    """A split from which ``split[[i, j]]`` reads a batch ``(images [n, C, H, W], ..., targets [n])``."""

    @property
    def targets(self) -> Tensor:
        """``[N]`` int64 class indices."""
        ...

    def __len__(self) -> int: ...

    def __getitem__(self, index: list[int], /) -> tuple[Any, ...]:
        """Return the samples at these indices."""
        ...


class _BatchDataset(Dataset[tuple[Tensor, Tensor]]):
    """Data set whose elements are whole batches."""

    def __init__(self, split: IndexedSplit) -> None:
        self.split = split

    def __getitem__(self, index: list[int]) -> tuple[Tensor, Tensor]:
        batch = self.split[index]
        return batch[0], batch[-1]


def read_batches(
    split: IndexedSplit, batches: Sequence[list[int]], *, workers: int = 0, seed: int = 0
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield images ``[n, C, H, W]`` and targets ``[n]`` of each batch, in order.

    Args:
        split: The samples.
        batches: Indices of each batch.
        workers: Number of processes that read ahead; 0 = read in this process.
        seed: Seed of random numbers that a split draws in the worker processes.
    """
    generator = torch.Generator().manual_seed(seed)
    # Without batch_size, every element of the sampler is one index of the data set, which is a whole batch here.
    yield from DataLoader(
        _BatchDataset(split), batch_size=None, sampler=batches, num_workers=workers, generator=generator
    )


def check_splits(model: nn.Module, train: IndexedSplit, val: IndexedSplit) -> None:
    """Check that a model can be trained on two splits; the model is called on one image.

    Raises:
        ValueError: If a split is empty, a target is not a class, a class has no training sample, or the model does not
            accept the images, does not return ``[N, K]`` or returns NaN.
    """
    check_trainable(model)
    for name, split in (("training", train), ("validation", val)):
        check_target_dtype(split.targets[: len(split)], name)
    classes = probe(model, train[[0]][0], what="the training images", select=check_plain_logits).shape[1]
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
