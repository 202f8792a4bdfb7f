"""Whether this machine has a sandbox; tests that run a method in one are skipped where it has none."""

import pytest

from xaibench.leaderboard.sandbox.sandbox import why_no_sandbox

needs_sandbox = pytest.mark.skipif(bool(why_no_sandbox()), reason=f"no sandbox: {why_no_sandbox()}")
