"""Collection of scores, correct classifications and zero maps while an evaluation runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from xaibench.evaluation.table import Evaluation

if TYPE_CHECKING:
    import pandas as pd
    from torch import Tensor

    from xaibench.data import Split
    from xaibench.evaluation.apply import AppliedMetric, Batch
    from xaibench.evaluation.model_answers import ModelAnswers


class ScoreCollector:
    """Collects the scores of one batch after the other.

    Args:
        count: Total number of samples.

    Attributes:
        tables: Score tables, with samples as their indices in the split.
        inapplicable: Methods that do not support the model, with the reason.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._n_correct: int | None = None
        self._zero: dict[str, list[int]] = {}
        self.tables: list[pd.DataFrame] = []
        self.inapplicable: dict[str, str] = {}

    def find_correct(self, answers: ModelAnswers, batch: Batch) -> Tensor:
        """Return which samples the model classifies correctly, ``[n]`` bool; all of them if it has no classes.

        Raises:
            ValueError: If the model does not accept the images, or a target is not one of its classes.
        """
        images, _, targets = batch
        correct = answers.correct(images, targets)
        if correct is None:
            return targets == targets
        self._n_correct = (self._n_correct or 0) + int(correct.sum())
        return correct

    def record_maps(self, method: str, maps: Tensor, numbers: Tensor) -> None:
        """Record which of the maps ``[n, H, W]`` are zero everywhere; ``numbers`` are the sample indices."""
        zero = numbers[(maps == 0).flatten(1).all(1)].tolist()
        if zero:
            self._zero.setdefault(method, []).extend(zero)

    def check(self, scored: str) -> None:
        """Check that at least one sample was scored.

        Raises:
            ValueError: If only correctly classified samples are scored, and there are none.
        """
        if not self.tables:
            raise ValueError(
                f"The model classifies none of the {self._count} samples correctly, and scored={scored!r} needs at "
                "least one. Check that the model is trained, that images are scaled as it expects, and that its "
                "classes are in the same order; or include wrongly classified samples with scored='all'."
            )

    def evaluation(self, split: Split, metrics: Sequence[AppliedMetric], controls: frozenset[str]) -> Evaluation:
        """Return the evaluation, with sample ids instead of indices."""
        import pandas as pd

        scores = pd.concat(self.tables, ignore_index=True)
        scores = scores[~scores["method"].isin(self.inapplicable)].reset_index(drop=True)
        numbers = scores["sample"].drop_duplicates().to_numpy()
        ids = split.ids
        scores["sample"] = [ids[number] for number in scores["sample"]]
        return Evaluation(
            scores,
            {metric.name: metric.info for metric in metrics},
            controls,
            None if split.groups is None else split.groups[numbers],
            split.groups_by,
            samples=self._count,
            accuracy=None if self._n_correct is None else self._n_correct / self._count,
            zero_maps={method: tuple(ids[number] for number in zero) for method, zero in self._zero.items()},
            inapplicable=self.inapplicable,
            parameters={metric.name: metric.given for metric in metrics if metric.given},
        )
