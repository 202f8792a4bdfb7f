"""Write the trained networks of a run as files to publish, which :mod:`xaibench.runner.published_networks` reads."""

from __future__ import annotations

import hashlib
import json
import lzma
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from xaibench.core.files import atomic_file
from xaibench.data import Split
from xaibench.runner.plan.plan import Plan
from xaibench.runner.published_networks import RANKS, WEIGHTS, decode, encode
from xaibench.runner.stages.samples import read_data
from xaibench.runner.stages.train import make_network, predict
from xaibench.runner.store import Store

#: A low-rank encoding is used if the accuracy on the validation samples changes by at most ``ACCURACY_LOSS``, and the
#: mean cosine similarity of gradient maps before and after rounding is at least ``AGREEMENT``. Otherwise, steps.
ACCURACY_LOSS, AGREEMENT = 0.005, 0.98
#: Validation samples by which gradient maps are compared.
_COMPARED = 200
_LOSSES = ("train_loss", "val_loss")
#: For numbers of two bytes: the position in a number counts, not the byte before.
_COMPRESSION = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "lc": 0, "lp": 1, "pb": 1}]


def write_networks(plan: Plan, store: Store, index: Path) -> dict[str, dict[str, Any]]:
    """Write the networks of a run: ``NAME.json`` with a record of each, ``NAME.safetensors.xz`` with the weights.

    Weights are rounded (:mod:`xaibench.runner.published_networks`), and accuracies are measured with the rounded ones.

    Args:
        plan: The plan of the run, made with ``train=True``.
        store: The store of the run.
        index: The file of the records; the weights are written to the same folder.

    Returns:
        The records by key. ``rounding`` in them has the accuracy on the test samples before rounding, and the agreement
        of the gradient maps.
    """
    from safetensors.torch import save

    tensors: dict[str, Tensor] = {}
    records: dict[str, dict[str, Any]] = {}
    for job in dict.fromkeys(job for cell in plan.cells for job in cell.trainings):
        if job.parameters.get("method") == "none" or not store.has("data", job.data.key):  # no images for this set
            continue
        splits, _ = read_data(store, job.data)
        meta = store.load_meta("data", job.data.key)
        for seed, result, key in zip(job.seeds, job.results, job.published_keys, strict=True):
            found, record = store.load_tensors("train", result)
            network = make_network(job, seed, store).eval()
            weights = {name.removeprefix(WEIGHTS): each for name, each in found.items() if name.startswith(WEIGHTS)}
            encoded, measured = _round(network, weights, splits)
            kept = {f"{WEIGHTS}{name}": each for name, each in encoded.items()}
            kept |= {name: found[name].half() for name in _LOSSES}
            tensors |= {f"{key}/{name}": value.contiguous() for name, value in kept.items()}
            facts = {"dataset": job.data.name, "data_seed": job.data.seed, "model": job.model, "build": dict(job.build)}
            facts |= {"image_shape": list(splits["test"][:1][0].shape[1:]), "classes": len(meta["classes"])}
            records[key] = facts | record | measured
    data = save(tensors)
    text = json.dumps({"sha256": hashlib.sha256(data).hexdigest(), "networks": records}, indent=1)
    compressed = lzma.compress(data, filters=_COMPRESSION)
    for file, content in ((index.with_suffix(".safetensors.xz"), compressed), (index, f"{text}\n".encode())):
        with atomic_file(file) as stream:
            stream.write(content)
    return records


def _round(
    network: nn.Module, weights: Mapping[str, Tensor], splits: Mapping[str, Split]
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Encode the weights of a network, and measure it with the rounded ones."""
    start = {name: value.clone() for name, value in network.state_dict().items()}
    images = splits["val"][: min(_COMPARED, len(splits["val"]))][0]
    network.load_state_dict(start | dict(weights))
    trained = {name: _accuracy(network, splits[name]) for name in ("val", "test")}
    maps = _gradients(network, images)
    encoded: dict[str, Tensor] = {}
    for rank in (*RANKS, None):
        encoded = encode(start, weights, rank)
        network.load_state_dict(start | decode(start, encoded))
        accuracies = {name: _accuracy(network, splits[name]) for name in ("val", "test")}
        agreement = _agreement(maps, _gradients(network, images))
        if abs(accuracies["val"] - trained["val"]) <= ACCURACY_LOSS and agreement >= AGREEMENT:
            break
    rounding = {"test_accuracy": trained["test"], "agreement": round(agreement, 4)}
    return encoded, {
        "val_accuracy": accuracies["val"],
        "test_accuracy": accuracies["test"],
        "rounding": rounding,
    }


def _accuracy(network: nn.Module, split: Split) -> float:
    return float(predict(network, split, "cpu")[0].double().mean())


def _agreement(one: Tensor, other: Tensor) -> float:
    """Return the mean cosine similarity of maps ``[N, P]``; two maps that are zero agree."""
    both_zero = ~(one.any(1) | other.any(1))
    return float((torch.cosine_similarity(one, other) + both_zero).mean())


def _gradients(network: nn.Module, images: Tensor) -> Tensor:
    """Return the gradient of the difference of the first two logits, ``[N, C * H * W]``."""
    images = images.clone().requires_grad_()
    logits = network(images)
    (found,) = torch.autograd.grad((logits[:, 1] - logits[:, 0]).sum(), images)
    return found.flatten(1)
