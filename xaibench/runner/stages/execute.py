"""Execution of one job: read its inputs from the store, compute, and write its result to the store.

Every job computes with one thread, so its result is bit-identical in every engine and regardless of how many jobs run
at the same time. The engines use several cores by running several jobs at once.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, cast

from xaibench.core.messages import ParameterWarning
from xaibench.evaluation.apply import (
    AppliedExplainer,
    AppliedMetric,
    decode_maps,
    encode_maps,
    is_inapplicable,
    to_device,
    training_batches,
)
from xaibench.evaluation.protocol import Protocol, Sign
from xaibench.runner.parts import ModelPart
from xaibench.runner.plan.jobs import ExplainJob, Job, Measurement, Network, ScoreJob, Stage, TrainJob
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
from xaibench.runner.store import PARTIAL, CorruptResultError, Store
from xaibench.tensors.device import current_precision, precision_context, resolve_device
from xaibench.tensors.workers import single_thread

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    from torch import Tensor, nn

    from xaibench.core.types import Output, Precision


def execute(job: Job, store: Store, device: str = "auto") -> Mapping[tuple[str, str], float]:
    """Compute the result of ``job`` and store it. The results that the job needs must be in the store.

    Returns:
        Seconds per explainer and metric of a score job; empty for other jobs.

    Raises:
        Exception: Any error of the part; then nothing is stored, except for the other scores of a score job.
    """
    with single_thread(), warnings.catch_warnings():
        # Warnings about unusual parameters are for interactive use. A suite sets its parameters on purpose.
        warnings.simplefilter("ignore", ParameterWarning)
        if isinstance(job, ScoreJob):
            return _score(job, store, device)
        _EXECUTE[job.stage](job, store, device)
        return {}


def _explain(job: ExplainJob, store: Store, device: str) -> None:
    import torch

    split = read_test_split(store, job.data)
    explainer = make_explainer(job, store, device)
    first, last = job.span or (0, len(split) if job.samples == "all" else job.samples)
    start, stop = min(first, len(split)), min(last, len(split))
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


def make_explainer(job: ExplainJob, store: Store, device: str) -> AppliedExplainer:
    """Build the explainer of ``job``, for making the maps and for metrics that call the explainer again."""
    return AppliedExplainer(
        job.explainer.use,
        job.explainer.parameters,
        seed=job.explain_seed,
        output=None if job.output == "default" else cast("Output", job.output),
        device=device,
        training=lambda: training_batches(read_data(store, job.data)[0]["train"]),
        distribution=functools.partial(read_distribution, job.data),
    )


def _score(job: ScoreJob, store: Store, device: str) -> dict[tuple[str, str], float]:
    """Compute the measurements whose maps are stored and that are not in an earlier, incomplete result.

    An error of a metric does not lose the scores of the others: they are an incomplete result, too.
    """
    import pandas as pd

    tables: dict[str, pd.DataFrame] = {}
    if store.has(PARTIAL, job.key):
        earlier = split_scores(store.load_table(PARTIAL, job.key))
        tables = {key: table.drop_columns("measurement").to_pandas() for key, table in earlier}
    errors: list[Exception] = []
    spent: dict[tuple[str, str], float] = {}
    missing = [each for each in job.measurements if each.key not in tables]
    with _precision_context(job.explains[0], device):
        network = to_device(read_network(store, job.network), device) if job.network and job.uses_device else None
        scored: dict[int, dict[str, pd.DataFrame]] = defaultdict(dict)
        answers: dict[int, dict[str, Tensor]] = defaultdict(dict)
        metric = None
        for explain, of_maps in itertools.groupby(missing, lambda each: each.explain):
            if not has_maps(store, explain):
                continue
            maps = read_maps(store, explain)
            scored.clear()
            for each in of_maps:
                start = time.perf_counter()
                if each.metric != metric:
                    metric = each.metric
                    answers.clear()
                try:
                    tables[each.key] = _measure(each, maps, network, store, device, scored, answers)
                except (CorruptResultError, FileNotFoundError):  # a result that the job needs is gone
                    raise
                except Exception as error:
                    error.add_note(f"{each.metric.name} of {explain.explainer.name}")
                    errors.append(error)
                spent[explain.explainer.name, each.metric.name] = time.perf_counter() - start
    whole = len(tables) == len(job.measurements)
    if tables:
        joined = pd.concat([table.assign(measurement=key) for key, table in tables.items()], ignore_index=True)
        store.save_table("score" if whole else PARTIAL, job.key, joined)
    if errors:
        raise min(errors, key=is_inapplicable)
    if whole:
        store.remove(PARTIAL, job.key)
    return spent


def reuse_scores(jobs: Iterable[Job], store: Store) -> None:
    """Start score jobs with the scores that an earlier form of the suite has left, with other metrics or explainers."""
    stored = {stage: store.keys(stage) for stage in ("score", PARTIAL)}
    if not any(stored.values()):
        return
    wanted = {job.key: job for job in jobs if isinstance(job, ScoreJob)}
    begun = {key: job for key, job in wanted.items() if key not in stored["score"] | stored[PARTIAL]}
    groups = {job.group for job in begun.values()}
    tables: dict[str, pa.Table] = {}
    for stage, keys in stored.items():
        for key in keys - wanted.keys():
            if key.split("-")[0] in groups:
                with contextlib.suppress(CorruptResultError):
                    tables |= split_scores(store.load_table(stage, key))
    for key, job in begun.items():
        if reused := [tables[each.key].to_pandas() for each in job.measurements if each.key in tables]:
            import pandas as pd

            store.save_table(PARTIAL, key, pd.concat(reused, ignore_index=True))


def _measure(
    each: Measurement,
    maps: Tensor,
    network: nn.Module | None,
    store: Store,
    device: str,
    scored: dict[int, dict[str, pd.DataFrame]],
    answers: dict[int, dict[str, Tensor]],
) -> pd.DataFrame:
    """Return the scores of maps.

    Args:
        each: The metric and the explain job.
        maps: The maps, ``[N, H, W]``.
        network: The network, if the metric evaluates it.
        store: The store of the results.
        device: As in :func:`execute`.
        scored: Scores of the same maps by metrics that others relate to chance, by first sample.
        answers: Outputs of the network for the same metric that do not depend on the map, by first sample.
    """
    import pandas as pd

    protocol, sign = cast("Protocol", each.protocol), cast("Sign | None", each.sign)
    metric = AppliedMetric(each.metric.use, each.metric.parameters, protocol=protocol, sign=sign, device=device)
    explainer = make_explainer(each.explain, store, device) if metric.info.kind == "explainer" else None
    split = read_test_split(store, each.explain.data)
    tables, start = [], 0
    for images, masks, targets in batches(split, 0, len(maps)):
        stop = start + len(targets)
        # The masks of a metric relative to chance are those of the data.
        blind = None if each.raw else each.blind
        if blind is not None:  # the pixels that the network reads, the same for every image
            seen: Tensor = ModelPart.of(*blind).target.visible(tuple(images.shape[1:]), **blind[1])
            masks = seen.expand(len(images), *seen.shape)
        known = {} if blind else scored[start]
        more = split.metric_inputs(slice(start, stop))
        batch = (images, masks, targets)
        table = metric(maps[start:stop], batch, network, explainer, known, answers[start], more)
        tables.append(table.assign(sample=table["sample"] + start))
        start = stop
    return pd.concat(tables, ignore_index=True)


#: The function that executes the jobs of each stage other than scores.
_EXECUTE: dict[Stage, Callable[[Any, Store, str], None]] = {
    "data": make_data,
    "train": train,
    "explain": _explain,
}


# Results of earlier stages, as later stages read them. Many small jobs in a row read the same data set and networks, so
# the last few are cached by key. The result of a key never changes.


def read_training(store: Store, key: str) -> dict[str, Any]:
    """Read the record of a training: seed, losses and accuracies."""
    return store.load_meta("train", key)


def read_correct(store: Store, network: Network) -> Tensor:
    """Read which test samples ``network`` classifies correctly, as bool ``[n_test]``."""
    training, seed = select_training(store, network)
    return store.load_tensors("train", training.result(seed))[0]["correct"]


def read_predictions(store: Store, network: Network) -> tuple[Tensor, Tensor]:
    """Read the predicted class and its probability for each test sample, ``[n_test]`` each."""
    training, seed = select_training(store, network)
    tensors = store.load_tensors("train", training.result(seed))[0]
    return tensors["answer.class"], tensors["answer.share"]


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
    tensors = store.load_tensors("train", training.result(seed))[0]
    changed = {name.removeprefix(WEIGHTS): each for name, each in tensors.items() if name.startswith(WEIGHTS)}
    model.load_state_dict(model.state_dict() | changed)
    return model.eval()


def split_scores(table: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    """Yield the key and the scores of each measurement in a result of a score job."""
    import pyarrow.compute as pc

    runs = pc.run_end_encode(table["measurement"].combine_chunks())
    start = 0
    for key, stop in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
        yield key, table.slice(start, stop - start)
        start = stop


def has_maps(store: Store, job: ExplainJob) -> bool:
    """Return whether all maps of ``job`` are in the store."""
    return all(store.has("explain", each.key) for each in job.slices)


def read_maps(store: Store, job: ExplainJob) -> Tensor:
    """Read the maps ``[N, H, W]`` of ``job``, joined if it was split into several jobs."""
    import torch

    maps = [decode_maps(store.load_tensors("explain", each.key)[0]) for each in job.slices]
    return maps[0] if len(maps) == 1 else torch.cat([each for each in maps if len(each)])


def read_image_hashes(store: Store, job: ExplainJob) -> list[int]:
    """Read the hash of each explained image (:func:`hash_images`), in order."""
    hashes = [store.load_tensors("explain", each.key)[0]["images"].tolist() for each in job.slices]
    return [one for each in hashes for one in each]
