"""Settings of the whole process that several threads need at the same time."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable


class SharedSetting:
    """A setting of the process that holds while at least one thread is inside the ``with`` block.

    Saving and restoring by each thread would be wrong: the second thread would save what the first one has set, and
    restore that after the first one has left.

    Args:
        change: Changes the setting, and returns the function that restores it.

    Example:
        >>> state = ["as before"]
        >>> def change():
        ...     state.append("changed")
        ...     return state.pop
        >>> setting = SharedSetting(change)
        >>> with setting, setting:
        ...     print(state)
        ['as before', 'changed']
        >>> state
        ['as before']
    """

    def __init__(self, change: Callable[[], Callable[[], object]]) -> None:
        self._change = change
        self._lock, self._inside = threading.Lock(), 0
        self._restore: Callable[[], object] = lambda: None

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                self._restore = self._change()
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                self._restore()


def ignored_warnings(message: str) -> SharedSetting:
    """Return a setting that hides warnings whose text begins with a regular expression, in all threads.

    Args:
        message: The regular expression.
    """

    def change() -> Callable[[], object]:
        filters = warnings.catch_warnings()
        filters.__enter__()
        warnings.filterwarnings("ignore", message)
        return lambda: filters.__exit__(None, None, None)

    return SharedSetting(change)
