"""Write the checksums of the generated data sets of the published suites.

python docs/generate/checksums.py

Run it when a revision of a data set changes. Tests compare a part of the checksums on every machine.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path

from xaibench.benchmarks.certified.functions import FUNCTIONS
from xaibench.benchmarks.checksums import checksum, parameters_as_json
from xaibench.benchmarks.facets import PATTERN_GAM_VARIANTS
from xaibench.benchmarks.pattern_gam import data_sets as pattern_gam
from xaibench.benchmarks.watermarks.generated import SETS
from xaibench.benchmarks.xai_tris.patterns import SCENARIOS
from xaibench.data import load

BENCHMARKS = Path(__file__).parents[2] / "xaibench/benchmarks"
#: Number of seeds of the suites at 8×8 (25 in the paper), 64×64 and 16×16×16, and of the other benchmarks' suites.
SEEDS = {"8x8": 25, "64x64": 1, "16x16x16": 3, "certified": 3, "pattern_gam": 5, "watermarks": 3}
#: The sets of creatures, those of the suite and small ones that tests make.
CREATURES = (
    ("parts/creatures-96x96", {}),
    ("parts/creatures-96x96", {"n_samples": 6000}),
    ("parts/creatures-96x96", {"n_samples": 80}),
    ("parts/creatures-224x224", {}),
    ("parts/creatures-224x224", {"n_samples": 80}),
)


def sets() -> Iterator[tuple[str, str, Mapping[str, int]]]:
    """Yield the folder, the name and the parameters of each set."""
    tris = itertools.product(("8x8", "64x64", "16x16x16"), SCENARIOS, ("white", "corr"))
    gam = itertools.product(pattern_gam.SCENARIOS, PATTERN_GAM_VARIANTS)
    seeded = [
        *(("xai_tris", f"xai-tris/{scenario}-{background}-{size}", size) for size, scenario, background in tris),
        *(("pattern_gam", f"pattern-gam/{scenario}-{v.removeprefix('plain-')}", "pattern_gam") for scenario, v in gam),
        *(("certified", f"certified:{function}", "certified") for function in FUNCTIONS),
        *(("watermarks", f"watermarks/{name}", "watermarks") for name in SETS),
    ]
    for folder, name, seeds in seeded:
        for seed in range(SEEDS[seeds]):
            yield folder, name, {"seed": seed}
    for name, parameters in CREATURES:
        yield "creatures", name, parameters


def main() -> None:
    """Write the files."""
    lines: dict[str, list[str]] = {}
    for folder, name, parameters in sets():
        dataset = load(name, **parameters)
        line = f"{checksum(dataset)}  {name} {parameters_as_json(dataset.parameters)}\n"
        lines.setdefault(folder, []).append(line)
    for folder, found in lines.items():
        (BENCHMARKS / folder / "checksums.txt").write_text("".join(found), encoding="ascii")


if __name__ == "__main__":
    main()
