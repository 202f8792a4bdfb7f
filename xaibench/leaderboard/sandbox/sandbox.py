"""Process for a submitted method, without network, masks and the user's files, and with time and memory limits.

With bubblewrap (``bwrap``), the kernel isolates the method: it has no network, a private ``/tmp``, and can read only
Python, the library and its own source. Without it, the method runs in a separate process in which Python's audit events
block forbidden actions. This prevents accidents but does not stop an adversary; the verification records which one was
used.
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

#: Largest accepted answer (the maps of a batch), in bytes.
_MAX_ANSWER_BYTES = 4 << 30
#: Folders of the method's source and of its packages inside bubblewrap.
_MOUNT_POINTS = ("/method", "/packages")


class SandboxError(RuntimeError):
    """A method failed, exited or was stopped in its sandbox. The message is a clause that says how."""


class SandboxViolationError(SandboxError):
    """A method did something that the sandbox forbids. The message says what."""


@dataclass(frozen=True)
class Sandbox:
    """Configuration and limits of a sandbox.

    Attributes:
        entry: The method: a listed explainer, or ``module:name``.
        source: Folder of the module; empty for installed modules.
        packages: Folder of further packages, which take precedence over installed ones; empty for none.
        parameters: Parameters of the method, as JSON.
        output: The explained model output; empty for the method's default.
        device: Device of the method. Inputs are sent through the CPU.
        hidden: Folders that the method must not read; used without bubblewrap only.
        seconds: Time limit per batch of images, in seconds.
        memory_gb: Memory limit in GiB.
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
    """Return the path of ``bwrap``; empty if it is missing or may not create namespaces."""
    found = shutil.which("bwrap")
    if not found:
        return ""
    tried = [found, "--unshare-all", "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "true"]
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        if subprocess.run(tried, capture_output=True, timeout=20, check=False).returncode == 0:
            return found
    return ""


def sandbox_kind() -> str:
    """Return ``"bubblewrap"``, or ``"process"``, which isolates less."""
    return "bubblewrap" if bubblewrap_path() else "process"


class SandboxedProcess:
    """A method in its sandbox; a context manager that ends the process."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox
        self._kill_reason = ""
        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        is_isolated = bool(bubblewrap_path())
        paths = [inside if is_isolated else folder for folder, inside in _mounted_folders(sandbox)]
        settings = {
            **{name: asdict(sandbox)[name] for name in ("entry", "device", "hidden")},
            "paths": paths,
            "parameters": json.loads(sandbox.parameters),
            "output": sandbox.output or None,
            "shut_in": is_isolated,
        }
        python = [sys.executable, "-P", "-m", "xaibench.leaderboard.sandbox.worker", json.dumps(settings)]
        command = [*_bubblewrap_command(sandbox, is_isolated), *python]
        # A new session, so that the process can be killed with its children.
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env=_clean_environment(sandbox, is_isolated),
            start_new_session=True,
            cwd=None if is_isolated else tempfile.gettempdir(),  # as in bubblewrap
        )
        threading.Thread(target=self._watch_memory, daemon=True).start()

    def __enter__(self) -> SandboxedProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def call(self, call: str, **arguments: Any) -> tuple[dict[str, Any], NDArray[Any] | None]:
        """Call a function of the worker and wait for the answer.

        Args:
            call: Name of a method of :class:`xaibench.leaderboard.sandbox.worker.Worker`.
            **arguments: Its arguments.

        Returns:
            The header of the answer, and the maps or None.

        Raises:
            SandboxViolationError: If the method did something forbidden.
            SandboxError: If it failed, exited, or exceeded a limit.
            UnsupportedModelError: If the method does not support the network.
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
            said, maps = self._read_answer(until)
        except (OSError, EOFError, ValueError) as error:
            self.close()
            code = self._process.returncode
            raise SandboxError(
                self._kill_reason or f"its process ended with code {code} ({self._last_log_line()})"
            ) from error
        if said.get("refused"):
            raise SandboxViolationError("; ".join(map(str, said["refused"])))
        if said.get("untreated"):
            raise UnsupportedModelError(str(said["error"]))
        if "error" in said:
            raise SandboxError(str(said["error"]))
        return said, maps

    def _read_answer(self, until: float) -> tuple[dict[str, Any], NDArray[Any] | None]:
        text, body = struct.unpack("<QQ", self._read_bytes(16, until))
        if text > 1 << 20 or body > _MAX_ANSWER_BYTES:
            raise ValueError(f"an answer of {text + body} bytes")
        said = json.loads(self._read_bytes(text, until))
        content = self._read_bytes(body, until)
        if "shape" not in said:
            return dict(said), None
        if said.get("dtype") not in ("float32", "float64"):
            raise ValueError(f"maps of {said.get('dtype')}")
        return said, np.frombuffer(content, said["dtype"]).reshape(said["shape"]).copy()

    def _read_bytes(self, size: int, until: float) -> bytes:
        """Read ``size`` bytes of the answer; raise EOFError at the deadline."""
        assert self._process.stdout is not None
        handle, parts = self._process.stdout.fileno(), bytearray()
        while len(parts) < size:
            if not select.select([handle], [], [], max(0.0, until - time.monotonic()))[0]:
                self._kill_reason = f"it took more than {self.sandbox.seconds:g} s for one batch of images"
                raise EOFError(self._kill_reason)
            if not (read := os.read(handle, min(size - len(parts), 1 << 20))):
                raise EOFError("no answer")
            parts += read
        return bytes(parts)

    def _watch_memory(self) -> None:
        limit = self.sandbox.memory_gb * (1 << 30)
        while self._process.poll() is None:
            if (held := sum(_resident_bytes(pid) for pid in _process_tree(self._process.pid))) > limit:
                self._kill_reason = f"it used {held / (1 << 30):.1f} GiB of memory, of {self.sandbox.memory_gb:g}"
                self._kill()
                return
            time.sleep(0.1)

    def _last_log_line(self) -> str:
        self._log.seek(max(0, self._log.seek(0, os.SEEK_END) - 2000))
        lines = self._log.read().decode(errors="replace").strip().splitlines()
        return f"last line of its log: {lines[-1]}" if lines else "its log is empty"

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, 9)
        self._process.kill()

    def close(self) -> None:
        """End the process."""
        with contextlib.suppress(subprocess.TimeoutExpired):  # keep the exit code of a process that ends by itself
            self._process.wait(0 if self._kill_reason else 0.2)
        self._kill()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        self._process.wait()


def _clean_environment(sandbox: Sandbox, is_isolated: bool) -> dict[str, str]:
    """Return an environment without tokens, addresses or the user's folders."""
    kept = {"PATH": os.environ.get("PATH", os.defpath), "LANG": "C.UTF-8", "OMP_NUM_THREADS": "1"}
    kept["PYTHONDONTWRITEBYTECODE"] = "1"  # otherwise imports write to read-only folders
    if sandbox.device != "cpu":  # GPU driver, and selection of GPUs
        names = ("LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER")
        kept |= {name: os.environ[name] for name in names if name in os.environ}
    home = "/tmp" if is_isolated else tempfile.gettempdir()
    numba = {"NUMBA_CACHE_DIR": os.path.join(home, "numba"), "MPLCONFIGDIR": os.path.join(home, "matplotlib")}
    return kept | numba | {"HOME": home, "TMPDIR": home, "PYTHONPATH": os.pathsep.join(_library_path())}


def _library_path() -> list[str]:
    """Return the parent folder of the library, for ``PYTHONPATH``."""
    import xaibench

    return [str(Path(xaibench.__file__).resolve().parent.parent)]


def _bubblewrap_command(sandbox: Sandbox, is_isolated: bool) -> Iterator[str]:
    """Yield the command that precedes Python's."""
    if not is_isolated:
        return
    yield from (bubblewrap_path(), "--unshare-all", "--die-with-parent", "--cap-drop", "ALL")
    yield from ("--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--chdir", "/tmp")
    for folder in ("/usr", "/lib", "/lib64", "/bin", "/etc/ld.so.cache", "/etc/alternatives", "/sys/devices/system"):
        yield from ("--ro-bind-try", folder, folder)
    for folder in _python_folders():
        yield from ("--ro-bind", folder, folder)
    package = str(Path(_library_path()[0], "xaibench"))
    yield from ("--ro-bind", package, package)
    for folder, inside in _mounted_folders(sandbox):
        yield from ("--ro-bind", str(Path(folder).resolve()), inside)
    if sandbox.device != "cpu":
        for device in sorted(Path("/dev").glob("nvidia*")):
            yield from ("--dev-bind-try", str(device), str(device))


def _mounted_folders(sandbox: Sandbox) -> list[tuple[str, str]]:
    """Return pairs of the method's folders outside and inside the sandbox."""
    return [pair for pair in zip((sandbox.source, sandbox.packages), _MOUNT_POINTS, strict=True) if pair[0]]


def _python_folders() -> list[str]:
    """Return the folders of Python and of installed packages, including the base of a virtual environment."""
    folders = {sys.prefix, sys.base_prefix, sys.exec_prefix, *sysconfig.get_paths().values()}
    folders |= {str(Path(one).resolve()) for one in folders}
    there = sorted(one for one in folders if os.path.isdir(one))
    # Drop folders inside other folders.
    return [one for one in there if not any(one != other and one.startswith(f"{other}/") for other in there)]


def _process_tree(pid: int) -> list[int]:
    """Return a process and all its descendants."""
    found = [pid]
    for one in found:
        with contextlib.suppress(OSError):
            for thread in Path(f"/proc/{one}/task").iterdir():
                found += [int(child) for child in (thread / "children").read_text().split()]
    return found


def _resident_bytes(pid: int) -> int:
    with contextlib.suppress(OSError, IndexError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0
