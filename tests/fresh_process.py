"""Code in a process of its own that has imported NumPy, SciPy and PyTorch, but nothing of the package and its extras.

PyTorch takes two seconds to import, so it is imported by one process, of which each call is a fork.
"""

import functools
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

_SERVER = """
import json, os, sys, traceback
import numpy, scipy.stats, torch

torch.set_num_threads(1)  # threads do not come along into a fork
for line in sys.stdin:
    request = json.loads(line)
    pid = os.fork()
    if pid == 0:
        for number, path in enumerate(request["outputs"], start=1):
            os.dup2(os.open(path, os.O_WRONLY), number)
        os.environ.clear()
        os.environ.update(request["environment"])
        sys.argv = ["-c", *request["arguments"]]
        status = 0
        try:
            exec(compile(request["code"], "<string>", "exec"), {"__name__": "__main__"})
        except SystemExit as stop:
            status = int(stop.code or 0)
        except BaseException:
            traceback.print_exc()
            status = 1
        sys.stdout.flush()
        os._exit(status)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""


@functools.cache
def _server() -> subprocess.Popen:
    """A process that ends with this one, which closes its input."""
    return subprocess.Popen([sys.executable, "-c", _SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def run_fresh(code: str, *arguments: str, check: bool = True, **variables: str) -> subprocess.CompletedProcess:
    """Run code as ``python -c CODE ARGUMENTS`` would, with further environment variables."""
    with tempfile.TemporaryDirectory() as folder:
        outputs = [Path(folder, name) for name in ("stdout", "stderr")]
        for path in outputs:
            path.touch()
        request = {"code": code, "arguments": arguments, "outputs": list(map(str, outputs))}
        print(json.dumps(request | {"environment": os.environ | variables}), file=_server().stdin, flush=True)
        status = int(_server().stdout.readline())
        done = subprocess.CompletedProcess([code, *arguments], status, *(path.read_text() for path in outputs))
    if check:
        assert status == 0, done.stderr
    return done
