"""Freed memory is kept by the process and reused without asking the system for it again."""

import pytest
from fresh_process import run_fresh

SCRIPT = """
import resource, sys
import numpy as np
from xaibench.runner.engines.malloc import keep_freed_memory

if sys.argv[1] == "kept" and not keep_freed_memory():
    print("no glibc")
    raise SystemExit
faults = []
for _ in range(5):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    np.ones(5 * 2**20)  # 40 MiB, of 10,240 pages
    faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
print(min(faults))
"""


def faults(how):
    return run_fresh(SCRIPT, how).stdout.strip()


def test_memory_that_was_freed_is_used_again():
    kept = faults("kept")
    if kept == "no glibc":
        pytest.skip("only glibc can be told to keep memory")
    assert int(kept) < 100
