"""Execution of train jobs: networks from scratch, a pretrained network with a new head, or an unchanged network."""

from __future__ import annotations

import dataclasses
import hashlib
import math
from typing import TYPE_CHECKING, Any

from xaibench.runner.parts import build_network
from xaibench.runner.plan.jobs import DataJob, TrainJob
from xaibench.runner.published_networks import WEIGHTS, load_weights, read_network
from xaibench.runner.stages.samples import batches, read_data
from xaibench.runner.store import Store
from xaibench.tensors.device import precision_context, resolve_device

if TYPE_CHECKING:
    from torch import Tensor, nn

    from xaibench.data import Split


def train(job: TrainJob, store: Store, device: str) -> None:
    """Train the networks of the job, and store the weights that changed, the losses and the test results.

    Networks whose results are already stored are not trained again. If one training diverges, the others are stored.

    Raises:
        TrainingDivergedError: If one of the trainings diverges.
    """
    from xaibench.models import TrainingDivergedError

    missing = tuple(seed for seed in job.seeds if not store.has(job.stage, job.result(seed))) or job.seeds
    try:
        _train_together(dataclasses.replace(job, seeds=missing), store, device)
    except TrainingDivergedError:
        if len(missing) == 1:
            raise
        errors = []
        for seed in missing:
            try:
                _train_together(dataclasses.replace(job, seeds=(seed,)), store, device)
            except TrainingDivergedError as error:
                errors.append(error)
        if errors:
            raise errors[0] from None


def _train_together(job: TrainJob, store: Store, device: str) -> None:
    import torch

    splits, _ = read_data(store, job.data)
    networks = [make_network(job, seed, store) for seed in job.seeds]
    before = [{name: value.detach().clone() for name, value in network.state_dict().items()} for network in networks]
    if job.published:
        histories = [_load_published(*pair) for pair in zip(networks, job.published_keys, strict=True)]
    else:
        histories = _train_networks(job, networks, splits, device)
    for seed, network, start, history in zip(job.seeds, networks, before, histories, strict=True):
        correct, predicted, probability = predict(network, splits["test"], device)
        changed = {name: value for name, value in network.state_dict().items() if not value.equal(start[name])}
        tensors = {f"{WEIGHTS}{name}": value for name, value in changed.items()}
        tensors |= {"correct": correct, "answer.class": predicted, "answer.share": probability}
        tensors |= {"train_loss": torch.tensor(history["train_loss"]), "val_loss": torch.tensor(history["val_losses"])}
        record = {
            "seed": seed,
            "network_seed": network_seed(job.data, seed),
            "best_epoch": history["best_epoch"],
            "val_loss": history["val_loss"],
            "val_accuracy": history["val_accuracy"],
            "test_accuracy": float(correct.double().mean()),
            "published": job.published,
        }
        store.save_tensors("train", job.result(seed), tensors, record)


def make_network(job: TrainJob, seed: int, store: Store) -> nn.Module:
    """Build the network as it is before training."""
    meta = store.load_meta("data", job.data.key)
    shape, classes = tuple(meta["image_shape"]), len(meta["classes"])
    return build_network(job.model, shape, classes, seed=network_seed(job.data, seed), **job.build)


def network_seed(data: DataJob, seed: int) -> int:
    """Derive the seed of a network's initial weights and batches from the training seed and the data set.

    With the training seed alone, the networks of all cells would start from the same few initializations, and a bad one
    (a CNN with four filters can start nearly dead) would affect every cell at once.

    Example:
        >>> from xaibench.registry.parameters import Frozen
        >>> network_seed(DataJob("xai-tris/xor-corr-8x8", 0, Frozen(), "1"), 2)
        308384768
    """
    return int.from_bytes(hashlib.sha256(f"{data.name} {data.seed} {seed}".encode()).digest()[:4])


def _load_published(network: nn.Module, key: str) -> dict[str, Any]:
    """Set the weights of a network to the published ones, and return the record of its training."""
    tensors, record = read_network(key)
    load_weights(network, tensors)
    losses = {"train_loss": tensors["train_loss"].tolist(), "val_losses": tensors["val_loss"].tolist()}
    return losses | {name: record[name] for name in ("best_epoch", "val_loss", "val_accuracy")}


def _train_networks(
    job: TrainJob, networks: list[nn.Module], splits: dict[str, Split], device: str
) -> list[dict[str, Any]]:
    from xaibench.models import fit_head, fit_many

    parameters = dict(job.parameters)
    method = parameters.pop("method", "fit")
    seeds = [network_seed(job.data, seed) for seed in job.seeds]
    if method == "none":
        return [_skip_training(network, splits["val"], device) for network in networks]
    if method == "fit":
        many = len(networks)
        train, val = [splits["train"]] * many, [splits["val"]] * many
        found = fit_many(networks, train, val, seeds=seeds, device=device, progress=False, **parameters)
    else:
        parameters.pop("loss", None)
        parameters |= {"finetune": method, "device": device, "progress": False}
        found = [
            fit_head(network, splits["train"], splits["val"], seed=seed, **parameters)
            for network, seed in zip(networks, seeds, strict=True)
        ]
    return [
        {
            "train_loss": result.train_loss,
            "val_losses": result.val_loss,
            "best_epoch": result.best_epoch,
            "val_loss": result.best_val_loss,
            "val_accuracy": result.val_accuracy,
        }
        for result in found
    ]


def _skip_training(network: nn.Module, val: Split, device: str) -> dict[str, Any]:
    accuracy = float(predict(network, val, device)[0].double().mean()) if len(val) else math.nan
    return {"train_loss": [], "val_losses": [], "best_epoch": 0, "val_loss": 0.0, "val_accuracy": accuracy}


def predict(network: nn.Module, split: Split, device: str) -> tuple[Tensor, Tensor, Tensor]:
    """Classify the samples of a split on ``device``, and move the network back to the CPU.

    Args:
        network: The network; evaluated in evaluation mode.
        split: The samples.
        device: As in :func:`xaibench.explain`.

    Returns:
        Per sample whether the prediction is correct, the predicted class, and its probability, ``[N]`` each.
    """
    import torch

    place = resolve_device(device)
    network.to(place).eval()
    with torch.inference_mode(), precision_context(device=place):
        found = []
        for x, _, y in batches(split, 0, len(split)):
            logits = network(x.to(place))
            predicted = logits.argmax(1)
            found.append((predicted == y.to(place), predicted, logits.float().softmax(1).amax(1)))
    network.cpu()
    correct, answer, probability = (torch.cat(each).cpu() for each in zip(*found, strict=True))
    return correct, answer, probability
