"""Earth mover's distance: time and accuracy compared with the call of the released code, in alternation.

    OMP_NUM_THREADS=1 python speed/emd.py            # 64×64 and 8×8: a minute
    OMP_NUM_THREADS=1 python speed/emd.py --large    # 224×224, and volumes of 16 to 96 per side: some minutes

Exits with 1 if the distance is less than 5 times as fast as the plain call at 8×8, or 20 times at 64×64. FNI-EMD is
compared with the same call, with distances of 0 between pixels of the mask; its bars are the same.

The plain call is ``ot.lp.emd(mask, map, costs, numItermax=200000, log=True)`` on all pixels, with the cost matrix of
the image built once and not timed. Both are timed in alternation on the same few maps, in processor time, after one
call each that loads and compiles. The masks are those of XAI-TRIS (862 of 64×64 pixels). The gap is the relative
difference between the distance and the lower bound that proves it.
"""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from measuring import command_line, print_head, print_row, timed
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter
from scipy.spatial.distance import cdist

import xaibench as xb
from xaibench.metrics import emd, fni_emd
from xaibench.metrics.localization.emd import TransportProgress

Floats = NDArray[np.float64]
Masks = NDArray[np.bool_]
KINDS = ("uniform", "smooth blobs", "90 % zeros", "heavy-tailed", "good")
#: Required speed-up over the plain call.
BARS = {64: 20, 8: 5}


def blob(size: int, axes: int) -> Masks:
    """Return an ellipse, or a ball of one percent of a volume."""
    center, radius = ([0.45, 0.58], [0.27, 0.2]) if axes == 2 else ([0.6, 0.4, 0.5], [0.1337] * 3)
    grid = (np.indices((size,) * axes) / size).reshape(axes, -1).T
    return ((((grid - center) / radius) ** 2).sum(1) < 1).reshape((size,) * axes)


def tetrominoes(size: int) -> Masks:
    """Return both ground truths of XAI-TRIS."""
    return np.unique(np.asarray(xb.load(f"xai-tris/lin-white-{size}x{size}", n_samples=40).train.masks), axis=0)


def map_of(kind: str, mask: Masks, seed: int) -> Floats:
    rng = np.random.default_rng(seed)
    noise, size = rng.standard_normal(mask.shape), mask.shape[0]
    few = rng.random(mask.shape) < 0.1
    few[0, 0] = True  # at 8×8 it may be the only one
    makers: dict[str, Callable[[], Floats]] = {
        "uniform": lambda: rng.uniform(-1, 1, mask.shape),
        "smooth blobs": lambda: gaussian_filter(noise, size / 16),
        "90 % zeros": lambda: noise * few,
        "heavy-tailed": lambda: rng.standard_t(1.1, mask.shape),
        "good": lambda: gaussian_filter(mask.astype(float), size / 32) + 0.05 * noise,
    }
    return makers[kind]()


def plain(maps: Floats, masks: Masks, costs: Floats) -> Floats:
    import ot

    distances = []
    for values, mask in zip(maps, masks, strict=True):
        mass = np.abs(values).ravel() / np.abs(values).sum()
        _, log = ot.lp.emd(mask.ravel() / mask.sum(), mass, costs, numItermax=200000, log=True)
        assert log["result_code"] == 1, log["warning"]
        distances.append(log["cost"])
    return np.array(distances)


def proof(maps: Floats, masks: Masks) -> float:
    """Return the largest gap."""
    states: list[TransportProgress] = []
    emd(maps, masks, progress=states.append)
    return max((state.upper - state.lower) / state.upper for state in states if state.done)


def compare(size: int, count: int, few: int) -> float:
    """Time both on ``count`` maps of each kind, ``few`` at a time; returns how many times as fast over all."""
    truths = tetrominoes(size)
    pixels = np.argwhere(truths[0] >= 0)
    costs = cdist(pixels, pixels)
    print(f"\n{size}×{size}, {truths[0].sum()} pixels marked, {count} maps of each kind; CPU ms a map\n")
    print_head("kind", "released", "xaibench", "ratio", "of each", "error", "gap")
    rows = []
    for kind in KINDS:
        masks = np.stack([truths[seed % len(truths)] for seed in range(count)])
        maps = np.stack([map_of(kind, mask, seed) for seed, mask in enumerate(masks)])
        plain(maps[:1], masks[:1], costs), emd(maps[:1], masks[:1])
        for start in range(0, count, few):
            some = maps[start : start + few], masks[start : start + few]
            theirs, their_time = timed(partial(plain, *some, costs))
            found, our_time = timed(partial(emd, *some, reduction="none"))
            rows.append((their_time, our_time, np.abs(np.asarray(found) / theirs - 1).max(), proof(*some)))
        show(kind, np.array(rows[-(count // few) :]), count)
    show("all", np.array(rows), count * len(KINDS))
    their_sum, our_sum = np.array(rows)[:, :2].sum(axis=0)
    return float(their_sum / our_sum)


def show(kind: str, rows: Floats, count: int) -> None:
    theirs, ours = 1e3 * rows[:, :2].sum(axis=0) / count
    ratios = rows[:, 0] / rows[:, 1]
    errors = (f"{largest:.0e}" for largest in rows[:, 2:].max(axis=0))
    each = f"{ratios.min():.1f} to {ratios.max():.1f}"
    print_row(kind, f"{theirs:.3f}", f"{ours:.3f}", f"{theirs / ours:.1f}", each, *errors)


def compare_fni(size: int, count: int) -> float:
    """Time FNI-EMD on ``count`` maps of each kind at once; returns how many times as fast as the plain call it is."""
    truths = tetrominoes(size)
    pixels = np.argwhere(truths[0] >= 0)
    masks = np.stack([truths[0]] * count * len(KINDS))
    maps = np.stack([map_of(kind, truths[0], seed) for kind in KINDS for seed in range(count)])
    costs, marked = cdist(pixels, pixels), truths[0].ravel()
    costs[np.ix_(marked, marked)] = 0
    plain(maps[:1], masks[:1], costs), fni_emd(maps[:1], masks[:1])
    distances, their_time = timed(partial(plain, maps, masks, costs))
    found, our_time = timed(partial(fni_emd, maps, masks, reduction="none"))
    error = np.abs(np.asarray(found) - (1 - distances / costs[marked].mean(axis=0).max())).max()
    ratio = their_time / our_time
    print(f"FNI-EMD, {size}×{size}: {ratio:.1f} times as fast; largest difference of a score {error:.0e}", flush=True)
    return ratio


def large(size: int, axes: int, kind: str, exact: bool) -> tuple[float, float, float]:
    """Return CPU seconds, the gap, and MB at the peak of this process."""
    mask = blob(size, axes)[None]
    values = map_of(kind, mask[0], 0)[None]
    emd(np.eye(200), np.fliplr(np.eye(200)))  # compiles
    found, seconds = timed(lambda: emd(values, mask) if exact else emd(values, mask, exact=False))
    lower, upper = (found, found) if exact else found
    lines = Path("/proc/self/status").read_text().splitlines()  # getrusage would count the parent's peak
    peak = next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024
    return seconds, (upper - lower) / upper, peak


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--large", action="store_true", help="224×224 and volumes instead")
    if parser.parse_args().large:
        print_head("size", "kind", "result", "CPU s", "gap", "MB")
        cases = [(224, 2, kind, exact) for exact in (False, True) for kind in KINDS]
        volumes = ((16, True), (32, True), (32, False), (96, False))
        cases += [(size, 3, kind, exact) for size, exact in volumes for kind in ("uniform", "smooth blobs")]
        for size, axes, kind, exact in cases:
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                seconds, gap, peak = pool.apply(large, (size, axes, kind, exact))
            size_text, result = "×".join([str(size)] * axes), "exact" if exact else "bounds"
            print_row(size_text, kind, result, f"{seconds:.2f}", f"{gap:.2%}", f"{peak:.0f}")
        return
    ratios = {("EMD", size): compare(size, count, few) for size, count, few in ((64, 3, 1), (8, 200, 100))}
    ratios |= {("FNI-EMD", size): compare_fni(size, count) for size, count in ((64, 1), (8, 100))}
    slow = [f"{name} {size}×{size}: {ratio:.1f}" for (name, size), ratio in ratios.items() if ratio < BARS[size]]
    if slow:
        sys.exit(f"\nbelow the bars {BARS}: {'; '.join(slow)}")


if __name__ == "__main__":
    main()
