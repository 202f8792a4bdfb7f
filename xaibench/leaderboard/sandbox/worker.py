"""The other side of the sandbox: a process that holds a method and knows images, targets and networks, but no masks.

It reads requests from its standard input and answers on what was its standard output; whatever the method prints goes
to the log. Run as ``python -m xaibench.leaderboard.sandbox.worker SETTINGS``.
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

#: Events of Python's audit that a method has no business with, and what to say of each.
_NETWORK = ("socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto", "socket.sendmsg")
_PROCESSES = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork", "os.forkpty")
#: Events of what is changed without being opened: which of their arguments are paths, and which the open folder that a
#: path is below, where there is one.
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
    """What a method did that a sandboxed method may not do."""


class HiddenMasks:
    """In place of the masks of what an explainer is fitted to: they are the answer."""

    def __init__(self, refuse: Callable[[str], None]) -> None:
        object.__setattr__(self, "_refuse", refuse)

    def __getattribute__(self, name: str) -> Any:
        if not name.startswith("__"):
            object.__getattribute__(self, "_refuse")(_READS_MASKS)
        return object.__getattribute__(self, name)

    def __getitem__(self, _: Any) -> None:
        object.__getattribute__(self, "_refuse")(_READS_MASKS)


class AuditHook:
    """Refuses by Python's audit events, and remembers it should the method catch the error.

    Args:
        hidden: Folders whose files are not for the method.
        processes: Whether it may start some: inside a real sandbox they are as shut in as itself.
    """

    def __init__(self, hidden: list[str], processes: bool) -> None:
        self.hidden = [str(Path(one).resolve()) for one in hidden]
        self.free = [os.path.realpath(tempfile.gettempdir()), os.devnull]
        self.processes = processes
        self.refused: list[str] = []
        self.on = False

    def refuse(self, why: str) -> None:
        """Say no, and remember it.

        Raises:
            RefusedError: Always.
        """
        if why not in self.refused:
            self.refused.append(why)
        raise ForbiddenActionError(f"refused: {why}")

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Called by Python with each event."""
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
                if (changed := _below(os.fsdecode(arguments[name]), below)) is not None:
                    self._check_change(os.path.realpath(changed))

    def _check_file(self, name: str, mode: Any, flags: Any) -> None:
        path = os.path.realpath(name)
        if _within(path, self.hidden):
            self.refuse(f"it opens {Path(path).name} of the run or the results, which hold the answers")
        writes = (isinstance(mode, str) and set(mode) & set("wax+")) or (
            isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        )
        if writes:
            self._check_change(path)

    def _check_change(self, path: str) -> None:
        if _within(path, self.hidden) or not _within(path, self.free):
            self.refuse(f"it writes to {path}; only {self.free[0]} is its own")


def _below(name: str, folder: int | None) -> str | None:
    """A path that may be below an open folder; None where the system does not say which that is."""
    if folder is None or folder < 0 or os.path.isabs(name):
        return name
    try:
        return os.path.join(os.readlink(f"/proc/self/fd/{folder}"), name)
    except OSError:
        return None


def _within(path: str, folders: list[str]) -> bool:
    return any(path == one or path.startswith(one + os.sep) for one in folders)


class Worker:
    """The method, and the last that was fitted, under the number by which the other side asks for it."""

    def __init__(self, settings: dict[str, Any], watch: AuditHook) -> None:
        self.settings, self.watch = settings, watch
        self.fitted: dict[int, Any] = {}

    def describe(self, **_: Any) -> dict[str, Any]:
        """What the other side must know of the method; importing it is the first that may go wrong."""
        part = self._applied(None, None)._part
        return {"fits": callable(getattr(part, "fit", None))}

    def fit(self, number: int, batches: list[Any], seed: int | None) -> dict[str, Any]:
        """Keep a method that is fitted to these samples when it first meets a network.

        The one before is let go, with its samples: nothing is asked of it any more, and the training samples of a suite
        are gigabytes, which would count as what the method holds.
        """
        self.fitted.clear()
        known = [(images, HiddenMasks(self.watch.refuse), targets) for images, targets in batches]
        self.fitted[number] = self._applied(seed, lambda: iter(known))
        return {}

    def explain(self, number: int, network: Any, images: Any, targets: Any, seed: int | None) -> Any:
        """Maps ``[N, H, W]``."""
        explainer = self.fitted[number] if number else self._applied(seed, None)
        return explainer(network, images, targets)

    def _applied(self, seed: int | None, training: Callable[[], Iterator[Any]] | None) -> Any:
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
    """A header as JSON and a body, each after its length."""
    text = json.dumps(header).encode()
    stream.write(struct.pack("<QQ", len(text), len(body)) + text + body)
    stream.flush()


def _requests(stream: BinaryIO) -> Iterator[dict[str, Any]]:
    import torch

    while head := stream.read(8):
        (size,) = struct.unpack("<Q", head)
        # Who asks is trusted; who answers is not, and is never unpickled.
        yield torch.load(io.BytesIO(stream.read(size)), weights_only=False, map_location="cpu")


def main(settings: dict[str, Any]) -> None:
    """Answer requests until there are no more.

    Args:
        settings: ``paths`` (folders in front of the path), ``entry``, ``parameters``, ``output``, ``device``,
            ``hidden`` folders and whether this is ``shut_in``.
    """
    import torch

    import xaibench.evaluation.apply
    import xaibench.explainers  # noqa: F401

    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    torch.set_num_threads(1)
    watch = AuditHook(settings["hidden"], processes=settings["shut_in"])
    sys.addaudithook(watch)
    sys.path[:0] = settings["paths"]
    worker = Worker(settings, watch)
    for request in _requests(sys.stdin.buffer):
        call = getattr(worker, request.pop("call"))
        watch.on = True
        try:
            found = call(**request)
        except BaseException as error:
            traceback.print_exc()
            from xaibench.evaluation.apply import is_inapplicable

            untreated = isinstance(error, Exception) and is_inapplicable(error)
            found = {"error": str(error) if untreated else f"{type(error).__name__}: {error}", "untreated": untreated}
        finally:
            watch.on = False
        _answer(answers, found, watch.refused)


def _answer(stream: BinaryIO, found: Any, refused: list[str]) -> None:
    if isinstance(found, dict):
        send(stream, found | {"refused": refused})
        return
    maps = found.detach().cpu().contiguous().numpy()
    send(stream, {"shape": maps.shape, "dtype": str(maps.dtype), "refused": refused}, maps.tobytes())


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
