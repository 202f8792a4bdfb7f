"""Training batches for explainers that are fitted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from xaibench.data import Split
    from xaibench.evaluation.apply import Batch

#: Number of images per batch. It affects only the memory and the rounding of the maps.
_TRAINING_BATCH = 512


def training_batches(split: Split) -> Iterator[Batch]:
    """Yield the training samples for explainers that are fitted, in the order of the split.

    Args:
        split: The training split; samples of a set on disk are read batch by batch.

    Yields:
        Images, masks and targets.
    """
    for start in range(0, len(split), _TRAINING_BATCH):
        yield split[start : start + _TRAINING_BATCH]
