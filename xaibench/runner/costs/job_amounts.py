"""How much work a job is, and how large its result: what can be said of a job without running it.

Jobs of one *kind* (:func:`kind`) cost in proportion to their *amount* (:func:`amount`), so that a small job of a kind
tells what a large one will cost.
"""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Collection
from typing import Any

from xaibench.runner.plan.jobs import DataJob, ExplainJob, Job, ScoreJob, TrainJob
from xaibench.runner.plan.part_facts import Kind, is_fitted, part_info, registry

#: Samples of a data set whose parameters do not say how many it has.
_UNKNOWN_SAMPLES = 10_000

#: MiB of a worker process that has loaded the library and done nothing yet.
BASE_MB = 600.0

_MB = 1 << 20


def kind(job: Job, device: str = "cpu") -> str:
    """Name of all that decides what a unit of the job's work costs on one machine.

    Example:
        >>> from xaibench.runner import load_suite
        >>> from xaibench.runner.plan.jobs import make_plan
        >>> kind(make_plan(load_suite("xai-tris-8x8")[0]).jobs[-1])
        '["score", "topk_precision", [], [1, 8, 8], "", "", "cpu"]'
    """
    where = device if job.uses_device else "cpu"
    if isinstance(job, DataJob):
        return json.dumps(["data", job.name])
    if isinstance(job, TrainJob):
        batch = job.parameters.get("batch_size")
        how = [job.parameters.get("method"), job.build.as_json()]
        return json.dumps(["train", job.model, image_shape(job.data), len(job.seeds), batch, *how, where])
    if isinstance(job, ExplainJob):
        own = [job.explainer.use, job.explainer.parameters.as_json(), image_shape(job.data), _model(job), job.output]
        return json.dumps(["explain", *own, where])
    if isinstance(job, ScoreJob):
        info = part_info("metric", job.metric.use)
        explainer = job.explain.explainer.use if info and info.kind == "explainer" else ""
        model = job.network.trainings[0].model if job.network else ""
        own = [job.metric.use, job.metric.parameters.as_json(), image_shape(job.explain.data), model, explainer]
        return json.dumps(["score", *own, where])
    raise TypeError(f"Expected a data, train, explain or score job, got {type(job).__name__}.")


def amount(job: Job) -> int:
    """How many units of work: samples made, samples trained on (in all epochs), samples explained, maps scored."""
    if isinstance(job, DataJob):
        return samples(job)
    if isinstance(job, TrainJob):
        return max(1, round(int(job.parameters["epochs"]) * shares(job.data)[0] * samples(job.data)))
    if isinstance(job, ScoreJob):
        return amount(job.explain)
    if isinstance(job, ExplainJob):
        test = max(1, round(shares(job.data)[2] * samples(job.data)))
        start, stop = job.part or (0, test if job.samples == "all" else job.samples)
        return max(0, min(test, stop) - start)
    raise TypeError(f"Expected a data, train, explain or score job, got {type(job).__name__}.")


def disk_mb(job: Job) -> float:
    """MiB of the job's result in the store."""
    shape = image_shape(data_of(job))
    pixels = shape[1] * shape[2]
    if isinstance(job, DataJob):
        # Of a set that lies on disk the store holds the targets alone.
        return samples(job) * (4 * shape[0] * pixels + pixels + 8 if takes_n_samples(job.name) else 8) / _MB
    if isinstance(job, TrainJob):
        return len(job.seeds) * _parameters(job.model, job.data.name) * 4 / _MB
    if isinstance(job, ExplainJob):
        return amount(job) * pixels * _map_bytes(job) / _MB
    return (2_250 + 15 * amount(job)) / _MB  # a Parquet file of three short columns


def memory_mb(job: Job) -> float:
    """MiB that a worker holds at most while it runs the job (an estimate: what it reads, makes, and writes as one)."""
    if isinstance(job, DataJob):
        return BASE_MB + 3 * disk_mb(job)
    if isinstance(job, TrainJob):
        return BASE_MB + 2 * disk_mb(job.data) + 4 * disk_mb(job)
    explain = job.explain if isinstance(job, ScoreJob) else job
    assert isinstance(explain, ExplainJob)
    held = BASE_MB + 2 * shares(explain.data)[2] * disk_mb(explain.data) + 3 * disk_mb(explain)
    if isinstance(job, ExplainJob) and is_fitted(explain.explainer.use):
        held += 2 * disk_mb(explain.data)  # it looks at the training split too
    return held


def samples(job: DataJob) -> int:
    """How many samples the data set has."""
    stated = job.parameters.get("n_samples")
    published = getattr(part_info("dataset", job.name), "published", ())
    return int(stated or sum(count for _, count in published) or _UNKNOWN_SAMPLES)


def shares(job: DataJob) -> tuple[float, float, float]:
    """Shares of the training, validation and test samples."""
    split = job.parameters.get("split")
    return _shares(job.name, None if split is None else tuple(split))


@functools.cache
def _shares(name: str, split: tuple[float, ...] | None) -> tuple[float, float, float]:
    if split is None and takes_n_samples(name) and not getattr(part_info("dataset", name), "how_to_get", ""):
        from xaibench.data import load

        few = load(name, n_samples=200)
        split = tuple(len(part) / 200 for part in (few.train, few.val, few.test))
    train, val, test = split or (0.8, 0.1, 0.1)
    return float(train), float(val), float(test)


def takes_n_samples(dataset: str) -> bool:
    """Whether a small form of the data set can be made."""
    return "n_samples" in _taken("dataset", dataset)


def _taken(kind: Kind, name: str) -> Collection[str]:
    """Names of the parameters that a part takes."""
    try:
        return inspect.signature(registry(kind).resolve(name)).parameters
    except (TypeError, ValueError):  # what is no function has none
        return ()


def image_shape(job: DataJob) -> tuple[int, int, int]:
    """``(C, H, W)`` of the data set."""
    shape: tuple[int, int, int] = getattr(part_info("dataset", job.name), "image_shape", (3, 224, 224))
    return shape


def stated_samples(job: ExplainJob) -> int:
    """The explainer's ``n_samples`` (perturbations, permutations), where the suite states one; else 1."""
    return int(job.explainer.parameters.get("n_samples", 1))


def data_of(job: Job) -> DataJob:
    """The data set that the job is about."""
    if isinstance(job, ScoreJob):
        return job.explain.data
    if isinstance(job, TrainJob | ExplainJob):
        return job.data
    assert isinstance(job, DataJob)
    return job


def _model(job: ExplainJob) -> str:
    return job.network.trainings[0].model if job.network else ""


def _map_bytes(job: ExplainJob) -> int:
    if job.network is None:
        return 4
    own = getattr(registry("model").resolve(_model(job)), "explain_dtype", None)
    return 4 if own is None else int(own.itemsize)


@functools.cache
def _parameters(model: str, dataset: str) -> int:
    from xaibench.models import build

    info = part_info("dataset", dataset)
    weightless: dict[str, Any] = (
        {"weights": None} if "weights" in _taken("model", model) else {}
    )  # they may have to be downloaded
    network = build(model, info.image_shape, len(info.classes), **weightless)
    return sum(parameter.numel() for parameter in network.parameters())
