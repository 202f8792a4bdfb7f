"""A process for somebody else's method: without network, masks and the user's files, with limits of time and memory.

Where there is bubblewrap (``bwrap``), the kernel shuts the method in: it has no network, its own ``/tmp``, and reads
Python, the library and its own source alone. Where there is none, it is a process of its own whose forbidden acts are
refused by Python's audit events: that stops accidents and the careless, not an adversary, and is said.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import select
import shutil
import struct
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

#: The longest answer that is read: maps of a batch.
_MOST_BYTES = 4 << 30
#: Where the source of the method lies inside, and what it imports beside.
_INSIDE = ("/method", "/packages")


class SandboxError(RuntimeError):
    """A method that failed, broke off or was stopped in its sandbox; the message says how."""


class SandboxViolationError(SandboxError):
    """A method that did what it may not do; the message says what."""


@dataclass(frozen=True)
class Sandbox:
    """How a method is shut in, and its limits.

    Attributes:
        entry: The method: a listed explainer, or ``module:name``.
        source: The folder that ``module`` lies in; empty for what is installed.
        packages: A folder with what it imports beside that, before what is installed; empty for none.
        parameters: Its own, as JSON.
        output: What of the model is explained; empty leaves it to the method.
        device: Where it computes; what it is asked about lies on the CPU on its way.
        hidden: Folders whose files it must not read; only the weaker sandbox needs to know them.
        seconds: The longest that it may take for one batch of images.
        memory_gb: The most memory that it may hold, in GiB.
    """

    entry: str
    source: str = ""
    packages: str = ""
    parameters: str = "{}"
    output: str = ""
    device: str = "cpu"
    hidden: tuple[str, ...] = ()
    seconds: float = 600.0
    memory_gb: float = 8.0


@cache
def bubblewrap_path() -> str:
    """The path of ``bwrap`` where it works; empty where there is none, or the system lets it make no namespaces."""
    found = shutil.which("bwrap")
    if not found:
        return ""
    tried = [found, "--unshare-all", "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "true"]
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        if subprocess.run(tried, capture_output=True, timeout=20, check=False).returncode == 0:
            return found
    return ""


def sandbox_kind() -> str:
    """``"bubblewrap"``, or ``"process"``, which is weaker."""
    return "bubblewrap" if bubblewrap_path() else "process"


class SandboxedProcess:
    """A method in its sandbox. Used as a context manager, which ends it."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox
        self._killed = ""
        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        is_isolated = bool(bubblewrap_path())
        paths = [inside if is_isolated else folder for folder, inside in _own_folders(sandbox)]
        settings = {
            **{name: asdict(sandbox)[name] for name in ("entry", "device", "hidden")},
            "paths": paths,
            "parameters": json.loads(sandbox.parameters),
            "output": sandbox.output or None,
            "shut_in": is_isolated,
        }
        python = [sys.executable, "-P", "-m", "xaibench.leaderboard.sandbox.worker", json.dumps(settings)]
        command = [*_walls(sandbox, is_isolated), *python]
        # A session of its own, so that it can be ended with all that it started.
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env=_environment(sandbox, is_isolated),
            start_new_session=True,
            cwd=None if is_isolated else tempfile.gettempdir(),  # as inside the walls
        )
        threading.Thread(target=self._watch_memory, daemon=True).start()

    def __enter__(self) -> SandboxedProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def ask(self, call: str, **arguments: Any) -> tuple[dict[str, Any], NDArray[Any] | None]:
        """Send a request, and wait for the answer.

        Args:
            call: A method of :class:`xaibench.leaderboard.sandbox.worker.Worker`.
            **arguments: Its arguments.

        Returns:
            What was said, and maps where it made some.

        Raises:
            RefusedError: If the method did what it may not do.
            SandboxError: If it failed, ended, or took too long or too much memory.
            UnsupportedModelError: If it says that it cannot treat the network.
        """
        import torch

        from xaibench.explainers import UnsupportedModelError

        request = io.BytesIO()
        torch.save({"call": call, **arguments}, request)
        body = request.getvalue()
        until = time.monotonic() + self.sandbox.seconds
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(struct.pack("<Q", len(body)) + body)
            self._process.stdin.flush()
            said, maps = self._answer(until)
        except (OSError, EOFError, ValueError) as error:
            self.close()
            code = self._process.returncode
            raise SandboxError(self._killed or f"its process ended with code {code} ({self._last_words()})") from error
        if said.get("refused"):
            raise SandboxViolationError("; ".join(map(str, said["refused"])))
        if said.get("untreated"):
            raise UnsupportedModelError(str(said["error"]))
        if "error" in said:
            raise SandboxError(str(said["error"]))
        return said, maps

    def _answer(self, until: float) -> tuple[dict[str, Any], NDArray[Any] | None]:
        text, body = struct.unpack("<QQ", self._read(16, until))
        if text > 1 << 20 or body > _MOST_BYTES:
            raise ValueError(f"an answer of {text + body} bytes")
        said = json.loads(self._read(text, until))
        content = self._read(body, until)
        if "shape" not in said:
            return dict(said), None
        if said.get("dtype") not in ("float32", "float64"):
            raise ValueError(f"maps of {said.get('dtype')}")
        return said, np.frombuffer(content, said["dtype"]).reshape(said["shape"]).copy()

    def _read(self, size: int, until: float) -> bytes:
        """So many bytes of the answer; ends the process when the time is over."""
        assert self._process.stdout is not None
        handle, parts = self._process.stdout.fileno(), bytearray()
        while len(parts) < size:
            if not select.select([handle], [], [], max(0.0, until - time.monotonic()))[0]:
                self._killed = f"it took more than {self.sandbox.seconds:g} s for one batch of images"
                raise EOFError(self._killed)
            if not (read := os.read(handle, min(size - len(parts), 1 << 20))):
                raise EOFError("no answer")
            parts += read
        return bytes(parts)

    def _watch_memory(self) -> None:
        limit = self.sandbox.memory_gb * (1 << 30)
        while self._process.poll() is None:
            if (held := sum(_resident(pid) for pid in _family(self._process.pid))) > limit:
                self._killed = f"it held {held / (1 << 30):.1f} GiB of memory, of {self.sandbox.memory_gb:g}"
                self._end()
                return
            time.sleep(0.1)

    def _last_words(self) -> str:
        self._log.seek(max(0, self._log.seek(0, os.SEEK_END) - 2000))
        lines = self._log.read().decode(errors="replace").strip().splitlines()
        return f"its last words: {lines[-1]}" if lines else "it said nothing"

    def _end(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, 9)
        self._process.kill()

    def close(self) -> None:
        """End the method, whatever it does."""
        with contextlib.suppress(subprocess.TimeoutExpired):  # one that ends by itself is let say with which code
            self._process.wait(0 if self._killed else 0.2)
        self._end()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        self._process.wait()


def _environment(sandbox: Sandbox, is_isolated: bool) -> dict[str, str]:
    """What of the user's environment the method has: no tokens, no addresses, no folders but Python's."""
    kept = {"PATH": os.environ.get("PATH", os.defpath), "LANG": "C.UTF-8", "OMP_NUM_THREADS": "1"}
    kept["PYTHONDONTWRITEBYTECODE"] = "1"  # else the library's own imports write where nothing may be written
    if sandbox.device != "cpu":  # where the GPU's driver lies, and which GPUs are meant
        names = ("LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER")
        kept |= {name: os.environ[name] for name in names if name in os.environ}
    home = "/tmp" if is_isolated else tempfile.gettempdir()
    numba = {"NUMBA_CACHE_DIR": os.path.join(home, "numba"), "MPLCONFIGDIR": os.path.join(home, "matplotlib")}
    return kept | numba | {"HOME": home, "TMPDIR": home, "PYTHONPATH": os.pathsep.join(_packages())}


def _packages() -> list[str]:
    """The folder that the library lies in, where Python does not find it by itself."""
    import xaibench

    return [str(Path(xaibench.__file__).resolve().parent.parent)]


def _walls(sandbox: Sandbox, is_isolated: bool) -> Iterator[str]:
    """The command in front of Python's."""
    if not is_isolated:
        return
    yield from (bubblewrap_path(), "--unshare-all", "--die-with-parent", "--cap-drop", "ALL")
    yield from ("--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--chdir", "/tmp")
    for folder in ("/usr", "/lib", "/lib64", "/bin", "/etc/ld.so.cache", "/etc/alternatives", "/sys/devices/system"):
        yield from ("--ro-bind-try", folder, folder)
    for folder in _python():
        yield from ("--ro-bind", folder, folder)
    package = str(Path(_packages()[0], "xaibench"))
    yield from ("--ro-bind", package, package)
    for folder, inside in _own_folders(sandbox):
        yield from ("--ro-bind", str(Path(folder).resolve()), inside)
    if sandbox.device != "cpu":
        for device in sorted(Path("/dev").glob("nvidia*")):
            yield from ("--dev-bind-try", str(device), str(device))


def _own_folders(sandbox: Sandbox) -> list[tuple[str, str]]:
    """What the method brings along, here and inside."""
    return [pair for pair in zip((sandbox.source, sandbox.packages), _INSIDE, strict=True) if pair[0]]


def _python() -> list[str]:
    """Where Python and what is installed for it lie: of a virtual environment, its base too."""
    folders = {sys.prefix, sys.base_prefix, sys.exec_prefix, *sysconfig.get_paths().values()}
    folders |= {str(Path(one).resolve()) for one in folders}
    there = sorted(one for one in folders if os.path.isdir(one))
    # Not those inside another.
    return [one for one in there if not any(one != other and one.startswith(f"{other}/") for other in there)]


def _family(pid: int) -> list[int]:
    """A process and all below it."""
    found = [pid]
    for one in found:
        with contextlib.suppress(OSError):
            for thread in Path(f"/proc/{one}/task").iterdir():
                found += [int(child) for child in (thread / "children").read_text().split()]
    return found


def _resident(pid: int) -> int:
    with contextlib.suppress(OSError, IndexError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0
