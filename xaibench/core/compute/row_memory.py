"""How many rows (images) one pass of a network takes, and going on with fewer when the memory does not do."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor

_LOGGER = logging.getLogger("xaibench")
_T = TypeVar("_T")

# Numbers that one forward pass takes by default: larger passes are slower on a CPU, because they leave the cache.
_CPU_NUMBERS, _GPU_NUMBERS = 2**17, 2**24

# What torch and the libraries below it say when memory is short, where they have no error of their own for it.
_SHORT = ("out of memory", "can't allocate memory", "not enough memory", "ALLOC_FAILED")

#: Fewer rows than this leave a CPU's convolutions idle, whatever the size of the images.
FEWEST_ROWS = 8


def default_rows(images: Tensor, least: int = FEWEST_ROWS) -> int:
    """Rows in one forward pass when the caller names none.

    Args:
        images: ``[N, C, H, W]``, of which the size and the device count.
        least: Never fewer.

    Example:
        >>> default_rows(torch.empty(1, 1, 8, 8)), default_rows(torch.empty(1, 3, 224, 224))
        (2048, 8)
    """
    numbers = _CPU_NUMBERS if images.device.type == "cpu" else _GPU_NUMBERS
    return max(least, numbers // images[0].numel())


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory was short, of the GPU or the machine, whatever library says so.

    Example:
        >>> is_out_of_memory(RuntimeError("MPS backend out of memory (MPS allocated: 9 GB)"))
        True
        >>> is_out_of_memory(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))
        False
    """
    if isinstance(error, RuntimeError):
        return isinstance(error, torch.cuda.OutOfMemoryError) or any(sign in str(error) for sign in _SHORT)
    return isinstance(error, MemoryError)


class Rows:
    """How many rows one pass takes; halved for good whenever that is too many.

    Args:
        size: Rows to begin with.

    Example:
        >>> Rows(3).parts(7)
        [slice(0, 3, None), slice(3, 6, None), slice(6, 7, None)]
    """

    def __init__(self, size: int) -> None:
        self.size = size

    def parts(self, count: int) -> list[slice]:
        """``count`` rows cut into parts of at most ``size``."""
        return [slice(start, min(start + self.size, count)) for start in range(0, count, self.size)]

    def each(self, count: int, work: Callable[[slice], Tensor], again: Callable[[], None] = lambda: None) -> Tensor:
        """The results of ``work`` on all parts, one after another; from the start with halves when memory is short.

        Args:
            count: Rows in all.
            work: From a part to its result, with the rows along dimension 0.
            again: Called before each start: undoes what the parts before have left behind.

        Raises:
            torch.cuda.OutOfMemoryError: If a single row is too many; or what else is raised for want of memory.
        """

        def attempt() -> Tensor:
            again()
            return torch.cat([work(part) for part in self.parts(count)])

        return self.until_it_fits(attempt, lambda: count)

    def until_it_fits(self, attempt: Callable[[], _T], largest: Callable[[], int]) -> _T:
        """What ``attempt`` returns; tried again with half as many rows as long as memory is short.

        Args:
            attempt: Runs passes of at most ``size`` rows.
            largest: Rows of its largest pass, asked after a failure: where ``size`` is above it, halving ``size``
                alone would change nothing.

        Raises:
            torch.cuda.OutOfMemoryError: If a single row is too many; or what else is raised for want of memory.
        """
        while True:
            try:
                return attempt()
            except (RuntimeError, MemoryError) as error:
                rows = min(self.size, largest())
                if rows < 2 or not is_out_of_memory(error):
                    raise
                self.size = rows // 2
                _LOGGER.warning("out of memory with %d rows in a pass; going on with %d", rows, self.size)
            # Only here, after the error has let go of the tensors of the failed pass.
            torch.cuda.empty_cache()
