"""One job: read the results it needs from the store, compute, keep the result. Nothing else is touched.

Every job computes with one thread, so that its result is the same to the bit whatever engine runs it and however many
run beside it; the engines use the cores by running several jobs at once.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast

from xaibench.runner.parts import part_info, registry
from xaibench.runner.plan import DataJob, ExplainJob, Job, Network, ScoreJob, TrainJob
from xaibench.runner.store import Store
from xaibench.runner.suite import Parameters

if TYPE_CHECKING:
    import pandas as pd
    from torch import Tensor, nn

    from xaibench.data import Split
    from xaibench.types import Output

#: The splits of a data set, in the order they are stored.
SPLITS = ("train", "val", "test")


def execute(job: Job, store: Store, device: str = "auto") -> None:
    """Compute the result of ``job`` and keep it; the results it needs must be in the store.

    Raises:
        Exception: Whatever the part raises; nothing is stored then.
    """
    with _one_thread():
        if isinstance(job, DataJob):
            _make_data(job, store)
        elif isinstance(job, TrainJob):
            _train(job, store, device)
        elif isinstance(job, ExplainJob):
            _explain(job, store, device)
        elif isinstance(job, ScoreJob):
            _score(job, store, device)
        else:
            raise TypeError(f"expected a data, train, explain or score job, got {type(job).__name__}.")


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _make_data(job: DataJob, store: Store) -> None:
    from xaibench.data import load

    dataset = load(job.name, seed=job.seed, **thaw(job.parameters))
    tensors: dict[str, Tensor] = {}
    for name in SPLITS:
        split = getattr(dataset, name)
        tensors |= {f"{name}.images": split.images, f"{name}.masks": split.masks, f"{name}.targets": split.targets}
    meta = {"classes": list(dataset.info.classes), "parameters": dict(dataset.parameters)}
    store.save_tensors("data", job.key, tensors, meta)


def _train(job: TrainJob, store: Store, device: str) -> None:
    import torch

    from xaibench.models import build, fit_many

    splits, meta = read_data(store, job.data.key)
    shape, classes = _shape(splits), len(meta["classes"])
    seeds = [network_seed(job.data, seed) for seed in job.seeds]
    networks = [build(job.model, in_shape=shape, num_classes=classes, seed=seed) for seed in seeds]
    results = fit_many(
        networks,
        [splits["train"]] * len(networks),
        [splits["val"]] * len(networks),
        seeds=seeds,
        device=device,
        progress=False,
        **thaw(job.parameters),
    )
    tensors: dict[str, Tensor] = {}
    records = []
    for seed, network, result in zip(job.seeds, networks, results, strict=True):
        correct = _correct(network, splits["test"])
        tensors |= {f"{seed}.weights.{name}": value for name, value in network.state_dict().items()}
        tensors[f"{seed}.correct"] = correct
        tensors[f"{seed}.train_loss"] = torch.tensor(result.train_loss)
        tensors[f"{seed}.val_loss"] = torch.tensor(result.val_loss)
        records.append(
            {
                "seed": seed,
                "network_seed": network_seed(job.data, seed),
                "best_epoch": result.best_epoch,
                "val_loss": result.best_val_loss,
                "val_accuracy": result.val_accuracy,
                "test_accuracy": float(correct.double().mean()),
            }
        )
    store.save_tensors("train", job.key, tensors, {"trainings": records})


def network_seed(data: DataJob, seed: int) -> int:
    """The seed that a network's weights and batches are drawn with: another one for every data set.

    With the plain seed the networks of all cells would start from the same few draws, and a bad one (a CNN with four
    filters can start all but dead) would spoil every cell at once.

    Example:
        >>> network_seed(DataJob("xai-tris/xor-corr-8x8", 0, (), "1"), 2)
        308384768
    """
    return int.from_bytes(hashlib.sha256(f"{data.name} {data.seed} {seed}".encode()).digest()[:4])


def _correct(network: nn.Module, split: Split) -> Tensor:
    """``[N]`` bool: which samples the network puts in the right class."""
    import torch

    with torch.inference_mode():
        correct: Tensor = network.cpu().eval()(split.images).argmax(1) == split.targets
        return correct


def _explain(job: ExplainJob, store: Store, device: str) -> None:
    from xaibench.explainers import build, explain

    images, _, targets = read_test_samples(store, job)
    network = read_network(store, job.network) if job.network else None
    explainer: Any = job.explainer.use
    settings = _settings(job)
    if network is not None and hasattr(registry("explainer").resolve(explainer), "fit"):
        own = {name: value for name, value in settings.items() if name != "seed"}
        unfitted: Any = build(explainer, **own)
        explainer = unfitted.fit(network, _batches(read_data(store, job.data.key)[0]["train"]))
        settings = {"seed": settings["seed"]}
    output = None if job.output == "default" else cast("Output", job.output)
    maps = explain(explainer, network, images, targets, output=output, device=device, **settings)
    store.save_tensors("explain", job.key, {"maps": maps}, {"explainer": job.explainer.name})


def _batches(split: Split, size: int = 512) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    for start in range(0, len(split), size):
        yield split[start : start + size]


def _settings(job: ExplainJob) -> dict[str, Any]:
    """The explainer's parameters as the suite states them, and the suite's seed where they state none."""
    return {"seed": job.explain_seed} | thaw(job.explainer.parameters)


def _score(job: ScoreJob, store: Store, device: str) -> None:
    import pandas as pd

    maps = store.load_tensors("explain", job.explain.key)[0]["maps"]
    images, masks, targets = read_test_samples(store, job.explain)
    metric = registry("metric").resolve(job.metric.use)
    info = part_info("metric", job.metric.use)
    kind = info.kind if info else "ground-truth"
    parameters = thaw(job.metric.parameters) | {"reduction": "none"}
    if kind == "ground-truth":
        values = metric(maps, masks, **parameters)
    elif kind == "map":
        values = metric(maps, **parameters)
    elif kind == "model":
        values = metric(_asked(store, job), images, maps, targets, **parameters)
    else:
        explainer = functools.partial(_explainer(job.explain.explainer.use), **_settings(job.explain))
        values = metric(explainer, _asked(store, job), images, targets, **parameters)
    table = pd.DataFrame({"sample": range(len(maps)), "value": [float(value) for value in values]})
    table["reason"] = _reasons(job, table, maps, masks)
    store.save_table("score", job.key, table)


def _asked(store: Store, job: ScoreJob) -> nn.Module:
    if job.network is None:
        raise ValueError(f"{job.metric.name} asks the model, but its job names no network.")
    return read_network(store, job.network)


def _explainer(name: str) -> Any:
    from xaibench.explainers import explain

    return functools.partial(explain, name)


def _reasons(job: ScoreJob, table: pd.DataFrame, maps: Tensor, masks: Tensor) -> list[str]:
    """Why a score is undefined; empty where it is defined."""
    from xaibench.metrics import undefined_reasons

    undefined = table["value"].isna()
    if not undefined.any():
        return [""] * len(table)
    known = job.metric.use if job.metric.use in registry("metric") else None
    threshold = thaw(job.metric.parameters).get("threshold", 0.0)
    reasons = undefined_reasons(maps, masks, known, threshold=threshold)
    return [(reason or "undefined") if nan else "" for nan, reason in zip(undefined, reasons, strict=True)]


# What later stages read of earlier ones. Many small jobs in a row read the same data set and the same networks, so
# the last few are kept in memory by key; a key never changes its meaning.


@functools.lru_cache(maxsize=4)
def read_data(store: Store, key: str) -> tuple[dict[str, Split], dict[str, Any]]:
    """The splits of a stored data set, and what was stored beside them (``classes``, ``parameters``)."""
    from xaibench.data import Split

    tensors, meta = store.load_tensors("data", key)
    splits = {
        name: Split(tensors[f"{name}.images"], tensors[f"{name}.masks"], tensors[f"{name}.targets"]) for name in SPLITS
    }
    return splits, meta


@functools.lru_cache(maxsize=64)
def read_training(store: Store, key: str) -> tuple[dict[str, Tensor], list[dict[str, Any]]]:
    """Weights and correct test samples of a train job, and one record for each training."""
    tensors, meta = store.load_tensors("train", key)
    return tensors, meta["trainings"]


def chosen_training(store: Store, network: Network) -> tuple[TrainJob, int]:
    """The train job and seed of ``network``: the given seed, or the one of the lowest validation loss."""
    candidates = [
        (record["val_loss"], record["seed"], training)
        for training in network.trainings
        for record in read_training(store, training.key)[1]
        if network.seed in ("best", record["seed"])
    ]
    _, seed, training = min(candidates, key=lambda candidate: candidate[:2])
    return training, seed


def read_network(store: Store, network: Network) -> nn.Module:
    """The trained network, in evaluation mode."""
    from xaibench.models import build

    training, seed = chosen_training(store, network)
    splits, meta = read_data(store, training.data.key)
    model = build(training.model, in_shape=_shape(splits), num_classes=len(meta["classes"]))
    prefix = f"{seed}.weights."
    tensors = read_training(store, training.key)[0]
    model.load_state_dict({name[len(prefix) :]: t for name, t in tensors.items() if name.startswith(prefix)})
    return model.eval()


def _shape(splits: dict[str, Split]) -> tuple[int, int, int]:
    _, channels, height, width = splits["test"].images.shape
    return channels, height, width


def read_test_samples(store: Store, job: ExplainJob) -> tuple[Tensor, Tensor, Tensor]:
    """The images, masks and targets that ``job`` explains: the first test samples, or all."""
    test = read_data(store, job.data.key)[0]["test"]
    n = len(test.images) if job.samples == "all" else job.samples
    return test.images[:n], test.masks[:n], test.targets[:n]


def thaw(parameters: Parameters) -> dict[str, Any]:
    """Frozen parameters as keyword arguments; nested tables stay pairs, lists stay tuples."""
    return dict(parameters)
