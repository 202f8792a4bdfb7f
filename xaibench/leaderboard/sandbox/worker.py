"""Worker process of the sandbox: runs a method on images, targets and networks, but has no masks.

It reads requests from standard input and writes answers to the original standard output. Output of the method goes to
the log. Run as ``python -m xaibench.leaderboard.sandbox.worker SETTINGS``.
"""

from __future__ import annotations

import io
import json
import os
import struct
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

#: Audit events of forbidden network access and process creation.
_NETWORK = ("socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto", "socket.sendmsg")
_PROCESSES = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork", "os.forkpty")
#: Audit events that change files without opening them: for each path argument, its index and the index of the folder
#: descriptor that it is relative to (or None).
_CHANGES: dict[str, tuple[tuple[int, int | None], ...]] = {
    **dict.fromkeys(("os.remove", "os.rmdir", "shutil.rmtree"), ((0, 1),)),
    **dict.fromkeys(("os.mkdir", "os.chmod"), ((0, 2),)),
    **dict.fromkeys(("os.chown", "os.utime"), ((0, 3),)),
    **dict.fromkeys(("os.rename", "os.link"), ((0, 2), (1, 3))),
    "os.truncate": ((0, None),),
    "os.symlink": ((1, 2),),
}

_READS_MASKS = "it reads the masks of the training samples, which are the answer"


class ForbiddenActionError(PermissionError):
    """A sandboxed method did something forbidden."""


class HiddenMasks:
    """Placeholder for the masks of the training samples; any access is refused."""

    def __init__(self, refuse: Callable[[str], None]) -> None:
        object.__setattr__(self, "_refuse", refuse)

    def __getattribute__(self, name: str) -> Any:
        if not name.startswith("__"):
            object.__getattribute__(self, "_refuse")(_READS_MASKS)
        return object.__getattribute__(self, name)

    def __getitem__(self, _: Any) -> None:
        object.__getattribute__(self, "_refuse")(_READS_MASKS)


class AuditHook:
    """Python audit hook that refuses forbidden actions, and records them in case the method catches the error.

    Args:
        hidden: Folders that the method must not read.
        processes: Whether it may start processes; inside bubblewrap these are isolated as well.
    """

    def __init__(self, hidden: list[str], processes: bool) -> None:
        self.hidden = [str(Path(one).resolve()) for one in hidden]
        self.free = [os.path.realpath(tempfile.gettempdir()), os.devnull]
        self.processes = processes
        self.refused: list[str] = []
        self.on = False

    def refuse(self, why: str) -> None:
        """Record a violation and raise.

        Raises:
            ForbiddenActionError: Always.
        """
        if why not in self.refused:
            self.refused.append(why)
        raise ForbiddenActionError(f"refused: {why}")

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Handle an audit event."""
        if not self.on:
            return
        if event in _NETWORK:
            self.refuse(f"it opens a socket ({event})")
        if event in _PROCESSES and not self.processes:
            self.refuse(f"it starts a process ({event})")
        if event == "xaibench.load":
            self.refuse(f"it loads the data set {arguments[0]}, whose masks are the answer")
        if event == "open" and isinstance(arguments[0], str | bytes | os.PathLike):
            self._check_file(os.fsdecode(arguments[0]), arguments[1], arguments[2])
        for name, folder in _CHANGES.get(event, ()):
            if isinstance(arguments[name], str | bytes | os.PathLike):
                below = arguments[folder] if folder is not None and folder < len(arguments) else None
                if (changed := _resolve_in_folder(os.fsdecode(arguments[name]), below)) is not None:
                    self._check_change(os.path.realpath(changed))

    def _check_file(self, name: str, mode: Any, flags: Any) -> None:
        path = os.path.realpath(name)
        if _is_within(path, self.hidden):
            self.refuse(f"it opens {Path(path).name} of the run or the results, which contain the answers")
        writes = (isinstance(mode, str) and set(mode) & set("wax+")) or (
            isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        )
        if writes:
            self._check_change(path)

    def _check_change(self, path: str) -> None:
        if _is_within(path, self.hidden) or not _is_within(path, self.free):
            self.refuse(f"it writes to {path}; only {self.free[0]} is writable")


def _resolve_in_folder(name: str, folder: int | None) -> str | None:
    """Join a path with an open folder; None if the folder of the descriptor is unknown."""
    if folder is None or folder < 0 or os.path.isabs(name):
        return name
    try:
        return os.path.join(os.readlink(f"/proc/self/fd/{folder}"), name)
    except OSError:
        return None


def _is_within(path: str, folders: list[str]) -> bool:
    return any(path == one or path.startswith(one + os.sep) for one in folders)


class Worker:
    """The method, and its most recently fitted copy with its number."""

    def __init__(self, settings: dict[str, Any], hook: AuditHook) -> None:
        self.settings, self.hook = settings, hook
        self.fitted: dict[int, Any] = {}

    def describe(self, **_: Any) -> dict[str, Any]:
        """Return whether the method has ``fit``. This imports the method, so import errors surface here."""
        part = self._build_explainer(None, None)._part
        return {"fits": callable(getattr(part, "fit", None))}

    def fit(self, number: int, batches: list[Any], seed: int | None) -> dict[str, Any]:
        """Store a method that will be fitted to these samples when it first explains a network.

        The previous one is discarded with its samples: it is not used any more, and the training samples of a suite
        take gigabytes, which would count towards the memory limit.
        """
        self.fitted.clear()
        known = [(images, HiddenMasks(self.hook.refuse), targets) for images, targets in batches]
        self.fitted[number] = self._build_explainer(seed, lambda: iter(known))
        return {}

    def explain(self, number: int, network: Any, images: Any, targets: Any, seed: int | None) -> Any:
        """Return maps ``[N, H, W]``."""
        explainer = self.fitted[number] if number else self._build_explainer(seed, None)
        return explainer(network, images, targets)

    def _build_explainer(self, seed: int | None, training: Callable[[], Iterator[Any]] | None) -> Any:
        from xaibench.evaluation.apply import AppliedExplainer

        return AppliedExplainer(
            self.settings["entry"],
            self.settings["parameters"],
            seed=seed,
            output=self.settings["output"],
            device=self.settings["device"],
            training=training,
        )


def send(stream: BinaryIO, header: dict[str, Any], body: bytes = b"") -> None:
    """Write a header as JSON and a body, preceded by their lengths."""
    text = json.dumps(header).encode()
    stream.write(struct.pack("<QQ", len(text), len(body)) + text + body)
    stream.flush()


def _read_requests(stream: BinaryIO) -> Iterator[dict[str, Any]]:
    import torch

    while head := stream.read(8):
        (size,) = struct.unpack("<Q", head)
        # Requests come from the trusted process. Answers of this process are never unpickled there.
        yield torch.load(io.BytesIO(stream.read(size)), weights_only=False, map_location="cpu")


def main(settings: dict[str, Any]) -> None:
    """Answer requests until the input ends.

    Args:
        settings: ``paths`` (prepended to ``sys.path``), ``entry``, ``parameters``, ``output``, ``device``, ``hidden``
            folders, and ``shut_in`` (whether the process runs in bubblewrap).
    """
    import torch

    import xaibench.evaluation.apply
    import xaibench.explainers  # noqa: F401

    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    torch.set_num_threads(1)
    hook = AuditHook(settings["hidden"], processes=settings["shut_in"])
    sys.addaudithook(hook)
    sys.path[:0] = settings["paths"]
    worker = Worker(settings, hook)
    for request in _read_requests(sys.stdin.buffer):
        call = getattr(worker, request.pop("call"))
        hook.on = True
        try:
            found = call(**request)
        except BaseException as error:
            traceback.print_exc()
            from xaibench.evaluation.apply import is_inapplicable

            untreated = isinstance(error, Exception) and is_inapplicable(error)
            found = {"error": str(error) if untreated else f"{type(error).__name__}: {error}", "untreated": untreated}
        finally:
            hook.on = False
        _send_answer(answers, found, hook.refused)


def _send_answer(stream: BinaryIO, found: Any, refused: list[str]) -> None:
    if isinstance(found, dict):
        send(stream, found | {"refused": refused})
        return
    maps = found.detach().cpu().contiguous().numpy()
    send(stream, {"shape": maps.shape, "dtype": str(maps.dtype), "refused": refused}, maps.tobytes())


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
