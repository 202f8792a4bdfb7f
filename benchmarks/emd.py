"""Earth mover's distance: time and accuracy compared with the call of the released code, in alternation.

    OMP_NUM_THREADS=1 python benchmarks/emd.py            # 64×64 and 8×8: a minute
    OMP_NUM_THREADS=1 python benchmarks/emd.py --large    # 224×224, bounds and exact: some minutes
    OMP_NUM_THREADS=1 python benchmarks/emd.py --volumes  # 16×16×16 exact, 32 and 96 per side bounds: some minutes

Exits with 1 if the distance is less than 5 times as fast as the plain call at 8×8, or 20 times at 64×64. FNI-EMD is
compared with the same call, with distances of 0 between pixels of the mask; its bars are the same.

The plain call is ``ot.lp.emd(mask, map, costs, numItermax=200000, log=True)`` on all pixels, with the cost matrix of
the image built once and not timed. Both are timed in alternation on the same few maps, in processor time, after one
call each that loads and compiles. The masks are those of XAI-TRIS (862 of 64×64 pixels). The gap is the relative
difference between the distance and the lower bound that proves it.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter
from scipy.spatial.distance import cdist

from xaibench.metrics import emd, fni_emd
from xaibench.metrics.localization.emd import TransportProgress

Floats = NDArray[np.float64]
Masks = NDArray[np.bool_]
KINDS = ("uniform", "smooth blobs", "90 % zeros", "heavy-tailed", "good")
#: Required speed-up over the plain call.
BARS = {64: 20, 8: 5}
_T = TypeVar("_T")


def ellipse(size: int) -> Masks:
    rows, columns = np.mgrid[:size, :size] / size
    return ((rows - 0.45) / 0.27) ** 2 + ((columns - 0.58) / 0.2) ** 2 < 1


def tetrominoes(size: int) -> Masks:
    """Both ground truths of XAI-TRIS."""
    import xaibench as xb

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


def ours(maps: Floats, masks: Masks) -> Floats:
    return np.asarray(emd(maps, masks, reduction="none"))


def proof(maps: Floats, masks: Masks) -> float:
    """The largest gap."""
    states: list[TransportProgress] = []
    emd(maps, masks, progress=states.append)
    return max((state.upper - state.lower) / state.upper for state in states if state.done)


def timed(call: Callable[[], _T], clock: Callable[[], float] = time.process_time) -> tuple[_T, float]:
    start = clock()
    result = call()
    return result, clock() - start


def compare(size: int, count: int, few: int) -> float:
    """Both on ``count`` maps of each kind, ``few`` at a time; how many times as fast over all."""
    truths = tetrominoes(size)
    pixels = np.argwhere(truths[0] >= 0)
    costs = cdist(pixels, pixels)
    print(f"\n{size}×{size}, {truths[0].sum()} pixels marked, {count} maps of each kind; CPU ms a map")
    print(f"{'kind':<14}{'released':>10}{'xaibench':>10}{'ratio':>9}{'of each':>16}{'error':>9}{'gap':>9}")
    rows = []
    for kind in KINDS:
        masks = np.stack([truths[seed % len(truths)] for seed in range(count)])
        maps = np.stack([map_of(kind, mask, seed) for seed, mask in enumerate(masks)])
        plain(maps[:1], masks[:1], costs), ours(maps[:1], masks[:1])
        for start in range(0, count, few):
            some = maps[start : start + few], masks[start : start + few]
            theirs, their_time = timed(partial(plain, *some, costs))
            found, our_time = timed(partial(ours, *some))
            rows.append((their_time, our_time, np.abs(found / theirs - 1).max(), proof(*some)))
        show(kind, np.array(rows[-(count // few) :]), count)
    show("all", np.array(rows), count * len(KINDS))
    their_sum, our_sum = np.array(rows)[:, :2].sum(axis=0)
    return float(their_sum / our_sum)


def compare_fni(size: int, count: int) -> float:
    """FNI-EMD on ``count`` maps of each kind at once; how many times as fast as the plain call."""
    truths = tetrominoes(size)
    pixels = np.argwhere(truths[0] >= 0)
    masks = np.stack([truths[0]] * count * len(KINDS))
    maps = np.stack([map_of(kind, truths[0], seed) for kind in KINDS for seed in range(count)])
    costs, marked = cdist(pixels, pixels), truths[0].ravel()
    costs[np.ix_(marked, marked)] = 0
    plain(maps[:1], masks[:1], costs), fni_emd(maps[:1], masks[:1])
    distances, their_time = timed(partial(plain, maps, masks, costs))
    found, our_time = timed(partial(fni_emd, maps, masks, reduction="none"))
    expected = 1 - distances / costs[marked].mean(axis=0).max()
    ratio, ms = their_time / our_time, 1e3 / len(maps)
    print(
        f"FNI-EMD, {size}×{size}: {their_time * ms:.3f} ms a map released, {our_time * ms:.3f} here, {ratio:.1f} times "
        f"as fast; largest difference of a score {np.abs(np.asarray(found) - expected).max():.0e}",
        flush=True,
    )
    return ratio


def show(kind: str, rows: Floats, count: int) -> None:
    theirs, ours = 1e3 * rows[:, :2].sum(axis=0) / count
    ratios = rows[:, 0] / rows[:, 1]
    each = f"{ratios.min():.1f} to {ratios.max():.1f}"
    error, gap = rows[:, 2:].max(axis=0)
    print(f"{kind:<14}{theirs:>10.3f}{ours:>10.3f}{theirs / ours:>8.1f}×{each:>16}{error:>9.0e}{gap:>9.0e}", flush=True)


def in_a_fresh_process(function: Callable[..., _T], *arguments: Any) -> _T:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(function, arguments)


def peak_memory() -> float:
    """MB, of this process (Linux: ``ru_maxrss`` would count the parent's)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def large(kind: str) -> tuple[float, float, float, float, float, float]:
    mask = ellipse(224)
    values = map_of(kind, mask, 0)
    emd(np.eye(200), np.fliplr(np.eye(200)))
    (lower, upper), some = timed(lambda: emd(values, mask, exact=False))
    some_memory = peak_memory()
    distance, all_of_it = timed(lambda: emd(values, mask))
    assert lower <= distance <= upper
    return some, (upper - lower) / upper, some_memory, all_of_it, proof(values[None], mask[None]), peak_memory()


def ball(size: int) -> Masks:
    """One percent of a volume."""
    slices, rows, columns = np.indices((size,) * 3) / size - 0.5
    return (slices - 0.1) ** 2 + (rows + 0.1) ** 2 + columns**2 < 0.1337**2


def in_volumes() -> None:
    print(f"{'volume':<12}{'kind':<14}{'result':>8}{'CPU s':>8}{'gap':>8}{'MB':>6}")
    for size, exact in ((16, True), (32, True), (32, False), (96, False)):
        for kind in ("uniform", "smooth blobs"):
            seconds, gap, most = in_a_fresh_process(volume, size, kind, exact)
            result = "exact" if exact else "bounds"
            print(
                f"{f'{size}×{size}×{size}':<12}{kind:<14}{result:>8}{seconds:>8.2f}{gap:>8.2%}{most:>6.0f}", flush=True
            )


def volume(size: int, kind: str, exact: bool) -> tuple[float, float, float]:
    mask = ball(size)[None]
    values = map_of(kind, mask[0], 0)[None]
    emd(np.eye(200), np.fliplr(np.eye(200)))
    found, seconds = timed(lambda: emd(values, mask) if exact else emd(values, mask, exact=False))
    lower, upper = (found, found) if exact else found
    return seconds, (upper - lower) / upper, peak_memory()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--large", action="store_true", help="224×224 instead")
    parser.add_argument("--volumes", action="store_true", help="volumes instead")
    arguments = parser.parse_args()
    if arguments.volumes:
        in_volumes()
        return
    if arguments.large:
        print(f"{'224×224':<14}{'bounds: CPU s':>14}{'gap':>8}{'MB':>6}{'exact: CPU s':>14}{'gap':>8}{'MB':>6}")
        for kind in KINDS:
            some, width, some_memory, all_of_it, gap, most = in_a_fresh_process(large, kind)
            print(f"{kind:<14}{some:>14.1f}{width:>8.2%}{some_memory:>6.0f}{all_of_it:>14.1f}{gap:>8.0e}{most:>6.0f}")
        return
    ratios = {size: compare(size, count, few) for size, count, few in ((64, 3, 1), (8, 200, 100))}
    print()
    fni = {size: compare_fni(size, count) for size, count in ((64, 1), (8, 100))}
    all_ratios = [("EMD", ratios), ("FNI-EMD", fni)]
    if slow := [
        f"{name}, {size}×{size}: {ratio:.1f}, bar {BARS[size]}"
        for name, found in all_ratios
        for size, ratio in found.items()
        if ratio < BARS[size]
    ]:
        sys.exit(f"\nbelow the bar: {'; '.join(slow)}")


if __name__ == "__main__":
    main()
