"""Settings of Python's garbage collector."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

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
