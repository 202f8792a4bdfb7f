"""How much of a stage's work is done, while its jobs end: trainings of a minute and of an hour do not count alike."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from xaibench.runner.costs.calibration import Cost
from xaibench.runner.plan.job_base import Job, Outcome, Stage


@dataclass
class _Kind:
    """The jobs of one kind: how many are open and their amount, and what those took that were run."""

    stage: Stage
    known: Cost | None
    passes: int  # for an image, where it has a budget
    open_jobs: int = 0
    open_amount: int = 0
    ran_jobs: int = 0
    ran_amount: int = 0
    seconds: float = 0.0

    @property
    def seconds_left(self) -> float | None:
        """Seconds of a worker; None as long as nothing is known of the kind."""
        if self.ran_jobs:
            return self.seconds * (self.open_amount / self.ran_amount if self.ran_amount else self.open_jobs)
        if self.known is None:
            return None
        return self.known.fixed * self.open_jobs + self.known.each * self.open_amount


class WorkDone:
    """Which share of each stage's work is done: by what jobs of a kind took in this run, or else in earlier ones.

    Args:
        jobs: All of a run.
        device: ``"cpu"`` or a GPU's name, on which the run computes.
        known: What jobs of each kind cost in earlier runs.
    """

    def __init__(self, jobs: Iterable[Job], device: str, known: Mapping[str, Cost]) -> None:
        self._kinds: dict[str, _Kind] = {}
        self._open: dict[Job, _Kind] = {}
        for job in jobs:
            name = job.kind(device)
            if name not in self._kinds:
                self._kinds[name] = _Kind(job.stage, known.get(name), _passes(job))
            kind = self._kinds[name]
            kind.open_jobs += 1
            kind.open_amount += job.amount
            self._open[job] = kind

    def ran(self, outcome: Outcome) -> None:
        """A job was run; the time of one that failed says nothing of the others."""
        kind = self._open.get(outcome.job)
        if kind is not None and not outcome.error:
            kind.ran_jobs += 1
            kind.ran_amount += outcome.job.amount
            kind.seconds += outcome.seconds

    def ended(self, job: Job) -> None:
        """Nothing more is to be done for the job, whether it was run or its result was there."""
        kind = self._open.pop(job, None)
        if kind is not None:
            kind.open_jobs -= 1
            kind.open_amount -= job.amount

    def share(self, stage: Stage) -> float:
        """Of the work that a stage was at the start of the run, between 0 and 1.

        Of what was there already nothing was to be done. Jobs of which nothing is known count by their passes, where
        they state some, and else as long as the mean of those of which something is.
        """
        kinds = [kind for kind in self._kinds.values() if kind.stage == stage]
        done = sum(kind.seconds for kind in kinds)
        known = [(kind, seconds) for kind in kinds if (seconds := kind.seconds_left) is not None]
        left = sum(seconds for _, seconds in known)
        jobs = sum(kind.ran_jobs + kind.open_jobs for kind, _ in known)
        of_a_job = (done + left) / max(1, jobs)
        asked = [(kind, kind.seconds + seconds) for kind, seconds in known if kind.passes]
        passes = sum(kind.passes * (kind.ran_amount + kind.open_amount) for kind, _ in asked)
        of_a_pass = sum(seconds for _, seconds in asked) / max(1, passes)
        for kind in kinds:
            if kind.seconds_left is None:
                by_passes = of_a_pass * kind.passes * kind.open_amount
                left += by_passes or of_a_job * kind.open_jobs
        return done / (done + left) if done + left else 0.0


def _passes(job: Job) -> int:
    try:
        return job.passes
    except ValueError:  # its budget does not suffice: it will say so, and take no time
        return 0
