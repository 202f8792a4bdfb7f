"""The published networks of a suite, which its runs use instead of training.

xaibench run xai-tris-8x8 --train && python docs/generate/published_networks.py runs/xai-tris-8x8

writes xaibench/benchmarks/xai_tris/networks/xai-tris-8x8.json and .safetensors. Repeat it when a revision of a data
set, an architecture or the training has changed; the keys of the networks change with it.

The weights of large architectures (more than a megabyte a network) do not come with the library: their file is
runs/xai-tris-64x64/networks/xai-tris-64x64-large.safetensors, to be uploaded to the repository from which xaibench
prepare networks gets it.
"""

from __future__ import annotations

import sys
from pathlib import Path

import xaibench
from xaibench.models import build
from xaibench.runfolder.descriptions import read_parts
from xaibench.runner.plan.plan import Plan, make_plan
from xaibench.runner.published_networks import LARGE, write_networks
from xaibench.runner.store.result_store import Store
from xaibench.runner.suites.files import SUITES, load_suite

#: Largest size of a network that comes with the library, in bytes.
LARGEST = 1_000_000


def large_models(plan: Plan) -> set[str]:
    """Return the architectures of a suite with more than a megabyte of weights."""
    shapes = {cell.model: cell.data.image_shape for cell in plan.cells}
    sizes = {
        name: sum(4 * each.numel() for each in build(name, shape, 2).parameters()) for name, shape in shapes.items()
    }
    return {name for name, size in sizes.items() if size > LARGEST}


def main(folder: Path) -> None:
    """Write the files from a run folder."""
    name = read_parts(folder).suite
    suite = Path(xaibench.__file__).parent / "benchmarks" / SUITES.target(name)
    plan, store = make_plan(load_suite(folder / "suite.toml")[0], train=True), Store(folder / "store")
    large = large_models(plan)
    for models, suffix in (({cell.model for cell in plan.cells} - large, ""), (large, LARGE)):
        if not models:
            continue
        index = suite.parents[1] / "networks" / f"{name}{suffix}.json"
        index.parent.mkdir(exist_ok=True)
        count = write_networks(plan, store, index, models)
        weights = index.with_suffix(".safetensors")
        if suffix:
            (folder / "networks").mkdir(exist_ok=True)
            weights = weights.replace(folder / "networks" / weights.name)
        print(f"{weights}: {count} networks, {weights.stat().st_size:,} bytes")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
