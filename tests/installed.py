"""The installed ``xaibench`` command, in a process of its own.

It is the console script itself that is run, since ``python -m xaibench`` has the current folder on its path, and so has
a test. Starting Python and torch takes seconds, so one process runs several commands: each in a fork that knows no more
than a console script does.
"""

import contextlib
import json
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import NamedTuple

#: What the shell runs.
SCRIPT = Path(sysconfig.get_path("scripts"), "xaibench")

#: Reads a command a line, runs it in a fork, and says how it ended. -P leaves the current folder off its path.
_SERVER = """
import json, os, runpy, sys
import numba, torch, xaibench.cli, xaibench.evaluation, xaibench.report, xaibench.runner.warm_imports
torch.set_num_threads(1)
sys.path.insert(0, os.path.dirname(sys.argv[1]))
for line in sys.stdin:
    asked = json.loads(line)
    child = os.fork()
    if not child:
        code = 1
        try:
            os.chdir(asked["folder"])
            os.environ |= asked["environment"]
            for number, name in enumerate(("out", "err"), start=1):
                os.dup2(os.open(asked[name], os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
            sys.argv[1:] = asked["arguments"]
            sys.argv[0] = asked["script"]
            runpy.run_path(asked["script"], run_name="__main__")
            code = 0
        except SystemExit as error:
            code = error.code or 0
        finally:
            sys.stdout.flush(), sys.stderr.flush()
            os._exit(code)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
os._exit(0)  # without taking torch down
"""


class Ended(NamedTuple):
    """How a command ended."""

    exit_code: int
    stdout: str
    stderr: str


class Command:
    """Runs ``xaibench`` with arguments, in a folder."""

    def __init__(self, server, folder):
        self._server, self._folder = server, folder

    def __call__(self, *arguments, folder, **environment):
        files = {name: str(self._folder / name) for name in ("out", "err")}
        asked = {"arguments": arguments, "script": str(SCRIPT), "folder": str(folder), "environment": environment}
        self._server.stdin.write(json.dumps(asked | files) + "\n")
        self._server.stdin.flush()
        code = int(self._server.stdout.readline())
        return Ended(code, *(Path(file).read_text(encoding="utf-8") for file in files.values()))


@contextlib.contextmanager
def installed(folder):
    """The command; it writes what it prints to ``folder``."""
    server = subprocess.Popen(
        [sys.executable, "-P", "-c", _SERVER, str(SCRIPT)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with server:
        yield Command(server, folder)
        server.stdin.close()
