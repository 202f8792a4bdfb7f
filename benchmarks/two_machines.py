"""How far the maps and scores of the same suite are apart in two runs, such as of two machines.

xaibench run xai-tris-8x8 --out one
OPENBLAS_CORETYPE=Haswell ATEN_CPU_CAPABILITY=default xaibench run xai-tris-8x8 --out other
python benchmarks/two_machines.py one other
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from xaibench.evaluation.map_encoding import decode_maps
from xaibench.leaderboard.verification import SCORE_TOLERANCE
from xaibench.runfolder.tables import SCORES
from xaibench.runner.store.result_store import Store

KEYS = ["dataset", "data_seed", "model", "seed", "explainer", "metric", "sample"]


def score_differences(one: Path, other: Path) -> NDArray[np.float64]:
    """Return the difference of each score; 0 where both are undefined, infinite where only one is."""
    tables = [SCORES.read(folder, [*KEYS, "value"]).astype({"explainer": str}) for folder in (one, other)]
    both = tables[0].merge(tables[1], on=KEYS, how="outer", suffixes=("", "_other"))
    values = both[["value", "value_other"]].to_numpy(np.float64)
    apart = np.abs(values[:, 0] - values[:, 1])
    apart[np.isnan(values).all(axis=1)] = 0.0
    return np.where(np.isnan(apart), np.inf, apart)


def map_differences(one: Path, other: Path) -> NDArray[np.float64]:
    """Return the largest difference within each map, relative to its largest magnitude; 0 for two maps of zeros."""
    stores = [Store(folder / "store") for folder in (one, other)]
    found = [np.empty(0)]
    for key in sorted(stores[0].keys("explain").keys() & stores[1].keys("explain").keys()):
        first, second = (decode_maps(store.load_tensors("explain", key)[0]).double().flatten(1) for store in stores)
        largest = first.abs().amax(1)
        found.append(((first - second).abs().amax(1) / largest.where(largest > 0, 1.0)).numpy())
    return np.concatenate(found)


def main(one: Path, other: Path) -> None:
    """Print the table."""
    print(f"| | number | same bits | above {SCORE_TOLERANCE:g} | largest difference |\n|---|--:|--:|--:|--:|")
    for name, apart in (("maps, relative", map_differences(one, other)), ("scores", score_differences(one, other))):
        equal, above = (apart == 0).sum(), (apart > SCORE_TOLERANCE).sum()
        print(f"| {name} | {len(apart):,} | {equal:,} | {above:,} | {apart.max(initial=0):.1e} |")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("one", type=Path)
    parser.add_argument("other", type=Path)
    given = parser.parse_args()
    main(given.one, given.other)
