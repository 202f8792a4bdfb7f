"""Result of an evaluation: all scores, their summary, comparisons and ranks."""

from __future__ import annotations

import itertools
import math
import reprlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from xaibench.component.registry import UnknownNameError
from xaibench.core.markup import escape_latex, html_table
from xaibench.core.messages import count_samples
from xaibench.core.types import SCORED_AS_CHANCE
from xaibench.scores import (
    SamplingDesign,
    average_ranks,
    compare_with_controls,
    holm,
    mean_ranks,
    nested_means,
    paired_differences,
)
from xaibench.scores.nested_draws import RELIABLE_GROUPS

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from xaibench.component.info import MetricInfo

#: Mark in the table for methods that are not better than every control.
MARK = "†"


class Cell(NamedTuple):
    """A mean with its interval.

    Attributes:
        mean: The mean; nan without a defined score.
        low: Lower end of the interval; nan if there is none.
        high: Upper end of the interval.
        is_best: Whether the method belongs to the best ones.
        mark: Footnote mark.
    """

    mean: float
    low: float
    high: float
    is_best: bool
    mark: str


def to_latex(
    evaluation: Evaluation, metrics: Sequence[str], digits: int, caption: str | None, label: str | None
) -> str:
    """Return the table in LaTeX (:meth:`xaibench.evaluation.Evaluation.to_latex`)."""

    def cell(one: Cell) -> str:
        if math.isnan(one.mean):
            return f"--{escape_latex(one.mark)}"
        text = f"{one.mean:.{digits}f}".replace("-", "$-$")
        text = f"\\textbf{{{text}}}" if one.is_best else text
        if math.isnan(one.low):
            return text + escape_latex(one.mark)
        ends = f"{one.low:.{digits}f}, {one.high:.{digits}f}".replace("-", "$-$")
        return f"{text}{escape_latex(one.mark)} {{\\scriptsize [{ends}]}}"

    head = ["Method", *(escape_latex(metric_heading(evaluation, metric)) for metric in metrics)]
    methods, controls = _groups(evaluation)
    lines = ["% \\usepackage{booktabs}", *(f"% {note}" for note in _notes(evaluation))]
    inside = [f"\\begin{{tabular}}{{l{'l' * len(metrics)}}}", "\\toprule", " & ".join(head) + r" \\", "\\midrule"]
    rows = _rows(evaluation, metrics)
    for number, group in enumerate(part for part in (methods, controls) if part):
        inside += ["\\midrule"] if number else []
        inside += [" & ".join([escape_latex(name), *map(cell, rows[name])]) + r" \\" for name in group]
    inside += ["\\bottomrule", "\\end{tabular}"]
    if caption is not None or label is not None:
        outside = ["\\begin{table}", "\\centering"]
        outside += [f"\\caption{{{caption}}}"] if caption is not None else []
        outside += [f"\\label{{{label}}}"] if label is not None else []
        inside = [*outside, *inside, "\\end{table}"]
    return "\n".join([*lines, *inside]) + "\n"


def to_markdown(evaluation: Evaluation, metrics: Sequence[str], digits: int) -> str:
    """Return the table in Markdown (:meth:`xaibench.evaluation.Evaluation.to_markdown`)."""

    def cell(one: Cell) -> str:
        if math.isnan(one.mean):
            return f"–{one.mark}"
        text = f"{one.mean:.{digits}f}"
        text = f"**{text}**" if one.is_best else text
        return f"{text}{one.mark}" + ("" if math.isnan(one.low) else f" [{one.low:.{digits}f}, {one.high:.{digits}f}]")

    escape: Callable[[str], str] = lambda text: text.replace("|", "\\|")  # noqa: E731
    methods, controls = _groups(evaluation)
    rows = _rows(evaluation, metrics)
    lines = [["method", *(metric_heading(evaluation, metric) for metric in metrics)], ["---", *["---"] * len(metrics)]]
    lines += [[name, *map(cell, rows[name])] for name in (*methods, *controls)]
    table = "\n".join(f"| {' | '.join(map(escape, line))} |" for line in lines)
    return "\n\n".join([table, *_notes(evaluation)]) + "\n"


def _notes(evaluation: Evaluation) -> list[str]:
    best = "Bold: the best mean, and means that do not differ significantly from it (paired t-test, 5 %, Holm)."
    return [*evaluation.notes(), best]


def metric_heading(evaluation: Evaluation, metric: str) -> str:
    """Return the label of a metric with an arrow for its direction."""
    info = evaluation.metrics[metric]
    return f"{info.label} {'↑' if info.higher_is_better else '↓'}"


def _groups(evaluation: Evaluation) -> tuple[list[str], list[str]]:
    """Return the methods, and the controls."""
    methods = [name for name in evaluation.methods if name not in evaluation.controls]
    return methods, [name for name in evaluation.methods if name in evaluation.controls]


def _rows(evaluation: Evaluation, metrics: Sequence[str]) -> dict[str, list[Cell]]:
    best = {metric: evaluation.best_methods(metric) for metric in metrics}
    found: dict[str, dict[str, Cell]] = {name: {} for name in evaluation.methods}
    row: Any
    for row in evaluation.summary().itertuples():
        if row.metric in best:
            mark = MARK if row.beats_controls == False else ""  # noqa: E712  # it may be a bool of NumPy, or None
            found[row.method][row.metric] = Cell(row.mean, row.low, row.high, row.method in best[row.metric], mark)
    return {name: [cells[metric] for metric in metrics] for name, cells in found.items()}


#: Level of significance.
_LEVEL = 0.05


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

        return pd.DataFrame([row for metric in self.metrics for row in self._rows(metric)])

    def _rows(self, metric: str) -> list[dict[str, Any]]:
        matrix = self.matrix(metric)
        values = matrix.to_numpy(dtype=np.float64)
        info = self.metrics[metric]
        means = nested_means(values, self._design(len(values)))
        intervals = means.intervals(within=info.range, attains_ends=info.attains_ends)
        ranks, _ = average_ranks(values, higher_is_better=self.metrics[metric].higher_is_better)
        beats = self._beats_controls(metric)
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

    def _design(self, rows: int) -> SamplingDesign:
        return SamplingDesign.of(rows, groups=self.groups)

    def _beats_controls(self, metric: str) -> dict[str, bool]:
        pairs = self.compare(metric)[["first", "second", "difference", "p_holm"]].itertuples(index=False, name=None)
        higher = self.metrics[metric].higher_is_better
        comparisons = compare_with_controls(pairs, self.controls, higher_is_better=higher)
        return {method: against.beats for method, against in comparisons.items()}

    def compare(self, metric: str) -> pd.DataFrame:
        """Compare every pair of methods by one metric, over the samples on which both have a score.

        Columns: ``first, second, difference`` (mean of first minus second), ``low, high`` (95 % confidence interval),
        ``p`` (paired t-test over groups), ``p_holm`` (corrected for all pairs), ``n_valid``.

        Args:
            metric: Name of the metric.

        Returns:
            One row per pair; empty if there is only one method.
        """
        import pandas as pd

        matrix = self.matrix(metric)
        pairs = list(itertools.combinations(matrix.columns, 2))
        columns = ["first", "second", "difference", "low", "high", "p", "p_holm", "n_valid"]
        if not pairs:
            return pd.DataFrame(columns=columns)
        firsts, seconds = (matrix[list(side)].to_numpy(dtype=np.float64) for side in zip(*pairs, strict=True))
        differences = paired_differences(firsts, seconds)
        means = nested_means(differences, self._design(len(differences)))
        p, n = means.p_values(), (~np.isnan(differences)).sum(0)
        values = zip(pairs, means.mean, means.intervals(), p, holm(p), n, strict=True)
        rows = [(*pair, mean, low, high, p, p_holm, int(n)) for pair, mean, (low, high), p, p_holm, n in values]
        return pd.DataFrame(rows, columns=columns)

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
        differs = pairs[pairs["p_holm"] < _LEVEL]
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
        return to_latex(self, self._choose_metrics(metrics), digits, caption, label)

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
        return to_markdown(self, self._choose_metrics(metrics), digits)

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
        from xaibench.plots.figure_style import house_style

        chosen = self._choose_metrics(metrics)
        with house_style():  # without matplotlib, its error names the command that installs it
            from xaibench.plots import forest
        return forest(
            self.summary(),
            metrics={name: metric_heading(self, name) for name in chosen},
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
