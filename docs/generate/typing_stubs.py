"""Generate the stubs from which type checkers and editors learn where the registered metrics are defined."""

from __future__ import annotations

from pathlib import Path

import xaibench
from xaibench.metrics import METRICS

PATH = Path(xaibench.__file__).parent / "metrics" / "registered_functions.pyi"
HEAD = "# Written by docs/generate/typing_stubs.py from the table of metrics.\n"


def functions() -> str:
    """Return one import per metric, sorted by module."""
    targets = [METRICS.target(name).split(":") for name in METRICS]
    lines = [f"from {module} import {name} as {name}" for module, name in sorted(targets)]
    return HEAD + "\n".join(lines) + "\n"


def stubs() -> dict[Path, str]:
    """Return the path of each stub file and its content."""
    return {PATH: functions()}
