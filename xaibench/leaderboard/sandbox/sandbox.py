"""Process for a submitted method: without network, masks, data generators and the user's files, and with limits.

The isolation is the kernel's, set up by bubblewrap (``bwrap``): namespaces of its own, a file system that holds only
Python, the library without its data generators and the method's source, all read-only, an unprivileged user, and a
filter of system calls. Without bubblewrap, methods are not run.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import platform
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
from typing import Any

from xaibench.leaderboard.manifest import ResultError
from xaibench.leaderboard.sandbox.protocol import (
    MAX_HEADER_BYTES,
    Answer,
    SandboxError,
    SandboxViolationError,
    parse_answer,
    printable,
)
from xaibench.leaderboard.sandbox.system_calls import filter_program, is_supported

#: Folders of the method's source and of its packages inside the sandbox.
_MOUNT_POINTS = ("/method", "/packages")
#: Parts of the library that make data sets and their masks, and are not in the sandbox.
_GENERATORS = (
    *("data", "benchmarks/mosaics", "benchmarks/certified/images.py", "benchmarks/xai_tris/tetrominoes.py"),
    *("benchmarks/xai_tris/noise.py", "benchmarks/xai_tris/patterns.py", "benchmarks/xai_tris/pattern_mixture.py"),
)
#: Bytes of each of the two file systems in memory (/tmp and /dev/shm), and of the kept end of the log.
_TMPFS_BYTES, _LOG_BYTES = 1 << 28, 1 << 16
#: Tells that Python runs in the sandbox, and fails if its user may not read the packages.
_PROBE = """
import importlib.util
print("started", flush=True)
from xaibench.leaderboard.sandbox.worker import give_up_rights
give_up_rights()
assert importlib.util.find_spec("torch"), "no package torch"
import numpy, xaibench.core
"""
#: Largest number of processes of a method.
_MAX_PROCESSES = 256


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
        seconds: Time limit per batch of images, in seconds.
        memory_gb: Memory limit in GiB, of all its processes together; files in memory may take another 0.5 GiB.
    """

    entry: str
    source: str = ""
    packages: str = ""
    parameters: str = "{}"
    output: str = ""
    device: str = "cpu"
    seconds: float = 600.0
    memory_gb: float = 8.0


@cache
def why_no_sandbox() -> str:
    """Return why methods cannot be run in a sandbox on this machine, and what to do; empty if they can."""
    found = shutil.which("bwrap")
    if not found or sys.platform != "linux":
        return (
            "bubblewrap (bwrap) is not installed; a method is run inside of it only. On Debian: apt install bubblewrap"
        )
    if not is_supported():
        return f"there is no filter of system calls for {platform.machine()}; use a machine with x86-64 or aarch64"
    sandbox = Sandbox("")
    with tempfile.TemporaryFile() as program:
        program.write(filter_program())
        program.seek(0)
        command = [*_bubblewrap_command(sandbox, program.fileno()), _python(), "-P", "-c", _PROBE]
        try:
            done = subprocess.run(
                command,
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
                pass_fds=[program.fileno()],
                env=_clean_environment(sandbox),
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"bubblewrap (bwrap) cannot be run ({error})"
    if not done.returncode:
        return ""
    said = done.stderr.strip().splitlines()[-1:] or ["no message"]
    if done.stdout.startswith("started"):
        return (
            f"the user without rights cannot read Python and its packages in {sys.prefix} ({said[0]}); make them "
            f"readable: chmod -R go+rX {sys.prefix}"
        )
    return (
        f"bubblewrap (bwrap) may not create namespaces here ({said[0]}); allow unprivileged user namespaces "
        "(on Ubuntu: sysctl kernel.apparmor_restrict_unprivileged_userns=0), or run as root"
    )


def require_sandbox() -> None:
    """Check that methods can be run in a sandbox.

    Raises:
        ResultError: If not; the message says why and what to do.
    """
    if why := why_no_sandbox():
        raise ResultError(f"No method can be run: {why}.")


class SandboxedProcess:
    """A method in its sandbox; a context manager that ends the process.

    Raises:
        ResultError: If this machine cannot run a sandbox.
    """

    def __init__(self, sandbox: Sandbox) -> None:
        require_sandbox()
        self.sandbox = sandbox
        self._kill_reason = ""
        settings = {
            **{name: asdict(sandbox)[name] for name in ("entry", "device")},
            "paths": [inside for _, inside in _mounted_folders(sandbox)],
            "parameters": json.loads(sandbox.parameters),
            "output": sandbox.output or None,
        }
        python = [_python(), "-P", "-m", "xaibench.leaderboard.sandbox.worker", json.dumps(settings)]
        with tempfile.TemporaryFile() as program:
            program.write(filter_program(allow_memory_files=sandbox.device != "cpu"))
            program.seek(0)
            # A new session, so that the process can be killed with its children.
            self._process = subprocess.Popen(
                [*_bubblewrap_command(sandbox, program.fileno()), *python],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=_clean_environment(sandbox),
                start_new_session=True,
                pass_fds=[program.fileno()],
            )
        self._log = bytearray()
        self._logged = threading.Thread(target=self._read_log, daemon=True)
        self._logged.start()
        threading.Thread(target=self._watch_limits, daemon=True).start()

    def __enter__(self) -> SandboxedProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def call(self, call: str, *, largest: int = 0, **arguments: Any) -> Answer:
        """Call a function of the worker and wait for the answer.

        Args:
            call: Name of a method of :class:`xaibench.leaderboard.sandbox.worker.Worker`.
            largest: Largest accepted size of the maps, in bytes.
            **arguments: Its arguments.

        Returns:
            The answer.

        Raises:
            SandboxViolationError: If the method did something forbidden.
            SandboxError: If it failed, exited, exceeded a limit, or answered in another form. The process has ended
                then, unless the method raised an error of its own.
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
            answer = self._read_answer(until, largest)
        except SandboxError:
            self.close()
            raise
        except (OSError, EOFError) as error:
            with contextlib.suppress(subprocess.TimeoutExpired):  # keep the exit code of a process that ends by itself
                self._process.wait(0 if self._kill_reason else 0.2)
            self.close()
            code = self._process.returncode
            raise SandboxError(
                self._kill_reason or f"its process ended with code {code} ({self._last_log_line()})"
            ) from error
        if answer.refused:
            raise SandboxViolationError("; ".join(answer.refused))
        if answer.untreated:
            raise UnsupportedModelError(answer.error)
        if answer.error:
            raise SandboxError(answer.error)
        return answer

    def _read_answer(self, until: float, largest: int) -> Answer:
        header, body = struct.unpack("<QQ", self._read_bytes(16, until))
        if header > MAX_HEADER_BYTES or body > largest:
            raise SandboxError(f"it answers with {header + body:,} bytes, more than its maps can have")
        return parse_answer(self._read_bytes(header, until), self._read_bytes(body, until))

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

    def _read_log(self) -> None:
        """Read the log until the process ends, and keep the last bytes."""
        assert self._process.stderr is not None
        with contextlib.suppress(OSError, ValueError):
            while read := os.read(self._process.stderr.fileno(), 1 << 16):
                self._log += read
                del self._log[:-_LOG_BYTES]

    def _watch_limits(self) -> None:
        limit = self.sandbox.memory_gb * (1 << 30)
        while self._process.poll() is None:
            tree = _process_tree(self._process.pid)
            if len(tree) > _MAX_PROCESSES:
                self._kill_reason = f"it started more than {_MAX_PROCESSES} processes"
            # Counting shared pages by their share takes a hundred times as long, and never gives more.
            elif sum(map(_resident_bytes, tree)) > limit and (held := sum(map(_memory_bytes, tree))) > limit:
                self._kill_reason = f"it used {held / (1 << 30):.1f} GiB of memory, of {self.sandbox.memory_gb:g}"
            if self._kill_reason:
                self._kill()
                return
            time.sleep(0.1)

    def _last_log_line(self) -> str:
        self._logged.join(1)
        lines = bytes(self._log[-2000:]).decode(errors="replace").strip().splitlines()
        return f"last line of its log: {printable(lines[-1])}" if lines else "its log is empty"

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, 9)
        self._process.kill()

    def close(self) -> None:
        """End the process."""
        self._kill()
        self._process.wait()
        self._logged.join(1)
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()


def _clean_environment(sandbox: Sandbox) -> dict[str, str]:
    """Return an environment without tokens, addresses or the user's folders."""
    kept = {"PATH": os.environ.get("PATH", os.defpath), "LANG": "C.UTF-8", "OMP_NUM_THREADS": "1"}
    kept["PYTHONDONTWRITEBYTECODE"] = "1"  # otherwise imports write to read-only folders
    if sandbox.device != "cpu":  # GPU driver, and selection of GPUs
        names = ("LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER")
        kept |= {name: os.environ[name] for name in names if name in os.environ}
    kept |= {"NUMBA_CACHE_DIR": "/tmp/numba", "MPLCONFIGDIR": "/tmp/matplotlib"}
    return kept | {"HOME": "/tmp", "TMPDIR": "/tmp", "PYTHONPATH": _library_path()}


def _library_path() -> str:
    """Return the parent folder of the library."""
    import xaibench

    return str(Path(xaibench.__file__).resolve().parent.parent)


def _python() -> str:
    """Return the path of this Python, without ``..``, which would lead elsewhere inside the sandbox."""
    return os.path.abspath(sys.executable)


def _isolation(program: int) -> list[str]:
    """Return the options for namespaces, capabilities and system calls.

    If this process runs as root, the worker becomes an unprivileged user of the machine (``nobody``) at its start, and
    keeps the two capabilities for it until then. Otherwise it is an unprivileged user of a user namespace.
    """
    shared = ["--die-with-parent", "--hostname", "sandbox", "--seccomp", str(program), "--cap-drop", "ALL"]
    if os.getuid() == 0:
        spaces = ["--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try"]
        return [*spaces, *shared, "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
    return ["--unshare-all", *shared, "--uid", "65534", "--gid", "65534"]


def _bubblewrap_command(sandbox: Sandbox, program: int) -> Iterator[str]:
    """Yield the command that precedes Python's; ``program`` is the file with the filter of system calls."""
    size = str(_TMPFS_BYTES)
    yield from (shutil.which("bwrap") or "bwrap", *_isolation(program))
    yield from ("--proc", "/proc", "--ro-bind", "/proc/sys", "/proc/sys", "--dev", "/dev")
    yield from ("--perms", "1777", "--size", size, "--tmpfs", "/dev/shm")
    yield from ("--perms", "1777", "--size", size, "--tmpfs", "/tmp", "--chdir", "/tmp")
    for folder in ("/usr", "/lib", "/lib64", "/bin", "/etc/ld.so.cache", "/etc/alternatives", "/sys/devices/system"):
        yield from ("--ro-bind-try", folder, folder)
    package = Path(_library_path(), "xaibench")
    for folder in (*_python_folders(), str(package)):
        place = Path(folder)
        # The user without rights may enter them, whatever their rights are outside, such as those of a folder of root.
        for entered in (*reversed(place.parents), place):
            yield from ("--perms", "0755", "--dir", str(entered))
        for content in sorted(place.iterdir()):
            yield from ("--ro-bind", str(content), str(content))
    for name in _GENERATORS:
        hidden = package / name
        yield from ("--tmpfs", str(hidden)) if hidden.is_dir() else ("--ro-bind", os.devnull, str(hidden))
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


def _memory_bytes(pid: int) -> int:
    """Return the memory of a process; pages that it shares with others count by their share, where that is known."""
    with contextlib.suppress(OSError, StopIteration):
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("Pss:")).split()[1]) << 10
    return _resident_bytes(pid)


def _resident_bytes(pid: int) -> int:
    """Return the memory of a process, including all pages that it shares with others."""
    with contextlib.suppress(OSError, IndexError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0
