"""Progress of each stage of a run, weighted by the estimated duration of its jobs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from xaibench.runner.costs.calibration import Cost
from xaibench.runner.plan.job_base import Job, Outcome, Stage


@dataclass
class _Kind:
    """Progress of the jobs of one kind: number and amount of work of open and finished jobs, and the seconds spent."""

    stage: Stage
    known: Cost | None
    passes: int  # per image, for explainers with a pass budget; otherwise 0
    open_jobs: int = 0
    open_amount: int = 0
    ran_jobs: int = 0
    ran_amount: int = 0
    seconds: float = 0.0

    @property
    def seconds_left(self) -> float | None:
        """Remaining seconds of work on one worker; None if the cost of the kind is unknown."""
        if self.ran_jobs:
            return self.seconds * (self.open_amount / self.ran_amount if self.ran_amount else self.open_jobs)
        if self.known is None:
            return None
        return self.known.fixed * self.open_jobs + self.known.each * self.open_amount


class StageProgress:
    """Share of each stage's work that is done, based on the cost of jobs in this run, or otherwise in earlier runs.

    Args:
        jobs: All jobs of the run.
        device: The device of the run: ``"cpu"`` or the name of a GPU.
        known: Cost of each kind of job in earlier runs.
    """

    def __init__(self, jobs: Iterable[Job], device: str, known: Mapping[str, Cost]) -> None:
        self._kinds: dict[str, _Kind] = {}
        self._open: dict[Job, _Kind] = {}
        for job in jobs:
            name = job.kind(device)
            if name not in self._kinds:
                self._kinds[name] = _Kind(job.stage, known.get(name), _passes_per_image(job))
            kind = self._kinds[name]
            kind.open_jobs += 1
            kind.open_amount += job.amount
            self._open[job] = kind

    def ran(self, outcome: Outcome) -> None:
        """Record a job that was run. Failed jobs are ignored, because their duration is not representative."""
        kind = self._open.get(outcome.job)
        if kind is not None and not outcome.error:
            kind.ran_jobs += 1
            kind.ran_amount += outcome.job.amount
            kind.seconds += outcome.seconds

    def ended(self, job: Job) -> None:
        """Record that a job is finished, because it was run or its result was stored already."""
        kind = self._open.pop(job, None)
        if kind is not None:
            kind.open_jobs -= 1
            kind.open_amount -= job.amount

    def share(self, stage: Stage) -> float:
        """Return the finished share of a stage's work, between 0 and 1; jobs with stored results do not count.

        Jobs of unknown cost are estimated from their number of passes if they have a budget, and otherwise by the mean
        duration of the jobs of known cost.
        """
        kinds = [kind for kind in self._kinds.values() if kind.stage == stage]
        done = sum(kind.seconds for kind in kinds)
        known = [(kind, seconds) for kind in kinds if (seconds := kind.seconds_left) is not None]
        left = sum(seconds for _, seconds in known)
        jobs = sum(kind.ran_jobs + kind.open_jobs for kind, _ in known)
        seconds_per_job = (done + left) / max(1, jobs)
        with_passes = [(kind, kind.seconds + seconds) for kind, seconds in known if kind.passes]
        passes = sum(kind.passes * (kind.ran_amount + kind.open_amount) for kind, _ in with_passes)
        seconds_per_pass = sum(seconds for _, seconds in with_passes) / max(1, passes)
        for kind in kinds:
            if kind.seconds_left is None:
                by_passes = seconds_per_pass * kind.passes * kind.open_amount
                left += by_passes or seconds_per_job * kind.open_jobs
        return done / (done + left) if done + left else 0.0


def _passes_per_image(job: Job) -> int:
    try:
        return job.passes
    except ValueError:  # the budget is too small, so the job will fail immediately
        return 0
