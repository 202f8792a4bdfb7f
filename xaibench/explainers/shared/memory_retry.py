"""Explaining with fewer rows in a pass when the GPU's memory does not do."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, cast

from torch import Tensor

from xaibench.core.compute.row_memory import Rows
from xaibench.explainers.shared.interface import Explainer
from xaibench.explainers.shared.layer_activations import forward_rows


def within_memory(
    part: Explainer, images: Tensor, run: Callable[[Explainer], Tensor], largest: Callable[[], int]
) -> Tensor:
    """What ``run(part)`` returns; tried again with half as many rows in a pass as long as the GPU's memory is short.

    Args:
        part: The explainer.
        images: ``[N, C, H, W]``, of which the size and the device count.
        run: Explains them with the explainer it is given.
        largest: Rows of the largest pass so far.

    Raises:
        torch.cuda.OutOfMemoryError: If a single row is too many, or the explainer has no ``batch_size``.
    """
    start = _rows(part, images)
    rows = Rows(start)

    def attempt() -> Tensor:
        return run(part if rows.size == start else dataclasses.replace(cast(Any, part), batch_size=rows.size))

    return rows.until_it_fits(attempt, largest)


def _rows(part: Any, images: Tensor) -> int:
    """Rows in a pass now; 0 for an explainer whose passes are its own affair."""
    if not dataclasses.is_dataclass(part) or not hasattr(part, "batch_size"):
        return 0
    rows: int = part.rows(images) if hasattr(part, "rows") else forward_rows(images, part.batch_size)
    return rows
