"""Result of an evaluation: all scores, their summary, comparisons and ranks."""

from __future__ import annotations

import math
import reprlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from xaibench.core.markup import html_table
from xaibench.core.messages import count_samples
from xaibench.core.types import SCORED_AS_CHANCE
from xaibench.registry.table import UnknownNameError
from xaibench.scores import SamplingDesign, mean_ranks
from xaibench.scores.nested_draws import RELIABLE_GROUPS
from xaibench.scores.rank_tests import ALPHA

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from xaibench.registry.info import MetricInfo
    from xaibench.scores.render import Table

#: Mark in the table for methods that are not better than every control.
MARK = "†"


class Ranks(NamedTuple):
    """Mean ranks of methods over the samples; 1 is best.

    Attributes:
        ranks: Mean rank of each method, best first.
        critical_difference: Nemenyi critical difference at 5 %, over the samples or the groups of them. Mean ranks that
            differ by less are not significantly different.
        n: Number of samples, those on which all methods have a score.
    """

    ranks: pd.Series
    critical_difference: float
    n: int

    def _note(self) -> str:
        return f"Mean ranks over {self.n} samples; critical difference {self.critical_difference:.2f} (Nemenyi, 5 %)."

    def __repr__(self) -> str:
        ranks = self.ranks.rename_axis(None).to_string(float_format="{:.2f}".format)
        return f"{ranks}\n{self._note()}"

    def _repr_html_(self) -> str:
        rows = [(method, f"{rank:.2f}") for method, rank in self.ranks.items()]
        return html_table(rows, head=("method", "mean rank"), notes=[self._note()])


def _cell_text(mean: float, low: float, high: float, mark: str) -> str:
    """Return a mean with its interval, such as ``"0.512 [0.401, 0.623]"``.

    Example:
        >>> _cell_text(0.5, np.nan, np.nan, "†"), _cell_text(np.nan, np.nan, np.nan, "")
        ('0.500 [–]†', '–')
    """
    if np.isnan(mean):
        return f"–{mark}"
    return f"{mean:.3f} [–]{mark}" if np.isnan(low) else f"{mean:.3f} [{low:.3f}, {high:.3f}]{mark}"


@dataclass(frozen=True, eq=False, repr=False)
class Evaluation:
    """Scores of several methods on the same samples.

    Attributes:
        scores: One row per method, metric and sample: ``method, metric, sample, value, reason``; ``value`` is nan
            where the metric is undefined, and ``reason`` explains why. Where a metric with a ground truth is undefined
            because of the map, ``value`` is the chance level if it is known, and ``reason`` ends in
            ``": scored as chance"``.
        metrics: The info record of each metric: label, direction, range.
        controls: The methods that do not use the model.
        groups: Group index of each sample (patient, image), ``[N]``, or None.
        groups_by: What the groups are, such as ``"patients"``; may be empty.
        samples: Number of samples that were read. Fewer are scored if only correctly classified samples count.
        accuracy: Share of these samples that the model classifies correctly, 0 to 1; None without a model.
        zero_maps: Samples whose map is zero everywhere, per method. Such a map ranks no pixel above another: metrics
            score it like a constant map, as chance, or not at all.
        inapplicable: Methods that were left out because they do not support the model, with the reason.
        parameters: The parameters that were given for a metric, including the parameters of the default metrics.
        broken_assumptions: Why scores may be wrong, with ``check_network=False``: the model is random in evaluation
            mode, for example. Empty if the model is a deterministic function of one image.
    """

    scores: pd.DataFrame
    metrics: Mapping[str, MetricInfo]
    controls: frozenset[str] = frozenset()
    groups: NDArray[np.int64] | None = None
    groups_by: str = ""
    samples: int | None = None
    accuracy: float | None = None
    zero_maps: Mapping[str, Sequence[str]] = field(default_factory=dict)
    inapplicable: Mapping[str, str] = field(default_factory=dict)
    parameters: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    broken_assumptions: Sequence[str] = ()
    _matrices: dict[str, pd.DataFrame] = field(default_factory=dict, repr=False)

    @property
    def methods(self) -> list[str]:
        """The methods in the order given; controls last."""
        return list(dict.fromkeys(self.scores["method"]))

    def matrix(self, metric: str) -> pd.DataFrame:
        """Return the scores of one metric.

        Args:
            metric: Name of the metric.

        Returns:
            One row per sample and one column per method; nan where the score is undefined.

        Raises:
            UnknownNameError: If that metric was not evaluated.
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
        """Summarize the scores per metric and method.

        Columns: ``metric, method, mean, low, high`` (95 % confidence interval of the mean over the samples, or over
        the groups of them; it does not account for the variation between trainings), ``n``, ``n_valid`` (number of
        defined scores, from which all of these are computed), ``rank`` (mean rank over the samples, 1 is best), and
        ``beats_controls``: whether the mean is significantly better than that of every control, at 5 % after Holm's
        correction (paired t-test, :func:`xaibench.scores.compare_with_controls`); None for controls, and if there
        is no control to compare with.

        Returns:
            One row per metric and method, in their order.
        """
        import pandas as pd

        from xaibench.scores.summary import method_numbers

        rows = []
        for metric, info in self.metrics.items():
            matrix, ranks = self.matrix(metric), self.ranks(metric).ranks
            values, control = matrix.to_numpy(dtype=np.float64), [name in self.controls for name in matrix]
            numbers = method_numbers(
                self.methods, values, self._design(len(values)), info, self._test_pairs(metric), control
            )
            for column, (method, row) in enumerate(numbers.items()):
                known = values[:, column][~np.isnan(values[:, column])]
                mean = float(known.mean()) if len(known) else np.nan
                counts = {"n": len(values), "n_valid": len(known), "rank": ranks[method]}
                one = {"metric": metric, "method": method, "mean": mean, "low": row["low"], "high": row["high"]}
                rows.append(one | counts | {"beats_controls": row["beats_controls"]})
        return pd.DataFrame(rows)

    def _design(self, rows: int) -> SamplingDesign:
        return SamplingDesign.of(rows, groups=self.groups)

    def _test_pairs(self, metric: str) -> pd.DataFrame:
        from xaibench.scores.summary import pair_tests

        matrix = self.matrix(metric)
        return pair_tests(self.methods, matrix.to_numpy(dtype=np.float64), self._design(len(matrix)))

    def compare(self, metric: str) -> pd.DataFrame:
        """Compare every pair of methods by one metric, over the samples on which both have a score.

        Columns: ``first, second, difference`` (mean of first minus second), ``low, high`` (95 % confidence interval),
        ``p`` (paired t-test over groups), ``p_holm`` (corrected for all pairs), ``n_valid``.

        Args:
            metric: Name of the metric.

        Returns:
            One row per pair; empty if there is only one method.
        """
        columns = ["first", "second", "difference", "low", "high", "p", "p_holm", "n_valid"]
        return self._test_pairs(metric)[columns]

    def ranks(self, metric: str) -> Ranks:
        """Rank the methods within each sample by one metric; 1 is best.

        Args:
            metric: Name of the metric.

        Returns:
            The mean rank of each method, best first; the critical difference; and the number of samples.
        """
        import pandas as pd

        matrix = self.matrix(metric)
        higher = self.metrics[metric].higher_is_better
        result = mean_ranks(matrix.to_numpy(), self._design(len(matrix)), higher_is_better=higher)
        ranks = pd.Series(result.ranks, index=matrix.columns, name="rank").sort_values()
        return Ranks(ranks, result.critical_difference, result.n)

    def table(self) -> pd.DataFrame:
        """Format the summary as a table with one row per method and one column per metric: ``mean [low, high]``.

        A † marks methods that are not better than every control. An arrow after the metric's name shows which
        direction is better. A mean without defined scores is a dash, and so is an interval of a single sample.

        Returns:
            The table of strings, with the methods in the order given.
        """
        summary = self.summary()
        unbeaten = summary["beats_controls"].eq(False)
        numbers = summary[["mean", "low", "high"]].itertuples(index=False, name=None)
        rows = zip(numbers, unbeaten, strict=True)
        cells = [_cell_text(mean, low, high, MARK if mark else "") for (mean, low, high), mark in rows]
        wide = summary.assign(cell=cells).pivot(index="method", columns="metric", values="cell")
        wide = wide.reindex(index=self.methods, columns=list(self.metrics))
        arrows = {name: f"{name} {'↑' if info.higher_is_better else '↓'}" for name, info in self.metrics.items()}
        return wide.rename(columns=arrows).rename_axis(index=None, columns=None)

    def best_methods(self, metric: str) -> list[str]:
        """Return the method with the best mean, and the methods that do not differ significantly from it.

        A method is left out if its difference from the best mean is significant at 5 %, after Holm's correction for
        all pairs (:meth:`compare`). Controls count like other methods.

        Args:
            metric: Name of the metric.

        Returns:
            The best method first, then the others in the order given; empty if no score is defined.
        """
        summary = self.summary()
        means = summary[summary["metric"] == metric].set_index("method")["mean"].dropna()
        if means.empty:
            return []
        first = str(means.idxmax() if self.metrics[metric].higher_is_better else means.idxmin())
        pairs = self.compare(metric)
        pairs = pairs[(pairs["first"] == first) | (pairs["second"] == first)]
        differs = pairs[pairs["p_holm"] < ALPHA]
        worse = {*differs["first"], *differs["second"]}
        return [first, *(name for name in means.index if name not in worse and name != first)]

    def to_latex(
        self,
        metrics: Sequence[str] | None = None,
        *,
        digits: int = 3,
        caption: str | None = None,
        label: str | None = None,
    ) -> str:
        r"""Return the table in LaTeX: one row per method, one column per metric, controls below a line.

        A cell is ``mean [low, high]`` with the 95 % interval. The means of :meth:`best_methods` are bold; a dagger
        marks methods that are not better than every control. The notes are comments above the table.

        Args:
            metrics: The metrics to include, in this order; None = all.
            digits: Number of decimals.
            caption: Caption in LaTeX. With a caption or a label, the table is in an environment ``table``.
            label: Label for ``\ref``.

        Returns:
            An environment ``tabular``, or ``table``, for the package booktabs.

        Raises:
            UnknownNameError: If a metric was not evaluated.
        """
        from xaibench.scores.render import to_latex

        return to_latex(self._make_table(metrics, digits), caption=caption, label=label)

    def to_markdown(self, metrics: Sequence[str] | None = None, *, digits: int = 3) -> str:
        """Return the table in Markdown, with the notes below it. Cells are as in :meth:`to_latex`.

        Args:
            metrics: The metrics to include, in this order; None = all.
            digits: Number of decimals.

        Returns:
            The table and the notes.

        Raises:
            UnknownNameError: If a metric was not evaluated.
        """
        from xaibench.scores.render import to_markdown

        return to_markdown(self._make_table(metrics, digits))

    def _make_table(self, metrics: Sequence[str] | None, digits: int) -> Table:
        from xaibench.scores.render import Column, GroupRow, Table, TableCell

        best = {metric: self.best_methods(metric) for metric in self._choose_metrics(metrics)}
        cells: dict[str, dict[str, TableCell]] = {name: {"method": TableCell(name)} for name in self.methods}
        row: Any
        for row in self.summary().itertuples():
            if row.metric in best:
                cells[row.method][row.metric] = TableCell(
                    row.mean,
                    interval=None if math.isnan(row.low) else (row.low, row.high),
                    flag=MARK if row.beats_controls == False else "",  # noqa: E712  # a bool of NumPy, or None
                    is_best=row.method in best[row.metric],
                )
        number: Callable[[float], str] = lambda value: f"{value:.{digits}f}".replace("-", "−")  # noqa: E731
        columns = [Column(self._heading(metric), metric, format=number) for metric in best]
        methods, controls = ([cells[m] for m in cells if (m in self.controls) == of] for of in (False, True))
        line = [GroupRow()] if methods and controls else []
        note = "Bold: the best mean, and means that do not differ significantly from it (paired t-test, 5 %, Holm)."
        columns = [Column("Method", "method"), *columns]
        return Table("scores", "", columns, [*methods, *line, *controls], [*self.notes(), note])

    def _heading(self, metric: str) -> str:
        """Return the label of a metric with an arrow for its direction."""
        info = self.metrics[metric]
        return f"{info.label} {'↑' if info.higher_is_better else '↓'}"

    def plot(self, metrics: Sequence[str] | None = None) -> Figure:
        """Draw a forest plot: one panel per metric, with the mean and the 95 % interval of each method.

        The means of the controls are vertical lines. Filled markers show :meth:`best_methods`.

        Args:
            metrics: The metrics to draw, in this order; None = all.

        Returns:
            A figure of matplotlib; ``.savefig("scores.pdf")`` writes it to a file.

        Raises:
            UnknownNameError: If a metric was not evaluated.
            ModuleNotFoundError: If matplotlib is not installed.
        """
        from xaibench.plots.figures import house_style

        chosen = self._choose_metrics(metrics)
        with house_style():  # without matplotlib, its error names the command that installs it
            from xaibench.plots import forest
        return forest(
            self.summary(),
            metrics={name: self._heading(name) for name in chosen},
            controls=self.controls,
            best={name: self.best_methods(name) for name in chosen},
        )

    def _choose_metrics(self, metrics: Sequence[str] | None) -> list[str]:
        chosen = list(self.metrics if metrics is None else metrics)
        if isinstance(metrics, str) or not chosen:
            raise ValueError(f"metrics={metrics!r}: expected a list of at least one metric.")
        for name in chosen:
            if name not in self.metrics:
                raise UnknownNameError(f"There are no scores of {name!r}; known: {', '.join(self.metrics)}.")
        return chosen

    def notes(self) -> list[str]:
        """Return the notes below the table.

        Returns:
            One line each about the scored samples and the model's accuracy, broken assumptions, the parameters of
            metrics, the controls, maps that are zero everywhere, maps scored as chance, undefined scores, and methods
            that are not applicable.
        """
        lines = [f"{self._describe_samples()}; mean and 95 % interval."]
        counted = self.scores["sample"].nunique() if self.groups is None else len(np.unique(self.groups))
        if counted < RELIABLE_GROUPS:
            lines[0] = f"{lines[0][:-1]} (fewer than {RELIABLE_GROUPS}: not reliable for skewed scores)."
        lines += [f"Not to be relied on (check_network=False): {why}" for why in self.broken_assumptions]
        if self.parameters:
            shown = (
                f"{metric}({', '.join(f'{name}={reprlib.repr(value)}' for name, value in values.items())})"
                for metric, values in self.parameters.items()
            )
            lines.append(f"Parameters: {', '.join(shown)}.")
        if self.controls:
            lines.append(f"Controls: {', '.join(sorted(self.controls))}. {MARK} not better than all of them (5 %).")
        if self.zero_maps:
            counts = ", ".join(f"{method} {len(ids)}" for method, ids in self.zero_maps.items())
            lines.append(f"Maps that are zero everywhere: {counts} (.zero_maps has the samples).")
        lines += self._unscored_notes()
        lines += [f"Not applicable: {method}: {why}" for method, why in self.inapplicable.items()]
        return lines

    def _unscored_notes(self) -> Iterator[str]:
        chance = self.scores["reason"].str.endswith(SCORED_AS_CHANCE).to_numpy(bool)
        maps = self.scores[chance].drop_duplicates(["method", "sample"])
        if counts := Counter(maps["method"]):
            shown = ", ".join(f"{method} {count}" for method, count in counts.items())
            yield f"Maps scored as chance, because they are constant or no pixel is above the threshold: {shown}."
        for metric in self.metrics:
            yield from self._undefined_notes(metric)

    def _undefined_notes(self, metric: str) -> Iterator[str]:
        """Yield of how many samples the means of a metric are, if not of all, and why; methods alike share a line."""
        rows = self.scores[self.scores["metric"] == metric]
        found: dict[tuple[int, tuple[tuple[str, int], ...]], list[str]] = {}
        for method in self.methods:
            reasons = rows.loc[(rows["method"] == method) & rows["value"].isna(), "reason"]
            if len(reasons):
                of = int((rows["method"] == method).sum())
                found.setdefault((of, tuple(sorted(Counter(reasons).items()))), []).append(method)
        for (of, reasons_of), methods in found.items():
            missing = sum(count for _, count in reasons_of)
            why = "; ".join(f"{count}: {reason or 'undefined'}" for reason, count in reasons_of)
            who = "" if len(methods) == len(self.methods) else f", {', '.join(methods)}"
            yield f"{metric}{who}: {of - missing} of {of} samples have a score ({why})."

    def _describe_samples(self) -> str:
        scored = self.scores["sample"].nunique()
        counted = count_samples(scored, scored if self.groups is None else len(np.unique(self.groups)), self.groups_by)
        if self.accuracy is None:
            return counted
        right = f"accuracy {self.accuracy:.1%}".replace("%", " %")
        if self.accuracy == 1:
            return f"{counted}, all classified correctly by the model"
        if scored == self.samples:
            return f"{counted}, including wrongly classified ones ({right})"
        counted = counted.replace(" ", f" of {self.samples} ", 1)
        return f"{counted}, classified correctly by the model ({right}; scored='all' takes all)"

    def __str__(self) -> str:
        return "\n".join([self.table().to_string(), *self.notes()])

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        table = self.table()
        return html_table(table.itertuples(name=None), head=("", *table.columns), notes=self.notes())
