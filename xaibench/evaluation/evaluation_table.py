"""What an evaluation found: every score, and what can be said of them."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from xaibench.core.registry import UnknownNameError
from xaibench.core.rich_results import html_table
from xaibench.statistics import (
    Drawn,
    against_controls,
    average_ranks,
    holm,
    mean_ranks,
    nested_means,
    paired_differences,
)

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    from xaibench.core.part_info import MetricInfo

#: A method that a control is not worse than is marked with this in the table.
MARK = "†"


class Ranks(NamedTuple):
    """How methods rank within the samples, 1 being the best.

    Attributes:
        ranks: Mean rank of each method, best first.
        critical_difference: Below which two mean ranks cannot be told apart (Nemenyi, 5 %, over the samples or the
            groups of them).
        n: Over how many samples, those where all methods are defined.
    """

    ranks: pd.Series
    critical_difference: float
    n: int

    def _note(self) -> str:
        return f"Mean ranks over {self.n} samples; told apart from a difference of {self.critical_difference:.2f} on."

    def __repr__(self) -> str:
        ranks = self.ranks.rename_axis(None).to_string(float_format="{:.2f}".format)
        return f"{ranks}\n{self._note()}"

    def _repr_html_(self) -> str:
        rows = [(method, f"{rank:.2f}") for method, rank in self.ranks.items()]
        return html_table(rows, head=("method", "mean rank"), notes=[self._note()])


@dataclass(frozen=True, eq=False, repr=False)
class Evaluation:
    """Scores of several methods on the same samples.

    Attributes:
        scores: One row for each method, metric and sample: ``method, metric, sample, value, reason``; ``value`` is nan
            where the metric is undefined, and ``reason`` says why.
        metrics: What is known of each metric: label, direction, range.
        controls: The methods that know no model.
        groups: ``[N]`` which samples belong together (patients, images), or None.
        samples: How many samples were looked at; those that were scored are fewer where only those count that the model
            classifies correctly.
        accuracy: The share of them that the model classifies correctly, 0 to 1; None without a model.
        zero_maps: Of the methods that made maps that are zero everywhere, of which samples. Such a map ranks no pixel
            above another: metrics score it as a constant one, or not at all.
        inapplicable: Methods that were left out because they cannot treat the model, as they say themselves, and why.
    """

    scores: pd.DataFrame
    metrics: Mapping[str, MetricInfo]
    controls: frozenset[str] = frozenset()
    groups: NDArray[np.int64] | None = None
    samples: int | None = None
    accuracy: float | None = None
    zero_maps: Mapping[str, Sequence[str]] = field(default_factory=dict)
    inapplicable: Mapping[str, str] = field(default_factory=dict)
    _matrices: dict[str, pd.DataFrame] = field(default_factory=dict, repr=False)

    @property
    def methods(self) -> list[str]:
        """In the order given; controls last."""
        return list(dict.fromkeys(self.scores["method"]))

    def matrix(self, metric: str) -> pd.DataFrame:
        """Scores of one metric.

        Args:
            metric: Its name.

        Returns:
            A row a sample, a column a method; nan where the score is undefined.

        Raises:
            UnknownNameError: If there is no such metric; names those there are.
        """
        if metric not in self.metrics:
            raise UnknownNameError(f"There are no scores of {metric!r}; known: {', '.join(self.metrics)}.")
        if metric not in self._matrices:
            chosen = self.scores[self.scores["metric"] == metric]
            wide = chosen.pivot(index="sample", columns="method", values="value")
            order = chosen["sample"].drop_duplicates()
            self._matrices[metric] = wide.reindex(index=order, columns=self.methods)
        return self._matrices[metric]

    def summary(self) -> pd.DataFrame:
        """One row for each metric and method.

        Columns: ``metric, method, mean, low, high`` (95 % interval of the mean over the samples, or over the
        groups of them; it leaves out that another training could have been explained), ``n``,
        ``n_valid`` (defined scores, which all of this is over), ``rank`` (mean rank over the samples, 1 is best), and
        ``beats_controls``: whether the mean is better than that of every control, each at 5 % after Holm's correction
        (paired t-test, :func:`xaibench.statistics.against_controls`); None for controls, and where there is
        nothing to compare with.

        Returns:
            These columns, in the order of the metrics and methods.
        """
        import pandas as pd

        return pd.DataFrame([row for metric in self.metrics for row in self._rows(metric)])

    def _rows(self, metric: str) -> list[dict[str, Any]]:
        matrix = self.matrix(metric)
        values = matrix.to_numpy(dtype=np.float64)
        intervals = nested_means(values, self._drawn(len(values))).intervals(within=self.metrics[metric].range)
        ranks, _ = average_ranks(values, higher_is_better=self.metrics[metric].higher_is_better)
        beats = self._beats(metric)
        rows = []
        for column, method in enumerate(matrix.columns):
            known = values[:, column][~np.isnan(values[:, column])]
            rows.append(
                {
                    "metric": metric,
                    "method": method,
                    "mean": float(known.mean()) if len(known) else np.nan,
                    "low": intervals[column, 0],
                    "high": intervals[column, 1],
                    "n": len(values),
                    "n_valid": len(known),
                    "rank": ranks[column],
                    "beats_controls": beats.get(method),
                }
            )
        return rows

    def _drawn(self, rows: int) -> Drawn:
        return Drawn.of(rows, groups=self.groups)

    def _beats(self, metric: str) -> dict[str, bool]:
        pairs = self.compare(metric)[["first", "second", "difference", "p_holm"]].itertuples(index=False, name=None)
        higher = self.metrics[metric].higher_is_better
        found = against_controls(pairs, self.controls, higher_is_better=higher)
        return {method: against.beats for method, against in found.items()}

    def compare(self, metric: str) -> pd.DataFrame:
        """Every pair of methods on one metric, over the samples where both are defined.

        Columns: ``first, second, difference`` (mean of first minus second), ``low, high`` (95 % interval), ``p``
        (paired t-test over groups), ``p_holm`` (corrected for all pairs), ``n_valid``.

        Args:
            metric: Its name.

        Returns:
            A row a pair; none where there is one method.
        """
        import pandas as pd

        matrix = self.matrix(metric)
        pairs = list(itertools.combinations(matrix.columns, 2))
        columns = ["first", "second", "difference", "low", "high", "p", "p_holm", "n_valid"]
        if not pairs:
            return pd.DataFrame(columns=columns)
        firsts, seconds = (matrix[list(side)].to_numpy(dtype=np.float64) for side in zip(*pairs, strict=True))
        differences = paired_differences(firsts, seconds)
        found = nested_means(differences, self._drawn(len(differences)))
        p, n = found.p_values(), (~np.isnan(differences)).sum(0)
        values = zip(pairs, found.mean, found.intervals(), p, holm(p), n, strict=True)
        rows = [(*pair, m, low, high, one, all_, int(n)) for pair, m, (low, high), one, all_, n in values]
        return pd.DataFrame(rows, columns=columns)

    def ranks(self, metric: str) -> Ranks:
        """How the methods rank within the samples, 1 being the best.

        Args:
            metric: Its name.

        Returns:
            Mean rank of each method, best first; the critical difference between two of them; and over how many
            samples.
        """
        import pandas as pd

        matrix = self.matrix(metric)
        higher = self.metrics[metric].higher_is_better
        found = mean_ranks(matrix.to_numpy(), self._drawn(len(matrix)), higher_is_better=higher)
        ranks = pd.Series(found.ranks, index=matrix.columns, name="rank").sort_values()
        return Ranks(ranks, found.critical_difference, found.n)

    def table(self) -> pd.DataFrame:
        """A row a method and a column a metric: ``mean [low, high]``.

        A † marks what is not better than every control; an arrow beside a metric's name, which direction is better.

        Returns:
            Texts, the methods in the order given.
        """
        summary = self.summary()
        unbeaten = summary["beats_controls"].eq(False)
        cells = [
            f"{row.mean:.3f} [{row.low:.3f}, {row.high:.3f}]{MARK if mark else ''}"
            for row, mark in zip(summary.drop(columns="beats_controls").itertuples(), unbeaten, strict=True)
        ]
        wide = summary.assign(cell=cells).pivot(index="method", columns="metric", values="cell")
        wide = wide.reindex(index=self.methods, columns=list(self.metrics))
        arrows = {name: f"{name} {'↑' if info.higher_is_better else '↓'}" for name, info in self.metrics.items()}
        return wide.rename(columns=arrows).rename_axis(index=None, columns=None)

    def notes(self) -> list[str]:
        """What is said below the table.

        Returns:
            Lines: who was scored, and the model's accuracy; the controls; whose maps are zero everywhere.
        """
        lines = [f"{self._scored()}; mean and 95 % interval."]
        if self.controls:
            lines.append(f"Controls: {', '.join(sorted(self.controls))}. {MARK} not better than all of them (5 %).")
        if self.zero_maps:
            counts = ", ".join(f"{method} {len(ids)}" for method, ids in self.zero_maps.items())
            lines.append(f"Maps that are zero everywhere: {counts} (.zero_maps has the samples).")
        lines += [f"Not applicable: {method}: {why}" for method, why in self.inapplicable.items()]
        return lines

    def _scored(self) -> str:
        scored = self.scores["sample"].nunique()
        if self.accuracy is None:
            return f"{scored} samples"
        right = f"accuracy {self.accuracy:.1%}".replace("%", " %")
        if self.accuracy == 1:
            return f"{scored} samples, all classified correctly by the model"
        if scored == self.samples:
            return f"{scored} samples, wrongly classified ones too ({right})"
        return (
            f"{scored} of {self.samples} samples, classified correctly by the model ({right}; scored='all' takes all)"
        )

    def __str__(self) -> str:
        return "\n".join([self.table().to_string(), *self.notes()])

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        table = self.table()
        return html_table(table.itertuples(name=None), head=("", *table.columns), notes=self.notes())
