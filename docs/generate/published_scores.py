"""Write the published scores of a suite, which `xaibench run SUITE --explainers mine:f --against published` uses.

xaibench run xai-tris-8x8 && python docs/generate/published_scores.py runs/xai-tris-8x8

writes xaibench/benchmarks/xai_tris/suites/published/xai-tris-8x8.parquet. Repeat it when a revision of a part of the
suite, or of the training of its networks, has changed; a run states which.
"""

from __future__ import annotations

import sys
from pathlib import Path

import xaibench
from xaibench.runfolder.descriptions import read_parts
from xaibench.runner.published_scores import write_published
from xaibench.runner.suites.parsing import SUITES


def main(folder: Path) -> None:
    name = read_parts(folder).suite
    suite = Path(xaibench.__file__).parent / "benchmarks" / SUITES.target(name)
    file = suite.parent / "published" / f"{name}.parquet"
    write_published(folder, file)
    print(f"{file}: {file.stat().st_size:,} bytes")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
