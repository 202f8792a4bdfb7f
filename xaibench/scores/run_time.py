"""The computing time of a run, from ``jobs.csv``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from xaibench.scores.results import RunResults

#: Labels of the stages, in the order in which they run.
STAGES = {"data": "Data", "train": "Training", "explain": "Explaining", "score": "Scoring"}
#: Number of the longest jobs that are listed.
LISTED = 12


@dataclass(frozen=True)
class Spent:
    """Time and memory of a set of jobs.

    Attributes:
        label: What the jobs are of.
        jobs: Number of jobs.
        seconds: Wall-clock time, summed over the jobs.
        share: Share of the time of all jobs.
        waiting: Share of ``seconds`` in which the process used no CPU.
        peak_mb: Largest memory of a process that ran one of them.
        parts: Share of the time of all jobs, by stage.
        control: Whether the jobs are of a control.
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
    """Time and memory of a run.

    Attributes:
        total: All jobs.
        stages: Jobs by stage.
        explainers: Explaining and scoring by explainer, most expensive first.
        models: Jobs by model, most expensive first; jobs without a model are left out.
        metrics: Scoring by metric, most expensive first.
        longest: Rows of the longest jobs: ``what``, ``stage``, ``seconds``, ``waiting``, ``peak_mb``.
        planned: Number of results that the run needs, by stage; empty if not recorded.
        reused: Number of these results that were not computed by a job of this folder.
        again: Number of jobs that ran more than once.
        failed: Number of failed job runs; their time is included.
        workers: Number of processes that ran a job.
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
    """Return the time and memory of a run; None without ``jobs.csv``."""
    jobs = run.jobs
    if jobs.empty:
        return None
    total = float(jobs["seconds"].sum())
    planned = {stage: int(count) for stage, count in dict(run.environment.get("jobs") or {}).items() if stage in STAGES}
    results = jobs.groupby(["stage", "key", "explainer", "metric"])["failed"].agg(["size", "min"])  # one line each
    done = (~results["min"].astype(bool)).groupby("stage").sum()
    stages = {stage: _sum_costs(label, jobs[jobs["stage"] == stage], total) for stage, label in STAGES.items()}
    return Costs(
        total=_sum_costs("All", jobs, total),
        stages={stage: spent for stage, spent in stages.items() if spent.jobs},
        explainers=_group_costs(jobs, "explainer", run.explainers, total),
        models=_group_costs(jobs, "model", run.models, total),
        metrics=_group_costs(jobs, "metric", run.metrics, total),
        longest=[_job_row(run, job) for job in jobs.nlargest(LISTED, "seconds").to_dict("records")],
        planned=planned,
        reused={stage: max(count - int(done.get(stage, 0)), 0) for stage, count in planned.items()},
        again=int((results["size"] > 1).sum()),
        failed=int(jobs["failed"].sum()),
        workers=int(jobs["worker"].nunique()),
    )


def _sum_costs(label: str, jobs: pd.DataFrame, total: float, *, control: bool = False) -> Spent:
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
    """Return the share of time without CPU use; 0 if libraries computed with several threads."""
    return min(max(1 - processor / seconds, 0.0), 1.0) if seconds > 0 else 0.0


def _group_costs(jobs: pd.DataFrame, key: str, parts: Mapping[str, Any], total: float) -> list[Spent]:
    found = []
    for name, mine in jobs[jobs[key] != ""].groupby(key):
        part = parts.get(str(name))
        label = part.label if part else str(name)
        found.append(_sum_costs(label, mine, total, control=bool(part and part.control)))
    return sorted(found, key=lambda spent: -spent.seconds)


def _job_row(run: RunResults, job: Mapping[Any, Any]) -> dict[str, Any]:
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
