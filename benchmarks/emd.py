"""Earth mover's distance: ours against the plain call that the released code makes, paired in one run.

    OMP_NUM_THREADS=1 python benchmarks/emd.py              # 8×8 and 64×64
    OMP_NUM_THREADS=1 python benchmarks/emd.py --size 8

The plain call is ``ot.lp.emd`` on the whole map and the whole mask with the full cost matrix of the image, built once
and not timed. Both are timed in turns on the same few maps (20 at 8×8, one at 64×64), after each has solved one, so
that a busy machine slows both and neither pays for imports.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
import ot
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter
from scipy.spatial.distance import cdist

from xaibench.metrics import emd

Floats = NDArray[np.float64]


def tetromino_mask(size: int) -> NDArray[np.bool_]:
    """A T and an L where XAI-TRIS puts them; at 64×64 smoothed and cut at 5 %, 862 pixels."""
    cell = size // 8
    pattern = np.zeros((size, size))
    corners = ((1, 1), (4, 5)) if size == 8 else ((8, 8), (32, 40))
    for (row, col), block in zip(corners, ([[1, 0], [1, 1], [1, 0]], [[1, 0], [1, 0], [1, 1]]), strict=True):
        shape = np.kron(np.array(block, dtype=float), np.ones((cell, cell)))
        pattern[row : row + shape.shape[0], col : col + shape.shape[1]] = shape
    if size > 8:
        pattern = gaussian_filter(pattern, 1.5)
    return pattern > 0.05 * pattern.max()


def maps_of(kind: str, count: int, mask: NDArray[np.bool_], rng: np.random.Generator) -> Floats:
    """``count`` signed maps ``[count, H, W]`` of one kind."""
    shape = (count, *mask.shape)
    noise = rng.standard_normal(shape)
    width = mask.shape[0] / 10
    blobs = np.stack([gaussian_filter(values, width) for values in noise])
    if kind == "uniform":
        return rng.uniform(-1, 1, shape)
    if kind == "smooth blobs":
        return blobs
    if kind == "90 % zeros":
        return noise * (rng.random(shape) < 0.1)
    if kind == "heavy-tailed":
        return rng.standard_cauchy(shape) ** 3
    if kind == "good":
        return mask * (1 + 0.3 * noise) + 0.05 * rng.random(shape)
    raise ValueError(f"unknown kind of map {kind!r}.")


KINDS = ("uniform", "smooth blobs", "90 % zeros", "heavy-tailed", "good")


def plain(maps: Floats, masks: NDArray[np.bool_], cost: Floats) -> Floats:
    """The whole map against the whole mask, the mass that they have in common included."""
    distances = []
    for values, mask in zip(maps, masks, strict=True):
        source = np.abs(values).ravel() / np.abs(values).sum()
        _, log = ot.lp.emd(source, mask.ravel() / mask.sum(), cost, numItermax=10_000_000, log=True)
        assert log["result_code"] == 1, log["warning"]
        distances.append(log["cost"])
    return np.array(distances)


def clock(call: Callable[[], Floats]) -> tuple[float, Floats]:
    start = time.perf_counter()
    distances = call()
    return time.perf_counter() - start, distances


def in_turns(maps: Floats, mask: NDArray[np.bool_], cost: Floats, few: int) -> tuple[NDArray[np.float64], float]:
    """Seconds that the plain call and ours took over all ``maps``, and the largest difference of their distances."""
    seconds, difference = np.zeros(2), 0.0
    for start in range(0, len(maps), few):
        some = maps[start : start + few]
        masks = np.broadcast_to(mask, some.shape)
        plain_seconds, theirs = clock(lambda some=some, masks=masks: plain(some, masks, cost))
        our_seconds, ours = clock(lambda some=some, masks=masks: emd(some, masks, reduction="none"))
        seconds += (plain_seconds, our_seconds)
        difference = max(difference, float(np.abs(theirs - ours).max()))
    return seconds, difference


def compare(size: int, count: int, seed: int) -> None:
    mask, rng = tetromino_mask(size), np.random.default_rng(seed)
    pixels = np.argwhere(np.ones((size, size)))
    cost = cdist(pixels, pixels)
    print(f"\n{size}×{size}, {mask.sum()} pixels marked, {count} maps of each kind; ms a map")
    print(f"{'kind':<14}{'plain':>10}{'xaibench':>10}{'ratio':>8}{'max |difference|':>20}")
    totals = np.zeros(2)
    for kind in KINDS:
        maps = maps_of(kind, count, mask, rng)
        in_turns(maps[:1], mask, cost, few=1)
        seconds, difference = in_turns(maps, mask, cost, few=20 if size == 8 else 1)
        totals += seconds
        each = 1e3 * seconds / count
        print(f"{kind:<14}{each[0]:>10.3f}{each[1]:>10.3f}{seconds[0] / seconds[1]:>8.2f}{difference:>20.1e}")
    each = 1e3 * totals / (count * len(KINDS))
    print(f"{'all':<14}{each[0]:>10.3f}{each[1]:>10.3f}{totals[0] / totals[1]:>8.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, choices=(8, 64), help="one size only; both by default")
    parser.add_argument("--maps", type=int, help="maps of each kind (default: 200 at 8×8, 2 at 64×64)")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    for size, count in ((8, 200), (64, 2)):
        if options.size in (None, size):
            compare(size, options.maps or count, options.seed)


if __name__ == "__main__":
    main()
