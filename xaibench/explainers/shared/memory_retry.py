"""Retry an explanation with smaller batches when the GPU runs out of memory."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, cast

from torch import Tensor

from xaibench.compute.batching import BatchSize
from xaibench.explainers.base import Explainer
from xaibench.explainers.shared.layers import forward_rows


def retry_with_smaller_batches(
    part: Explainer, images: Tensor, run: Callable[[Explainer], Tensor], largest_pass: Callable[[], int]
) -> Tensor:
    """Return ``run(part)``, halving the rows per pass as long as the GPU runs out of memory.

    Args:
        part: The explainer.
        images: ``[N, C, H, W]``; their size and device matter.
        run: Computes the maps with the explainer that it is given.
        largest_pass: Returns the number of rows of the largest pass so far.

    Raises:
        torch.cuda.OutOfMemoryError: If a single row is too large, or the explainer has no ``batch_size``.
    """
    start = _batch_rows(part, images)
    rows = BatchSize(start)

    def attempt() -> Tensor:
        return run(part if rows.size == start else dataclasses.replace(cast(Any, part), batch_size=rows.size))

    return rows.until_it_fits(attempt, largest_pass)


def _batch_rows(part: Any, images: Tensor) -> int:
    """Return the current rows per pass; 0 for an explainer without ``batch_size``."""
    if not dataclasses.is_dataclass(part) or not hasattr(part, "batch_size"):
        return 0
    rows: int = part.rows(images) if hasattr(part, "rows") else forward_rows(images, part.batch_size)
    return rows
