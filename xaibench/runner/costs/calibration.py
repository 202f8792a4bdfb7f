"""Cost of a unit of work on this machine, measured on small jobs of the same kind and cached.

The costs are cached per machine in ``costs-2.json`` in ``$XAIBENCH_CACHE`` or ``~/.cache/xaibench``. Every run updates
them with the measured costs of its own jobs, which replace the measurements on small jobs.
"""

from __future__ import annotations

import json
import logging
import math
import statistics
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import astuple, dataclass
from pathlib import Path

from xaibench.compute.host_threads import available_cpus
from xaibench.core.files import default_cache_dir
from xaibench.runner.costs.time_limit import time_limit
from xaibench.runner.engines.local import run_job
from xaibench.runner.environment import processor
from xaibench.runner.plan.job_base import SMALL_PERTURBATIONS, SMALL_SAMPLES, Job, Outcome, Stage
from xaibench.runner.plan.plan import Plan
from xaibench.runner.store.result_store import Store
from xaibench.runner.store.store_files import StoreError, write_atomic

log = logging.getLogger("xaibench")

#: Intended duration in seconds of the measurement of one kind of job; longer if a single sample takes longer.
_TARGET_SECONDS = 0.1

#: Seconds that loading and compiling may take. A first job that is faster is run again without that overhead.
_WARM_UP_SECONDS = 20.0

#: Minimum and maximum size of a small job, by stage: samples for data, epochs for training.
_SIZES = {"data": (SMALL_SAMPLES, SMALL_SAMPLES), "train": (1, 50)}

#: Seconds of measuring, after which the costs of the remaining kinds of jobs are estimated from the measured ones.
_SECONDS = 8.0

#: Number of score jobs that are measured per metric, because the cost of a score depends on the map.
_SCORE_JOBS = 4

#: Number of explainers from whose costs the cost of a pass is taken.
_N_PASS_COSTS = 4

#: Order in which stages are measured. Data and training are needed by the others.
_RANKS: dict[Stage, int] = {"data": 0, "train": 1, "score": 2, "explain": 3}


@dataclass(frozen=True)
class Cost:
    """Linear cost model of one kind of job: ``seconds`` = ``fixed`` + ``each`` × amount.

    Attributes:
        fixed: Seconds per job, independent of its amount of work.
        each: Seconds per unit of work.
        units: Mean amount of the measured jobs. Measurements of larger jobs are not overwritten by smaller jobs.
        measured: Origin: ``"run"``, ``"small job"``, or ``"rough"`` if estimated from the costs of other kinds of jobs.
    """

    fixed: float
    each: float
    units: float = 1.0
    measured: str = "small job"

    def of(self, job: Job) -> float:
        """Return the seconds that ``job`` takes on one worker."""
        return self.fixed + self.each * job.amount


def known_costs() -> dict[str, Cost]:
    """Return the cached costs of this machine by kind of job."""
    found = _read_cache().get(_machine(), {})
    return {name: Cost(*values) for name, values in found.items()}


def remember(costs: Mapping[str, Cost]) -> None:
    """Add costs to the cache. If it cannot be written, nothing happens."""
    if not costs:
        return
    cache = _read_cache()
    own = cache.setdefault(_machine(), {})
    own.update({name: astuple(cost) for name, cost in costs.items()})
    try:
        write_atomic(_cache_path(), json.dumps(cache, indent=1).encode())
    except StoreError as error:
        log.debug("Costs are not cached: %s", error)


def learn(outcomes: Iterable[Outcome], device: str) -> None:
    """Update the cached costs with the measured costs of the jobs of a run."""
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
            continue  # in much smaller jobs, the fixed part would be mistaken for work
        fixed = known[name].fixed if name in known else 0.0
        each = statistics.fmean(max(seconds - fixed, seconds / 10) / units for seconds, units in pairs)
        learned[name] = Cost(fixed, each, size, "run")
    remember(learned)


def calibrate(plan: Plan, device: str = "cpu", say: Callable[[str], None] = lambda line: None) -> dict[str, Cost]:
    """Measure the cost of the kinds of jobs in ``plan`` that are not in the cache, on small jobs in a temporary store.

    Of an annotated set on disk, a few samples are used. The measuring takes at most :data:`_SECONDS`. Cheap explainers
    are measured first; kinds that are not reached get a rough cost (:func:`rough_cost`), which is not cached. Jobs that
    fail are left out and reported by ``say``.

    Args:
        plan: The planned jobs.
        device: ``"cpu"`` or the name of a GPU.
        say: Called with a message before the measurement, and for each job that failed.

    Returns:
        All known costs by kind of job, including earlier ones.
    """
    known = known_costs()
    kinds: dict[str, list[Job]] = {}
    for job in plan.jobs:
        kinds.setdefault(job.kind(device), []).append(job)
    unknown = {name: jobs for name, jobs in kinds.items() if name not in known}
    if not unknown:
        return known
    say(
        f"Measuring the cost of {len(unknown)} kinds of jobs on this machine, for at most {_SECONDS:.0f} s "
        "(only once for each kind)."
    )
    with tempfile.TemporaryDirectory(prefix="xaibench-costs-") as folder:
        trial = _Calibration(Store(Path(folder)), device)
        found = trial.measure(unknown)
    for job, error in trial.errors.items():
        say(f"The cost of {job} could not be measured: {error}")
    remember(found)
    known |= found
    measured = [(jobs[0], known[name]) for name, jobs in kinds.items() if name in known]
    for name, jobs in unknown.items():
        failed = any(job.kind(device) == name for job in trial.errors)
        if name not in found and not failed and (cost := rough_cost(jobs[0], measured)):
            known[name] = cost
    return known


def rough_cost(job: Job, measured: Iterable[tuple[Job, Cost]]) -> Cost | None:
    """Estimate the cost of a job from the costs of other kinds of jobs.

    Args:
        job: A job that was not measured.
        measured: A job of each measured kind, and its cost.

    Returns:
        For an explainer that declares its passes: the passes times the seconds of a pass of the same network, from the
        four explainers with the most passes, because more passes cost less each. Otherwise the mean cost of a sample in
        the jobs of the same stage, with or without a network. None if no such job was measured.
    """
    same = [(one, cost) for one, cost in measured if (one.stage, one.uses_device) == (job.stage, job.uses_device)]
    if passes := job.declared_passes:
        counted = [(one.declared_passes, cost) for one, cost in same if one.asked == job.asked and one.declared_passes]
        largest = sorted(counted, key=lambda pair: pair[0])[-_N_PASS_COSTS:]
        if largest:
            each = statistics.median(cost.each / count for count, cost in largest)
            return Cost(0.0, passes * each, measured="rough")
    if not same:
        return None
    fixed, each = (statistics.fmean(part) for part in zip(*((cost.fixed, cost.each) for _, cost in same), strict=True))
    return Cost(fixed, each, measured="rough")


class _Calibration:
    """Measures small jobs in a temporary store."""

    def __init__(self, store: Store, device: str) -> None:
        self._store, self._device = store, device
        self._ran: dict[Job, float] = {}
        self.errors: dict[Job, str] = {}

    def measure(self, kinds: Mapping[str, list[Job]]) -> dict[str, Cost]:
        """Return the cost of each kind that is measured before the time is up."""
        found: dict[str, list[Cost]] = {}
        with time_limit(_SECONDS):
            for name, job in _trials(kinds):
                if (cost := self._measure_job(job)) is not None:
                    found.setdefault(name, []).append(cost)
        costs = {}
        for name, several in found.items():
            fixed, each, units = (
                statistics.fmean(part) for part in zip(*(astuple(cost)[:3] for cost in several), strict=True)
            )
            costs[name] = Cost(fixed, each, units)
        return costs

    def _measure_job(self, job: Job) -> Cost | None:
        """Run the smallest job, which also warms up, and then one that takes long enough to be measured."""
        if job.stage == "data" and not job.can_be_small:  # opening the whole set reads no images
            opened = self._seconds(job)
            return None if opened is None else Cost(opened, 0.0, job.amount)
        few, most = _SIZES.get(job.stage) or (2, max(2, min(64, job.amount)))
        cheap = job.small(few, SMALL_PERTURBATIONS)
        factor = _work_factor(job, cheap)
        if factor > 1:
            cheap_seconds = self._warm_seconds(cheap)
            if (
                cheap_seconds is not None and cheap_seconds * factor > 20 * _TARGET_SECONDS
            ):  # the job would take seconds
                return Cost(0.0, cheap_seconds * factor / few)
        first = self._warm_seconds(job.small(few))
        if first is None:
            return None
        more = max(few, min(most, round(few * _TARGET_SECONDS / max(first, 1e-4))))
        again = self._seconds(job.small(more), fresh=more == few) if first < 10 * _TARGET_SECONDS else first
        small, large = job.small(few), job.small(more)
        if again is None or large.amount == small.amount:
            return Cost(0.0, (again or first) / small.amount, small.amount)
        each = max(again - first, 0.3 * again) / (large.amount - small.amount)
        return Cost(max(0.0, again - each * large.amount), each, large.amount)

    def _warm_seconds(self, job: Job) -> float | None:
        """Return the seconds of the job without loading and compiling, which only matter for short jobs."""
        first = self._seconds(job)
        return self._seconds(job, fresh=True) if first is not None and first < _WARM_UP_SECONDS else first

    def _seconds(self, job: Job, fresh: bool = False) -> float | None:
        """Run the job after the jobs that it needs, and return its seconds; None if it fails."""
        if job in self._ran and not fresh:
            return self._ran[job]
        if job in self.errors:
            return None
        for need in _all_needs(job):
            if self._seconds(need) is None:
                return None
        outcome = run_job(job, self._store, self._device if job.uses_device else "cpu")
        if outcome.error:
            self.errors[job] = outcome.error
            return None
        self._ran[job] = _seconds(outcome, self._device)
        return self._ran[job]


def _trials(kinds: Mapping[str, list[Job]]) -> list[tuple[str, Job]]:
    """Return the jobs to measure, with the names of their kinds: those first from which others can be estimated.

    One job of each kind comes before further score jobs, which are measured because the cost of a score depends on the
    map. Controls, and the explainer with the fewest passes, which gives the cost of a pass, come before the scores.
    """
    explained = [jobs[0] for jobs in kinds.values() if jobs[0].stage == "explain" and jobs[0].uses_device]
    cheapest = min(explained, key=_work, default=None)
    trials = []
    for name, jobs in kinds.items():
        chosen = jobs[:1]
        if jobs[0].stage == "score":
            by_work = sorted(jobs, key=_work)
            chosen = by_work[:: max(1, -(-len(jobs) // _SCORE_JOBS))]
        for number, job in enumerate(chosen):
            is_cheap = job is cheapest or (job.stage == "explain" and not job.uses_device)
            rank = _RANKS["train"] if is_cheap else _RANKS[job.stage]
            trials.append(((number > 0, rank, _work(job)), name, job))
    return [(name, job) for _, name, job in sorted(trials, key=lambda trial: trial[0])]


def _work(job: Job) -> float:
    """Return the passes that an explain job declares; for a score job, the passes of its explainer."""
    explained = getattr(job, "explain", job)
    if not explained.uses_device:
        return 0.0
    return explained.declared_passes or math.inf


def _work_factor(job: Job, cheap: Job) -> float:
    """Return the work per sample of ``job`` divided by that of ``cheap``."""
    if not job.passes:
        return job.perturbations / SMALL_PERTURBATIONS
    try:
        return job.passes / cheap.passes
    except ValueError:  # the budget is too small
        return 1.0


def _all_needs(job: Job) -> list[Job]:
    """Return the direct and indirect dependencies of a job, each after its own."""
    found: dict[Job, None] = {}
    for need in job.needs:
        found.update(dict.fromkeys([*_all_needs(need), need]))
    return list(found)


def _seconds(outcome: Outcome, device: str) -> float:
    """Return the processor time, which other programs do not affect; for jobs on a GPU, the wall time."""
    return outcome.seconds if outcome.job.uses_device and device != "cpu" else outcome.cpu_seconds


def _machine() -> str:
    return f"{processor()} × {available_cpus()}"


def _cache_path() -> Path:
    """Return the path of the cache. The number in the name is the version of the format."""
    return default_cache_dir() / "costs-2.json"


def _read_cache() -> dict[str, dict[str, tuple[float, float, float, str]]]:
    try:
        found = json.loads(_cache_path().read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
