"""Leaderboards over all cells and every selection of cells, rankings, and their stability when a run is repeated."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from xaibench.runfolder.schema import CELL
from xaibench.scores import holm
from xaibench.scores.cells import Matrices, cell_matrices, resampled_means
from xaibench.scores.nested_draws import Floats, two_sided_p_values, variance_components
from xaibench.scores.rank_tests import ALPHA, compare_with_controls
from xaibench.scores.results import RunResults, place

_PAIR = ["first", "second"]
#: Resamples of the means over several cells.
RESAMPLES = 1000
#: Indices of the selected subset, variant and model in the run's order; None selects all.
Choice = tuple[int | None, int | None, int | None]
#: Columns of the summary that leaderboards use; some only exist after inference.
_NUMBERS = ("rank", "median", "mean", "above_controls", "beats_controls", "p_controls", "low", "high", "n_valid")


class ControlOutcomes(NamedTuple):
    """How methods compare with the controls over cells, ``[M]`` bool each, after correction for all comparisons.

    Attributes:
        tested: Whether the method was compared.
        overall: Its mean is significantly better than that of every control, over the cells of that control.
        in_a_cell: It is in at least one cell.
        worse: Its mean is significantly worse than that of at least one control, over the cells of that control.
    """

    tested: NDArray[np.bool_]
    overall: NDArray[np.bool_]
    in_a_cell: NDArray[np.bool_]
    worse: NDArray[np.bool_]


@dataclass(frozen=True)
class Standings:
    """The summary as arrays, from which leaderboards of any selection of cells are computed quickly.

    Attributes:
        run: The run.
        truth: The kind of truth of the metrics (:attr:`.RunResults.truths`).
        cells: ``[C]`` subset, variant and model.
        explainers: ``[M]`` names.
        metrics: ``[K]`` names.
        numbers: Column of the summary to ``[C, K, M]``; NaN if missing, and for scores without a rank.
        tests: Paired tests by metric; empty without inference.
    """

    run: RunResults
    truth: str
    cells: tuple[tuple[str, str, str], ...]
    explainers: tuple[str, ...]
    metrics: tuple[str, ...]
    numbers: dict[str, Floats]
    tests: Mapping[str, CellTests]
    _of_cells: dict[tuple[int, ...], dict[str, NDArray[Any]]] = field(default_factory=dict, repr=False, compare=False)

    @property
    def leading(self) -> tuple[str, ...]:
        """The metrics by which methods are ranked."""
        return tuple(name for name in self.run.leading if name in self.metrics)

    @property
    def ranking(self) -> int | None:
        """Index of the metric that methods are ranked by: the first leading one that ranks them; None if none does."""
        leading = (self.metrics.index(name) for name in self.leading)
        return next((k for k in leading if not np.isnan(self.numbers["rank"][:, k]).all()), None)

    def columns(self, cells: Sequence[int], metric: int | None = None) -> dict[str, NDArray[Any]]:
        """Return the columns of a leaderboard over some cells, ``[M]`` each, in the order of ``explainers``.

        Args:
            cells: Indices of the cells.
            metric: Index of the metric that methods are ranked by; None = :attr:`ranking`. Every metric has its own
                columns.

        Returns:
            The columns of :func:`leaderboard`; NaN for methods without a place.
        """
        key = tuple(cells)
        if key not in self._of_cells:  # the same for each metric that methods are ranked by
            self._of_cells[key] = self._metrics_columns(key)
        by = self.ranking if metric is None else metric
        shown = self.metrics[0 if by is None else by]
        over = {"place": "first", "last_place": "last"} | {name: name for name in ("ahead", "cells", "of", "order")}
        columns = self._of_cells[key]
        return columns | {column: columns[f"{name}:{shown}"] for column, name in over.items()}

    def _metrics_columns(self, cells: tuple[int, ...]) -> dict[str, NDArray[Any]]:
        """Return the columns of every metric, and the names of the explainers."""
        control = np.array([self.run.explainers[name].control for name in self.explainers], dtype=bool)
        columns: dict[str, NDArray[Any]] = {"explainer": np.array(self.explainers, dtype=object), "control": control}
        for k, name in enumerate(self.metrics):
            columns |= _metric_columns(name, {column: array[list(cells), k] for column, array in self.numbers.items()})
            whole = ~control & (columns[f"cells:{name}"] == columns[f"of:{name}"])
            columns |= self._ranks(k, cells, whole)
            mean = columns[f"mean:{name}"] * (-1 if self.run.metrics[name].higher_is_better else 1)
            columns[f"order:{name}"] = np.empty(len(mean), dtype=np.int64)
            columns[f"order:{name}"][np.argsort(mean, kind="stable")] = np.arange(len(mean))  # NaN comes last
        return columns

    def _ranks(self, k: int, cells: Sequence[int], whole: NDArray[np.bool_]) -> dict[str, NDArray[Any]]:
        """Return ``first:METRIC`` and ``last:METRIC``, the rank interval of each method, and ``ahead:METRIC``.

        ``ahead`` is whether the mean over all cells is significantly better than that of every control, or the one in
        some cell is, after Bonferroni's correction for the number of cells. Methods that are not are not ranked, but
        widen the interval of each ranked method that they are not significantly different from. A method that could be
        first, but is significantly worse than a control over all cells, has no place.
        """
        metric = self.metrics[k]
        ranks, ahead = np.full((2, len(whole)), np.nan), np.full(len(whole), np.nan)
        if metric in self.tests:
            outcomes = self.compare_with_controls(k, cells)
            if outcomes is not None:
                ahead[outcomes.tested] = (outcomes.overall | outcomes.in_a_cell)[outcomes.tested]
            ranked = {self.explainers[m] for m in np.flatnonzero(whole & (ahead != 0))}
            tests = self.test_pairs(metric, [self.cells[i] for i in cells], ranked)
            higher = self.run.metrics[metric].higher_is_better
            names = [self.explainers[m] for m in np.flatnonzero(whole)]
            for name, ends in rank_intervals(names, tests, higher_is_better=higher).items():
                m = self.explainers.index(name)
                # Nothing is first below a control.
                if name in ranked and not (ends[0] == 1 and outcomes is not None and outcomes.worse[m]):
                    ranks[:, m] = ends
        return {f"first:{metric}": ranks[0], f"last:{metric}": ranks[1], f"ahead:{metric}": ahead}

    def test_pairs(
        self, metric: str, cells: Collection[tuple[str, str, str]], ranked: Collection[str], *, intervals: bool = False
    ) -> pd.DataFrame:
        """Test every two methods over cells.

        Args:
            metric: The metric.
            cells: The cells.
            ranked: The ranked methods. Their pairs are a family of tests; all other pairs are corrected with all pairs.
            intervals: Whether the intervals of the differences are computed.

        Returns:
            The rows of :meth:`CellTests.over`.
        """
        test = self.tests[metric].over if intervals else self.tests[metric].test
        every = pd.DataFrame(test(cells))
        is_other = ~(every["first"].isin(ranked) & every["second"].isin(ranked))
        among_ranked = pd.DataFrame(test(cells, list(itertools.combinations(ranked, 2))))
        return pd.concat([every[is_other], among_ranked], ignore_index=True)

    def compare_with_controls(self, k: int, cells: Sequence[int]) -> ControlOutcomes | None:
        """Compare each method with every control over cells; None without a comparison.

        A control that is the answer by construction of the data has no rank in that cell, and is not compared there.
        """
        ranked = ~np.isnan(self.numbers["rank"][list(cells), k])
        against: NDArray[np.bool_] = np.any(~np.isnan(self.numbers["above_controls"][list(cells), k]), axis=0)
        in_cells = np.fmin.reduce(self.numbers["p_controls"][list(cells), k], axis=0, initial=1.0)
        methods = [name for name in self.explainers if not self.run.explainers[name].control]
        higher = self.run.metrics[self.metrics[k]].higher_is_better
        rows: list[tuple[str, str, float, float]] = []
        worse: set[str] = set()
        families = 0
        for c in np.flatnonzero(ranked.any(axis=0)):
            if (control := self.explainers[c]) not in methods:
                there = [self.cells[i] for i, is_ranked in zip(cells, ranked[:, c], strict=True) if is_ranked]
                tests = self.tests[self.metrics[k]].test(there, [(name, control) for name in methods])
                columns = (tests[name].tolist() for name in ("first", "second", "difference", "p_holm"))
                rows += zip(*columns, strict=True)
                families += 1
        if not families:
            return None
        for first, second, difference, p in rows:
            worse |= {first if (difference < 0) == higher else second} if p < ALPHA else set()
        tested = Counter(itertools.chain.from_iterable(row[:2] for row in rows))
        compared = compare_with_controls(rows, set(self.explainers) - set(methods), higher_is_better=higher)
        beaten = [name in compared and compared[name].beats and tested[name] == families for name in self.explainers]
        return ControlOutcomes(
            tested=against,
            overall=against & np.array(beaten),
            in_a_cell=against & (in_cells * len(cells) < ALPHA),  # Bonferroni's correction for the cells
            worse=against & np.array([name in worse for name in self.explainers]),
        )

    def board(self, cells: Sequence[int] | None = None) -> pd.DataFrame:
        """Return the explainers over some cells (None = all), best first; see :func:`leaderboard`."""
        board = pd.DataFrame(self.columns(range(len(self.cells)) if cells is None else cells))
        board = board[board["cells"] > 0].sort_values("order", kind="stable").reset_index(drop=True)
        return board.astype(dict.fromkeys(("place", "last_place"), "Int64"))


def _metric_columns(metric: str, numbers: dict[str, Floats]) -> dict[str, NDArray[Any]]:
    """Return the columns of one metric; ``numbers`` are ``[c, M]``."""
    rank = numbers["rank"]
    top = np.fmin.reduce(rank, axis=1, initial=np.inf)
    ranked = ~np.isnan(rank)
    columns: dict[str, NDArray[Any]] = {
        f"cells:{metric}": ranked.sum(axis=0),
        f"of:{metric}": np.full(rank.shape[1], ranked.any(axis=1).sum()),
        f"mean_rank:{metric}": _nan_mean(rank),
        f"median:{metric}": _nan_median(numbers["median"]),
        f"mean:{metric}": _nan_mean(numbers["mean"]),
        f"n:{metric}": np.nansum(numbers["n_valid"], axis=0).astype(np.int64),
        f"best:{metric}": (rank == top[:, None]).sum(axis=0),
        f"above:{metric}": np.nansum(numbers["above_controls"], axis=0).astype(np.int64),
        f"against:{metric}": (~np.isnan(numbers["above_controls"])).sum(axis=0),
    }
    if "beats_controls" in numbers:
        columns[f"beats:{metric}"] = np.nansum(numbers["beats_controls"], axis=0).astype(np.int64)
    return columns


def _nan_mean(values: Floats) -> Floats:
    """Return the means ``[M]`` of the defined values of ``[..., M]``; NaN if there are none."""
    flat = values.reshape(math.prod(values.shape[:-1]), values.shape[-1])
    defined = (~np.isnan(flat)).sum(axis=0)
    mean = np.full(len(defined), np.nan)
    np.divide(np.nansum(flat, axis=0), defined, out=mean, where=defined > 0)
    return mean


def _nan_median(values: Floats) -> Floats:
    """Return the medians ``[M]`` of the defined values of ``[c, M]``; NaN if there are none."""
    median = np.full(values.shape[1], np.nan)
    some = ~np.isnan(values).all(axis=0)
    median[some] = np.nanmedian(values[:, some], axis=0)
    return median


def standings(run: RunResults, summary: pd.DataFrame, truth: str, pairs: pd.DataFrame | None = None) -> Standings:
    """Return the standings of a run by the metrics of one kind of truth.

    Args:
        run: The run.
        summary: From :func:`xaibench.scores.summary.summarize` or
            :func:`xaibench.scores.summary.infer`.
        truth: Kind of truth, one of :attr:`.RunResults.truths`.
        pairs: Paired tests of the run; without them, no method has a place.
    """
    metrics = run.truths[truth]
    ranked = summary[summary["rank"].notna() & summary["metric"].isin(metrics)]
    codes = {}
    names: dict[str, tuple[str, ...]] = {}
    for key, known in (("explainer", run.explainers), ("metric", metrics)):
        there = set(ranked[key].astype(str))
        names[key] = tuple(name for name in known if name in there or key == "metric")
        codes[key] = ranked[key].astype(str).map({name: i for i, name in enumerate(names[key])}).to_numpy(int)
    places = list(zip(*(ranked[key].astype(str) for key in CELL), strict=True))
    cells = tuple(dict.fromkeys(places))
    number = {cell: i for i, cell in enumerate(cells)}
    where = np.array([number[cell] for cell in places], dtype=int), codes["metric"], codes["explainer"]
    numbers = {}
    for column in _NUMBERS:
        if column in ranked:
            table = np.full((len(cells), len(names["metric"]), len(names["explainer"])), np.nan)
            table[where] = ranked[column].astype("Float64").to_numpy(float, na_value=np.nan)
            numbers[column] = table
    there = set() if pairs is None else set(pairs["metric"].astype(str)) & set(names["metric"])
    tests = {}
    for k, name in enumerate(names["metric"]):
        if pairs is not None and name in there:
            has_rank = ~np.isnan(numbers["rank"][:, k])
            tests[name] = CellTests.read(pairs, name).among_ranked(cells, names["explainer"], has_rank)
    return Standings(run, truth, cells, names["explainer"], names["metric"], numbers, tests)


def leaderboards_by_truth(
    run: RunResults, summary: pd.DataFrame, pairs: pd.DataFrame | None = None
) -> dict[str, pd.DataFrame]:
    """Return the leaderboard (:func:`leaderboard`) of each kind of truth (:attr:`.RunResults.truths`)."""
    return {truth: leaderboard(run, summary, truth, pairs) for truth in run.truths}


def leaderboard(
    run: RunResults, summary: pd.DataFrame, truth: str | None = None, pairs: pd.DataFrame | None = None
) -> pd.DataFrame:
    """Return the explainers by their mean scores over all cells, by the metrics of one kind of truth, best first.

    The order is that of the mean by the first leading metric (:attr:`.RunResults.leading`), which is also the quantity
    that is tested.

    Args:
        run: The run.
        summary: From :func:`xaibench.scores.summary.summarize` or
            :func:`xaibench.scores.summary.infer`.
        truth: Kind of truth; may be None if the run has only one.
        pairs: Paired tests, from :func:`.summary.infer`; without them, no method has a place.

    Returns:
        One row per explainer:

        - ``place``, ``last_place``, ``ahead``: ``first``, ``last`` and ``ahead`` of the metric that orders the methods.
        - ``explainer``, ``control``, ``cells`` (in which it was ranked by that metric), ``of`` (number of cells).
        - per metric of that kind, ``mean:METRIC`` (mean over cells of the cell's mean), ``n:METRIC`` (number of defined
          scores), ``first:METRIC`` and ``last:METRIC`` (ranks among all methods that it may have given which
          differences over the cells are significant, :func:`rank_intervals`), ``ahead:METRIC`` (1 if its mean is
          significantly better than that of every control, over all cells or in one of them), ``beats:METRIC`` (cells in
          which it is), ``against:METRIC`` (cells in which that comparison is possible; 0 for controls),
          ``above:METRIC`` (cells in which its mean is above every control's), ``best:METRIC`` (cells in which no
          explainer, control or not, has a better mean), ``mean_rank:METRIC`` (mean over cells of the rank by the mean)
          and ``median:METRIC`` (median over cells of the cell's median). The mean rank depends on which other methods
          were scored.

        Not ranked are controls, methods without a score in some cell (such as an explainer of convolutions only), since
        means over different cells are not comparable, methods that are not better than the controls, and methods that
        could be first but are significantly worse than a control.

    Raises:
        ValueError: If ``truth`` is not a kind of truth of the run, or is None and the run has several. Scores of
            different kinds are not averaged.
    """
    if truth is None and len(run.truths) == 1:
        truth = next(iter(run.truths))
    if truth not in run.truths:
        raise ValueError(f"truth={truth!r}: expected one of {', '.join(map(repr, run.truths))}, which this run has.")
    return standings(run, summary, truth, pairs).board()


def place_text(first: Any, last: Any) -> str:
    """Return a rank interval as text.

    Example:
        >>> place_text(1, 4), place_text(2, 2), place_text(None, None)
        ('1–4', '2', '')
    """
    if pd.isna(first):
        return ""
    return f"{int(first)}" if first == last else f"{int(first)}–{int(last)}"


def printable(run: RunResults, board: pd.DataFrame) -> pd.DataFrame:
    """Return the leaderboard as text, best first.

    Args:
        run: The run.
        board: From :func:`leaderboard`, of a summary with inference.

    Returns:
        Columns ``"place"``, ``"method"`` (controls, the user's own methods and methods without a score in some cell are
        marked), the mean by each leading metric, and ``"beats controls in"``: in how many cells, by each of up to three
        metrics.
    """
    leading = [name for name in run.leading if f"mean:{name}" in board]
    rows = []
    for row in board.to_dict("records"):
        part = run.explainers[row["explainer"]]
        marks = ["control" if part.control else "", "yours" if part.own else ""]
        marks += [f"{row['cells']} of {row['of']} cells" if row["cells"] < row["of"] else ""]
        marked = ", ".join(mark for mark in marks if mark)
        shown = {"place": place_text(row["place"], row["last_place"])}
        shown |= {"method": f"{part.label} ({marked})" if marked else part.label}
        shown |= {run.metrics[name].label: f"{row[f'mean:{name}']:.3f}".replace("nan", "-") for name in leading}
        if len(leading) <= 3 and all(f"beats:{name}" in row for name in leading):
            beats = [(row[f"beats:{name}"], row[f"against:{name}"]) for name in leading]
            shown["beats controls in"] = " · ".join(f"{cells}/{of}" for cells, of in beats if of)
        rows.append(shown)
    return pd.DataFrame(rows, columns=list(rows[0]) if rows else ["place", "method"])


def best_by_cell(run: RunResults, summary: pd.DataFrame, leaderboards: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Return a printable table of the method with the best mean per cell and leading metric.

    The last row is the ranked method with the best mean over all cells (``leaderboards`` of
    :func:`leaderboards_by_truth`).
    """
    leading = {name: run.metrics[name] for name in run.leading}
    rows = []
    for cell, group in summary.groupby(list(CELL), observed=True, sort=True):
        subset, variant, model = (str(name) for name in cell)
        row = {"subset": place(subset), "variant": place(variant), "model": run.models[model].label}
        for metric, part in leading.items():
            ranked = group[group["metric"] == metric].dropna(subset=["rank"])
            row[part.label] = "-"
            if len(ranked):
                best = ranked.nsmallest(1, "rank").iloc[0]
                method = run.explainers[best["explainer"]]
                row[part.label] = f"{method.label} {best['mean']:.3f}" + (" (control)" if method.control else "")
        rows.append(row)
    if rows:
        last = {part.label: _best_over_cells(run, leaderboards[part.truth], metric) for metric, part in leading.items()}
        rows.append({"subset": "all", "variant": "", "model": ""} | last)
    return pd.DataFrame(rows, columns=[*CELL, *(part.label for part in leading.values())])


def _best_over_cells(run: RunResults, board: pd.DataFrame, metric: str) -> str:
    ranked = board.dropna(subset=[f"first:{metric}"])
    if ranked.empty:
        return "-"
    best = ranked.nsmallest(1, f"order:{metric}").iloc[0]
    return f"{run.explainers[best['explainer']].label} {best[f'mean:{metric}']:.3f}"


#: Selection of all cells, and columns of whole numbers.
_EVERYTHING: Choice = (None, None, None)
_COUNTED = ("first:", "last:", "ahead:", "n:", "cells:", "of:", "best:", "above:", "beats:", "against:")


@dataclass(frozen=True)
class Boards:
    """Leaderboards by selection of cells.

    Attributes:
        standings: The scores that they are computed from.
        cells: Selection to the indices of its cells; empty selections are left out.
        means: ``[R, C, K, M]`` resampled means of each cell.
    """

    standings: Standings
    cells: Mapping[Choice, tuple[int, ...]]
    means: Floats
    _rows: dict[str | None, list[dict[str, Any]]] = field(default_factory=dict, repr=False, compare=False)

    def rows(self, metric: str | None = None) -> list[dict[str, Any]]:
        """Return the rows of the leaderboard over all cells, best first; empty if nothing was ranked.

        Args:
            metric: Metric that orders the rows; None = the first leading one.
        """
        if metric not in self._rows:  # several parts of the page look at them
            self._rows[metric] = [] if _EVERYTHING not in self.cells else self._make_rows(metric)
        return self._rows[metric]

    def _make_rows(self, metric: str | None) -> list[dict[str, Any]]:
        columns = self.columns(_EVERYTHING, None if metric is None else self.standings.metrics.index(metric))
        order = np.argsort(columns["order"], kind="stable")
        plain = []
        for name, column in columns.items():
            whole = name in ("place", "last_place", "ahead") or name.startswith(_COUNTED)
            # NaN, which is not equal to itself, is a missing value.
            values = column[order].tolist()
            plain.append([None if value != value else int(value) if whole else value for value in values])
        return [dict(zip(columns, row, strict=True)) for row in zip(*plain, strict=True)]

    @property
    def order(self) -> tuple[str, ...]:
        """The explainers with a ranked score, best mean over all cells first; empty if there is none."""
        return tuple(row["explainer"] for row in self.rows() if row["cells"])

    def columns(self, choice: Choice, metric: int | None = None) -> dict[str, NDArray[Any]]:
        """Return the leaderboard of a selection with ``low:METRIC`` and ``high:METRIC``, ranked by a metric.

        The mean is over cells. Its 95 % interval accounts for the data sets, trainings and samples of each subset and
        variant, which all cells of that subset and variant share; the cells themselves are taken as fixed. For
        a single cell it is the interval of that cell.

        Returns:
            The columns of :meth:`Standings.columns`.
        """
        cells = self.cells[choice]
        columns = self.standings.columns(cells, metric)
        for k, name in enumerate(self.standings.metrics):
            columns[f"low:{name}"], columns[f"high:{name}"] = self._interval(cells, k)
        return columns

    def _interval(self, cells: Sequence[int], metric: int) -> tuple[Floats, Floats]:
        numbers = self.standings.numbers
        if len(cells) == 1:
            return numbers["low"][cells[0], metric], numbers["high"][cells[0], metric]
        chosen = self.means[:, list(cells), metric]  # [R, c, M]
        scored = ~np.isnan(numbers["mean"][list(cells), metric])
        chosen = np.where(scored, chosen, 0).sum(axis=1) / np.where(scored.any(axis=0), scored.sum(axis=0), np.nan)
        low, high = np.quantile(chosen, [ALPHA / 2, 1 - ALPHA / 2], axis=0)
        # A cell with a single group has no interval, so neither has a mean that includes it.
        is_unknown = (scored & np.isnan(numbers["low"][list(cells), metric])).any(axis=0)
        return np.where(is_unknown, np.nan, low), np.where(is_unknown, np.nan, high)


def boards(run: RunResults, summary: pd.DataFrame, pairs: pd.DataFrame | None = None) -> dict[str, Boards]:
    """Return the leaderboards of a run by kind of truth (:attr:`.RunResults.truths`).

    Args:
        run: The run.
        summary: From :func:`xaibench.scores.summary.infer`.
        pairs: Paired tests, from the same function; without them, no method has a place.
    """
    matrices = list(cell_matrices(run))
    resampled = resampled_means(matrices, RESAMPLES)
    every = {truth: standings(run, summary, truth, pairs) for truth in run.truths}
    return {
        truth: Boards(found, dict(_selections(run, found.cells)), _resampled_cell_means(matrices, resampled, found))
        for truth, found in every.items()
    }


def _selections(run: RunResults, cells: Sequence[tuple[str, str, str]]) -> Iterator[tuple[Choice, tuple[int, ...]]]:
    """Yield every nonempty selection of cells; a subset, variant or model is selectable if there are several."""
    orders = (run.subsets, run.variants, tuple(run.models))
    options = [[None, *range(len(order))] if len(order) > 1 else [None] for order in orders]
    for first, second, third in itertools.product(*options):
        wanted = [None if i is None else order[i] for i, order in zip((first, second, third), orders, strict=True)]
        fit = tuple(
            number
            for number, cell in enumerate(cells)
            if all(want in (None, name) for want, name in zip(wanted, cell, strict=True))
        )
        if fit:
            yield (first, second, third), fit


def _resampled_cell_means(
    matrices: Sequence[Matrices], resampled: Mapping[tuple[str, str, str], Floats], standings: Standings
) -> Floats:
    """Return the resampled means ``[R, C, K, M]``; NaN if a cell has no score."""
    shape = (RESAMPLES, len(standings.cells), len(standings.metrics), len(standings.explainers))
    means = np.full(shape, np.nan, dtype=np.float32)
    for cell in matrices:
        if cell.cell not in standings.cells:
            continue
        mine = [k for k, metric in enumerate(cell.metrics) if metric in standings.metrics]
        metrics = [standings.metrics.index(cell.metrics[k]) for k in mine]
        for m, method in enumerate(cell.methods):
            if method in standings.explainers:
                place = standings.cells.index(cell.cell), metrics, standings.explainers.index(method)
                means[:, *place] = resampled[cell.cell][1:, mine, m]
    return means.astype(np.float64)


@dataclass(frozen=True)
class CellTests:
    """Paired tests of one metric in every cell, as arrays; ``nan`` for a pair without a test.

    Attributes:
        cells: ``[C]`` subset, variant and model.
        pairs: ``[P]`` first and second method.
        difference: ``[C, P]`` mean of first minus second.
        deviation: ``[C, P]`` standard deviation of that mean.
        df: ``[C, P]`` degrees of freedom of its variance.
        groups: ``[C, P]`` number of groups of samples.
    """

    cells: tuple[tuple[str, str, str], ...]
    pairs: tuple[tuple[str, str], ...]
    difference: Floats
    deviation: Floats
    df: Floats
    groups: Floats

    @classmethod
    def read(cls, pairs: pd.DataFrame, metric: str) -> CellTests:
        """Take the tests of a metric from :data:`~xaibench.runfolder.schema.COMPARISONS`."""
        from scipy.stats import t

        mine = pairs[pairs["metric"].astype(str) == metric].astype(dict.fromkeys(CELL, str))
        columns = ("difference", "low", "high", "df", "n_groups")
        tables = [mine.pivot(index=list(CELL), columns=_PAIR, values=name) for name in columns]
        difference, low, high, df, groups = (table.to_numpy(dtype=np.float64) for table in tables)
        with np.errstate(invalid="ignore"):
            # The shorter side is Student's t; the other one may be longer, if the differences are skewed.
            deviation = np.minimum(difference - low, high - difference) / t.ppf(0.975, df)
        methods: list[Any] = tables[0].columns.to_list()  # (first, second) pairs: the columns have two levels
        return cls(tuple(tables[0].index.to_list()), tuple(methods), difference, deviation, df, groups)

    def among_ranked(
        self, cells: Sequence[tuple[str, str, str]], methods: Sequence[str], has_rank: NDArray[np.bool_]
    ) -> CellTests:
        """Leave out the tests of a method in the cells where it has no rank, ``has_rank`` ``[cells, methods]``.

        A control has none where it is the answer by construction of the data.
        """
        ranked = {(cells[c], methods[m]) for c, m in np.argwhere(has_rank).tolist()}
        known = [[(cell, a) in ranked and (cell, b) in ranked for a, b in self.pairs] for cell in self.cells]
        return replace(self, deviation=np.where(np.array(known, bool), self.deviation, np.nan))

    def cells_of(self, first: str, second: str) -> list[tuple[str, str, str]]:
        """Return the cells in which two methods were tested against each other."""
        columns = [i for i, pair in enumerate(self.pairs) if set(pair) == {first, second}]
        tested: NDArray[np.bool_] = np.any(~np.isnan(self.deviation[:, columns]), axis=1)
        return [cell for cell, is_tested in zip(self.cells, tested, strict=True) if is_tested]

    def over(
        self,
        cells: Collection[tuple[str, str, str]] | None = None,
        pairs: Collection[tuple[str, str]] | None = None,
    ) -> pd.DataFrame:
        """Test pairs of methods over cells.

        Args:
            cells: Cells to test over; None = all.
            pairs: Pairs to test, in either order, which are one family; None = all.

        Returns:
            One row per pair: ``first``, ``second``; ``difference``, the mean over the cells of first minus second;
            ``low`` and ``high``, its 95 % interval; ``df``, the degrees of freedom; ``p`` (of the sign test if no
            difference varies in any cell); and ``p_holm``, Holm-corrected for all rows. Pairs without a test in some
            cell are left out.
        """
        from scipy.stats import t

        tests = self.test(cells, pairs)
        mean, half = tests["difference"], t.ppf(0.975, tests["df"]) * np.sqrt(tests["variance"])
        names = [*_PAIR, "difference", "low", "high", "df", "p", "p_holm"]
        return pd.DataFrame(tests | {"low": mean - half, "high": mean + half}, columns=names)

    def test(
        self,
        cells: Collection[tuple[str, str, str]] | None = None,
        pairs: Collection[tuple[str, str]] | None = None,
    ) -> dict[str, NDArray[Any]]:
        """Run the tests of :meth:`over`, without intervals; much faster for the many selections of cells of a page.

        Returns:
            The columns of :meth:`over` except ``low`` and ``high``, and the ``variance`` of ``difference``.
        """
        wanted = None if pairs is None else {*pairs, *((second, first) for first, second in pairs)}
        rows = np.array([i for i, cell in enumerate(self.cells) if cells is None or cell in cells], dtype=np.int64)
        kept = np.array([wanted is None or pair in wanted for pair in self.pairs], dtype=bool)
        columns = np.flatnonzero(kept & ~np.isnan(self.deviation[rows]).any(axis=0)) if len(rows) else rows
        mean, variance, df = (np.zeros(0),) * 3
        if len(columns):
            difference, deviation, of_cells = (
                array[np.ix_(rows, columns)] for array in (self.difference, self.deviation, self.df)
            )
            places = [self.cells[i][:2] for i in rows]
            numbers = {place: number for number, place in enumerate(dict.fromkeys(places))}
            place_of = np.array([numbers[place] for place in places], dtype=np.int64)
            mean, variance, df = _over_cells(difference, deviation, of_cells, place_of)
        p = two_sided_p_values(mean, variance, df)
        groups = self.groups[np.ix_(rows, columns)].sum(axis=0)
        p = np.where((variance == 0) & (mean != 0), 2.0 ** (1 - groups), p)
        first, second = (np.array([self.pairs[i][side] for i in columns], dtype=object) for side in (0, 1))
        numbers_of = {"difference": mean, "variance": variance, "df": df, "p": p, "p_holm": holm(p)}
        return {"first": first, "second": second} | numbers_of


def _over_cells(
    difference: Floats, deviation: Floats, df: Floats, place_of: NDArray[np.int64]
) -> tuple[Floats, Floats, Floats]:
    """Return mean, variance and degrees of freedom over the cells, from ``[cells, pairs]`` and their places."""
    count = int(place_of.max()) + 1
    deviations, least = np.zeros((count, deviation.shape[1])), np.full((count, deviation.shape[1]), np.inf)
    np.add.at(deviations, place_of, deviation / len(difference))
    np.minimum.at(least, place_of, df)
    variances = deviations**2
    pooled = variances.mean(axis=1, keepdims=True)
    total_df = np.minimum(_satterthwaite(variances, least), _satterthwaite(pooled, least.min(axis=1, keepdims=True)))
    return difference.mean(axis=0), variances.sum(axis=0), total_df


def _satterthwaite(variances: Floats, df: Floats) -> Floats:
    """Return the degrees of freedom of sums of independent variances ``[places, pairs]``; infinite for sums of 0."""
    total, spread = variances.sum(axis=0), (variances**2 / df).sum(axis=0)
    df_of_sum: Floats = np.divide(total**2, spread, out=np.full(len(total), np.inf), where=spread > 0)
    return df_of_sum


def rank_intervals(
    names: Sequence[str], tests: Mapping[str, Any] | pd.DataFrame, *, higher_is_better: bool
) -> Mapping[str, tuple[int, int]]:
    """Return the ranks that each method may have, given which differences are significant.

    Args:
        names: Methods among which they are ranked.
        tests: Tests of their pairs, from :meth:`CellTests.over` or :meth:`CellTests.test`; other pairs are ignored.
        higher_is_better: Whether higher scores are better.

    Returns:
        Method to first and last rank: one plus the number of significantly better methods, and the number of methods
        minus the number of significantly worse ones.

    Example:
        >>> tests = pd.DataFrame({"first": ["a", "a", "b"], "second": ["b", "c", "c"],
        ...                       "difference": [0.1, 0.3, 0.2], "p_holm": [0.2, 0.01, 0.04]})
        >>> rank_intervals(["a", "b", "c"], tests, higher_is_better=True)
        {'a': (1, 2), 'b': (1, 2), 'c': (3, 3)}
    """
    better, worse = dict.fromkeys(names, 0), dict.fromkeys(names, 0)
    for first, second, difference, p in zip(*(tests[name] for name in (*_PAIR, "difference", "p_holm")), strict=True):
        if p < ALPHA and first in better and second in better:
            ahead, behind = (first, second) if (difference > 0) == higher_is_better else (second, first)
            better[ahead] += 1
            worse[behind] += 1
    return {name: (1 + worse[name], len(names) - better[name]) for name in names}


@dataclass(frozen=True)
class Ranking:
    """The explainers' means by one metric.

    Attributes:
        metric: Name of the metric.
        means: Explainer to the mean over the cells of the cell's mean, best first.
        cells: Number of cells.
        groups: Maximal runs of neighbors of which no two differ significantly, of two or more. Pairs of ranked methods
            are the family of tests from which the places follow, all other pairs are corrected with all pairs.
        left_out: Explainers without a score in some cell, or that are the answer by construction in one.
    """

    metric: str
    means: dict[str, float]
    cells: int
    groups: tuple[tuple[str, ...], ...]
    left_out: tuple[str, ...]


def rankings(boards: Mapping[str, Boards]) -> dict[str, Ranking]:
    """Rank the explainers by each leading metric with paired tests.

    Args:
        boards: The leaderboards by kind of truth.

    Returns:
        Metric to ranking; only of metrics with scores of three or more explainers.
    """
    by_metric = {}
    for board in boards.values():
        standings = board.standings
        for metric in standings.leading:
            has_scores = not np.isnan(standings.numbers["rank"][:, standings.metrics.index(metric)]).all()
            if metric in standings.tests and has_scores:
                ranking = _rank(standings, metric)
                if len(ranking.means) > 2:
                    by_metric[metric] = ranking
    return by_metric


def _rank(standings: Standings, metric: str) -> Ranking:
    k = standings.metrics.index(metric)
    mean, ranked = standings.numbers["mean"][:, k], ~np.isnan(standings.numbers["rank"][:, k])
    cells = np.flatnonzero(np.any(ranked, axis=1))
    whole: NDArray[np.bool_] = np.all(ranked[cells], axis=0)
    means = mean[cells].mean(axis=0)
    order = np.argsort(means if not standings.run.metrics[metric].higher_is_better else -means, kind="stable")
    names = [standings.explainers[m] for m in order if whole[m]]
    tests = tests_over_cells(standings, metric)
    return Ranking(
        metric=metric,
        means={standings.explainers[m]: float(means[m]) for m in order if whole[m]},
        cells=len(cells),
        groups=_groups(names, tests),
        left_out=tuple(name for m, name in enumerate(standings.explainers) if not whole[m] and ranked[:, m].any()),
    )


def tests_over_cells(standings: Standings, metric: str) -> pd.DataFrame:
    """Test every two methods over all cells that have scores of a metric.

    Pairs of ranked methods are the family from which their places follow; all other pairs are corrected with all pairs.

    Returns:
        The rows of :meth:`.CellTests.over`.
    """
    k = standings.metrics.index(metric)
    cells = np.flatnonzero(np.any(~np.isnan(standings.numbers["rank"][:, k]), axis=1)).tolist()
    there = [standings.cells[c] for c in cells]
    placed: NDArray[np.bool_] = ~np.isnan(standings.columns(cells, k)["place"])
    ranked = [standings.explainers[m] for m in np.flatnonzero(placed)]
    return standings.test_pairs(metric, there, ranked, intervals=True)


def overall_comparisons(boards: Mapping[str, Boards]) -> pd.DataFrame:
    """Return the tests of every two methods over all cells that both have, by each leading metric.

    Returns:
        The rows of :meth:`.CellTests.over` with the column ``metric``. Pairs that lack a cell are corrected with the
        other pairs of the same cells.
    """
    tables = []
    for board in boards.values():
        for metric in board.standings.leading:
            if metric in board.standings.tests:
                whole = tests_over_cells(board.standings, metric)
                partial = _tests_over_common_cells(board.standings.tests[metric], whole)
                tables += [rows.assign(metric=metric) for rows in (whole, *partial)]
    return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame(columns=["metric", "first", "second"])


def _tests_over_common_cells(tests: CellTests, whole: pd.DataFrame) -> Iterator[pd.DataFrame]:
    """Yield the tests of pairs that are not in ``whole``, because one of the methods has no score in some cell."""
    done = set(zip(whole["first"], whole["second"], strict=True))
    tested = ~np.isnan(tests.deviation)
    by_cells: dict[tuple[bool, ...], list[tuple[str, str]]] = {}
    for pair, known in zip(tests.pairs, tested.T.tolist(), strict=True):
        if pair not in done and any(known):
            by_cells.setdefault(tuple(known), []).append(pair)
    for known, pairs in by_cells.items():
        yield tests.over([cell for cell, there in zip(tests.cells, known, strict=True) if there], pairs)


def _groups(names: list[str], tests: pd.DataFrame) -> tuple[tuple[str, ...], ...]:
    """Return the maximal runs of neighbors without a significant difference. Pairs without a test do not differ."""
    number = {name: i for i, name in enumerate(names)}
    differs = np.zeros((len(names), len(names)), dtype=bool)
    for first, second, p in tests[["first", "second", "p_holm"]].itertuples(index=False, name=None):
        if p < ALPHA and first in number and second in number:
            differs[number[first], number[second]] = differs[number[second], number[first]] = True
    groups: list[tuple[str, ...]] = []
    reached = 0
    for start in range(len(names)):
        end = start + 1
        while end < len(names) and not differs[start : end + 1, start : end + 1].any():
            end += 1
        if end - start > 1 and end > reached:
            groups.append(tuple(names[start:end]))
        reached = max(reached, end)
    return tuple(groups)


#: Smallest share of repetitions that is reported.
MIN_SHARE = 0.005


@dataclass(frozen=True)
class Reproducibility:
    """Variance components and ranking stability of one cell and metric, over its methods (without controls).

    Attributes:
        cell: Subset, variant and model.
        metric: Name.
        shares: Shares of a score's variance between data sets, between trainings, between samples, and the residual;
            mean over the methods. The share of a level that was not repeated is 0.
        tau: Kendall's tau of the methods' mean scores between two trainings: median, smallest and largest over all
            pairs of trainings. NaN if fewer than three methods have scores for all trainings.
        trainings: Number of trainings over all data sets.
    """

    cell: tuple[str, str, str]
    metric: str
    shares: tuple[float, float, float, float]
    tau: tuple[float, float, float]
    trainings: int


def reproducibility(run: RunResults) -> list[Reproducibility]:
    """Compute the reproducibility of each cell with several trainings, metric by metric.

    Args:
        run: The run.

    Returns:
        One entry per cell and metric, in the order of the cells; empty if each network was trained once.
    """
    rows = []
    for cell in cell_matrices(run):
        if cell.drawn.level != "samples":
            methods = [m for m, name in enumerate(cell.methods) if not run.explainers[name].control]
            leading = [k for k, name in enumerate(cell.metrics) if name in run.leading]
            rows += [_metric_reproducibility(cell, k, methods) for k in leading] if methods else []
    return rows


def _metric_reproducibility(cell: Matrices, metric: int, methods: list[int]) -> Reproducibility:
    values = cell.values[:, metric][:, methods]
    shares = variance_components(values, cell.drawn).shares()
    known = shares[:, ~np.isnan(shares).any(axis=0)]
    mean = known.mean(axis=1) if known.size else np.full(4, np.nan)
    means = _means_of_trainings(cell, values)
    taus = _taus(means[:, ~np.isnan(means).any(axis=0)])
    between = (float(np.median(taus)), min(taus), max(taus)) if taus else (np.nan,) * 3
    first, second, third, fourth = (float(share) for share in mean)
    return Reproducibility(cell.cell, cell.metrics[metric], (first, second, third, fourth), between, len(means))


def _means_of_trainings(cell: Matrices, values: Floats) -> Floats:
    """Return ``[T, M]``, the mean score of each training of each data set."""
    drawn = cell.drawn
    places = sorted(set(zip(drawn.data_sets.tolist(), drawn.trainings.tolist(), strict=True)))
    rows = [values[(drawn.data_sets == data_set) & (drawn.trainings == training)] for data_set, training in places]
    counts = np.array([(~np.isnan(scores)).sum(axis=0) for scores in rows])
    sums = np.array([np.nansum(scores, axis=0) for scores in rows])
    means: Floats = np.divide(sums, counts, out=np.full(sums.shape, np.nan), where=counts > 0)
    return means


def _taus(means: Floats) -> list[float]:
    """Return Kendall's tau-b of every two rows."""
    from scipy.stats import kendalltau

    if means.shape[1] < 3:
        return []
    taus = (float(kendalltau(one, other).statistic) for one, other in itertools.combinations(means, 2))
    return [tau for tau in taus if not np.isnan(tau)]


def first_places(boards: Boards) -> dict[str, list[tuple[str, float]]]:
    """Estimate how often each method would rank first over all cells if the run were repeated.

    Methods are ranked by their mean over the cells. Methods without a score in some cell are left out.

    Args:
        boards: The leaderboards of the run.

    Returns:
        For each leading metric, the methods that rank first in some repetition with their share of the
        repetitions, the largest first. Ties share a repetition.
    """
    standings = boards.standings
    control = np.array([standings.run.explainers[name].control for name in standings.explainers], dtype=bool)
    directions = standings.run.metrics
    firsts_of = {}
    for metric in standings.leading:
        k = standings.metrics.index(metric)
        means = boards.means[:, :, k]  # [R, C, M]
        placed = ~control & ~np.isnan(means).any(axis=(0, 1))
        if placed.any():
            sign = -1.0 if directions[metric].higher_is_better else 1.0
            losses = sign * means[:, :, placed].mean(axis=1)
            firsts = losses == losses.min(axis=1, keepdims=True)
            shares = (firsts / firsts.sum(axis=1, keepdims=True)).mean(axis=0)
            listed = zip(np.array(standings.explainers)[placed].tolist(), shares.tolist(), strict=True)
            firsts_of[metric] = sorted((pair for pair in listed if pair[1] >= MIN_SHARE), key=lambda pair: -pair[1])
    return firsts_of
