"""Published networks: trained weights that come with the library, so that every machine explains the same networks.

A network is identified by the key of the training that made it, which covers the data set, the seeds, the parameters
and the revisions. A suite uses the published network of a training if there is one; every other training is run.

``xaibench/benchmarks/*/networks/`` has two files per suite: ``NAME.safetensors.xz`` with the rounded weights and the
losses of each epoch, compressed, and ``NAME.json`` with the checksum of the content and a record of each training.
:mod:`xaibench.runner.network_publishing` writes them.

Weights are rounded to compact forms from which every machine restores the same numbers. Small tensors are rounded to
half precision. A large matrix is either its initial weights plus a change of low rank, or whole numbers of steps per
row, compressed. Restoring uses integer sums, which are exact in any order, and single operations, whose result IEEE 754
determines.
"""

from __future__ import annotations

import functools
import hashlib
import json
import lzma
import zlib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from xaibench.benchmarks import benchmark_files
from xaibench.core.messages import did_you_mean
from xaibench.registry.table import UnknownNameError

if TYPE_CHECKING:
    import pandas as pd
    from torch import Tensor, nn


#: Prefix of the names of weights, in published files and in stored trainings.
WEIGHTS = "weights."


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
        Tensors: ``weights.*`` that differ from the initial ones, encoded, ``train_loss`` and ``val_loss`` per epoch;
        and the record of the training.

    Raises:
        KeyError: If no network of this key is published.
        NetworkFileError: If the file has another checksum than the one that is published with it.
    """
    index, record = _index()[key]
    prefix = f"{key}/"
    tensors = _read_weights(index)
    return {name.removeprefix(prefix): each for name, each in tensors.items() if name.startswith(prefix)}, record


def published_network(dataset: str, model: str, *, data_seed: int = 0, seed: int = 0) -> nn.Module:
    """Return a trained network that comes with the library, the same on every machine.

    Args:
        dataset: Name of the data set that it was trained on, such as ``"xai-tris/xor-corr-8x8"``.
        model: Its architecture, such as ``"mlp"``.
        data_seed: Seed of that data set.
        seed: Seed of the training.

    Returns:
        The network on the CPU, in evaluation mode. It maps images ``[N, C, H, W]`` to logits ``[N, K]``.

    Raises:
        UnknownNameError: If no such network comes with the library; names the nearest. ``xaibench networks list`` shows
            all of them.
        NetworkFileError: If the file of the weights is damaged.

    Example:
        >>> network = published_network("xai-tris/xor-corr-8x8", "mlp")
        >>> network
        MLP(
          (0): Linear(in_features=64, out_features=32, bias=True)
          (1): ReLU()
          (2): Linear(in_features=32, out_features=16, bias=True)
          (3): ReLU()
          (4): Linear(in_features=16, out_features=8, bias=True)
          (5): ReLU()
          (6): Linear(in_features=8, out_features=2, bias=True)
        )
    """
    from xaibench.models import build

    plain = {key: record for key, (_, record) in _index().items() if not record["build"]}
    known = {_identity(**record): key for key, record in plain.items()}
    asked = _identity(dataset, model, data_seed, seed)
    if asked not in known:
        raise UnknownNameError(
            f"No network comes with the library that is a {asked}{did_you_mean(asked, known)} `xaibench networks list` "
            "shows all."
        )
    tensors, record = read_network(known[asked])
    network = build(model, tuple(record["image_shape"]), record["classes"], seed=record["network_seed"])
    load_weights(network, tensors)
    return network.eval()


def _identity(dataset: str, model: str, data_seed: int, seed: int, **_: Any) -> str:
    return f"{model} of {dataset}, data seed {data_seed}, training seed {seed}"


def load_weights(network: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Set the weights of a network, as built from its seed, to published ones (from :func:`read_network`)."""
    start = network.state_dict()
    encoded = {name.removeprefix(WEIGHTS): each for name, each in tensors.items() if name.startswith(WEIGHTS)}
    network.load_state_dict(start | decode(start, encoded))


def network_file_checksums(keys: Iterable[str]) -> set[str]:
    """Return the SHA-256 of the files that have the published networks of these trainings."""
    files = {_index()[key][0] for key in keys if key in _index()}
    return {str(_load(file)["sha256"]) for file in files}


def published_records() -> pd.DataFrame:
    """Return one row per published network: ``suite, dataset, data_seed, model, seed``, losses and accuracies."""
    import pandas as pd

    return pd.DataFrame([{"suite": index.stem, **record} for index, record in _index().values()])


@functools.cache
def _index() -> Mapping[str, tuple[Path, dict[str, Any]]]:
    """Return the file and the record of each network, by key."""
    return {
        key: (file, record)
        for file in benchmark_files("networks/*.json")
        for key, record in _load(file)["networks"].items()
    }


def _load(index: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(index.read_text(encoding="utf-8"))
    return loaded


@functools.cache
def _read_weights(index: Path) -> dict[str, Tensor]:
    from safetensors.torch import load

    file = index.with_suffix(".safetensors.xz")
    data = file.read_bytes()
    with suppress(lzma.LZMAError):  # the checksum below is then that of the damaged file
        data = lzma.decompress(data)
    if (found := hashlib.sha256(data).hexdigest()) != (expected := _load(index)["sha256"]):
        raise NetworkFileError(
            f"The published networks {file} are damaged: SHA-256 {found}, expected {expected}. Install xaibench again."
        )
    tensors: dict[str, Tensor] = load(data)
    return tensors


#: Number of weights from which on a matrix is large.
LARGE = 2**14
#: Ranks of the change of a large matrix that are tried.
RANKS = (8, 32)
#: Step of the weights of a row, as a share of their standard deviation.
STEP = 0.2


def encode(start: Mapping[str, Tensor], trained: Mapping[str, Tensor], rank: int | None) -> dict[str, Tensor]:
    """Encode trained weights.

    Args:
        start: Initial weights of the network by name, from :func:`xaibench.models.build`, float32.
        trained: The weights that differ from the initial ones.
        rank: Rank of the change of large matrices; rank 8 has a tenth of the size of steps. None = steps.

    Returns:
        Tensors by name: ``NAME`` in half precision, ``NAME:left``, ``NAME:right`` and ``NAME:scale``, or
        ``NAME:steps`` and ``NAME:scale``.
    """
    found: dict[str, Tensor] = {}
    for name, weight in trained.items():
        if weight.dim() != 2 or weight.numel() < LARGE:
            found[name] = weight.half()
            continue
        weight = weight.double()
        parts = _to_steps(weight) if rank is None else _to_low_rank(weight - start[name].double(), rank)
        found |= {f"{name}:{part}": tensor.contiguous() for part, tensor in parts.items()}
    return found


def decode(start: Mapping[str, Tensor], encoded: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Restore the trained weights, float32, with the same bits on every machine.

    Args:
        start: Initial weights of the network by name.
        encoded: From :func:`encode`.

    Returns:
        Weights by name; weights that are not in ``encoded`` are left out.
    """
    found: dict[str, Tensor] = {}
    for name, tensor in encoded.items():
        weight, _, part = name.partition(":")
        if not part:
            found[weight] = tensor.float()
        elif part == "right":
            sums = encoded[f"{weight}:left"].numpy().astype(np.int64) @ tensor.numpy().astype(np.int64)
            change = torch.from_numpy(sums).double() * encoded[f"{weight}:scale"]
            found[weight] = (start[weight].double() + change).float()
        elif part == "steps":
            shape = start[weight].shape
            steps = np.frombuffer(zlib.decompress(tensor.numpy().tobytes()), np.int8).reshape(shape)
            found[weight] = (torch.from_numpy(steps.astype(np.float64)) * encoded[f"{weight}:scale"]).float()
    return found


def _to_low_rank(change: Tensor, rank: int) -> dict[str, Tensor]:
    """Return whole numbers ``left [M, R]`` and ``right [R, N]`` and a factor, whose product is near ``change``."""
    left, values, right = torch.linalg.svd(change, full_matrices=False)
    left, right = left[:, :rank] * values[:rank], right[:rank]
    sizes = right.abs().amax(1, keepdim=True) / 127
    left = left * sizes.T
    scale = left.abs().max() / 32767
    return {
        "left": (left / scale).round().short(),
        "right": (right / sizes).round().char(),
        "scale": scale.reshape(1),
    }


def _to_steps(weight: Tensor) -> dict[str, Tensor]:
    """Return the weights of each row in steps, compressed, and the step ``[M, 1]``."""
    scale = torch.maximum(STEP * weight.std(1, keepdim=True), weight.abs().amax(1, keepdim=True) / 127)
    scale = torch.where(scale > 0, scale, torch.ones_like(scale))
    steps = (weight / scale).round().char().numpy().tobytes()
    packer = zlib.compressobj(9, strategy=zlib.Z_HUFFMAN_ONLY)
    packed = np.frombuffer(packer.compress(steps) + packer.flush(), np.uint8)
    return {"steps": torch.from_numpy(packed.copy()), "scale": scale}
