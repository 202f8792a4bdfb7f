"""The published networks of a suite, which its runs use instead of training.

xaibench run xai-tris-8x8 --train && python docs/generate/published_networks.py runs/xai-tris-8x8

writes xaibench/benchmarks/xai_tris/networks/xai-tris-8x8.json and .safetensors. Repeat it when a revision of a data
set, an architecture or the training has changed; the keys of the networks change with it.
"""

from __future__ import annotations

import sys
from pathlib import Path

import xaibench
from xaibench.runfolder.descriptions import read_parts
from xaibench.runner.plan.plan import make_plan
from xaibench.runner.published_networks import write_networks
from xaibench.runner.store.result_store import Store
from xaibench.runner.suites.files import SUITES, load_suite


def main(folder: Path) -> None:
    """Write the files from a run folder."""
    name = read_parts(folder).suite
    suite = Path(xaibench.__file__).parent / "benchmarks" / SUITES.target(name)
    index = suite.parents[1] / "networks" / f"{name}.json"
    index.parent.mkdir(exist_ok=True)
    plan = make_plan(load_suite(folder / "suite.toml")[0], train=True)
    count = write_networks(plan, Store(folder / "store"), index)
    weights = index.with_suffix(".safetensors")
    print(f"{weights}: {count} networks, {weights.stat().st_size:,} bytes")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
