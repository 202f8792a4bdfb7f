"""Write the published networks of a suite, which its runs use instead of training.

xaibench run xai-tris-8x8 --train && python docs/generate/published_networks.py runs/xai-tris-8x8

writes xaibench/benchmarks/xai_tris/networks/xai-tris-8x8.json and .safetensors.xz. Repeat it when a revision of a data
set, an architecture or the training has changed; the keys of the networks change with it. A second argument is another
name of the files: networks on photographs are apart, so that the checksum of the others does not depend on them.

xaibench run xai-tris-64x64 --train --images DIR --datasets xai-tris/lin-imagenet-64x64,...
XAIBENCH_IMAGES=DIR python docs/generate/published_networks.py runs/xai-tris-64x64 xai-tris-64x64-imagenet
"""

from __future__ import annotations

import sys
from pathlib import Path

import pandas as pd

import xaibench
from xaibench.runner.network_publishing import write_networks
from xaibench.runner.plan.plan import make_plan
from xaibench.runner.store import Store
from xaibench.runner.suites.parsing import SUITES, load_suite


def main(folder: Path, name: str = "") -> None:
    """Write the files from a run folder, and print what rounding the weights changes."""
    suite = load_suite(folder / "suite.toml")[0]
    plan, store = make_plan(suite, train=True), Store(folder / "store")
    file = Path(xaibench.__file__).parent / "benchmarks" / SUITES.target(suite.name)
    index = file.parents[1] / "networks" / f"{name or suite.name}.json"
    index.parent.mkdir(exist_ok=True)
    records = write_networks(plan, store, index)
    size = index.with_suffix(".safetensors.xz").stat().st_size
    print(f"{index.with_suffix('.safetensors.xz')}: {len(records)} networks, {size:,} bytes")
    table = pd.DataFrame(
        {
            "model": record["model"],
            "accuracy": record["test_accuracy"],
            "moved": record["test_accuracy"] - record["rounding"]["test_accuracy"],
            "agreement": record["rounding"]["agreement"],
        }
        for record in records.values()
    )
    print("Accuracy, how far rounding moved it, and the agreement of gradient maps with those before rounding:")
    print(table.groupby("model").agg(["min", "mean", "max"]).round(4).to_string())


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
