"""Seconds to verify results of the library in the sandbox: the first of a suite, and each further one.

    python benchmarks/verification.py [--suites NAME ...] [--methods NAME ...]

The first method of a suite starts from nothing: its data are generated and its networks read. The others are verified
together and reuse both. Exits with 1 if a score is not bit-identical.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path

from xaibench.leaderboard.verification_runs import verify_all

RESULTS = Path(__file__).parents[1] / "examples" / "leaderboard" / "results"
SUITES = (
    *("parts", "watermarks", "certified", "budget-certified", "budget"),
    *("xai-tris-8x8", "xai-tris-16x16x16", "xai-tris-64x64"),
)
#: In this order; a suite has those of them that support its networks.
METHODS = ("saliency", "input_x_gradient", "deeplift", "gradcam", "lrp_epsilon")


def copy_results(suite: str, methods: list[str], target: Path) -> list[Path]:
    """Copy the results of some methods on a suite into a repository of their own."""
    for facts in (RESULTS / "suites").glob(f"{suite}@*"):
        shutil.copytree(facts, target / "suites" / facts.name)
    found = [folder for method in methods for folder in (RESULTS / method).glob(f"{suite}@*")]
    return [
        Path(shutil.copytree(folder, target / folder.parent.name / folder.name))
        for folder in found
        if "+" not in folder.name
    ]


def seconds_to_verify(folders: list[Path], work: Path) -> tuple[float, bool]:
    """Return the seconds, and whether all scores are bit-identical."""
    start = time.monotonic()
    verdicts = [one.verification and one.verification.verdict for one in verify_all(folders, work=work)]
    return time.monotonic() - start, set(verdicts) <= {"bit-equal"}


def main() -> None:
    """Verify, and print a row per suite."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--suites", nargs="+", default=SUITES, choices=SUITES, metavar="NAME")
    parser.add_argument("--methods", nargs="+", default=METHODS, metavar="NAME")
    parser.add_argument("--quick", action="store_true", help="one suite and two methods")
    asked = parser.parse_args()
    suites, methods = (["parts"], METHODS[:2]) if asked.quick else (asked.suites, asked.methods)
    print("| suite | first method, s | each further method, s |\n|---|--:|--:|", flush=True)
    all_equal = True
    for suite in suites:
        with tempfile.TemporaryDirectory(prefix="xaibench-benchmark-") as place:
            first, *others = copy_results(suite, list(methods), Path(place) / "results")
            alone, equal = seconds_to_verify([first], Path(place) / "work")
            all_equal &= equal
            further = ""
            if others:
                together, equal = seconds_to_verify(others, Path(place) / "work")
                all_equal &= equal
                further = f"{together / len(others):.0f}"
            print(f"| {suite} | {alone:.0f} | {further} |", flush=True)
    if not all_equal:
        sys.exit("Some scores are not bit-identical.")


if __name__ == "__main__":
    main()
