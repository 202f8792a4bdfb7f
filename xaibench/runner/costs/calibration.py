"""What a unit of work costs on this machine: measured on small jobs of the same kind, and remembered.

The costs lie in ``costs-2.json`` of the cache (``$XAIBENCH_CACHE`` or ``~/.cache/xaibench``), by machine. Every run
adds what its jobs really cost, which then counts instead of the small jobs' figures.
"""

from __future__ import annotations

import json
import logging
import math
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import astuple, dataclass
from pathlib import Path

from xaibench.core.compute.host_work import available_cpus
from xaibench.runner.engines.local_engines import run_job
from xaibench.runner.plan.job_base import SMALL_PERTURBATIONS, SMALL_SAMPLES, Job, Outcome
from xaibench.runner.plan.planning import Plan
from xaibench.runner.run_environment import processor
from xaibench.runner.store.result_store import Store
from xaibench.runner.store.store_files import StoreError, write_atomic

log = logging.getLogger("xaibench")

#: Seconds that the measurement of one kind of job should take; more where a single sample takes longer.
_ENOUGH = 0.1

#: Seconds that loading and compiling may take: a first job below that says nothing, and is run again.
_COLD = 20.0

#: The fewest and the most epochs or samples of a small job; of other stages, samples.
_SIZES = {"data": (SMALL_SAMPLES, SMALL_SAMPLES), "train": (1, 50)}

#: Seconds after which a budget of passes is not tried any more: what a pass of that network costs is known by then.
_PATIENCE = 60.0

#: Score jobs measured for a metric: what a score costs depends on the map.
_MAPS = 4


@dataclass(frozen=True)
class Cost:
    """``seconds`` = ``fixed`` + ``each`` × amount; ``measured`` says where that is from.

    Attributes:
        fixed: Seconds of a job whatever its size.
        each: Seconds of a unit of its work.
        units: Amount of the jobs that it was measured on: what was measured on large ones counts more.
        measured: ``"run"``, ``"small job"``, or ``"passes"`` where it is reckoned from what a pass costs.
    """

    fixed: float
    each: float
    units: float = 1.0
    measured: str = "small job"

    def of(self, job: Job) -> float:
        """Seconds that ``job`` will take one worker."""
        return self.fixed + self.each * job.amount


def known_costs() -> dict[str, Cost]:
    """The remembered costs of this machine, by kind."""
    found = _read_cache().get(_machine(), {})
    return {name: Cost(*values) for name, values in found.items()}


def remember(costs: Mapping[str, Cost]) -> None:
    """Add to the remembered costs; a cache that cannot be written is passed over."""
    if not costs:
        return
    cache = _read_cache()
    own = cache.setdefault(_machine(), {})
    own.update({name: astuple(cost) for name, cost in costs.items()})
    try:
        write_atomic(_cache_path(), json.dumps(cache, indent=1).encode())
    except StoreError as error:
        log.debug("costs are not remembered: %s", error)


def learn(outcomes: Iterable[Outcome], device: str) -> None:
    """Remember what the jobs of a run really cost, by kind."""
    spent: dict[str, list[tuple[float, int]]] = {}
    for outcome in outcomes:
        job = outcome.job
        if not outcome.error and job.amount:
            spent.setdefault(job.kind(device), []).append((_seconds(outcome, device), job.amount))
    known = known_costs()
    learned = {}
    for name, pairs in spent.items():
        size = statistics.fmean(units for _, units in pairs)
        if name in known and size < known[name].units / 2:
            continue  # the fixed part of a small job would be taken for work
        fixed = known[name].fixed if name in known else 0.0
        each = statistics.fmean(max(seconds - fixed, seconds / 10) / units for seconds, units in pairs)
        learned[name] = Cost(fixed, each, size, "run")
    remember(learned)


def calibrate(plan: Plan, device: str = "cpu", say: Callable[[str], None] = lambda line: None) -> dict[str, Cost]:
    """Measure the kinds of jobs of ``plan`` whose cost is not known yet, on small jobs in a temporary store.

    Of an annotated set that lies on disk a few samples are taken. Explainers with a budget come last, those of the
    fewest passes first; after a minute, the others are reckoned by their passes from those of the same network that
    were tried. Jobs that fail when they are tried are left out, and ``say`` is told why.

    Args:
        plan: The jobs to come.
        device: ``"cpu"`` or a GPU's name.
        say: Called with a line before anything is measured, and for each job that failed.

    Returns:
        All costs known then, by kind.
    """
    known = known_costs()
    unknown: dict[str, list[Job]] = {}
    for job in plan.jobs:
        name = job.kind(device)
        if name not in known:
            unknown.setdefault(name, []).append(job)
    if unknown:
        say(f"measuring what {len(unknown)} kinds of jobs cost on this machine (once)")
        with tempfile.TemporaryDirectory(prefix="xaibench-costs-") as folder:
            trial = _Calibration(Store(Path(folder)), device)
            found = trial.measure(unknown)
        for job, error in trial.errors.items():
            say(f"could not be tried: {job}: {error}")
        remember(found)
        known |= found
    return known


class _Calibration:
    """Runs small jobs in a store of its own."""

    def __init__(self, store: Store, device: str) -> None:
        self._store, self._device = store, device
        self._ran: dict[Job, float] = {}
        self.errors: dict[Job, str] = {}

    def measure(self, kinds: Mapping[str, list[Job]]) -> dict[str, Cost]:
        costs: dict[str, Cost] = {}
        of_a_pass: dict[str, list[float]] = {}  # by the network
        late = math.inf
        for name, jobs in sorted(kinds.items(), key=lambda kind: kind[1][0].passes):
            job = jobs[0]
            if job.passes:
                late = min(late, time.monotonic() + _PATIENCE)
                tried = of_a_pass.setdefault(job.asked, [])
                if tried and time.monotonic() > late:
                    # The last ones: of many passes each costs less.
                    costs[name] = Cost(0.0, job.passes * statistics.median(tried[-_MAPS:]), measured="passes")
                    continue
            # What a score costs depends on the map: look at some of different explainers.
            some = jobs[:: max(1, -(-len(jobs) // _MAPS))] if job.stage == "score" else jobs[:1]
            found = [cost for one in some if (cost := self._cost(one)) is not None]
            if not found:
                continue
            fixed, each, units = (
                statistics.fmean(part) for part in zip(*(astuple(cost)[:3] for cost in found), strict=True)
            )
            costs[name] = Cost(fixed, each, units)
            if job.passes:
                tried.append(each / job.passes)
        return costs

    def _cost(self, job: Job) -> Cost | None:
        """First the smallest job, which also warms up; then one that takes long enough to be measured."""
        if job.stage == "data" and not job.can_be_small:  # opened as it is: that reads no image
            opened = self._seconds(job)
            return None if opened is None else Cost(opened, 0.0, job.amount)
        few, most = _SIZES.get(job.stage) or (2, max(2, min(64, job.amount)))
        cheap = job.small(few, SMALL_PERTURBATIONS)
        times = _times(job, cheap)
        if times > 1:
            part = self._warm(cheap)
            if part is not None and part * times > 20 * _ENOUGH:  # all of them would take seconds
                return Cost(0.0, part * times / few)
        first = self._warm(job.small(few))
        if first is None:
            return None
        more = max(few, min(most, round(few * _ENOUGH / max(first, 1e-4))))
        again = self._seconds(job.small(more), fresh=more == few) if first < 10 * _ENOUGH else first
        small, large = job.small(few), job.small(more)
        if again is None or large.amount == small.amount:
            return Cost(0.0, (again or first) / small.amount, small.amount)
        each = max(again - first, 0.3 * again) / (large.amount - small.amount)
        return Cost(max(0.0, again - each * large.amount), each, large.amount)

    def _warm(self, job: Job) -> float | None:
        """Seconds of the job once everything is loaded and compiled; where it takes long, that does not matter."""
        first = self._seconds(job)
        return self._seconds(job, fresh=True) if first is not None and first < _COLD else first

    def _seconds(self, job: Job, fresh: bool = False) -> float | None:
        """Run the job, and before it those it needs; None if it cannot be run."""
        if job in self._ran and not fresh:
            return self._ran[job]
        if job in self.errors:
            return None
        for need in _needs_of_all(job):
            if self._seconds(need) is None:
                return None
        outcome = run_job(job, self._store, self._device if job.uses_device else "cpu")
        if outcome.error:
            self.errors[job] = outcome.error
            return None
        self._ran[job] = _seconds(outcome, self._device)
        return self._ran[job]


def _times(job: Job, cheap: Job) -> float:
    """How much more work a sample is for the job than for the cheaper one."""
    if not job.passes:
        return job.perturbations / SMALL_PERTURBATIONS
    try:
        return job.passes / cheap.passes
    except ValueError:  # its budget does not suffice
        return 1.0


def _needs_of_all(job: Job) -> list[Job]:
    """What the job reads: its needs, and for a score also those of its maps."""
    found: dict[Job, None] = {}
    for need in job.needs:
        found.update(dict.fromkeys([*_needs_of_all(need), need]))
    return list(found)


def _seconds(outcome: Outcome, device: str) -> float:
    """Processor time, which other programs do not change; on a device, the time it took."""
    return outcome.seconds if outcome.job.uses_device and device != "cpu" else outcome.cpu_seconds


def _machine() -> str:
    return f"{processor()} × {available_cpus()}"


def _cache_path() -> Path:
    """The number in the name changes with what is kept."""
    return Path(os.environ.get("XAIBENCH_CACHE") or Path.home() / ".cache" / "xaibench") / "costs-2.json"


def _read_cache() -> dict[str, dict[str, tuple[float, float, float, str]]]:
    try:
        found = json.loads(_cache_path().read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
