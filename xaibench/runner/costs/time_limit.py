"""A time limit for code that does not check the time itself, such as a job of a user's network."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

#: Parts of the names of files whose functions are finished first. An interrupted import leaves a broken module behind,
#: and compilers call back from C, where exceptions are lost.
_NOT_INTERRUPTED = ("<frozen importlib", "/numba/", "/llvmlite/", "/ctypes/")

#: Seconds until the next attempt, if such a function runs, or if the exception was lost in a finalizer.
_SOON, _LATER = 0.05, 1.0


class _TimeIsUp(BaseException):
    """Raised in the block; not an Exception, because jobs turn these into outcomes."""


@contextlib.contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Leave the block after some seconds, without an error.

    The block is interrupted as by Ctrl-C, between two operations, but not in an import or a compilation, so it may take
    longer. This needs the main thread of a process on a system with timers; elsewhere, the block is not interrupted.

    Args:
        seconds: Wall time, above 0.

    Example:
        >>> import time
        >>> with time_limit(0.05):
        ...     while True:
        ...         time.sleep(0.01)
    """
    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        if not _is_interruptible(frame):
            signal.setitimer(signal.ITIMER_REAL, _SOON)
            return
        signal.setitimer(signal.ITIMER_REAL, _LATER)
        raise _TimeIsUp

    before = signal.signal(signal.SIGALRM, stop)
    try:
        signal.setitimer(signal.ITIMER_REAL, seconds)
        yield
    except _TimeIsUp:
        pass
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


def _is_interruptible(frame: FrameType | None) -> bool:
    while frame is not None:
        name = frame.f_code.co_filename.replace("\\", "/")
        if any(part in name for part in _NOT_INTERRUPTED):
            return False
        frame = frame.f_back
    return True
