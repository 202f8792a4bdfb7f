"""Memory of the report, the comparison of two runs and the leaderboard for ten million scores.

    python benchmarks/large_results.py [--rows 10000000] [--out FOLDER]

The results are simulated as in ``benchmarks/board.py``: few methods with many samples. Prints seconds and peak memory
of each command, which runs in a separate process.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

import pyarrow.parquet as pq
from board import CELLS, METRICS, simulate

from xaibench.leaderboard.manifest import find_results
from xaibench.runfolder.tables import SCORES

METHODS = 20


def run_of(results: Path, run: Path) -> int:
    """Write one run folder with all results and return its number of scores."""
    run.mkdir(parents=True)
    (parts,) = results.glob("suites/*/parts.json")
    shutil.copyfile(parts, run / parts.name)
    rows = 0
    with pq.ParquetWriter(run / SCORES.name, SCORES.arrow_schema()) as writer:
        for folder in find_results(results):
            table = pq.read_table(folder / SCORES.name).cast(SCORES.arrow_schema())
            writer.write_table(table)
            rows += len(table)
    return rows


def measured(*command: str) -> None:
    """Run a command of xaibench and print its time and memory."""
    begun = time.monotonic()
    pid = os.posix_spawn(
        sys.executable,
        [sys.executable, "-m", "xaibench", *command],
        os.environ,
        file_actions=[(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)],
    )
    _, status, spent = os.wait4(pid, 0)
    seconds, processor = time.monotonic() - begun, spent.ru_utime + spent.ru_stime
    ended = "" if status == 0 else f", ended with {os.waitstatus_to_exitcode(status)}"
    print(
        f"{command[0]:8} {seconds:5.0f} s ({processor:.0f} s of processor), {spent.ru_maxrss >> 10} MB at most{ended}"
    )


def main() -> None:
    """Simulate, run the commands, print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--out", type=Path, help="keep everything here")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = asked.out or Path(place)
        samples = -(-asked.rows // (METHODS * len(CELLS) * len(METRICS)))
        simulate(folder / "results", METHODS, samples)
        rows = run_of(folder / "results", folder / "run")
        shutil.copytree(folder / "run", folder / "other")
        print(
            f"{rows:,} scores: {METHODS} methods in {len(CELLS)} cells by {len(METRICS)} metrics, {samples:,} samples"
        )
        measured("report", str(folder / "run"))
        measured("compare", str(folder / "run"), str(folder / "other"))
        measured("leaderboard", str(folder / "results"), "--out", str(folder / "site"))


if __name__ == "__main__":
    main()
