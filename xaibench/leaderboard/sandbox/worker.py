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
import traceback
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

_READS_MASKS = "it reads the masks of the training samples, which are the answer"
#: User and group without rights, on all systems.
NOBODY = 65534
#: Limits on open files and on the size of a file in bytes, and, for a user of its own, on processes and threads.
_FILES, _FILE_BYTES, _PROCESSES = 1024, 1 << 28, 512


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


class Worker:
    """The method, and its most recently fitted copy with its number.

    Attributes:
        refused: What the method did that is forbidden. It is refused even if it catches the error.
    """

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = settings
        self.fitted: dict[int, Any] = {}
        self.refused: list[str] = []

    def refuse(self, why: str) -> None:
        """Record a violation and raise.

        Raises:
            ForbiddenActionError: Always.
        """
        if why not in self.refused:
            self.refused.append(why)
        raise ForbiddenActionError(f"refused: {why}")

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
        known = [(images, HiddenMasks(self.refuse), targets) for images, targets in batches]
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


def give_up_rights() -> None:
    """Become a user without rights, if this process runs as root, and set the limits of the kernel."""
    import resource  # there is none on Windows, where this module is imported by tests

    if os.getuid() == 0:
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)  # the kernel takes the capabilities away
        resource.setrlimit(resource.RLIMIT_NPROC, (_PROCESSES, _PROCESSES))
    for limit, value in ((resource.RLIMIT_NOFILE, _FILES), (resource.RLIMIT_FSIZE, _FILE_BYTES)):
        resource.setrlimit(limit, (value, value))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def main(settings: dict[str, Any]) -> None:
    """Answer requests until the input ends.

    Args:
        settings: ``paths`` (prepended to ``sys.path``), ``entry``, ``parameters``, ``output`` and ``device``.
    """
    give_up_rights()
    import torch

    import xaibench.evaluation.apply
    import xaibench.explainers  # noqa: F401

    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    torch.set_num_threads(1)
    sys.path[:0] = settings["paths"]
    worker = Worker(settings)
    for request in _read_requests(sys.stdin.buffer):
        call = getattr(worker, request.pop("call"))
        try:
            found = call(**request)
        except BaseException as error:
            traceback.print_exc()
            from xaibench.evaluation.apply import is_inapplicable

            untreated = isinstance(error, Exception) and is_inapplicable(error)
            said = str(error) if untreated else f"{type(error).__name__}: {error}"
            found = {"error": said[:_LONGEST_ERROR], "untreated": untreated}
        _send_answer(answers, found, worker.refused)


#: Longest error message that is sent, in characters.
_LONGEST_ERROR = 2000


def _send_answer(stream: BinaryIO, found: Any, refused: list[str]) -> None:
    if isinstance(found, dict):
        send(stream, found | {"refused": refused})
        return
    maps = found.detach().cpu().contiguous().numpy()
    send(stream, {"shape": maps.shape, "dtype": str(maps.dtype), "refused": refused}, maps.tobytes())


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
