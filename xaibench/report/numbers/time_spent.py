"""Where the time of a run went, from ``jobs.csv``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from xaibench.report.read.run_results import RunResults

#: The stages in the order of their work, and what they do, as shown.
STAGES = {"data": "Data", "train": "Training", "explain": "Explaining", "score": "Scoring"}
#: Longest jobs that are listed.
LISTED = 12


@dataclass(frozen=True)
class Spent:
    """What some jobs took together.

    Attributes:
        label: Of what.
        jobs: How many.
        seconds: On the clock, all jobs one after the other.
        share: Of the time of all jobs of the run.
        waiting: Share of ``seconds`` in which the job's processor time stood still.
        peak_mb: The largest memory of a process that ran one of them.
        parts: Share of the time of all jobs by stage.
        control: Whether it is an explainer that knows no model.
    """

    label: str
    jobs: int
    seconds: float
    share: float
    waiting: float
    peak_mb: float
    parts: dict[str, float]
    control: bool = False


@dataclass(frozen=True)
class Costs:
    """Where the time went.

    Attributes:
        total: All jobs together.
        stages: By stage.
        explainers: Explaining and scoring by explainer, the dearest first.
        models: By model, the dearest first; what belongs to no model is left out.
        metrics: Scoring by metric, the dearest first.
        longest: Rows of the dearest jobs: ``what``, ``stage``, ``seconds``, ``waiting``, ``peak_mb``.
        planned: Results that the run needs, by stage; empty where that was not written down.
        reused: Of these, how many no job of this folder has computed.
        again: Jobs that were run more than once.
        failed: Runs of jobs that failed; their time counts.
        workers: Processes that ran a job.
    """

    total: Spent
    stages: dict[str, Spent]
    explainers: list[Spent]
    models: list[Spent]
    metrics: list[Spent]
    longest: list[dict[str, Any]]
    planned: dict[str, int]
    reused: dict[str, int]
    again: int
    failed: int
    workers: int


def costs(run: RunResults) -> Costs | None:
    """Where the time of a run went; None without ``jobs.csv``."""
    jobs = run.jobs
    if jobs.empty:
        return None
    total = float(jobs["seconds"].sum())
    planned = {stage: int(count) for stage, count in dict(run.environment.get("jobs") or {}).items() if stage in STAGES}
    done = jobs[~jobs["failed"]].groupby("stage")["key"].nunique()
    stages = {stage: _spent(label, jobs[jobs["stage"] == stage], total) for stage, label in STAGES.items()}
    return Costs(
        total=_spent("All", jobs, total),
        stages={stage: spent for stage, spent in stages.items() if spent.jobs},
        explainers=_by(jobs, "explainer", run.explainers, total),
        models=_by(jobs, "model", run.models, total),
        metrics=_by(jobs, "metric", run.metrics, total),
        longest=[_row(run, job) for job in jobs.nlargest(LISTED, "seconds").to_dict("records")],
        planned=planned,
        reused={stage: max(count - int(done.get(stage, 0)), 0) for stage, count in planned.items()},
        again=int((jobs.groupby("key").size() > 1).sum()),
        failed=int(jobs["failed"].sum()),
        workers=int(jobs["worker"].nunique()),
    )


def _spent(label: str, jobs: pd.DataFrame, total: float, *, control: bool = False) -> Spent:
    seconds = float(jobs["seconds"].sum())
    by_stage = jobs.groupby("stage")["seconds"].sum()
    return Spent(
        label=label,
        jobs=len(jobs),
        seconds=seconds,
        share=seconds / (total or 1.0),
        waiting=_waiting(seconds, float(jobs["cpu_seconds"].sum())),
        peak_mb=float(jobs["peak_mb"].max()) if len(jobs) else 0.0,
        parts={stage: float(by_stage.get(stage, 0.0)) / (total or 1.0) for stage in STAGES},
        control=control,
    )


def _waiting(seconds: float, processor: float) -> float:
    """Libraries may compute with several threads in spite of all, and then nothing was waited for."""
    return min(max(1 - processor / seconds, 0.0), 1.0) if seconds > 0 else 0.0


def _by(jobs: pd.DataFrame, key: str, parts: Mapping[str, Any], total: float) -> list[Spent]:
    found = []
    for name, mine in jobs[jobs[key] != ""].groupby(key):
        part = parts.get(str(name))
        label = part.label if part else str(name)
        found.append(_spent(label, mine, total, control=bool(part and part.control)))
    return sorted(found, key=lambda spent: -spent.seconds)


def _row(run: RunResults, job: Mapping[Any, Any]) -> dict[str, Any]:
    labels = [
        parts[job[key]].label if job[key] in parts else str(job[key])
        for key, parts in (("model", run.models), ("explainer", run.explainers), ("metric", run.metrics))
        if job[key]
    ]
    return {
        "what": " · ".join([str(job["dataset"]), *labels]),
        "stage": STAGES.get(str(job["stage"]), str(job["stage"])),
        "seconds": float(job["seconds"]),
        "waiting": _waiting(float(job["seconds"]), float(job["cpu_seconds"])),
        "peak_mb": float(job["peak_mb"]),
    }
