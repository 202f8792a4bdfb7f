"""Samples of data jobs: generated samples are kept in the store, annotated sets are read from their own files."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from xaibench.core.messages import count_samples
from xaibench.runner.parts import build_network, expand_variables
from xaibench.runner.plan.jobs import DataJob
from xaibench.runner.store import Store

if TYPE_CHECKING:
    from torch import Tensor, nn

    from xaibench.data import Dataset, Split

#: The splits of a data set, in the order they are stored.
SPLITS = ("train", "val", "test")

#: Number of samples of an annotated set that are in memory at a time.
_BATCH = 32


class DataChangedError(RuntimeError):
    """A data set on disk has changed since the run began. Finished results are kept."""


def make_data(job: DataJob, store: Store, device: str = "cpu") -> None:
    """Generate or open the data set and store its samples; for a set on disk, only the list of samples.

    Up to 5 % of the samples on disk that cannot be read are left out, which the note of the data set says.
    Data sets are always generated on the CPU, so that they are the same everywhere.
    """
    import torch

    from xaibench.benchmarks.checksums import check_published

    dataset = _load(job)
    on_disk = "" if dataset.test.in_memory else _hash_samples(dataset)
    damaged: dict[str, list[int]] = {}
    unreadable: dict[str, str] = {}
    left_out = ""
    if on_disk:
        from xaibench.data.disk.damaged_files import leave_out_damaged

        dataset, damaged, unreadable, left_out = leave_out_damaged(dataset)
    first = " ".join(filter(None, (check_published(dataset), dataset.note, left_out)))
    groups = _describe_groups(dataset.test)
    # A note of a data set may be a phrase without a period.
    note = f"{first.rstrip('.')}. {groups}" if first and groups else first or groups
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
    if not on_disk:  # only test samples are scored
        given = dataset.test.metric_inputs(slice(None))
        tensors |= {f"test.{name}": torch.as_tensor(each) for name, each in given.items()}
    meta = {
        "classes": list(dataset.info.classes),
        "parameters": dict(dataset.parameters),
        "image_shape": list(dataset.test[0][0].shape),
        "on_disk": on_disk,
        "grouped": dataset.test.groups is not None,
    }
    meta |= {name: value for name, value in (("ids", ids), ("note", note)) if value}
    if unreadable:
        meta |= {"damaged": damaged, "unreadable": unreadable}
    test = {name: tensor for name, tensor in tensors.items() if name.startswith("test.")}
    fit = {name: tensor for name, tensor in tensors.items() if name not in test}
    store.save_tensors("data", job.fit_key, fit, {})
    store.save_tensors("data", job.key, test, meta)


@functools.lru_cache(maxsize=1)
def read_data(store: Store, job: DataJob) -> tuple[dict[str, Split], dict[str, Any]]:
    """Read the splits of a data set and its metadata (``classes``, ``parameters``, ``image_shape``)."""
    meta = store.load_meta("data", job.key)
    if meta.get("on_disk"):
        dataset = _open_unchanged(job, meta)
        return {name: getattr(dataset, name) for name in SPLITS}, meta
    tensors = store.load_tensors("data", job.key)[0] | store.load_tensors("data", job.fit_key)[0]
    return {name: _make_split(tensors, name, meta) for name in SPLITS}, meta


@functools.lru_cache(maxsize=4)
def read_test_split(store: Store, job: DataJob) -> Split:
    """Read the test split only, which is all that explain and score jobs need."""
    meta = store.load_meta("data", job.key)
    if meta.get("on_disk"):
        return _open_unchanged(job, meta).test
    return _make_split(store.load_tensors("data", job.key)[0], "test", meta)


@functools.lru_cache(maxsize=4)
def read_distribution(job: DataJob) -> Any:
    """Return the distribution of the images of a generated set; it follows from the parameters and is not stored."""
    make_distribution = _load(job).distribution
    return make_distribution() if make_distribution else None


def batches(split: Split, start: int, stop: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Yield the samples from ``start`` to ``stop``: in one batch if they are in memory, otherwise in small batches."""
    size = max(1, stop - start) if split.in_memory else _BATCH
    for first in range(start, stop, size):
        yield split[first : min(first + size, stop)]


def sample_rows(store: Store, job: DataJob) -> list[dict[str, Any]]:
    """Return id, group and file of each test sample; empty for in-memory sets without groups."""
    meta = store.load_meta("data", job.key)
    if not (meta.get("on_disk") or meta.get("grouped")):
        return []
    split = read_test_split(store, job)
    groups = range(len(split)) if split.groups is None else split.groups.tolist()
    return [
        {"sample": number, "id": meta["id"], "group": group, "file": meta.get("file", "")}
        for number, (group, meta) in enumerate(zip(groups, split.meta, strict=True))
    ]


def dataset_notes(store: Store, sets: Mapping[str, DataJob]) -> tuple[dict[str, str], dict[str, dict[str, str]]]:
    """Return what data sets in the store say about their samples.

    Returns:
        Their notes, by name; and why some samples cannot be read and were left out, by data set and sample. Data sets
        without any are left out.
    """
    made = {name: store.load_meta("data", job.key) for name, job in sets.items() if store.has("data", job.key)}
    notes = {name: meta["note"] for name, meta in made.items() if meta.get("note")}
    return notes, {name: meta["unreadable"] for name, meta in made.items() if meta.get("unreadable")}


def hash_images(images: Tensor) -> Tensor:
    """Return a hash of each image ``[C, H, W]`` as the network receives it, by which runs are paired: ``[N]`` int64.

    Example:
        >>> import torch
        >>> one, other, again = hash_images(torch.tensor([0.0, 1.0, 0.0]).view(3, 1, 1, 1)).tolist()
        >>> one == again, one == other
        (True, False)
    """
    import torch

    start = f"{images.dtype} {tuple(images.shape[1:])}".encode()
    contents = [start + image.numpy().tobytes() for image in images.contiguous()]
    digests = [hashlib.blake2b(content, digest_size=8).digest() for content in contents]
    return torch.tensor([int.from_bytes(digest, signed=True) for digest in digests], dtype=torch.int64)


def _describe_groups(split: Split) -> str:
    """Return a sentence if samples are not independent; otherwise an empty string."""
    samples = len(split)
    groups = samples if split.groups is None else len(set(split.groups.tolist()))
    said = count_samples(samples, groups, split.groups_by)
    return f"{said}; intervals and tests treat a group as one observation." if groups != samples else ""


def _load(job: DataJob) -> Dataset:
    from xaibench.data import load

    arguments = {} if job.network is None else {"network": _network(job)}
    return load(job.name, seed=job.seed, **expand_variables(job.parameters), **arguments)


def _network(job: DataJob) -> Callable[[Tensor], Tensor]:
    """Return the network that a data set is made for, on the CPU; it is built at the first call for an image size."""
    assert job.network is not None
    name, parameters, _ = job.network
    classes = len(job.dataset.info.classes)

    @functools.cache
    def build_for(shape: tuple[int, ...]) -> nn.Module:
        return build_network(name, shape, classes, **parameters).eval()

    def network(images: Tensor) -> Tensor:
        logits: Tensor = build_for(tuple(images.shape[1:]))(images)
        return logits

    return network


def _open_unchanged(job: DataJob, meta: Mapping[str, Any]) -> Dataset:
    """Load the data set as the data job found it, and check that it has not changed since."""
    from xaibench.data.disk.damaged_files import leave_out

    dataset = _load(job)
    if _hash_samples(dataset) != meta["on_disk"]:
        raise DataChangedError(
            f"The samples of {job.name} have changed on disk since this run began. Start a new run folder, or restore "
            "the files."
        )
    return leave_out(dataset, meta.get("damaged", {}))


def _hash_samples(dataset: Any) -> str:
    """Hash the sample indices and targets; pixel values are not hashed."""
    digest = hashlib.sha256()
    for name in SPLITS:
        split = getattr(dataset, name)
        digest.update(f"{name} {split.indices.tolist()} {split.targets.tolist()}".encode())
    return digest.hexdigest()[:16]


def _make_split(tensors: dict[str, Tensor], name: str, meta: dict[str, Any]) -> Split:
    from xaibench.data import PartSplit, Split

    images, masks, targets = (tensors[f"{name}.{part}"] for part in ("images", "masks", "targets"))
    if f"{name}.parts" in tensors:
        return PartSplit(images, masks, targets, tensors[f"{name}.parts"], tensors[f"{name}.behind"])
    groups = tensors.get(f"{name}.groups")
    return Split(images, masks, targets, ids=meta.get("ids", {}).get(name), groups=groups)
