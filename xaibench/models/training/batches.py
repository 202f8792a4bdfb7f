"""Sources of training batches: tensors in memory, or any loader."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol, TypeAlias, get_args

import torch
from torch import Tensor, nn
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler, SequentialSampler, default_collate
from torch.utils.data.dataloader import default_convert

from xaibench.core.checks import check_amount, check_choice, check_count
from xaibench.core.messages import listed, unknown
from xaibench.core.types import Precision
from xaibench.network.outputs import check_classes, check_plain_logits, probe
from xaibench.tensors.device import stored_dtype
from xaibench.tensors.random_numbers import isolated_rng

#: A data set of ``(image, ..., target)``, or a loader of batches of them.
TrainingData: TypeAlias = Dataset[Any] | DataLoader[Any]

#: Batch size of the XAI-TRIS paper, for a data set without a loader.
BATCH_SIZE = 512

#: Samples per batch when no gradient is needed.
EVALUATION_BATCH = 2048


class Batches(Protocol):
    """Batches of M models at a time."""

    def epoch(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield images ``[M, B, C, H, W]`` and targets ``[M, B]`` until every sample was used once."""
        ...

    def retain(self, staying: Tensor) -> None:
        """Continue only with the models for which ``staying`` ``[M]`` is True."""
        ...


class MemoryBatches:
    """Batches cut from tensors on the device; each member has its own samples and its own order.

    Args:
        members: Images ``[N, C, H, W]`` and targets ``[N]`` of each member, of equal shapes. Members that share tensors
            share memory.
        batch_size: B; the last batch of an epoch is smaller if B does not divide N.
        seeds: One per member. The samples are shuffled in each epoch, in an order that depends only on the seed and the
            number of the epoch. None = not shuffled.
        device: Device of the batches.
        dtype: Dtype of the images.
        prepare: Applied once to all images ``[N, C, H, W]``, before batches are cut.
    """

    def __init__(
        self,
        members: Sequence[tuple[Tensor, Tensor]],
        batch_size: int,
        seeds: Sequence[int] | None,
        device: torch.device,
        dtype: torch.dtype,
        prepare: Callable[[Tensor], Tensor],
    ) -> None:
        _check_members(members)
        self.size, self.batch_size, self.device = len(members[0][1]), batch_size, device
        # Distinct data sets are concatenated; a member's samples begin at its offset.
        distinct = {(id(images), id(targets)): (images, targets) for images, targets in members}
        self.images = _concatenate([prepare(images.to(device, dtype)) for images, _ in distinct.values()])
        self.targets = _concatenate([targets.to(device) for _, targets in distinct.values()])
        places = list(distinct)
        starts = [places.index((id(images), id(targets))) * self.size for images, targets in members]
        self.starts = torch.tensor(starts, device=device)[:, None]
        self.generators = None if seeds is None else [torch.Generator().manual_seed(seed) for seed in seeds]

    def epoch(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield images ``[M, B, C, H, W]`` and targets ``[M, B]``."""
        if self.generators is None and len(self.images) == self.size:  # all members have the same data: no copy
            parts = (torch.split(each, self.batch_size) for each in (self.images, self.targets))
            for images, targets in zip(*parts, strict=True):
                yield images.expand(len(self.starts), *images.shape), targets.expand(len(self.starts), -1)
            return
        if self.generators is None:
            order = torch.arange(self.size, device=self.device).expand(len(self.starts), -1)
        else:
            order = torch.stack([torch.randperm(self.size, generator=g) for g in self.generators]).to(self.device)
        for rows in torch.split(order + self.starts, self.batch_size, dim=1):
            index = rows.flatten()
            images, targets = self.images.index_select(0, index), self.targets.index_select(0, index)
            yield images.view(*rows.shape, *images.shape[1:]), targets.view(rows.shape)

    def retain(self, staying: Tensor) -> None:
        """Continue with some of the members; their batches do not change."""
        self.starts = self.starts[staying.to(self.device)]
        if self.generators is not None:
            self.generators = [one for one, stays in zip(self.generators, staying.tolist(), strict=True) if stays]


class LoaderBatches:
    """Batches of a loader, for one model. The first element of a batch is the images, the last one the targets."""

    def __init__(self, loader: DataLoader[Any], device: torch.device, dtype: torch.dtype) -> None:
        self.loader, self.device, self.dtype = loader, device, dtype

    def epoch(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield images ``[1, B, C, H, W]`` and targets ``[1, B]``."""
        for batch in self.loader:
            yield batch[0].to(self.device, self.dtype)[None], batch[-1].to(self.device)[None]

    def retain(self, staying: Tensor) -> None:
        """Do nothing, since there is only one model."""


def in_memory(data: TrainingData, *, shuffled: bool) -> tuple[Tensor, Tensor] | None:
    """Return images and targets of ``data`` if batches can be cut from them directly, otherwise None.

    This is possible if the data set has tensors ``images`` and ``targets``, and its loader, if any, only cuts batches:
    in random order if ``shuffled``, in any order otherwise.
    """
    if isinstance(data, DataLoader):
        batched = data.sampler if data.batch_size is None else data.batch_sampler
        if (
            type(batched) is not BatchSampler
            or batched.drop_last
            or not _is_plain_loader(data, batched.sampler, shuffled)
        ):
            return None
        data = data.dataset
    images, targets = getattr(data, "images", None), getattr(data, "targets", None)
    return (images, targets) if isinstance(images, Tensor) and isinstance(targets, Tensor) else None


def _is_plain_loader(loader: DataLoader[Any], sampler: object, shuffled: bool) -> bool:
    if loader.collate_fn not in (default_collate, default_convert):
        return False
    if type(sampler) is RandomSampler:
        return not sampler.replacement and sampler.num_samples == len(sampler.data_source)
    return type(sampler) is SequentialSampler and not shuffled


def batch_size_of(data: TrainingData) -> int:
    """Return the batch size of a loader; 512, as in the XAI-TRIS paper, for a data set."""
    if isinstance(data, DataLoader):
        size = data.batch_size or getattr(data.sampler, "batch_size", None)
        return int(size or BATCH_SIZE)
    return BATCH_SIZE


def loader_of(data: TrainingData, batch_size: int, seed: int | None) -> DataLoader[Any]:
    """Return ``data`` if it is a loader, otherwise a loader of it: shuffled by ``seed``, or in order if None."""
    if isinstance(data, DataLoader):
        return data
    generator = torch.Generator().manual_seed(seed or 0)
    return DataLoader(data, batch_size, shuffle=seed is not None, generator=generator)


def _concatenate(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _check_members(members: Sequence[tuple[Tensor, Tensor]]) -> None:
    first = members[0][0].shape
    for number, (images, targets) in enumerate(members):
        if len(images) != len(targets):
            raise ValueError(f"data {number}: {len(images)} images but {len(targets)} targets.")
        if images.shape != first:
            raise ValueError(
                f"models that are trained together need data of equal shape, but data {number} are "
                f"{list(images.shape)} and data 0 are {list(first)}. Train them in separate calls."
            )
        if len(targets) == 0:
            raise ValueError(f"data {number} hold no sample.")


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
    check_choice("precision", precision, get_args(Precision))
    for model in models:
        dtype = next(model.parameters()).dtype
        if (dtype == torch.float64) != (stored_dtype(precision) == torch.float64):
            turned = "double" if precision == "float64" else "float"
            raise ValueError(
                f"precision={precision!r}: the model's weights are {dtype}, expected {stored_dtype(precision)}; train "
                f"model.{turned}()."
            )


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
