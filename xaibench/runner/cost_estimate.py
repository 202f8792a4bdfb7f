"""Jobs, passes, disk space and a rough time of a run, before it starts."""

from __future__ import annotations

import functools
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from xaibench.compute.device import devices_of, resolve_device
from xaibench.compute.host_threads import available_cpus
from xaibench.runner.engines import default_device_workers
from xaibench.runner.parts import ModelPart, build_network
from xaibench.runner.plan.job_base import STAGES
from xaibench.runner.plan.jobs import ExplainJob, TrainJob
from xaibench.runner.request import RequestFields, RunRequest

if TYPE_CHECKING:
    import pandas as pd

#: Images in the batch whose pass is timed.
_BATCH = 16


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
    **fields: Unpack[RequestFields],
) -> Estimate:
    """Estimate the cost of :func:`xaibench.runner.run` with the same arguments.

    One forward pass of each network is timed on this machine.

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
                training: TrainJob | None = job.network.trainings[0]
                unknown.update([] if job.passes else [job.explainer.name])
            else:
                training = job if isinstance(job, TrainJob) else None
            if training and job.passes:
                seconds += job.passes * _pass_seconds(training, asked.device) / workers
        table = pd.DataFrame.from_dict(rows, orient="index").rename_axis("stage")
        return Estimate(opened.suite.name, table, seconds, workers, unknown)


def _pass_seconds(training: TrainJob, device: str) -> float:
    """Return the seconds of a forward pass per image."""
    model, data = ModelPart.of(training.model, training.build).source, training.data.dataset
    return _time_pass(model, data.image_shape, data.class_count or 2, device)


@functools.cache
def _time_pass(model: ModelPart, shape: tuple[int, ...], classes: int, device: str) -> float:
    import torch

    # The weights do not matter here, and may have to be downloaded.
    untrained = {"weights": None} if "weights" in model.accepted else {}
    network = build_network(model.name, shape, classes, **{**model.parameters, **untrained})
    network.to(resolve_device(device)).eval()
    images = torch.zeros(_BATCH, *shape, device=resolve_device(device))
    with torch.inference_mode():
        network(images)  # without imports and compilation
        start = time.perf_counter()
        network(images).sum().item()
    return (time.perf_counter() - start) / _BATCH
