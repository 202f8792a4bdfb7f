"""Speed-up of a run by the number of workers: measured for one and two workers, modeled for more.

    OMP_NUM_THREADS=1 python benchmarks/cluster.py                 # about five minutes
    OMP_NUM_THREADS=1 python benchmarks/cluster.py --suites xai-tris-8x8 --no-ray

Three things limit a run on many workers: the work itself and its division into jobs, the run's main process, which
dispatches the jobs one by one, and the store, through which all results pass. The first is computed from the measured
costs of the jobs (``xaibench.runner.estimate``) in the scheduler's order (``xaibench.runner.costs.simulation``). The
second is the processor time of the main process per job. The third is measured in bytes.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import torch

from xaibench.runner import load_suite
from xaibench.runner.costs.calibration import calibrate
from xaibench.runner.costs.simulation import simulate
from xaibench.runner.engines.local import Processes, Serial
from xaibench.runner.engines.scheduling import Schedule
from xaibench.runner.plan.job_base import STAGES, Job
from xaibench.runner.plan.plan import make_plan
from xaibench.runner.store.result_store import Store
from xaibench.runner.store.store_files import LocalFiles

MEASURED = "xai-tris-8x8"
WORKERS = (1, 2, 10, 100, 1_000)


def measure(engine: str) -> None:
    """Run the quick form of the suite, and print its times and traffic as JSON."""
    torch.set_num_threads(1)
    plan = make_plan(load_suite(MEASURED, quick=True)[0])
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder))
        traffic = _count_bytes() if engine == "serial" else {}
        with _engine(engine, store) as runner:
            # The first jobs include the loading of libraries, which is not measured.
            assert not Schedule([job for job in plan.jobs if job.stage in ("data", "train")], store).run(runner)
            explain = [job for job in plan.jobs if job.stage == "explain"][:: len(plan.jobs) // 60]
            Schedule([*_before(explain), *explain], store).run(runner)
            traffic.clear()
            outcomes: list[float] = []
            start, busy = time.perf_counter(), time.process_time()
            Schedule(plan.jobs, store, ended=lambda outcome: outcomes.append(outcome.cpu_seconds)).run(runner)
            seconds, driver = time.perf_counter() - start, time.process_time() - busy
    found = {"jobs": len(outcomes), "seconds": seconds, "work": sum(outcomes), "driver": driver, "traffic": traffic}
    print(json.dumps(found))


def _before(jobs: list[Job]) -> list[Job]:
    return list(dict.fromkeys(need for job in jobs for need in [*_before(list(job.needs)), *job.needs]))


def _engine(name: str, store: Store) -> Serial | Processes:
    if name == "serial":
        return Serial(store, "cpu")
    if name == "ray":
        from xaibench.runner.engines.ray_cluster import Ray

        return Ray(store, "cpu", 2)  # type: ignore[return-value]
    return Processes(store, "cpu", workers=int(name))


def _count_bytes() -> Counter[str]:
    """Count the bytes read from and written to the store, by stage and direction."""
    counted: Counter[str] = Counter()
    read, write = LocalFiles.read, LocalFiles.write

    def counting_read(self: LocalFiles, name: str, *span: int | None) -> bytes:
        data = read(self, name, *span)
        counted[f"{name.split('/')[0]} read"] += len(data)
        return data

    def counting_write(self: LocalFiles, name: str, data: bytes) -> None:
        counted[f"{name.split('/')[0]} written"] += len(data)
        write(self, name, data)

    LocalFiles.read, LocalFiles.write = counting_read, counting_write  # type: ignore[method-assign]
    return counted


def traffic_mb(job: Job) -> float:
    """Return the MiB that a job reads and writes (a worker keeps the last few data sets in memory)."""
    if job.stage == "data":
        return job.disk_mb
    if job.stage == "train":
        return job.data.disk_mb + job.disk_mb
    if job.stage == "explain":
        weights = job.network.trainings[0].disk_mb / len(job.network.trainings[0].seeds) if job.network else 0.0
        return job.data.shares[2] * job.data.disk_mb + weights + job.disk_mb
    return job.explain.data.shares[2] * job.explain.data.disk_mb + job.explain.disk_mb + job.disk_mb


def model(name: str, dispatch: float) -> None:
    """Print the table of one suite."""
    plan = make_plan(load_suite(name)[0])
    costs = calibrate(plan)
    seconds = {job: costs[job.kind()].of(job) if job.kind() in costs else 0.0 for job in plan.jobs}
    work = sum(seconds.values())
    passed = sum(traffic_mb(job) for job in plan.jobs)
    count = Counter(job.stage for job in plan.jobs)
    longest, memory = max(seconds.values()) / 60, max(job.memory_mb for job in plan.jobs)
    print(f"\n{name}: {', '.join(f'{count[stage]} {stage}' for stage in STAGES)} jobs; {work / 3600:.1f} h of work,")
    print(f"longest job {longest:.1f} min, most memory of a job {memory:.0f} MiB, {passed:,.0f} MiB through the store")
    for stage in STAGES:
        jobs = [job for job in plan.jobs if job.stage == stage]
        each, hours = sum(map(traffic_mb, jobs)) / len(jobs), sum(seconds[job] for job in jobs) / 3600
        print(f"  {stage:8} {hours:9.2f} h, {each:9.3f} MiB through the store for a job")
    print("| workers | hours | speed-up | of the ideal | MiB/s through the store |")
    print("|---:|---:|---:|---:|---:|")
    for workers in WORKERS:
        took = simulate(plan.jobs, seconds, workers, dispatch=dispatch)
        gain = work / took
        print(f"| {workers:,} | {took / 3600:.2f} | {gain:.1f} | {gain / workers:.0%} | {passed / took:.1f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--suites", nargs="*", default=["xai-tris-8x8", "xai-tris-8x8-paper", "xai-tris-64x64-paper"])
    parser.add_argument("--no-ray", action="store_true", help="leave Ray out")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.measure:
        measure(given.measure)
        return
    engines = ["serial", "1", "2", *([] if given.no_ray else ["ray"])]
    print(f"{MEASURED} --quick, without the start of the workers")
    print(f"{'engine':22}{'jobs':>6}{'wall s':>9}{'work s':>9}{'work/wall':>11}{'own ms a job':>14}")
    dispatch = 0.0
    for engine in engines:
        command = [sys.executable, __file__, "--measure", engine]
        found = json.loads(
            subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()[-1]
        )
        # With the serial engine, the main process also does the work.
        own = found["driver"] - (found["work"] if engine == "serial" else 0.0)
        label = {"serial": "serial", "ray": "ray, 2 CPUs"}.get(engine, f"processes, {engine}")
        print(
            f"{label:22}{found['jobs']:6}{found['seconds']:9.1f}{found['work']:9.1f}"
            f"{found['work'] / found['seconds']:11.2f}{1e3 * own / found['jobs']:14.2f}"
        )
        if engine in ("2", "ray"):
            dispatch = max(dispatch, own / found["jobs"])
        if engine == "serial":
            for name, size in sorted(found["traffic"].items()):
                print(f"    {name:18}{size / found['jobs']:12.0f} bytes a job")
    print(f"\nModel: jobs in the scheduler's order, {1e3 * dispatch:.2f} ms of the run's own process for each.")
    for name in given.suites:
        model(name, dispatch)


if __name__ == "__main__":
    main()
