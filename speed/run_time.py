"""Processor time of a run by stage and explainer, and paired times of whole runs in two checkouts.

    xaibench run xai-tris-8x8
    OMP_NUM_THREADS=1 python speed/run_time.py runs/xai-tris-8x8
    OMP_NUM_THREADS=1 python speed/run_time.py xai-tris-8x8 --quick --checkouts OLD NEW [--rounds 3]

The floor of an explainer is its number of passes times the time of a row in a forward pass of 4,096 rows, measured here
with one thread; an explainer that states no number counts one gradient. Rows that differ in a pixel only are computed
incrementally, so an explainer can be below it. Runs in two checkouts alternate, each in a new folder; the first run of
each, which compiles kernels, is not counted.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

import pandas as pd
import torch
from measuring import command_line, least_seconds, print_head, print_row

from xaibench import explainers
from xaibench.explainers.shared.passes import GRADIENT, Countable
from xaibench.models import build
from xaibench.runner.plan.jobs import ExplainJob
from xaibench.runner.plan.plan import make_plan
from xaibench.runner.suites.parsing import load_suite

ROWS, ROUNDS = 4096, 5


def seconds_per_row(model: str, shape: tuple[int, int, int]) -> float:
    """Return the time of a row in a large forward pass, with the precision in which maps are computed."""
    network = build(model, shape, 2).eval()
    network = network.to(getattr(network, "explain_dtype", None))
    images = torch.zeros(ROWS, *shape, dtype=next(network.parameters()).dtype)
    with torch.no_grad():
        return least_seconds(lambda: network(images), ROUNDS) / ROWS


def floors(folder: Path) -> pd.Series:
    """Return the seconds that the passes of each explainer take at least."""
    plan = make_plan(load_suite(folder / "suite.toml")[0])
    jobs = [job for job in plan.jobs if isinstance(job, ExplainJob) and job.network]
    kinds = {(job.network.model, job.data.image_shape) for job in jobs if job.network}
    row = {kind: seconds_per_row(*kind) for kind in kinds}
    found: dict[str, float] = defaultdict(float)
    for job in jobs:
        assert job.network
        part = explainers.build(job.explainer.use, **job.explainer.parameters)
        passes = part.passes(torch.zeros(1, *job.data.image_shape)) if isinstance(part, Countable) else GRADIENT
        seconds = job.amount * passes * row[job.network.model, job.data.image_shape]
        found[job.explainer.name] += seconds
    return pd.Series(found, name="floor")


def by_stage(folder: Path) -> None:
    """Print the processor seconds of each stage and explainer of a run."""
    torch.set_num_threads(1)
    jobs = pd.read_csv(folder / "jobs.csv")
    environment = json.loads((folder / "environment.json").read_text(encoding="utf-8"))
    print_head("stage", "jobs", "processor seconds")
    for stage, rows in jobs.groupby("stage", sort=False):
        print_row(stage, f"{len(rows):,}", f"{rows['cpu_seconds'].sum():.1f}")
    print(f"\n{environment['seconds']} s on {environment['workers']} processes, without the page.\n")
    spent = jobs[jobs["stage"] == "explain"].groupby("explainer")["cpu_seconds"].sum()
    table = pd.concat([spent, floors(folder)], axis=1, join="inner").sort_values("cpu_seconds", ascending=False)
    table.loc["all"] = table.sum()
    print_head("explainer", "processor seconds", "floor: passes alone")
    for name, found, least in table.itertuples():
        print_row(name, f"{found:.1f}", f"{least:.1f}")


def timed_run(checkout: Path, arguments: list[str]) -> tuple[float, float]:
    """Return the seconds of a run by the clock and of processor time."""
    environment = os.environ | {"PYTHONPATH": str(checkout.resolve())}
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "xaibench", "run", *arguments, "--out", str(Path(folder, "run"))]
        before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        subprocess.run(command, check=True, env=environment, cwd=folder, stdout=subprocess.DEVNULL)
        clock, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return clock, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def paired(checkouts: list[Path], arguments: list[str], rounds: int) -> None:
    """Print the times of each round in both checkouts, and the medians of the ratios."""
    for checkout in checkouts:
        timed_run(checkout, arguments)
    ratios = []
    print_head("round", "clock, old", "clock, new", "processor, old", "processor, new")
    for number in range(rounds):
        pair = [timed_run(checkout, arguments) for checkout in checkouts[:: 1 if number % 2 else -1]]
        old, new = pair if number % 2 else pair[::-1]
        ratios.append((new[0] / old[0], new[1] / old[1]))
        print_row(number, *(f"{each:.1f}" for each in (old[0], new[0], old[1], new[1])))
    clock, processor = (statistics.median(column) for column in zip(*ratios, strict=True))
    print(f"\nnew / old, median: {clock:.3f} by the clock, {processor:.3f} of processor time")


if __name__ == "__main__":
    parser = command_line(__doc__)
    parser.add_argument("run", help="a run folder; with --checkouts, a suite")
    parser.add_argument("--checkouts", nargs=2, type=Path, metavar=("OLD", "NEW"), help="folders with the package")
    parser.add_argument("--rounds", type=int, default=3)
    given, others = parser.parse_known_args()
    if given.checkouts:
        paired(given.checkouts, [given.run, *others], given.rounds)
    else:
        by_stage(Path(given.run))
