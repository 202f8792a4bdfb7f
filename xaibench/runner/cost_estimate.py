"""Jobs, passes, disk space and a rough time of a run, before it starts."""

from __future__ import annotations

import functools
import math
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xaibench.runner.engines import default_device_workers
from xaibench.runner.parts import ModelPart, build_network
from xaibench.runner.plan.jobs import STAGES, ExplainJob, TrainJob
from xaibench.runner.request import RunRequest
from xaibench.tensors.device import devices_of, resolve_device
from xaibench.tensors.random_numbers import isolated_rng
from xaibench.tensors.workers import available_cpus, single_thread

if TYPE_CHECKING:
    import pandas as pd
    from torch import nn

    from xaibench.models.training.fitting import Loss

#: Images in the batch whose pass is timed.
_BATCH = 16
#: Batches and epochs of the training that is timed.
_STEPS, _EPOCHS = 4, 3
#: Largest number of values in its batches, which is 512 images of 64×64 pixels.
_TIMED_VALUES = 2**21


@dataclass(frozen=True)
class Estimate:
    """Estimated cost of a run.

    Attributes:
        suite: Name of the suite.
        stages: One row per stage: ``jobs``, ``done`` (jobs with stored results), ``passes`` (of an image through a
            network, in jobs that are not done; a training step counts as three) and ``disk_mb`` (of all jobs).
        seconds: Time of these passes on all workers. The time of metrics is not included.
        workers: Number of processes.
        unknown: Number of jobs per explainer that does not declare its passes; they count as 0.
    """

    suite: str
    stages: pd.DataFrame
    seconds: float
    workers: int
    unknown: Mapping[str, int]


def estimate(
    suite: str | Path | RunRequest,
    out: str | Path | None = None,
    **fields: Any,
) -> Estimate:
    """Estimate the cost of :func:`xaibench.runner.run` with the same arguments.

    A forward pass and a few training steps of each network are timed on this machine, on one thread.

    Args:
        suite: Name of a built-in suite, or path of a TOML file; or a :class:`~xaibench.runner.RunRequest`.
        out: The run folder. Finished results in it cost nothing.
        **fields: The other fields of :class:`~xaibench.runner.RunRequest`.

    Returns:
        Jobs, passes and disk per stage, and a rough time.

    Raises:
        UnknownNameError: If the suite or a part is unknown; names the nearest.
        SuiteError: If the suite cannot be run as written.
        UnknownParameterError: If an argument is unknown; names the nearest.
    """
    import pandas as pd

    asked = RunRequest.of(suite, out, **fields)
    with asked.opened() as opened:
        device_workers = asked.device_workers or default_device_workers(devices_of(asked.device))
        workers = device_workers or asked.workers or available_cpus()
        stored = {stage: opened.store.keys(stage) for stage in STAGES}
        rows = {stage: {"jobs": 0, "done": 0, "passes": 0, "disk_mb": 0.0} for stage in STAGES}
        seconds, unknown = 0.0, Counter[str]()
        for job in opened.plan.jobs:
            row, done = rows[job.stage], stored[job.stage].issuperset(job.results)
            row["jobs"] += 1
            row["done"] += done
            row["disk_mb"] += job.disk_mb
            if done:
                continue
            row["passes"] += job.passes
            if isinstance(job, ExplainJob) and job.network:
                unknown.update([] if job.passes else [job.explainer.name])
                seconds += job.passes * _pass_seconds(job.network.trainings[0], asked.device) / workers
            elif isinstance(job, TrainJob) and job.passes:
                is_fit = job.parameters.get("method") == "fit"
                taken = _time_training(job, asked.device) if is_fit else _pass_seconds(job, asked.device)
                seconds += job.passes * taken / workers
        table = pd.DataFrame.from_dict(rows, orient="index").rename_axis("stage")
        return Estimate(opened.suite.name, table, seconds, workers, unknown)


def _pass_seconds(training: TrainJob, device: str) -> float:
    """Return the seconds of a forward pass per image."""
    model, data = ModelPart.of(training.model, training.build).source, training.data.dataset
    return _time_pass(model, data.image_shape, data.class_count or 2, device)


@functools.cache
def _time_pass(model: ModelPart, shape: tuple[int, ...], classes: int, device: str) -> float:
    import torch

    network = _build_untrained(model, shape, classes).to(resolve_device(device)).eval()
    images = torch.zeros(_BATCH, *shape, device=resolve_device(device))
    with torch.inference_mode(), single_thread():  # as each of several workers
        network(images)  # without imports and compilation
        start = time.perf_counter()
        network(images).sum().item()
    return (time.perf_counter() - start) / _BATCH


def _time_training(training: TrainJob, device: str) -> float:
    """Return the seconds of a third of a training step per image and network, of as many networks as the job stacks."""
    model, data = ModelPart.of(training.model, training.build).source, training.data.dataset
    # Fewer images at a time if they are large, which keeps a device busy with few of them.
    batch = min(training.parameters["batch_size"], max(1, _TIMED_VALUES // math.prod(data.image_shape)))
    loss = training.parameters["loss"]
    return _time_stack(model, data.image_shape, data.class_count or 2, len(training.seeds), batch, loss, device)


@functools.cache
def _time_stack(
    model: ModelPart, shape: tuple[int, ...], classes: int, count: int, batch: int, loss: Loss, device: str
) -> float:
    import torch

    from xaibench.data import Split
    from xaibench.models import fit_many

    samples = _STEPS * batch
    split = Split(
        torch.randn(samples, *shape),
        torch.zeros(samples, *shape[1:], dtype=torch.bool),
        torch.arange(samples) % classes,
    )
    few = Split(split.images[: samples // 8], split.masks[: samples // 8], split.targets[: samples // 8])
    with single_thread(), isolated_rng(0):
        for epochs in (1, _EPOCHS):  # the first one without imports and compilation
            networks = [_build_untrained(model, shape, classes) for _ in range(count)]
            start = time.perf_counter()
            fit_many(
                networks, [split] * count, [few] * count, epochs=epochs, batch_size=batch, loss=loss, stack=count,
                device=device, progress=False,
            )  # fmt: skip
    return (time.perf_counter() - start) / (3 * _EPOCHS * samples * count)


def _build_untrained(model: ModelPart, shape: tuple[int, ...], classes: int) -> nn.Module:
    # The weights do not matter here, and may have to be downloaded.
    untrained = {"weights": None} if "weights" in model.accepted else {}
    return build_network(model.name, shape, classes, **{**model.parameters, **untrained})
