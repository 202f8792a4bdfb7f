"""Run the fuzzers with other seeds again and again, until the time is over or a test fails.

python tests/fuzz.py metrics --minutes 60    # tests/metrics/test_fuzz.py for an hour
python tests/fuzz.py                         # each fuzzer for a minute or one pass, whichever is longer

The ordinary suite runs each fuzzer once, with few examples and always the same ones.
"""

import argparse
import re
import resource
import subprocess
import sys
import time
from pathlib import Path

TESTS = Path(__file__).parent
FUZZERS = {path.parent.relative_to(TESTS).as_posix(): path for path in sorted(TESTS.rglob("test_fuzz.py"))}


def run(path: Path, minutes: float, seed: int) -> bool:
    """Run one fuzzer with the seeds from ``seed``; print how many examples passed, and return whether all did."""
    began, passed, first, failed = time.monotonic(), 0, seed, False
    while not failed and (seed == first or time.monotonic() - began < minutes * 60):
        options = ["--hypothesis-profile=fuzz", f"--hypothesis-seed={seed}", "--hypothesis-show-statistics"]
        command = [sys.executable, "-m", "pytest", path, "-n", "0", "--no-header", *options]
        done = subprocess.run(command, cwd=TESTS.parent, capture_output=True, text=True, check=False)
        passed += sum(map(int, re.findall(r"(\d+) passing", done.stdout)))
        seed, failed = seed + 1, done.returncode != 0
    minutes = (time.monotonic() - began) / 60
    name = path.relative_to(TESTS.parent).as_posix()
    if failed:
        print(done.stdout, done.stderr)
        print(f"{name} failed: pytest {name} -n 0 {' '.join(options[:2])}")
    print(f"{name}: {passed:,} examples passed in {minutes:.1f} minutes, seeds {first} to {seed - 1}", flush=True)
    return not failed


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(FUZZERS)}; default: all")
    parser.add_argument("--minutes", type=float, default=1, help="for each fuzzer")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    given = parser.parse_args()
    if unknown := set(given.names) - FUZZERS.keys():
        parser.error(f"no fuzzer {', '.join(sorted(unknown))}; there are {', '.join(FUZZERS)}")
    # Damage that asks for much memory fails a test instead of the machine.
    resource.setrlimit(resource.RLIMIT_AS, (12 << 30, 12 << 30))
    held = [run(FUZZERS[name], given.minutes, given.seed) for name in given.names or FUZZERS]
    sys.exit(not all(held))
