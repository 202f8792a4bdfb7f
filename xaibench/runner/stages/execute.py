"""Execution of one job: read its inputs from the store, compute, and write its result to the store.

Every job computes with one thread, so its result is bit-identical in every engine and regardless of how many jobs run
at the same time. The engines use several cores by running several jobs at once.
"""

from __future__ import annotations

import contextlib
import functools
import warnings
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, cast

from xaibench.compute.device import current_precision, precision_context, resolve_device
from xaibench.core.messages import ParameterWarning
from xaibench.evaluation.apply import AppliedExplainer, AppliedMetric
from xaibench.evaluation.map_encoding import decode_maps, encode_maps
from xaibench.evaluation.model_placement import to_device
from xaibench.evaluation.protocol import Protocol, Sign
from xaibench.evaluation.training_data import training_batches
from xaibench.runner.parts import find_part
from xaibench.runner.plan.job_base import Job, Stage
from xaibench.runner.plan.jobs import ExplainJob, Network, TrainJob
from xaibench.runner.plan.score_jobs import ScoreJob
from xaibench.runner.published_networks import WEIGHTS
from xaibench.runner.stages.samples import (
    batches,
    hash_images,
    make_data,
    read_data,
    read_distribution,
    read_test_split,
)
from xaibench.runner.stages.train import make_network, train
from xaibench.runner.store.result_store import CorruptResultError, Store

if TYPE_CHECKING:
    import pandas as pd
    from torch import Tensor, nn

    from xaibench.component.parameters import Frozen
    from xaibench.core.types import Output, Precision
    from xaibench.data import Split


def execute(job: Job, store: Store, device: str = "auto") -> None:
    """Compute the result of ``job`` and store it. The results that the job needs must be in the store.

    Raises:
        Exception: Any error of the part; then nothing is stored.
    """
    with _single_thread(), warnings.catch_warnings():
        # Warnings about unusual parameters are for interactive use. A suite sets its parameters on purpose.
        warnings.simplefilter("ignore", ParameterWarning)
        _EXECUTE[job.stage](job, store, device)


@contextlib.contextmanager
def _single_thread() -> Iterator[None]:
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
    explainer = _make_explainer(job, store, device, functools.partial(_fit_explainer, job, store))
    start, stop = _sample_range(job, split)
    with _precision_context(job, device):
        network = to_device(read_network(store, job.network), device) if job.network else None
        if network is not None and current_precision() is None:
            # explain converts the dtype for every batch; convert once here instead.
            network = network.to(getattr(network, "explain_dtype", None))
        maps, hashes = [], []
        for images, _, targets in batches(split, start, stop):
            hashes.append(hash_images(images))  # before an explainer can modify the images
            maps.append(explainer(network, images, targets))
    all_maps = torch.cat(maps) if maps else split[:0][0].new_zeros(0, *split[:1][0].shape[2:])
    tensors = encode_maps(all_maps) | {"images": torch.cat(hashes) if hashes else hash_images(split[:0][0])}
    store.save_tensors("explain", job.key, tensors, {"explainer": job.explainer.name})


def _precision_context(job: ExplainJob, device: str) -> contextlib.AbstractContextManager[None]:
    """Set the precision of the explainer, and of the metrics that call the model on its maps."""
    return precision_context(
        None if job.precision == "own" else cast("Precision", job.precision), resolve_device(device)
    )


def _fit_explainer(
    job: ExplainJob, store: Store, part: Any, network: nn.Module | None, training: Callable[[], Any]
) -> Any:
    """Return the explainer fitted to ``network``: with the shared fit of another job if it is stored, otherwise fitted.

    A shared fit is removed from the store after the last job of the plan that uses it.
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


def _make_explainer(job: ExplainJob, store: Store, device: str, fit: Any = None) -> AppliedExplainer:
    """Build the explainer of ``job``, for making the maps and for metrics that call the explainer again."""
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


def _sample_range(job: ExplainJob, split: Split) -> tuple[int, int]:
    """Return the test samples that ``job`` explains, as ``(start, stop)``."""
    start, stop = job.part or (0, len(split) if job.samples == "all" else job.samples)
    return min(start, len(split)), min(stop, len(split))


def _score(job: ScoreJob, store: Store, device: str) -> None:
    import pandas as pd
    import torch

    protocol, sign = cast("Protocol", job.protocol), cast("Sign | None", job.sign)
    metric = AppliedMetric(job.metric.use, job.metric.parameters, protocol=protocol, sign=sign, device=device)
    split = read_test_split(store, job.explain.data)
    if job.raw is not None:
        store.save_table("score", job.key, _compute_skill(metric, store.load_table("score", job.raw.key), split))
        return
    maps = read_maps(store, job.explain)
    explainer = _make_explainer(job.explain, store, device) if metric.info.kind == "explainer" else None
    tables, start = [], 0
    shared, computed = _load_shared_outputs(job, store), list[torch.Tensor]()
    with _precision_context(job.explain, device):
        network = to_device(read_network(store, job.network), device) if job.network and shared is None else None
        for images, masks, targets in batches(split, 0, len(maps)):
            batch = (images, masks if job.blind is None else _visible_mask(job.blind, images), targets)
            stop = start + len(targets)
            outputs = {} if shared is None else {metric.identity: shared[start:stop]}
            more = split.metric_inputs(slice(start, stop))
            table = metric(maps[start:stop], batch, network, explainer, answers=outputs, sample_inputs=more)
            table["sample"] += start
            tables.append(table)
            computed += outputs.values()
            start = stop
    store.save_table("score", job.key, pd.concat(tables, ignore_index=True))
    if job.leaves_answers and shared is None and computed:
        store.save_tensors("answers", job.answers_key, {"answers": torch.cat(computed)}, {})
    if job.answers_from and not job.leaves_answers and store.has("answers", job.answers_key):
        store.files.remove(store.name("answers", job.answers_key))


def _load_shared_outputs(job: ScoreJob, store: Store) -> Tensor | None:
    """Load the map-independent model outputs that another job has stored, or None.

    They are removed from the store after the last job of the plan that uses them.
    """
    if job.answers_from and store.has("answers", job.answers_key):
        with contextlib.suppress(CorruptResultError, FileNotFoundError):
            return store.load_tensors("answers", job.answers_key)[0]["answers"]
    return None


def _visible_mask(blind: tuple[str, Frozen], images: Tensor) -> Tensor:
    """Return the mask ``[n, H, W]`` of the pixels that a blind network reads, the same for every image."""
    mask: Tensor = find_part("model", *blind).visible_pixels(tuple(images.shape[1:]))
    return mask.expand(len(images), *mask.shape)


def _compute_skill(metric: AppliedMetric, raw: pd.DataFrame, split: Split) -> pd.DataFrame:
    """Compute skill scores from the raw scores and the masks, without reading the maps again."""
    import pandas as pd

    first = int(raw["sample"].min()) if len(raw) else 0
    tables, start = [raw.iloc[:0]], 0
    for _, masks, _ in batches(split, first, first + len(raw)):
        stop = start + len(masks)
        more = split.metric_inputs(slice(first + start, first + stop))
        tables.append(metric.against_chance(raw.iloc[start:stop], masks, more))
        start = stop
    return pd.concat(tables, ignore_index=True)


#: The function that executes the jobs of each stage.
_EXECUTE: dict[Stage, Callable[[Any, Store, str], None]] = {
    "data": make_data,
    "train": train,
    "explain": _explain,
    "score": _score,
}


# Results of earlier stages, as later stages read them. Many small jobs in a row read the same data set and networks, so
# the last few are cached by key. The result of a key never changes.


@functools.lru_cache(maxsize=1024)
def read_training(store: Store, key: str) -> dict[str, Any]:
    """Read the record of a training: seed, losses and accuracies."""
    return store.load_meta("train", key)


def read_correct(store: Store, network: Network) -> Tensor:
    """Read which test samples ``network`` classifies correctly, as bool ``[n_test]``."""
    training, seed = select_training(store, network)
    return store.load_tensors("train", training.result(seed), "correct")[0]["correct"]


def read_predictions(store: Store, network: Network) -> tuple[Tensor, Tensor] | None:
    """Read the predicted class and its probability for each test sample, ``[n_test]`` each.

    None for results of versions that did not store them.
    """
    training, seed = select_training(store, network)
    tensors = store.load_tensors("train", training.result(seed), "answer.")[0]
    return (tensors["answer.class"], tensors["answer.share"]) if tensors else None


def select_training(store: Store, network: Network) -> tuple[TrainJob, int]:
    """Return the train job and seed of ``network``: the given seed, or the one with the lowest validation loss."""

    def loss(candidate: tuple[TrainJob, int]) -> tuple[float, int]:
        training, seed = candidate
        return read_training(store, training.result(seed))["val_loss"], seed

    return min(network.candidates, key=loss)


def read_network(store: Store, network: Network) -> nn.Module:
    """Read the trained network, in evaluation mode."""
    training, seed = select_training(store, network)
    model = make_network(training, seed, store)
    tensors = store.load_tensors("train", training.result(seed), WEIGHTS)[0]
    changed = {name.removeprefix(WEIGHTS): tensor for name, tensor in tensors.items()}
    model.load_state_dict(model.state_dict() | changed)
    return model.eval()


def has_maps(store: Store, job: ExplainJob) -> bool:
    """Return whether all maps of ``job`` are in the store."""
    return all(store.has("explain", part.key) for part in job.parts)


def read_maps(store: Store, job: ExplainJob) -> Tensor:
    """Read the maps ``[N, H, W]`` of ``job``, joined if it was split into several jobs."""
    import torch

    maps = [decode_maps(store.load_tensors("explain", part.key)[0]) for part in job.parts]
    return maps[0] if len(maps) == 1 else torch.cat([part for part in maps if len(part)])


def read_image_hashes(store: Store, job: ExplainJob) -> list[int]:
    """Read the hash of each explained image (:func:`hash_images`), in order; empty for results of older versions."""
    parts = [store.load_tensors("explain", part.key, "images")[0] for part in job.parts]
    return [image_hash for part in parts for image_hash in part["images"].tolist()] if all(parts) else []
