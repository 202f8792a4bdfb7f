"""Settings of the whole process that several threads need at the same time, and those of the garbage collector."""

from __future__ import annotations

import gc
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any


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


#: The warnings since the start of the outermost :func:`equal_warnings_once`; None outside.
SEEN_WARNINGS: ContextVar[set[object] | None] = ContextVar("seen", default=None)


@contextmanager
def equal_warnings_once() -> Iterator[None]:
    """Show warnings with the same text only once inside the block, such as one per batch; a block inside it adds none.

    Python itself shows them again whenever a filter of warnings was set in between. Warnings of other libraries count,
    too.
    """
    if SEEN_WARNINGS.get() is not None:
        yield
        return
    token = SEEN_WARNINGS.set(set())
    try:
        with _repetitions_hidden:
            yield
    finally:
        SEEN_WARNINGS.reset(token)


def _hide_repetitions() -> Callable[[], object]:
    show = warnings.showwarning

    def show_once(message: Warning | str, category: type[Warning], *place: Any, **named: Any) -> None:
        seen, key = SEEN_WARNINGS.get(), (category, str(message))
        if seen is None or key not in seen:
            show(message, category, *place, **named)
        if seen is not None:
            seen.add(key)

    def restore() -> None:
        if warnings.showwarning is show_once:
            warnings.showwarning = show

    warnings.showwarning = show_once
    return restore


_repetitions_hidden = SharedSetting(_hide_repetitions)


#: Number of new objects between two collections of the youngest generation, and collections between those of the older.
_RARELY = (100_000, 50, 100)


@contextmanager
def collect_rarely() -> Iterator[None]:
    """Collect garbage less often inside the block.

    Imports and reports make many objects that stay. With the default settings, visiting them again and again takes
    a fifth of the time to import torch. Not for code that makes large tensors, which may wait for a collection.
    """
    before = gc.get_threshold()
    gc.set_threshold(*_RARELY)
    try:
        yield
    finally:
        gc.set_threshold(*before)
