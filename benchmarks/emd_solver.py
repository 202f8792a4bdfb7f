"""The earth mover's distance, exact and within bounds: ours against the plain call of the released code.

    OMP_NUM_THREADS=1 python benchmarks/emd_solver.py              # 15 maps at 64×64, exact, and with two processes
    OMP_NUM_THREADS=1 python benchmarks/emd_solver.py --sparse     # and POT's simplex at the finest level
    OMP_NUM_THREADS=1 python benchmarks/emd_solver.py --large      # 224×224: bounds and exact

The plain call is ``ot.lp.emd(a, b, C, numItermax=200000, log=True)`` on the whole map and the whole mask, with the cost
matrix of the image built once and not timed. Both run in turns on each map, in processor time, so that a busy machine
slows both. Masks are XAI-TRIS's own (862 of 64×64 pixels).
"""

from __future__ import annotations

import argparse
import multiprocessing
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter
from scipy.spatial.distance import cdist

from xaibench.metrics.w1 import Transport, exact_emd, interval_emd

Floats = NDArray[np.float64]
KINDS = ("uniform", "smooth blobs", "90 % zeros", "heavy-tailed", "good")
_T = TypeVar("_T")


def tetromino_masks() -> Floats:
    """Both ground truths of XAI-TRIS at 64×64, each of mass one."""
    import xaibench as xb

    masks = np.asarray(xb.load("xai-tris/lin-white-64x64", n_samples=40).train.masks, dtype=np.float64)
    return np.unique(masks, axis=0) / masks[0].sum()


def ellipse(size: int) -> Floats:
    rows, columns = np.mgrid[:size, :size] / size
    inside = ((rows - 0.45) / 0.27) ** 2 + ((columns - 0.58) / 0.2) ** 2 < 1
    return inside / inside.sum()


def map_of(kind: str, mask: Floats, seed: int) -> Floats:
    rng = np.random.default_rng(seed)
    noise, size = rng.standard_normal(mask.shape), mask.shape[0]
    values = {
        "uniform": lambda: rng.random(mask.shape),
        "smooth blobs": lambda: np.abs(gaussian_filter(noise, size / 16)),
        "90 % zeros": lambda: rng.random(mask.shape) * (rng.random(mask.shape) < 0.1),
        "heavy-tailed": lambda: np.abs(rng.standard_t(1.1, mask.shape)),
        "good": lambda: gaussian_filter(mask / mask.max(), size / 32) + 0.05 * rng.random(mask.shape),
    }[kind]()
    return values / values.sum()


def timed(call: Callable[[], _T]) -> tuple[_T, float]:
    start = time.process_time()
    result = call()
    return result, time.process_time() - start


def sparse_simplex(source: Floats, target: Floats) -> float:
    """POT's simplex for sparse costs in the place of ours at the finest level, all else alike."""
    import ot
    from scipy.sparse import coo_array

    from xaibench.metrics.w1 import multiscale as steps

    def improve(level, plan, u, v, near, tolerance, effort):  # type: ignore[no-untyped-def]
        if level.pixel != (1, 1):
            return ours(level, plan, u, v, near, tolerance, effort)
        supply, demand = level.supply / level.supply.sum(), level.demand / level.demand.sum()
        gap = level.lengths(plan) @ plan.flows / level.supply.sum() - (u @ supply - v @ demand)
        arcs = steps.cheap_arcs(level.source_points, level.sink_points, u, v, near * gap)
        arcs = steps._joined(arcs, (plan.tails, plan.heads, level.lengths(plan)))  # makes it feasible
        while True:
            keys = arcs[0].astype(np.int64) * len(v) + arcs[1]
            _, once = np.unique(keys, return_index=True)
            costs = coo_array((arcs[2][once], (arcs[0][once], arcs[1][once])), shape=(len(u), len(v)))
            _, log = ot.lp.emd(supply, demand, costs, numItermax=10**8, log=True, check_marginals=False)
            u, v = np.asarray(log["u"]), -np.asarray(log["v"])
            more = steps.cheap_arcs(level.source_points, level.sink_points, u, v, -1e-9)
            if len(more[0]) == 0:
                return plan, u  # ours is the plan to begin with; the potentials are what is compared
            arcs = steps._joined(arcs, more)

    ours = steps._improve
    steps._improve = improve
    try:
        return exact_emd(source, target).lower
    finally:
        steps._improve = ours


def small(sparse: bool) -> None:
    import ot

    masks = tetromino_masks()
    pixels = np.argwhere(masks[0] >= 0)
    costs = cdist(pixels, pixels)
    exact_emd(map_of("uniform", masks[0], 99), masks[0])
    print(
        f"{'64×64, CPU s a map':20}{'released':>10}{'exact':>10}{'ratio':>8}{'error':>10}{'gap':>10}{'bounds':>10}",
        end="",
    )
    print(f"{'gap':>9}" + f"{'POT sparse':>12}{'ours is':>9}" * sparse)
    times = np.zeros(4)
    worst = np.zeros(3)
    for kind in KINDS:
        row = np.zeros(4)
        errors = np.zeros(3)
        for seed in range(3):
            mask = masks[seed % len(masks)]
            values = map_of(kind, mask, seed)
            (_, log), row_released = timed(
                lambda a=mask, b=values: ot.lp.emd(a.ravel(), b.ravel(), costs, numItermax=200000, log=True)
            )
            result, row_exact = timed(lambda a=values, b=mask: exact_emd(a, b))
            bounds, row_bounds = timed(lambda a=values, b=mask: interval_emd(a, b))
            row_sparse = 0.0
            if sparse:
                other, row_sparse = timed(lambda a=values, b=mask: sparse_simplex(a, b))
                assert abs(other - result.cost) < 1e-8 * result.cost, (other, result.cost)
            row += row_released, row_exact, row_bounds, row_sparse
            error = abs(result.cost - log["cost"]) / log["cost"]
            errors = np.maximum(errors, [error, result.gap, bounds.gap])
        show(kind, row, errors, sparse)
        times += row
        worst = np.maximum(worst, errors)
    show("all", times, worst, sparse)


def show(kind: str, row: Floats, errors: Floats, sparse: bool) -> None:
    count = 15 if kind == "all" else 3
    released, exact, bounds, other = row / count
    print(f"{kind:20}{released:10.3f}{exact:10.4f}{released / exact:7.1f}×{errors[0]:10.0e}{errors[1]:10.0e}", end="")
    print(f"{bounds:10.4f}{errors[2]:9.2%}" + f"{other:12.4f}{other / exact:8.1f}×" * sparse, flush=True)


def many(seed: int) -> None:
    mask = ellipse(64)
    for kind in KINDS:
        exact_emd(map_of(kind, mask, seed), mask)


def processes(maps: int = 12) -> None:
    """The memory of one, and the same maps by one, then by two."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        before, after = pool.apply(memory, (0,))
    print(f"peak memory of a fresh process: {after:.0f} MB, {after - before:.0f} of them for the maps")
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        pool.map(many, [100, 101], chunksize=1)  # both have loaded and compiled
        start = time.perf_counter()
        for seed in range(maps):
            pool.apply(many, (seed,))
        one = time.perf_counter() - start
        start = time.perf_counter()
        pool.map(many, range(maps), chunksize=1)
        two = time.perf_counter() - start
    print(f"two processes: {one / two:.2f} times as fast as one, by the clock (on an idle machine)")


def peak_memory() -> float:
    """MB, of this process (Linux: ``ru_maxrss`` would count the parent's)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def memory(_: int) -> tuple[float, float]:
    """Peak before and after a map of each kind at 64×64."""
    exact_emd(np.eye(4), np.fliplr(np.eye(4)))
    before = peak_memory()
    many(0)
    return before, peak_memory()


def large() -> None:
    mask = ellipse(224)
    print(f"{'224×224':20}{'bounds, s':>10}{'gap':>9}{'exact, s':>10}{'gap':>10}{'peak MB':>9}")
    for kind in KINDS:
        values = map_of(kind, mask, 0)
        bounds: Transport
        bounds, some = timed(lambda a=values: interval_emd(a, mask))
        exact, all_of_it = timed(lambda a=values: exact_emd(a, mask))
        assert bounds.lower <= exact.cost <= bounds.upper
        print(
            f"{kind:20}{some:10.2f}{bounds.gap:9.2%}{all_of_it:10.2f}{exact.gap:10.0e}{peak_memory():9.0f}", flush=True
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--sparse", action="store_true")
    parser.add_argument("--large", action="store_true")
    arguments = parser.parse_args()
    if arguments.large:
        large()
    else:
        small(arguments.sparse)
        processes()
