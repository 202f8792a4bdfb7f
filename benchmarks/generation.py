"""Time and memory to generate the XAI-TRIS data sets: ``python benchmarks/generation.py``.

Measures in one run: 40,000 samples of LIN-CORR at 64×64, whole (noise, smoothing, patterns, masks, norms), with one
thread and with all; a per-sample loop over ``scipy.ndimage.gaussian_filter``, which only draws and smooths the noise;
the literal generator of the tests, sample by sample, timed on 1,000 samples and scaled up; and 10,000
samples at 8×8. Each measurement is a separate process, so that its peak memory can be measured.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

SUBSET, FULL, REPEATS = 1_000, 40_000, 2
ROOT = Path(__file__).resolve().parent.parent


def vectorized(name: str, workers: int | None) -> None:
    import xaibench as xb

    dataset = xb.load(name, workers=workers)
    assert len(dataset.train) + len(dataset.val) + len(dataset.test) == dataset.parameters["n_samples"]


def filter_loop() -> None:
    import torch
    from scipy.ndimage import gaussian_filter

    rng = np.random.default_rng(0)
    images = torch.empty((FULL, 64, 64)).numpy()
    for image in images:
        image[:] = gaussian_filter(rng.standard_normal((64, 64)), 10)


def literal_loop() -> None:
    sys.path.insert(0, str(ROOT / "tests"))
    from oracles import tetromino as oracle

    white = np.random.default_rng(0).standard_normal((SUBSET, 64, 64))
    shapes = [[oracle.Placed("TL"[i % 2], 1, 0, *oracle.FIXED[64]["TL"[i % 2]])] for i in range(SUBSET)]
    oracle.generate("lin", "corr", 64, 0.02, shapes, white)


MEASUREMENTS: dict[str, tuple[Callable[[], None], float]] = {
    "8x8, 10,000 samples, all threads": (lambda: vectorized("xai-tris/lin-corr-8x8", None), 1),
    "64x64, 40,000 samples, 1 thread": (lambda: vectorized("xai-tris/lin-corr-64x64", 1), 1),
    "64x64, 40,000 samples, all threads": (lambda: vectorized("xai-tris/lin-corr-64x64", None), 1),
    "64x64, loop of gaussian_filter": (filter_loop, 1),
    "64x64, literal generator": (literal_loop, FULL / SUBSET),
}


def measure(name: str) -> None:
    """Run one measurement in this process and print it as JSON."""
    import scipy.ndimage  # noqa: F401  (loading the libraries is not what is measured)

    import xaibench.benchmarks.xai_tris.tetrominoes  # noqa: F401

    function, scale = MEASUREMENTS[name]
    start, busy = time.perf_counter(), time.process_time()
    function()
    seconds, cpu = time.perf_counter() - start, time.process_time() - busy
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024**2
    print(json.dumps({"seconds": seconds * scale, "cpu": cpu * scale, "peak_gb": peak}))


def main() -> None:
    # Linear algebra also uses one thread, so that "1 thread" is true.
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    results = {}
    print(f"{'':38}{'wall s':>9}{'cpu s':>9}{'peak GB':>9}")
    for name in MEASUREMENTS:
        command = [sys.executable, __file__, name]
        runs = [
            json.loads(subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout)
            for _ in range(REPEATS)
        ]
        best = min(runs, key=lambda run: float(run["seconds"]))
        results[name] = best
        print(f"{name:38}{best['seconds']:9.2f}{best['cpu']:9.2f}{max(run['peak_gb'] for run in runs):9.2f}")
    print("(best of two; the literal generator on 1,000 samples, scaled to 40,000; peak includes Python and torch)")
    for loop in ("64x64, loop of gaussian_filter", "64x64, literal generator"):
        for ours in ("64x64, 40,000 samples, 1 thread", "64x64, 40,000 samples, all threads"):
            ratio = results[loop]["seconds"] / results[ours]["seconds"]
            busy = results[loop]["cpu"] / results[ours]["cpu"]
            print(f"{ours}, is {ratio:.1f} times faster ({busy:.1f} in cpu time) than: {loop}")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        measure(sys.argv[1])
    else:
        main()
