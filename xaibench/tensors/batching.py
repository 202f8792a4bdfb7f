"""Batch sizes of forward passes, and retry with smaller batches on out-of-memory errors. A *row* is one image."""

from __future__ import annotations

import logging
from collections.abc import Callable

import torch
from torch import Tensor

_LOGGER = logging.getLogger("xaibench")

# Input values per forward pass by default. Larger passes are slower on a CPU, because they do not fit into the cache.
_CPU_VALUES, _GPU_VALUES = 2**17, 2**24

# Messages of out-of-memory errors that torch and its libraries raise as plain RuntimeError.
_OOM_MESSAGES = ("out of memory", "can't allocate memory", "not enough memory", "ALLOC_FAILED")

#: Smaller batches use a CPU inefficiently, regardless of the size of the images.
FEWEST_ROWS = 8

# Input values of these rows for volumes, whose networks keep hundreds of values per voxel.
_VOLUME_VALUES = 2**20


def default_batch_size(images: Tensor, least: int = FEWEST_ROWS) -> int:
    """Return the default batch size of a forward pass.

    Args:
        images: ``[N, C, H, W]``; their size and device decide.
        least: Lower limit.

    Example:
        >>> default_batch_size(torch.empty(1, 1, 8, 8)), default_batch_size(torch.empty(1, 3, 224, 224))
        (2048, 8)
        >>> default_batch_size(torch.empty(1, 1, 32, 32, 32)), default_batch_size(torch.empty(1, 1, 96, 96, 96))
        (8, 1)
    """
    if images.ndim > 4:
        least = min(least, max(1, _VOLUME_VALUES // images[0].numel()))
    numbers = _CPU_VALUES if images.device.type == "cpu" else _GPU_VALUES
    return max(least, numbers // images[0].numel())


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error means that the GPU or the machine ran out of memory, whichever library raised it.

    Example:
        >>> is_out_of_memory(RuntimeError("MPS backend out of memory (MPS allocated: 9 GB)"))
        True
        >>> is_out_of_memory(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))
        False
    """
    if isinstance(error, RuntimeError):
        return isinstance(error, torch.cuda.OutOfMemoryError) or any(sign in str(error) for sign in _OOM_MESSAGES)
    return isinstance(error, MemoryError)


def halve_batch(error: Exception, rows: int) -> int:
    """Return half of the rows per pass after an out-of-memory error.

    Args:
        error: Raised by a pass.
        rows: Rows of that pass.

    Raises:
        Exception: ``error`` itself, if it has another reason or a single row does not fit.
    """
    if rows < 2 or not is_out_of_memory(error):
        raise error
    _LOGGER.warning("Out of memory with %d rows per pass; continuing with %d.", rows, rows // 2)
    return rows // 2


class BatchSize:
    """Batch size of forward passes that is halved, permanently, whenever memory runs out.

    Args:
        size: Initial number of rows.

    Example:
        >>> BatchSize(3).slices(7)
        [slice(0, 3, None), slice(3, 6, None), slice(6, 7, None)]
    """

    def __init__(self, size: int) -> None:
        self.size = size

    def slices(self, count: int) -> list[slice]:
        """Split ``count`` rows into slices of at most ``size``."""
        return [slice(start, min(start + self.size, count)) for start in range(0, count, self.size)]

    def each(self, count: int, work: Callable[[slice], Tensor], again: Callable[[], None] = lambda: None) -> Tensor:
        """Return the concatenated results of ``work`` on all slices; on out-of-memory, start again with half the size.

        Args:
            count: Total number of rows.
            work: Function of a slice; its result has the rows along dimension 0.
            again: Called before each attempt, to undo side effects of the previous one.

        Raises:
            torch.cuda.OutOfMemoryError: If a single row does not fit (or another error that means out-of-memory).
        """
        while True:
            again()
            try:
                return torch.cat([work(part) for part in self.slices(count)])
            except (RuntimeError, MemoryError) as error:
                self.size = halve_batch(error, min(self.size, count))
            # Not inside the except block, where the error still references the tensors of the failed pass.
            torch.cuda.empty_cache()
