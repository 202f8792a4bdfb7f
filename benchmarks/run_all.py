"""Run all benchmarks and write their results to one JSON file per release.

    OMP_NUM_THREADS=1 python benchmarks/run_all.py                 # all
    OMP_NUM_THREADS=1 python benchmarks/run_all.py --quick         # smaller sizes; does every script still run?
    OMP_NUM_THREADS=1 python benchmarks/run_all.py --only emd rise

Every script of this folder is run as a separate process with a time limit. The file, by default
``benchmarks/results/VERSION.json``, contains version, date and machine, and for each script the command, its exit code,
the seconds and the printed lines with the numbers in them. With ``--only``, the other entries of an existing file stay.

Exits with 1 if a script failed or exceeded the time limit.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import json
import os
import platform
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent

#: Arguments of scripts that need some.
ARGUMENTS = {"training": ["--speed"], "trials": ["flips", "files", "kills"]}

#: Arguments for ``--quick``. Scripts that have an option ``--quick`` need no entry.
QUICK = {
    "board": ["--methods", "20"],
    "cluster": ["--suites", "xai-tris-8x8", "--no-ray"],
    "explainers": ["--samples", "10", "--captum-samples", "2"],
    "gpu": ["--rehearse"],
    "interval_coverage": ["--runs", "10"],
    "large_results": ["--rows", "100000"],
    "loading": ["--epochs", "1"],
    "metrics": ["--steps", "56", "--images", "1", "--rounds", "1", "--no-peers"],
    "metrics_faithfulness": ["--images", "1", "--rounds", "1", "--no-peers"],
    "metrics_ground_truth": ["--count", "4", "--rounds", "1"],
    "rise": ["--masks", "32", "--rounds", "1"],
    "store": ["--rows", "20000"],
    "suite": ["--images", "1", "--masks", "32"],
    "trials": ["flips", "--count", "50"],
}

#: Scripts that are not run: they write pages or pictures of the documentation, or need the folder of a run.
SKIPPED = {"gallery", "networks", "run_time", "two_machines", "variance"}

_NUMBER = re.compile(r"(?<![\w.])-?\d[\d,]*(?:\.\d+)?(?:e-?\d+)?")


def list_scripts(folder: Path = HERE) -> dict[str, Path]:
    """Return the benchmark scripts of a folder by name."""
    return {
        path.stem: path
        for path in sorted(folder.glob("*.py"))
        if path.stem not in SKIPPED and path != Path(__file__) and '__name__ == "__main__"' in path.read_text("utf-8")
    }


def choose_arguments(name: str, script: Path, *, quick: bool) -> list[str]:
    """Return the arguments with which a script is run."""
    if not quick:
        return ARGUMENTS.get(name, [])
    if '"--quick"' in script.read_text("utf-8"):
        return [*ARGUMENTS.get(name, []), "--quick"]
    return QUICK.get(name, ARGUMENTS.get(name, []))


def run_script(script: Path, arguments: list[str], limit: float) -> dict[str, Any]:
    """Run a script and return its entry of the results."""
    command = [sys.executable, str(script), *arguments]
    start = time.monotonic()
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit)
        code, output, errors = done.returncode, done.stdout, done.stderr
    except subprocess.TimeoutExpired as error:
        code, output, errors = None, _as_text(error.stdout), _as_text(error.stderr)
    entry: dict[str, Any] = {
        "command": " ".join(["python", f"benchmarks/{script.name}", *arguments]),
        "exit_code": code,
        "seconds": round(time.monotonic() - start, 1),
        "lines": parse_lines(output),
    }
    if code != 0:
        entry["error"] = f"Exceeded the time limit of {limit:g} s." if code is None else errors[-2000:]
    return entry


def parse_lines(output: str) -> list[dict[str, Any]]:
    r"""Return the printed lines that contain numbers, with the numbers.

    Example:
        >>> parse_lines("8×8: ours 1.5 ms\\n\\nno numbers here")
        [{'text': '8×8: ours 1.5 ms', 'numbers': [1.5]}]
    """
    lines = [line.rstrip() for line in output.splitlines()]
    found = [(line, [float(text.replace(",", "")) for text in _NUMBER.findall(line)]) for line in lines]
    return [{"text": line, "numbers": numbers} for line, numbers in found if numbers]


def describe_machine() -> dict[str, Any]:
    """Return what the times depend on."""
    names = ("torch", "numpy", "numba")
    return {
        "platform": platform.platform(),
        "processor": _processor(),
        "cpus": os.cpu_count(),
        "threads": os.environ.get("OMP_NUM_THREADS"),
        "python": platform.python_version(),
        **{name: importlib.metadata.version(name) for name in names},
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def _as_text(output: str | bytes | None) -> str:
    return output.decode(errors="replace") if isinstance(output, bytes) else output or ""


def main(folder: Path = HERE) -> int:
    scripts = list_scripts(folder)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=list(scripts), help="run only these scripts")
    parser.add_argument("--quick", action="store_true", help="smaller sizes, where a script supports it")
    parser.add_argument("--limit", type=float, default=3600, help="seconds per script (default 3600)")
    parser.add_argument("--out", type=Path, help="the JSON file; default: results/VERSION.json in this folder")
    given = parser.parse_args()

    version = importlib.metadata.version("xaibench") if _is_installed() else _source_version()
    out = given.out or folder / "results" / f"{version}.json"
    kept = json.loads(out.read_text("utf-8"))["benchmarks"] if given.only and out.exists() else {}
    results = {
        "version": version,
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "quick": given.quick,
        "machine": describe_machine(),
        "benchmarks": kept,
    }
    failed = []
    out.parent.mkdir(parents=True, exist_ok=True)
    for name in given.only or scripts:
        arguments = choose_arguments(name, scripts[name], quick=given.quick)
        entry = results["benchmarks"][name] = run_script(scripts[name], arguments, given.limit)
        out.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n", "utf-8")
        print(f"{name}: {entry['seconds']:.1f} s{'' if entry['exit_code'] == 0 else ', failed'}", flush=True)
        if entry["exit_code"] != 0:
            failed.append(name)
    print(f"Results: {out}" + (f"; failed: {', '.join(failed)}" if failed else ""))
    return 1 if failed else 0


def _is_installed() -> bool:
    try:
        importlib.metadata.version("xaibench")
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def _source_version() -> str:
    text = (HERE.parent / "xaibench" / "_version.py").read_text("utf-8")
    return text.partition('"')[2].partition('"')[0]


if __name__ == "__main__":
    sys.exit(main())
