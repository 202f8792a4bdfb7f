"""Published networks: trained weights that come with the library, so that every machine explains the same networks.

A network is identified by the key of the training that made it, which covers the data set, the seeds, the parameters
and the revisions. A suite uses the published network of a training if there is one; every other training is run.

``xaibench/benchmarks/*/networks/`` has two files per suite: ``NAME.safetensors`` with the weights and the losses of
each epoch, and ``NAME.json`` with the checksum of that file and a record of each training.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xaibench.benchmarks.folders import benchmark_files
from xaibench.core.files import atomic_file

if TYPE_CHECKING:
    import pandas as pd
    from torch import Tensor

    from xaibench.runner.plan.plan import Plan
    from xaibench.runner.store.result_store import Store

#: Prefixes of the tensors of a stored training that are published.
_KEPT = ("weights.", "train_loss", "val_loss")


class NetworkFileError(RuntimeError):
    """A file of published networks is damaged."""


def is_published(key: str) -> bool:
    """Return whether the network of a training is published, by the key of the training."""
    return key in _index()


def read_network(key: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read a published network.

    Args:
        key: Key of its training (:attr:`xaibench.runner.plan.jobs.TrainJob.published_keys`).

    Returns:
        Tensors: ``weights.*`` that differ from the initial ones, ``train_loss`` and ``val_loss`` per epoch; and the
        record of the training.

    Raises:
        KeyError: If no network of this key is published.
        NetworkFileError: If the file has another checksum than the one that is published with it.
    """
    index, record = _index()[key]
    prefix = f"{key}/"
    tensors = _read_weights(index)
    return {name.removeprefix(prefix): each for name, each in tensors.items() if name.startswith(prefix)}, record


def published_records() -> pd.DataFrame:
    """Return one row per published network: ``suite, dataset, data_seed, model, seed``, losses and accuracies."""
    import pandas as pd

    return pd.DataFrame([{"suite": index.stem, **record} for index, record in _index().values()])


def write_networks(plan: Plan, store: Store, index: Path) -> int:
    """Write the trained networks of a run as files to publish.

    Args:
        plan: The plan of the run, made with ``train=True``.
        store: The store of the run.
        index: The file of the records, ``NAME.json``; the weights are written beside it.

    Returns:
        The number of networks.
    """
    from safetensors.torch import save

    tensors: dict[str, Tensor] = {}
    records: dict[str, dict[str, Any]] = {}
    trainings = dict.fromkeys(job for cell in plan.cells for job in cell.trainings)
    for job in trainings:
        if job.parameters.get("method") == "none":
            continue
        for result, key in zip(job.results, job.published_keys, strict=True):
            found, record = store.load_tensors("train", result)
            tensors |= {f"{key}/{name}": value for name, value in found.items() if name.startswith(_KEPT)}
            records[key] = {"dataset": job.data.name, "data_seed": job.data.seed, "model": job.model, **record}
    data = save({name: value.contiguous() for name, value in tensors.items()})
    text = json.dumps({"sha256": hashlib.sha256(data).hexdigest(), "networks": records}, indent=1)
    for file, content in ((index.with_suffix(".safetensors"), data), (index, f"{text}\n".encode())):
        with atomic_file(file) as stream:
            stream.write(content)
    return len(records)


@functools.cache
def _index() -> Mapping[str, tuple[Path, dict[str, Any]]]:
    """Return the file and the record of each network, by key."""
    return {key: (file, record) for file in _index_files() for key, record in _load(file)["networks"].items()}


def _index_files() -> Iterator[Path]:
    yield from benchmark_files("networks/*.json")


def _load(index: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(index.read_text(encoding="utf-8"))
    return loaded


@functools.cache
def _read_weights(index: Path) -> dict[str, Tensor]:
    from safetensors.torch import load

    file = index.with_suffix(".safetensors")
    data = file.read_bytes()
    if (found := hashlib.sha256(data).hexdigest()) != (expected := _load(index)["sha256"]):
        raise NetworkFileError(
            f"The published networks {file} are damaged: SHA-256 {found}, expected {expected}. Install xaibench again."
        )
    tensors: dict[str, Tensor] = load(data)
    return tensors
