"""Time and memory to build the leaderboard site from results of many simulated methods.

    python benchmarks/board.py [--methods 200] [--samples 100] [--out FOLDER]

Prints the seconds, the peak memory of all processes together, the bytes of the first view (all files that a browser
loads for the first page), and the size of the site.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import re
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa

from xaibench.leaderboard.manifest import Manifest, MethodInfo, RunInfo, SuiteVersion
from xaibench.leaderboard.pictures import draw_map_sheet, sheet_layout, write_sample_sheet
from xaibench.leaderboard.score_files import MANIFEST, PICTURE, write_scores
from xaibench.leaderboard.suite_facts import FACTS_FILE, SuiteFacts, facts_folder
from xaibench.runfolder.descriptions import parse_parts
from xaibench.runfolder.sample_file import SampleCell
from xaibench.runfolder.tables import ACCURACY, SAMPLES, SCORES, TRAININGS

SCENARIOS, BACKGROUNDS, MODELS = ("lin", "mult", "rigid"), ("white", "corr", "imagenet"), ("llr", "mlp", "cnn")
CELLS = list(itertools.product(SCENARIOS, BACKGROUNDS, MODELS))
#: Name to label, kind of truth.
METRICS = {"iou": ("IoU", "data"), "topk_precision": ("Precision", "data"), "insertion": ("Insertion", "intervention")}
CONTROLS = 5


def simulate(repository: Path, methods: int, samples: int, *, cells: list[tuple[str, str, str]] = CELLS) -> None:
    """Write a results repository of methods of all skills, the last few controls."""
    rng = np.random.default_rng(0)
    skill = np.sort(rng.uniform(0.3, 0.9, methods))[::-1]
    skill[-CONTROLS:] = rng.uniform(0.3, 0.4, CONTROLS)
    hard = {cell: (rng.uniform(0, 0.15), rng.normal(0, 0.1, samples)) for cell in cells}
    pictures = _pictures(cells, rng)
    for number in range(methods):
        name = f"control-{number}" if number >= methods - CONTROLS else f"method-{number:03d}"
        method = MethodInfo(
            name, name.replace("-", " ").title(), "saliency", "A simulated method.", f"{name} (2026).", "mit",
            passes=int(rng.integers(1, 2000)), control=name.startswith("control"),
        )  # fmt: skip
        run = RunInfo({"xaibench": "0.1.0"}, "", 0.5 * len(cells), len(cells) * samples)
        manifest = Manifest(method, SuiteVersion("simulated", "0" * 32), "2026-01-01", run=run)
        if not number:
            _write_facts(facts_folder(repository, manifest), pictures)
        folder = repository / manifest.folder
        folder.mkdir(parents=True)
        maps = rng.random((1, 8, 8)).astype(np.float16)
        picture = draw_map_sheet([_of_method(cell, name, maps) for cell in pictures], name, sheet_layout(pictures))
        scores = pa.Table.from_pandas(_scores(name, skill[number], hard, rng))
        write_scores(scores, folder, {MANIFEST: manifest.to_json(), PICTURE: picture})


def _scores(name: str, skill: float, hard: dict, rng: np.random.Generator) -> pd.DataFrame:
    parts = []
    for cell, (harder, of_samples) in hard.items():
        for metric, (_, truth) in METRICS.items():
            values = skill - harder + of_samples + rng.normal(0, 0.05) + rng.normal(0, 0.1, len(of_samples))
            rows = dict(zip(("subset", "variant", "model"), cell, strict=True))
            rows |= {"dataset": "-".join(cell[:2]), "seed": 0, "data_seed": 0, "explainer": name, "metric": metric}
            rows |= {"sample": np.arange(len(values)), "correct": True, "value": np.clip(values, 0, 1), "truth": truth}
            parts.append(pd.DataFrame(rows | {"higher_is_better": True, "reason": ""}))
    table = pd.concat(parts, ignore_index=True)[list(SCORES.columns)]
    return table.astype(dict.fromkeys(SCORES.text, "category"))


def _write_facts(folder: Path, pictures: list[SampleCell]) -> None:
    folder.mkdir(parents=True)
    metrics = {name: {"label": label, "range": [0, 1], "truth": truth} for name, (label, truth) in METRICS.items()}
    models = {name: {"label": name.upper()} for name in MODELS}
    words = {"suite": "simulated", "title": "Simulated suite", "explainers": {}, "models": models, "metrics": metrics}
    layout = sheet_layout(pictures)
    tables = (table.empty() for table in (ACCURACY, TRAININGS, SAMPLES))
    facts = SuiteFacts(folder, parse_parts(words, folder), {}, layout, *tables)
    (folder / FACTS_FILE).write_bytes(facts.to_json())
    write_sample_sheet(folder, pictures, layout)


def _pictures(cells: list, rng: np.random.Generator, count: int = 4) -> list[SampleCell]:
    found = []
    for cell in cells:
        shape = (count, 8, 8)
        found.append(
            SampleCell(
                *cell, "-".join(cell[:2]), 0, 0, tuple(range(count)), tuple(f"sample {i}" for i in range(count)),
                count, (), 0, ("",), False, rng.integers(0, 256, (*shape, 3), dtype=np.uint8),
                (rng.random(shape) < 0.2).astype(np.uint8), np.zeros((count, 1, 8, 8), np.float16),
                np.zeros((0, 8, 8), np.float32),
            )
        )  # fmt: skip
    return found


def _of_method(cell: SampleCell, name: str, maps: np.ndarray) -> SampleCell:
    return dataclasses.replace(cell, explainers=(name,), maps=np.repeat(maps[None], len(cell.samples), axis=0))


def first_view(site: Path) -> int:
    """Return the bytes that a browser loads for the first page."""
    page = site / "index.html"
    files = re.findall(r'<(?:script|link|img)[^>]* (?:src|href)="([^"]+)"', page.read_text(encoding="utf-8"))
    return page.stat().st_size + sum((site / name).stat().st_size for name in files if not name.startswith("data:"))


def main() -> None:
    """Simulate, build, print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--methods", type=int, default=200)
    parser.add_argument("--samples", type=int, default=100, help="samples per cell")
    parser.add_argument("--out", type=Path, help="keep results and site here")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = asked.out or Path(place)
        if not (folder / "results").exists():
            simulate(folder / "results", asked.methods, asked.samples)
        begun = time.monotonic()
        # In a process of its own, which has not simulated anything.
        build = [
            sys.executable,
            "-m",
            "xaibench",
            "leaderboard",
            str(folder / "results"),
            "--out",
            str(folder / "site"),
        ]
        subprocess.run(build, check=True)
        seconds = time.monotonic() - begun
        spent = resource.getrusage(resource.RUSAGE_CHILDREN)
        files = [path.stat().st_size for path in (folder / "site").rglob("*") if path.is_file()]
        rows = asked.methods * len(CELLS) * len(METRICS) * asked.samples
        print(f"{asked.methods} methods in {len(CELLS)} cells by {len(METRICS)} metrics: {rows:,} scores")
        processor, peak = spent.ru_utime + spent.ru_stime, spent.ru_maxrss >> 10
        print(f"{seconds:.0f} s ({processor:.0f} s of processor), {peak} MB at most")
        view, whole = first_view(folder / "site") / 1e3, sum(files) / 1e6
        print(f"first view {view:.0f} kB; site {whole:.0f} MB in {len(files)} files")


if __name__ == "__main__":
    main()
