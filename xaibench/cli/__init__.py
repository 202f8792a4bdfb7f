"""Command line. Each module here defines commands, and is imported below.

Exit codes: 0 for success, 1 if jobs failed, data are missing or the disk is full, 2 for invalid arguments.
"""

import contextlib
import gc
import os
import signal
import sys
import warnings
from typing import NoReturn

from xaibench.cli import audit_command as auditing
from xaibench.cli import data_commands as annotated
from xaibench.cli import leaderboard_command as leaderboard
from xaibench.cli import list_command as listing
from xaibench.cli import networks_command as networks
from xaibench.cli import push_command as hub
from xaibench.cli import results_commands as results
from xaibench.cli import run_commands as running
from xaibench.cli import score_command as scoring
from xaibench.cli.application import app

__all__ = [
    "annotated",
    "app",
    "auditing",
    "hub",
    "leaderboard",
    "listing",
    "main",
    "networks",
    "results",
    "running",
    "scoring",
]


def _exit_on_signal(number: int, _: object) -> NoReturn:
    sys.exit(128 + number)


def _one_line(message: Warning | str, *_: object, **__: object) -> str:
    """Format a warning without its place in the code, which is not the user's."""
    return f"Warning: {message}\n"


def main() -> None:
    """Run the ``xaibench`` command."""
    # A time limit and a container that is stopped send this signal, which by default ends Python at once: the temporary
    # folders of a verification, gigabytes, would stay.
    signal.signal(signal.SIGTERM, _exit_on_signal)
    # Unlike ``python -m``, a console script does not have the current folder on its path, which may contain the user's
    # parts (``mine:squared``). It is added last so that it hides no package; worker processes inherit the path.
    with contextlib.suppress(FileNotFoundError):  # the folder was deleted
        if (here := os.getcwd()) not in sys.path:
            sys.path.append(here)
    warnings.formatwarning = _one_line
    try:
        app()
    finally:
        gc.freeze()  # otherwise Python visits all objects of torch once more before it exits, which takes half a second
