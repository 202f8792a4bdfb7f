"""One job: read the results it needs from the store, compute, keep the result. Nothing else is touched.

Every job computes with one thread, so that its result is the same to the bit whatever engine runs it and however many
run beside it; the engines use the cores by running several jobs at once.
"""

from __future__ import annotations

import contextlib
import functools
import warnings
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, cast

from xaibench.core.compute.device import resolve_device
from xaibench.core.compute.precision import computing, stated
from xaibench.core.messages import ParameterWarning
from xaibench.evaluation.apply import AppliedExplainer, AppliedMetric
from xaibench.evaluation.kept_maps import packed, unpacked
from xaibench.evaluation.placed_networks import placed
from xaibench.evaluation.protocol import Protocol
from xaibench.evaluation.training_data import training_batches
from xaibench.runner.parts import find_part
from xaibench.runner.plan.job_base import Job, Stage
from xaibench.runner.plan.jobs import ExplainJob, Network, TrainJob
from xaibench.runner.plan.score_jobs import ScoreJob
from xaibench.runner.stages.network_training import WEIGHTS, make_network, train
from xaibench.runner.stages.sample_data import (
    batches,
    image_marks,
    make_data,
    read_data,
    read_distribution,
    read_test_split,
)
from xaibench.runner.store.result_store import CorruptResultError, Store

if TYPE_CHECKING:
    import pandas as pd
    from torch import Tensor, nn

    from xaibench.core.frozen import Frozen
    from xaibench.core.vocabulary import Output, Precision
    from xaibench.data import Split


def execute(job: Job, store: Store, device: str = "auto") -> None:
    """Compute the result of ``job`` and keep it; the results it needs must be in the store.

    Raises:
        Exception: Whatever the part raises; nothing is stored then.
    """
    with _one_thread(), warnings.catch_warnings():
        # A suite states its parameters, those of a paper too, and a run counts the maps that are zero.
        warnings.simplefilter("ignore", ParameterWarning)
        _OF_STAGE[job.stage](job, store, device)


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _explain(job: ExplainJob, store: Store, device: str) -> None:
    import torch

    split = read_test_split(store, job.data)
    explainer = _explainer(job, store, device, functools.partial(_fitted, job, store))
    start, stop = _span(job, split)
    with _computing(job, device):
        network = placed(read_network(store, job.network), device) if job.network else None
        if network is not None and stated() is None:
            # As explain would for every batch: moved and turned once, for all of them.
            network = network.to(getattr(network, "explain_dtype", None))
        maps, marks = [], []
        for images, _, targets in batches(split, start, stop):
            marks.append(image_marks(images))  # before anyone is given them
            maps.append(explainer(network, images, targets))
    found = torch.cat(maps) if maps else split[:0][0].new_zeros(0, *split[:1][0].shape[2:])
    tensors = packed(found) | {"images": torch.cat(marks) if marks else image_marks(split[:0][0])}
    store.save_tensors("explain", job.key, tensors, {"explainer": job.explainer.name})


def _computing(job: ExplainJob, device: str) -> contextlib.AbstractContextManager[None]:
    """The precision of the maps, and of the metrics that ask the model about them."""
    return computing(None if job.precision == "own" else cast("Precision", job.precision), resolve_device(device))


def _fitted(job: ExplainJob, store: Store, part: Any, network: nn.Module, training: Callable[[], Any]) -> Any:
    """The explainer of ``job`` with what another has learned of the network, where that lies there; else fitted.

    A fit lies in the store for as long as a job of the plan may take it.
    """
    fitted, key = None, job.fit_key
    if job.fit_from and store.has("fit", key):
        with contextlib.suppress(CorruptResultError, FileNotFoundError):
            fitted = part.with_fit(store.load_tensors("fit", key)[0])
    if fitted is None:
        fitted = part.fit(network, training())
        if job.leaves_fit:
            store.save_tensors("fit", key, fitted.fit_state, {})
    if job.fit_from and not job.leaves_fit and store.has("fit", key):
        store.files.remove(store.name("fit", key))
    return fitted


def _explainer(job: ExplainJob, store: Store, device: str, fit: Any = None) -> AppliedExplainer:
    """What makes the maps of ``job``: for its own stage, and for the metrics that ask it again."""
    return AppliedExplainer(
        job.explainer.use,
        job.explainer.parameters,
        seed=job.explain_seed,
        output=None if job.output == "default" else cast("Output", job.output),
        device=device,
        training=lambda: training_batches(read_data(store, job.data)[0]["train"]),
        fit=fit,
        distribution=functools.partial(read_distribution, job.data),
    )


def _span(job: ExplainJob, split: Split) -> tuple[int, int]:
    """Which test samples ``job`` explains: from the first number to before the second."""
    start, stop = job.part or (0, len(split) if job.samples == "all" else job.samples)
    return min(start, len(split)), min(stop, len(split))


def _score(job: ScoreJob, store: Store, device: str) -> None:
    import pandas as pd
    import torch

    protocol = cast("Protocol", job.protocol)
    metric = AppliedMetric(job.metric.use, job.metric.parameters, protocol=protocol, device=device)
    split = read_test_split(store, job.explain.data)
    if job.raw is not None:
        store.save_table("score", job.key, _against_chance(metric, store.load_table("score", job.raw.key), split))
        return
    maps = read_maps(store, job.explain)
    explainer = _explainer(job.explain, store, device) if metric.info.kind == "explainer" else None
    tables, start = [], 0
    found, asked = _left_answers(job, store), list[torch.Tensor]()
    with _computing(job.explain, device):
        network = placed(read_network(store, job.network), device) if job.network and found is None else None
        for images, masks, targets in batches(split, 0, len(maps)):
            batch = (images, masks if job.blind is None else _visible(job.blind, images), targets)
            stop = start + len(targets)
            answers = {} if found is None else {metric.identity: found[start:stop]}
            table = metric(maps[start:stop], batch, network, explainer, answers=answers)
            table["sample"] += start
            tables.append(table)
            asked += answers.values()
            start = stop
    store.save_table("score", job.key, pd.concat(tables, ignore_index=True))
    if job.leaves_answers and found is None and asked:
        store.save_tensors("answers", job.answers_key, {"answers": torch.cat(asked)}, {})
    if job.answers_from and not job.leaves_answers and store.has("answers", job.answers_key):
        store.files.remove(store.name("answers", job.answers_key))


def _left_answers(job: ScoreJob, store: Store) -> Tensor | None:
    """What another job has asked the network about all samples, whatever the map, where that lies there.

    It lies in the store for as long as a job of the plan may take it.
    """
    if job.answers_from and store.has("answers", job.answers_key):
        with contextlib.suppress(CorruptResultError, FileNotFoundError):
            return store.load_tensors("answers", job.answers_key)[0]["answers"]
    return None


def _visible(blind: tuple[str, Frozen], images: Tensor) -> Tensor:
    """``[n, H, W]``: the pixels that a blind network reads, the same in every image."""
    channels, height, width = images.shape[1:]
    seen: Tensor = find_part("model", *blind).visible_pixels((channels, height, width))
    return seen.expand(len(images), height, width)


def _against_chance(metric: AppliedMetric, raw: pd.DataFrame, split: Split) -> pd.DataFrame:
    """Skills from scores and masks: no map is looked at again."""
    import pandas as pd

    first = int(raw["sample"].min()) if len(raw) else 0
    tables, start = [raw.iloc[:0]], 0
    for _, masks, _ in batches(split, first, first + len(raw)):
        tables.append(metric.against_chance(raw.iloc[start : start + len(masks)], masks))
        start += len(masks)
    return pd.concat(tables, ignore_index=True)


#: What each stage does with a job of its own.
_OF_STAGE: dict[Stage, Callable[[Any, Store, str], None]] = {
    "data": make_data,
    "train": train,
    "explain": _explain,
    "score": _score,
}


# What later stages read of earlier ones. Many small jobs in a row read the same data set and the same networks, so
# the last few are kept in memory by key; a key never changes its meaning.


@functools.lru_cache(maxsize=1024)
def read_training(store: Store, key: str) -> dict[str, Any]:
    """The record of a training: seed, losses, accuracies."""
    return store.load_meta("train", key)


def read_correct(store: Store, network: Network) -> Tensor:
    """``[n_test]`` bool: the test samples that ``network`` classifies correctly."""
    training, seed = chosen_training(store, network)
    return store.load_tensors("train", training.result(seed), "correct")[0]["correct"]


def read_answers(store: Store, network: Network) -> tuple[Tensor, Tensor] | None:
    """``[n_test]`` each: the class that ``network`` puts a test sample in, and its probability; None of old results."""
    training, seed = chosen_training(store, network)
    found = store.load_tensors("train", training.result(seed), "answer.")[0]
    return (found["answer.class"], found["answer.share"]) if found else None


def chosen_training(store: Store, network: Network) -> tuple[TrainJob, int]:
    """The train job and seed of ``network``: the given seed, or the one of the lowest validation loss."""

    def loss(candidate: tuple[TrainJob, int]) -> tuple[float, int]:
        training, seed = candidate
        return read_training(store, training.result(seed))["val_loss"], seed

    return min(network.candidates, key=loss)


def read_network(store: Store, network: Network) -> nn.Module:
    """The trained network, in evaluation mode."""
    training, seed = chosen_training(store, network)
    model = make_network(training, seed, store)
    tensors = store.load_tensors("train", training.result(seed), WEIGHTS)[0]
    changed = {name.removeprefix(WEIGHTS): tensor for name, tensor in tensors.items()}
    model.load_state_dict(model.state_dict() | changed)
    return model.eval()


def has_maps(store: Store, job: ExplainJob) -> bool:
    """Whether all maps of ``job`` are there."""
    return all(store.has("explain", part.key) for part in job.parts)


def read_maps(store: Store, job: ExplainJob) -> Tensor:
    """The maps ``[N, H, W]`` of ``job``, whatever jobs it was cut into."""
    import torch

    maps = [unpacked(store.load_tensors("explain", part.key)[0]) for part in job.parts]
    return maps[0] if len(maps) == 1 else torch.cat([part for part in maps if len(part)])


def read_image_marks(store: Store, job: ExplainJob) -> list[int]:
    """Of each explained sample, in order, the hash of its image (:func:`image_marks`); none of older results."""
    parts = [store.load_tensors("explain", part.key, "images")[0] for part in job.parts]
    return [mark for part in parts for mark in part["images"].tolist()] if all(parts) else []
