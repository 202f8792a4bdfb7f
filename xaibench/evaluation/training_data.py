"""The samples that fitted explainers learn from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from xaibench.data import Split
    from xaibench.evaluation.apply import Batch

#: Images that a fitted explainer sees at a time. It decides no more than the memory and the last bits of a map.
_TRAINING_BATCH = 512


def training_batches(split: Split) -> Iterator[Batch]:
    """The samples that fitted explainers learn from, in the order of the split; of a set on disk, read as they go.

    Args:
        split: The training split.

    Yields:
        Images, masks and targets.
    """
    for start in range(0, len(split), _TRAINING_BATCH):
        yield split[start : start + _TRAINING_BATCH]
