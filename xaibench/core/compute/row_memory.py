"""Going on when the GPU's memory does not do: fewer rows in one pass, and a line in the log."""

from __future__ import annotations

import logging
from collections.abc import Callable

import torch
from torch import Tensor

_LOGGER = logging.getLogger("xaibench")


class Rows:
    """How many images one pass takes; halved for good whenever that is too many.

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
            torch.cuda.OutOfMemoryError: If a single row is too many.
        """
        while True:
            again()
            try:
                return torch.cat([work(part) for part in self.parts(count)])
            except torch.cuda.OutOfMemoryError:
                largest = min(self.size, count)
                if largest == 1:
                    raise
                self.size = largest // 2
                _LOGGER.warning("out of GPU memory with %d images in a pass; going on with %d", largest, self.size)
            # Only here, after the error has let go of the tensors of the failed pass.
            torch.cuda.empty_cache()
