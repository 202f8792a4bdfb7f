"""The result store at scale: a million score rows that are merged, merged again, damaged, and read into a table.

    OMP_NUM_THREADS=1 python benchmarks/store.py            # a million rows in 5,000 results
    OMP_NUM_THREADS=1 python benchmarks/store.py --rows 100000

Writes score results as in a run of the suite ``xai-tris-8x8`` with 200 samples per explainer, copied under other names
up to the requested number. Measures processor time and peak memory of each step in a separate process.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import numpy as np
import pandas as pd
import pyarrow.parquet as pq

from xaibench.runfolder.tables import SCORES
from xaibench.runner.plan.plan import CellPlan, make_plan
from xaibench.runner.stages.score_rows import cell_scores
from xaibench.runner.store.result_store import CorruptResultError, Store
from xaibench.runner.suites.parsing import parse_suite

SAMPLES, EXPLAINERS = 200, 125


def cells(rows: int) -> list[CellPlan]:
    """Cells of 125 explainers and two metrics each (50,000 rows), one for each data seed."""
    suite = parse_suite(
        {
            "name": "many",
            "title": "Many",
            "data": {"seeds": -(-rows // (2 * EXPLAINERS * SAMPLES)), "parameters": {"n_samples": 10 * SAMPLES}},
            "explaining": {"samples": SAMPLES},
            "cells": [{"datasets": ["xai-tris/lin-white-8x8"], "models": ["llr"]}],
            "explainers": {f"lime-{i}": {"use": "lime", "n_samples": 10 + i} for i in range(EXPLAINERS)},
            "metrics": {"emd_perf": {}, "topk_precision": {}},
        }
    )
    return list(make_plan(suite).cells)


def write(folder: Path, rows: int) -> None:
    store, rng = Store(folder / "store"), np.random.default_rng(0)
    for cell in cells(rows):
        for _, score in cell.scores:
            values = rng.random(SAMPLES)
            values[rng.random(SAMPLES) < 0.01] = np.nan
            table = pd.DataFrame({"sample": range(SAMPLES), "value": values})
            table["reason"] = np.where(table["value"].isna(), "map is all zero", "")
            store.save_table("score", score.key, table)


def merge(folder: Path, rows: int) -> None:
    """Merge the results as the runner does at the end of a run, without evaluating the networks."""
    store, correct = Store(folder / "store"), np.ones(SAMPLES, dtype=bool)
    with (
        mock.patch("xaibench.runner.stages.score_rows.chosen_training", return_value=(None, 0)),
        pq.ParquetWriter(folder / "scores.parquet", SCORES.arrow_schema(), write_page_checksum=True) as writer,
    ):
        marks = store.keys("score")
        for cell in cells(rows):
            writer.write_table(cell_scores(cell, store, correct, marks, folder / ".merged"))


def change_one(folder: Path, rows: int) -> None:
    store, score = Store(folder / "store"), cells(rows)[0].scores[0][1]
    store.save_table("score", score.key, store.load_table("score", score.key).assign(value=0.5, reason=""))
    merge(folder, rows)


def damage_one(folder: Path, rows: int) -> None:
    shard = folder / "store" / "score" / f"{cells(rows)[-1].scores[-1][1].key}.parquet"
    data = bytearray(shard.read_bytes())
    data[len(data) // 3] ^= 255
    shard.write_bytes(data)
    try:
        merge(folder, rows)
    except CorruptResultError as error:
        print(error, file=sys.stderr)
        assert not shard.exists()
        assert any(shard.parent.glob(f"{shard.name}.corrupt-*"))
        return
    raise AssertionError("the damage was not found")


def read(folder: Path, rows: int) -> None:
    table = pd.read_parquet(folder / "scores.parquet")
    assert len(table) >= rows
    assert table["value"].isna().sum() == (table["reason"] != "").sum()


STEPS: dict[str, tuple[str, Callable[[Path, int], None]]] = {
    "write": ("write every result", write),
    "merge": ("merge all results into scores.parquet", merge),
    "again": ("merge again, nothing changed", merge),
    "change": ("merge again, one result changed", change_one),
    "read": ("read scores.parquet into a table", read),
    "damage": ("find one damaged result, and set it aside", damage_one),
}


def measure(step: str, folder: Path, rows: int) -> None:
    """One step in this process; prints its cost as JSON."""
    make_plan(parse_suite({"name": "a", "title": "a", "cells": [{"datasets": ["xai-tris/lin-white-8x8"],
              "models": ["llr"]}], "explainers": {"lime": {}}, "metrics": {"emd_perf": {}}}))  # fmt: skip
    idle = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    start, busy = time.perf_counter(), time.process_time()
    STEPS[step][1](folder, rows)
    seconds, cpu = time.perf_counter() - start, time.process_time() - busy
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"seconds": seconds, "cpu": cpu, "peak": peak, "idle": idle}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--step", choices=STEPS, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.step:
        measure(given.step, given.folder, given.rows)
        return
    with tempfile.TemporaryDirectory() as folder:
        print(f"{given.rows:,} score rows, {SAMPLES} in each result")
        print(f"{'':44}{'wall s':>9}{'cpu s':>9}{'peak MiB':>10}{'idle MiB':>10}")
        for step, (label, _) in STEPS.items():
            command = [sys.executable, __file__, "--rows", str(given.rows), "--step", step, "--folder", folder]
            found = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
            print(f"{label:44}{found['seconds']:9.2f}{found['cpu']:9.2f}{found['peak']:10.0f}{found['idle']:10.0f}")
        size = (Path(folder) / "scores.parquet").stat().st_size / (1 << 20)
        print(f"scores.parquet: {size:.0f} MiB. Idle is the process with its libraries loaded, before the step.")


if __name__ == "__main__":
    main()
