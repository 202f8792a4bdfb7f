"""Published networks: trained weights that come with the library, so that every machine explains the same networks.

A network is identified by the key of the training that made it, which covers the data set, the seeds, the parameters
and the revisions. A suite uses the published network of a training if there is one; every other training is run.

``xaibench/benchmarks/*/networks/`` has two files per suite: ``NAME.safetensors`` with the weights and the losses of
each epoch, and ``NAME.json`` with the checksum of that file and a record of each training. Of large networks only the
second comes with the library: ``xaibench prepare networks`` gets their weights (:func:`prepare_networks`). Until then,
their suites train.
"""

from __future__ import annotations

import functools
import hashlib
import json
import shutil
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xaibench.benchmarks.folders import benchmark_files
from xaibench.core.files import atomic_file, atomic_path, default_cache_dir

if TYPE_CHECKING:
    import pandas as pd
    from torch import Tensor

    from xaibench.runner.plan.plan import Plan
    from xaibench.runner.store.result_store import Store

#: End of the names of files whose weights do not come with the library.
LARGE = "-large"
#: Repository of the Hub with the weights that do not come with the library.
_REPOSITORY = "hf://xaibench/networks"
#: Prefixes of the tensors of a stored training that are published.
_KEPT = ("weights.", "train_loss", "val_loss")


class NetworkFileError(RuntimeError):
    """A file of published networks is damaged."""


def is_published(key: str) -> bool:
    """Return whether the network of a training is published and on this machine, by the key of the training."""
    return key in _index() and _weights_file(_index()[key][0]).is_file()


def is_absent(key: str) -> bool:
    """Return whether the network of a training is published, but its weights are not on this machine."""
    return key in _index() and not is_published(key)


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

    return pd.DataFrame([{"suite": index.stem.removesuffix(LARGE), **record} for index, record in _index().values()])


def prepare_networks(source: str | None = None) -> dict[str, Path]:
    """Get the weights of published networks that do not come with the library.

    Args:
        source: A folder with the files ``NAME.safetensors``, or ``"hf://owner/name"``, a data set repository of the
            Hugging Face Hub. None = the library's own repository.

    Returns:
        ``{name: file}`` of the files, in the order of their names; empty if all networks come with the library. Files
        that are there already, with the published checksum, are kept.

    Raises:
        MissingDataError: If the source cannot be reached, or lacks a file.
        NetworkFileError: If a file has another checksum than the published one; it is not kept.
    """
    found: dict[str, Path] = {}
    folder: Path | None = None
    for index in _index_files():
        target = _weights_file(index)
        if target.parent == index.parent:
            continue
        if not (target.is_file() and _checksum(target) == _load(index)["sha256"]):
            if folder is None:
                folder = _source_folder(source or _REPOSITORY)
            _take(folder / target.name, target, _load(index)["sha256"])
        found[index.stem] = target
    return found


def _source_folder(source: str) -> Path:
    from xaibench.data.exchange.hub_sets import HubAddress, download_snapshot

    if source.startswith("hf://"):
        return download_snapshot(HubAddress.parse(source), ["*.safetensors"])
    return Path(source).expanduser()


def _take(source: Path, target: Path, expected: str) -> None:
    """Copy a file if it has the expected checksum."""
    from xaibench.data.annotated import MissingDataError

    if not source.is_file():
        raise MissingDataError(
            f"There is no file {source}. Expected the weights of published networks; name the folder that has them, or "
            f"a repository of the Hub: xaibench prepare networks --source FOLDER."
        )
    if (found := _checksum(source)) != expected:
        raise NetworkFileError(
            f"{source} has the SHA-256 {found}, expected {expected}: it is damaged, or of another version of xaibench."
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    with atomic_path(target) as temporary:
        shutil.copyfile(source, temporary)


def write_networks(plan: Plan, store: Store, index: Path, models: Collection[str] | None = None) -> int:
    """Write the trained networks of a run as files to publish.

    Args:
        plan: The plan of the run, made with ``train=True``.
        store: The store of the run.
        index: The file of the records, ``NAME.json``; the weights are written beside it.
        models: Only networks of these architectures; None = all.

    Returns:
        The number of networks.
    """
    from safetensors.torch import save

    tensors: dict[str, Tensor] = {}
    records: dict[str, dict[str, Any]] = {}
    trainings = dict.fromkeys(job for cell in plan.cells for job in cell.trainings)
    for job in trainings:
        if job.parameters.get("method") == "none" or (models is not None and job.model not in models):
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


def _weights_file(index: Path) -> Path:
    """Return the file of the weights: beside the records, or where ``xaibench prepare networks`` puts it."""
    beside = index.with_suffix(".safetensors")
    return beside if beside.is_file() else default_cache_dir() / "networks" / beside.name


def _checksum(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


@functools.cache
def _read_weights(index: Path) -> dict[str, Tensor]:
    from safetensors.torch import load

    file = _weights_file(index)
    data = file.read_bytes()
    if (found := hashlib.sha256(data).hexdigest()) != (expected := _load(index)["sha256"]):
        raise NetworkFileError(
            f"The published networks {file} are damaged: SHA-256 {found}, expected {expected}. "
            + (
                "Install xaibench again."
                if file.parent == index.parent
                else "Get them again: xaibench prepare networks"
            )
        )
    tensors: dict[str, Tensor] = load(data)
    return tensors
