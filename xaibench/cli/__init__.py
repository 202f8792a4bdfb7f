"""The command line. A command is a function in one of the modules here, and its module a line below.

Exit codes: 0 all went well, 1 jobs failed (they are listed), data are missing or the disk gave out, 2 bad arguments.
"""

import contextlib
import os
import sys

from xaibench.cli import data_commands as annotated
from xaibench.cli import leaderboard_command as leaderboard
from xaibench.cli import list_command as listing
from xaibench.cli import push_command as hub
from xaibench.cli import results_commands as results
from xaibench.cli import run_commands as running
from xaibench.cli import score_command as scoring
from xaibench.cli import submit_command as submitting
from xaibench.cli.application import app

__all__ = ["annotated", "app", "hub", "leaderboard", "listing", "main", "results", "running", "scoring", "submitting"]


def main() -> None:
    """Entry point of the ``xaibench`` command."""
    # A console script has its own folder on the path, and not, as ``python -m``, the one that it is run in, where parts
    # of one's own (``mine:squared``) lie. Last, so that a file there hides no package; worker processes take it over.
    with contextlib.suppress(FileNotFoundError):  # a folder that was deleted meanwhile
        if (here := os.getcwd()) not in sys.path:
            sys.path.append(here)
    app()
