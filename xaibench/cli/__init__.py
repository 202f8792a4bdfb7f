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

from xaibench.cli import (  # noqa: F401  (they add their commands)
    audit_command,
    data_commands,
    list_command,
    networks_command,
    push_command,
    results_commands,
    run_commands,
    score_command,
)
from xaibench.cli.application import app

__all__ = ["app", "main"]


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
