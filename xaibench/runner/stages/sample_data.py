"""The samples of a data job: generated ones lie in the store, annotated ones are read from where they lie."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from xaibench.runner.parts import expand_variables, part_info
from xaibench.runner.plan.jobs import DataJob
from xaibench.runner.store.result_store import Store

if TYPE_CHECKING:
    from torch import Tensor, nn

    from xaibench.data import Dataset, Split

#: The splits of a data set, in the order they are stored.
SPLITS = ("train", "val", "test")

#: Samples of an annotated set that are in memory at a time.
_BATCH = 32


class DataChangedError(RuntimeError):
    """A set on disk is not what it was when the run began; what was computed is kept."""


def make_data(job: DataJob, store: Store, device: str = "cpu") -> None:
    """Make or open the data set, and keep its samples; of a set on disk, only which samples they are.

    It is made on the CPU, whatever the device, so that it is the same everywhere.
    """
    dataset = _few(_load(job), job.few)
    import torch

    on_disk = not dataset.test.in_memory
    tensors: dict[str, Tensor] = {}
    ids: dict[str, list[str]] = {}
    for name in SPLITS:
        split = getattr(dataset, name)
        tensors[f"{name}.targets"] = split.targets
        if not on_disk:
            tensors |= {f"{name}.images": split.images, f"{name}.masks": split.masks}
            if split.groups is not None:
                tensors[f"{name}.groups"] = torch.from_numpy(split.groups)
            if list(split.ids) != [str(number) for number in range(len(split))]:
                ids[name] = list(split.ids)
    meta = {
        "classes": list(dataset.info.classes),
        "parameters": dict(dataset.parameters),
        "image_shape": list(dataset.test[0][0].shape),
        "on_disk": _identity(dataset) if on_disk else "",
        "grouped": dataset.test.groups is not None,
    } | {name: value for name, value in (("ids", ids), ("note", dataset.note)) if value}
    store.save_tensors("data", job.key, tensors, meta)


@functools.lru_cache(maxsize=1)
def read_data(store: Store, job: DataJob) -> tuple[dict[str, Split], dict[str, Any]]:
    """The splits of a data set, and what lies beside them (``classes``, ``parameters``, ``image_shape``)."""
    meta = store.load_meta("data", job.key)
    if meta.get("on_disk"):
        dataset = _open(job, meta["on_disk"])
        return {name: getattr(dataset, name) for name in SPLITS}, meta
    tensors, meta = store.load_tensors("data", job.key)
    return {name: _split(tensors, name, meta) for name in SPLITS}, meta


@functools.lru_cache(maxsize=4)
def read_test_split(store: Store, job: DataJob) -> Split:
    """The test split alone, which is all that explaining and scoring read of a data set."""
    meta = store.load_meta("data", job.key)
    if meta.get("on_disk"):
        return _open(job, meta["on_disk"]).test
    return _split(store.load_tensors("data", job.key, "test.")[0], "test", meta)


@functools.lru_cache(maxsize=4)
def read_distribution(job: DataJob) -> Any:
    """What the images of a generated set came from: it follows from the set's parameters, so nothing of it is kept."""
    known = _load(job).distribution
    return known() if known else None


def batches(split: Split, start: int, stop: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """The samples from ``start`` to before ``stop``: all at once where they are in memory already, else a few."""
    size = max(1, stop - start) if split.in_memory else _BATCH
    for first in range(start, stop, size):
        yield split[first : min(first + size, stop)]


def sample_rows(store: Store, job: DataJob) -> list[dict[str, Any]]:
    """Id, group and file of each test sample; nothing of a set in memory whose samples all stand for themselves."""
    meta = store.load_meta("data", job.key)
    if not (meta.get("on_disk") or meta.get("grouped")):
        return []
    split = read_test_split(store, job)
    groups = range(len(split)) if split.groups is None else split.groups.tolist()
    return [
        {"sample": number, "id": known["id"], "group": group, "file": known.get("file", "")}
        for number, (group, known) in enumerate(zip(groups, split.meta, strict=True))
    ]


def notes_of_sets(store: Store, sets: Mapping[str, DataJob]) -> dict[str, str]:
    """What is to be known of the samples of sets, each under its name, of those that are made and say something."""
    there = {name: job for name, job in sets.items() if store.has("data", job.key)}
    return {name: note for name, job in there.items() if (note := store.load_meta("data", job.key).get("note", ""))}


def image_marks(images: Tensor) -> Tensor:
    """``[N]`` int64: a hash of each image ``[C, H, W]`` as the network gets it, by which runs know it again.

    Example:
        >>> import torch
        >>> one, other, again = image_marks(torch.tensor([0.0, 1.0, 0.0]).view(3, 1, 1, 1)).tolist()
        >>> one == again, one == other
        (True, False)
    """
    import torch

    start = f"{images.dtype} {tuple(images.shape[1:])}".encode()
    found = [hashlib.blake2b(start + image.numpy().tobytes(), digest_size=8).digest() for image in images.contiguous()]
    return torch.tensor([int.from_bytes(digest, signed=True) for digest in found], dtype=torch.int64)


def _few(dataset: Dataset, count: int) -> Dataset:
    """So many samples of each split (at least one of each class), the classes taking turns; 0 = the set itself."""
    from xaibench.data import Split

    if not count:
        return dataset

    def first(split: Split) -> Split:
        turns = Counter[int]()
        ranked = []
        for number, target in enumerate(split.targets.tolist()):
            turns[target] += 1
            ranked.append((turns[target], number))
        chosen = sorted(number for _, number in sorted(ranked)[: max(count, len(dataset.classes))])
        return Split(*split[chosen])

    return dataclasses.replace(dataset, train=first(dataset.train), val=first(dataset.val), test=first(dataset.test))


def _load(job: DataJob) -> Dataset:
    from xaibench.data import load

    asked = {} if job.network is None else {"network": _network(job)}
    return load(job.name, seed=job.seed, **expand_variables(job.parameters), **asked)


def _network(job: DataJob) -> Callable[[Tensor], Tensor]:
    """The network that a set is made for, on the CPU; built for images of the size that it is first asked about."""
    from xaibench.models import build

    assert job.network is not None
    name, parameters, _ = job.network
    classes = len(part_info("dataset", job.name).classes)

    @functools.cache
    def of_size(shape: tuple[int, int, int]) -> nn.Module:
        return build(name, shape, classes, **parameters).eval()

    def network(images: Tensor) -> Tensor:
        channels, height, width = images.shape[1:]
        logits: Tensor = of_size((channels, height, width))(images)
        return logits

    return network


def _open(job: DataJob, identity: str) -> Dataset:
    """The set as it was when the run began."""
    dataset = _load(job)
    if _identity(dataset) != identity:
        raise DataChangedError(
            f"{job.name} is not what it was when this run began: its samples have changed on disk. Start a new run "
            "folder, or put the files back."
        )
    return dataset


def _identity(dataset: Any) -> str:
    """Of the samples and their order, not of their pixels."""
    digest = hashlib.sha256()
    for name in SPLITS:
        split = getattr(dataset, name)
        digest.update(f"{name} {split.indices.tolist()} {split.targets.tolist()}".encode())
    return digest.hexdigest()[:16]


def _split(tensors: dict[str, Tensor], name: str, meta: dict[str, Any]) -> Split:
    from xaibench.data import Split

    images, masks, targets = (tensors[f"{name}.{part}"] for part in ("images", "masks", "targets"))
    groups = tensors.get(f"{name}.groups")
    return Split(images, masks, targets, ids=meta.get("ids", {}).get(name), groups=groups)
