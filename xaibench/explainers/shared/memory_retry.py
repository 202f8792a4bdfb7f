"""Going on when the GPU's memory does not do."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor

from xaibench.explainers.shared.interface import Explainer
from xaibench.explainers.shared.layer_activations import forward_rows

_LOGGER = logging.getLogger("xaibench")


def within_memory(part: Explainer, images: Tensor, run: Callable[[Explainer], Tensor]) -> Tensor:
    """What ``run(part)`` returns; tried again with half as many rows in a pass as long as the GPU's memory is short.

    Raises:
        torch.cuda.OutOfMemoryError: If a single row is too many, or the explainer has no ``batch_size``.
    """
    while True:
        try:
            return run(part)
        except torch.cuda.OutOfMemoryError:
            rows = _rows(part, images)
            if rows < 2:
                raise
            _LOGGER.warning("out of GPU memory with %d rows in a pass; going on with %d", rows, rows // 2)
            part = cast(Explainer, dataclasses.replace(cast(Any, part), batch_size=rows // 2))
        # Only here, after the error has let go of the tensors of the failed pass.
        torch.cuda.empty_cache()


def _rows(part: Any, images: Tensor) -> int:
    """Rows in a pass now; 0 for an explainer whose passes are its own affair."""
    if not dataclasses.is_dataclass(part) or not hasattr(part, "batch_size"):
        return 0
    rows: int = part.rows(images) if hasattr(part, "rows") else forward_rows(images, part.batch_size)
    return rows
