"""What an evaluation gathers as it goes: scores, who was classified correctly, whose maps are zero everywhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from xaibench.evaluation.evaluation_table import Evaluation

if TYPE_CHECKING:
    import pandas as pd
    from torch import Tensor, nn

    from xaibench.core.part_info import MetricInfo
    from xaibench.data import Split
    from xaibench.evaluation.apply import Batch


class Found:
    """What is found in one batch after the other.

    Args:
        count: The samples to look at.

    Attributes:
        tables: Scores, with the samples as their numbers in the split.
        inapplicable: Methods that cannot treat the model, as they say themselves, and why.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._right: int | None = None
        self._zero: dict[str, list[int]] = {}
        self.tables: list[pd.DataFrame] = []
        self.inapplicable: dict[str, str] = {}

    def classified(self, model: nn.Module, batch: Batch) -> Tensor:
        """``[n]`` bool: whom the model classifies correctly; a model of one output classifies nothing, and all count.

        Raises:
            ValueError: If the model cannot take the images, or a target is no class of it.
        """
        from xaibench.core.compute.model_probe import check_classes, probe

        images, _, targets = batch
        logits = probe(model, images, finite=False).cpu()
        if logits.shape[1] < 2:
            return targets == targets
        check_classes(targets, logits.shape[1])
        right = logits.argmax(1) == targets
        self._right = (self._right or 0) + int(right.sum())
        return right

    def see(self, method: str, maps: Tensor, numbers: Tensor) -> None:
        """Remember which maps ``[n, H, W]`` are zero everywhere, by the numbers of their samples."""
        zero = numbers[(maps == 0).flatten(1).all(1)].tolist()
        if zero:
            self._zero.setdefault(method, []).extend(zero)

    def check(self, scored: str) -> None:
        """Refuse to say anything of no sample.

        Raises:
            ValueError: If only correctly classified samples are scored, and there is none.
        """
        if not self.tables:
            raise ValueError(
                f"The model classifies none of the {self._count} samples correctly, and scored={scored!r}: expected at "
                "least one. See that it is trained, that images are scaled as it expects and classes are in its order; "
                "or score wrongly classified samples too with scored='all'."
            )

    def evaluation(self, split: Split, metrics: Mapping[str, MetricInfo], controls: frozenset[str]) -> Evaluation:
        """All of it, with the samples by their names."""
        import pandas as pd

        scores = pd.concat(self.tables, ignore_index=True)
        scores = scores[~scores["method"].isin(self.inapplicable)].reset_index(drop=True)
        numbers = scores["sample"].drop_duplicates().to_numpy()
        ids = split.ids
        scores["sample"] = [ids[number] for number in scores["sample"]]
        return Evaluation(
            scores,
            metrics,
            controls,
            None if split.groups is None else split.groups[numbers],
            samples=self._count,
            accuracy=None if self._right is None else self._right / self._count,
            zero_maps={method: tuple(ids[number] for number in zero) for method, zero in self._zero.items()},
            inapplicable=self.inapplicable,
        )
