"""Tests of papers' statements on a run: a number with an interval and a verdict for each.

A statement (:mod:`xaibench.benchmarks.claims`) names one of the checks below. A check is evaluated on the scores of the
run and on resamples of them (over data sets, trainings and samples). The middle 95 % of the resampled values are the
interval. A statement is left out if the run has none of its cells.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

import numpy as np

from xaibench.benchmarks.claims import Cell, PaperClaims, Selection, Statement, all_claims, is_selected
from xaibench.runfolder.schema import CELL
from xaibench.scores import explained_variance, rank_share
from xaibench.scores.cells import Matrices, cell_matrices, resampled_means
from xaibench.scores.metric_agreement import resample_correlation
from xaibench.scores.nested_draws import Floats
from xaibench.scores.results import RunResults, place

RESAMPLES = 2000
#: Largest number of resamples of correlations and of pairs of samples, which cost more than those of means.
_FEW_RESAMPLES = 500
ClaimVerdict = Literal["holds", "does not hold", "undecided"]
#: Cell to method (or signal-to-noise ratio) to means ``[1 + R]``: the mean of the run, then those of the resamples.
Means: TypeAlias = Mapping[Cell, Mapping[Any, Floats]]
#: Cell to method to scores ``[D, G, 2]`` by data set seed, pair and form; NaN if undefined.
Pairs: TypeAlias = Mapping[Cell, Mapping[str, Floats]]


@dataclass(frozen=True, kw_only=True)
class Claim(Statement):
    """A paper's statement, tested on a run.

    Attributes:
        metric: Name of the metric; empty for test accuracies.
        cells: Number of comparisons that ``value`` is the mean of.
        value: Value in the run.
        low: Lower end of its 95 % interval.
        high: Upper end.
        note: A remark on the verdict, such as that photographs are repeated.
    """

    metric: str = ""
    cells: int
    value: float
    low: float
    high: float
    note: str = ""

    @property
    def verdict(self) -> ClaimVerdict:
        """The verdict at the bound."""
        return self.verdict_at(self.bound)

    def verdict_at(self, bound: float) -> ClaimVerdict:
        """Return ``"holds"`` if the whole interval is on the stated side, ``"undecided"`` if it contains the bound.

        It is undecided as well if there are too few comparisons (:attr:`.Statement.least`).
        """
        if self.low <= bound <= self.high or self.cells < self.least:
            return "undecided"
        return "holds" if (self.low > bound) == self.above else "does not hold"

    @property
    def verdict_text(self) -> str:
        """The verdict, the verdicts at the other bounds if the bound is ours, and the note.

        Example:
            >>> Claim(cells=3, value=0.85, low=0.82, high=0.88, bound=0.8, tried=(0.7, 0.9)).verdict_text
            'holds at 0.8 (also at 0.7), does not hold at 0.9'
        """
        note = f" ({self.note})" if self.note else ""
        if not self.tried:
            return self.verdict + note
        same = [f"{bound:g}" for bound in self.tried if self.verdict_at(bound) == self.verdict]
        other = [f", {self.verdict_at(bound)} at {bound:g}" for bound in self.tried if f"{bound:g}" not in same]
        also = f" (also at {' and '.join(same)})" if same else ""
        return f"{self.verdict} at {self.bound:g}{also}{''.join(other)}{note}"

    @property
    def bound_text(self) -> str:
        """The bound with its side, marked if it is ours: ``"> 0.8 (ours)"``."""
        return f"{'>' if self.above else '<'} {self.bound:g}{' (ours)' if self.tried else ''}"


def _make_claim(stated: Statement, values: Floats, cells: int, metric: str, **changes: str) -> Claim:
    """Return the claim for a value and its resamples ``[1 + R]``.

    Resampling biases some statistics: noise lowers Kendall's tau and the share of the most frequent first method. If
    the middle 95 % of the resamples do not contain the value, the interval also has those of the resamples shifted
    until the value is their median.
    """
    value, resamples = values[0], values[1:]
    low, high = np.quantile(resamples, [0.025, 0.975])
    if not low <= value <= high:
        shift = value - np.median(resamples)
        low, high = min(low, low + shift), max(high, high + shift)
    numbers: dict[str, Any] = {"value": float(value), "low": float(low), "high": float(high)}
    return Claim(**vars(stated) | changes, **numbers, cells=cells, metric=metric)


def claims(run: RunResults, *, resamples: int = RESAMPLES, seed: int = 0) -> list[Claim]:
    """Test the papers' statements for which the run has the cells, by each of its metrics.

    Args:
        run: The run.
        resamples: Number of resamples of the intervals.
        seed: Seed of the resamples.

    Returns:
        The claims paper by paper: metric by metric, followed by those on pairs of metrics and of samples. Empty for a
        run of other data sets.
    """
    matrices = list(cell_matrices(run))
    tested: list[Claim] = []
    for paper in all_claims().values():
        reasons, note = _left_out(run, paper), paper.noted[1]
        selected = [each for each in matrices if is_selected(each.cell, paper.applies)]
        cells = [each for each in selected if each.cell not in reasons]
        is_noted = note in reasons.values()
        plain = tuple(each for each in paper.statements if not (is_noted and each.noted))
        tested += check_statements(run, cells, replace(paper, statements=plain), resamples, seed)
        if is_noted:
            noted = tuple(each for each in paper.statements if each.noted)
            more = [each for each in selected if reasons.get(each.cell, note) == note]
            found = check_statements(run, more, replace(paper, statements=noted), resamples, seed)
            tested += [replace(claim, note=note) for claim in found]
        tested += check_correlations(run, cells, paper.correlations, resamples, seed)
        tested += check_pairs(run, paper, resamples, seed)
        tested += check_accuracies(run, paper.accuracies, resamples, seed)
    return tested


def exclusions(run: RunResults) -> list[str]:
    """Return a phrase per reason for which cells of a run are left out of the claims: the cells, and the reason."""
    cells: dict[str, list[str]] = {}
    for paper in all_claims().values():
        for (subset, variant, model), reason in _left_out(run, paper).items():
            names = (place(subset), place(variant), run.models[model].label)
            cells.setdefault(reason, []).append(" ".join(filter(None, names)))
    return [f"{', '.join(names)} ({reason})" for reason, names in cells.items()]


def _left_out(run: RunResults, paper: PaperClaims) -> dict[Cell, str]:
    """Return why cells of a run that the paper's statements are about support none of them, or only noted ones."""
    if not any(is_selected(cell, paper.applies) for cell in run.scored_cells):
        return {}
    accuracies = run.accuracy.drop_duplicates(list(CELL)).set_index(list(CELL))["mean"].to_dict()
    notes = run.environment.get("notes", {})
    reasons = {
        cell: paper.leave_out(cell, float(accuracies.get(cell, math.nan)), notes.get(name, ""))
        for cell, name in _cell_datasets(run).items()
        if is_selected(cell, paper.applies)
    }
    return {cell: reason for cell, reason in reasons.items() if reason}


def _cell_datasets(run: RunResults) -> dict[Cell, str]:
    rows = run.scores[[*CELL, "dataset"]].drop_duplicates(list(CELL))
    return {(str(s), str(v), str(m)): str(name) for s, v, m, name in rows.itertuples(index=False)}


def _paper_methods(run: RunResults, paper: PaperClaims, is_control: bool) -> tuple[str, ...]:
    return tuple(n for n, info in run.explainers.items() if info.control is is_control and paper.is_about(n))


@dataclass(frozen=True)
class Cells:
    """Mean scores by one metric, oriented so that larger is better, or accuracies, from which a statement is evaluated.

    Attributes:
        means: Means by cell and method.
        methods: The run's explainers without controls.
        controls: The controls.
        others: Means by every metric of the run.
    """

    means: Means
    methods: tuple[str, ...] = ()
    controls: tuple[str, ...] = ()
    others: Mapping[str, Means] = field(default_factory=dict)

    def without_controls(self) -> Iterator[tuple[Cell, dict[str, Floats]]]:
        """Yield each cell with the means of its methods, without controls."""
        for cell, means in self.means.items():
            yield cell, {name: means[name] for name in self.methods if name in means}


def check_statements(
    run: RunResults, matrices: Sequence[Matrices], paper: PaperClaims, resamples: int, seed: int
) -> list[Claim]:
    """Test the statements about mean scores for which the run has the cells, metric by metric.

    Args:
        run: The run.
        matrices: The scores of its cells.
        paper: The paper of the statements.
        resamples: Number of resamples of the intervals.
        seed: Seed of the resamples.

    Returns:
        A claim per statement and metric of the run that it is about; none for skills.
    """
    resampled, datasets = resampled_means(matrices, resamples, seed), _cell_datasets(run)
    methods, controls = (_paper_methods(run, paper, is_control) for is_control in (False, True))
    # The statements are about scores; skills would repeat them.
    scores = {name: info for name, info in run.metrics.items() if not info.skill_of}
    means = {name: _cell_means(matrices, resampled, name, info.higher_is_better) for name, info in scores.items()}
    tested = []
    for metric, by_cell in means.items():
        for stated in paper.statements:
            if metric in (stated.metrics or (metric,)):
                chosen = {cell: row for cell, row in by_cell.items() if datasets[cell].endswith(stated.datasets)}
                tested.append(evaluate_statement(stated, metric, Cells(chosen, methods, controls, means)))
    return [claim for claim in tested if claim is not None]


def evaluate_statement(stated: Statement, metric: str, cells: Cells) -> Claim | None:
    """Evaluate a statement on the cells; None if there is nothing to compare."""
    chosen = {cell: means for cell, means in cells.means.items() if is_selected(cell, stated.where)}
    compared = list(CHECKS[stated.check](replace(cells, means=chosen), **stated.options))
    return _make_claim(stated, np.mean(compared, axis=0), len(compared), metric) if compared else None


def _cell_means(matrices: Sequence[Matrices], resampled: Mapping[Cell, Floats], metric: str, up: bool) -> Means:
    """Return the means ``[1 + R]`` by cell and method, larger = better; methods without a score are left out."""
    means = {}
    for cell in matrices:
        if metric in cell.metrics:
            columns = (1.0 if up else -1.0) * resampled[cell.cell][:, cell.metrics.index(metric)]
            means[cell.cell] = {n: columns[:, m] for m, n in enumerate(cell.methods) if not np.isnan(columns[0, m])}
    return means


# Checks of means: each yields ``[1 + R]`` per comparison, whose mean is the number of the claim.


def _below(lower: Floats, upper: Floats) -> Floats:
    """Return 1 if ``lower`` is below ``upper``, 0 if it is above, and 0.5 for a tie."""
    return (np.sign(upper - lower) + 1) / 2


def _above(
    cells: Cells,
    *,
    better: Sequence[str] | str = "rest",
    worse: Sequence[str] | str = "rest",
    best_of: Sequence[str] = (),
    largest: bool = False,
) -> Iterator[Floats]:
    """Compare methods of a cell: the share of pairs of which the better one is above the worse one.

    ``better`` and ``worse`` are names of methods or controls, ``"controls"``, or ``"rest"``: the methods that the other
    side does not name. Only the best one of the sides in ``best_of`` is compared. If ``largest``, the number is the
    largest share of a cell.
    """
    shares: list[Floats] = []
    for cell, methods in cells.without_controls():
        sides = {}
        for side, names, other in (("better", better, worse), ("worse", worse, better)):
            rest = [name for name in methods if isinstance(other, str) or name not in other]
            chosen = {"controls": cells.controls, "rest": rest}[names] if isinstance(names, str) else names
            means = [cells.means[cell][name] for name in chosen if name in cells.means[cell]]
            sides[side] = [np.max(means, axis=0)] if side in best_of and means else means
        compared = [_below(low, high) for high in sides["better"] for low in sides["worse"]]
        shares += [np.mean(compared, axis=0)] if largest and compared else compared
    yield from [np.max(shares, axis=0)] if largest and shares else shares


def _above_in_other_cell(
    cells: Cells,
    *,
    pairs: Sequence[tuple[Mapping[str, str], Mapping[str, str]]],
    methods: Sequence[str] = (),
) -> Iterator[Floats]:
    """Compare cells that differ in one axis, such as the model: the share of methods better in the first."""
    for first, second in pairs:
        for cell, means in cells.without_controls():
            if is_selected(cell, first):
                names = dict(zip(CELL, cell, strict=True)) | dict(second)
                other = cells.means.get((names["subset"], names["variant"], names["model"]), {})
                yield from (_below(other[n], means[n]) for n in means if n in other and n in (methods or means))


def _difference(cells: Cells, *, other: str, methods: Sequence[str]) -> Iterator[Floats]:
    """Subtract the means of methods by another metric."""
    for cell, means in cells.without_controls():
        others = cells.others.get(other, {}).get(cell, {})
        yield from (means[name] - others[name] for name in methods if name in means and name in others)


def _difference_of_cells(cells: Cells, *, control: str, chosen: Selection | Sequence[Selection]) -> Iterator[Floats]:
    """Subtract the mean of a control over all other cells from that over the selected cells."""
    sides: dict[bool, list[Floats]] = {True: [], False: []}
    for cell, means in cells.means.items():
        if control in means:
            sides[is_selected(cell, chosen)].append(means[control])
    if all(sides.values()):
        yield np.mean(sides[True], axis=0) - np.mean(sides[False], axis=0)


def _relative_range(cells: Cells, *, some: Sequence[str] | Literal["controls"]) -> Iterator[Floats]:
    """Divide the range of the means of some by that of the methods and these, in each cell."""
    for cell, methods in cells.without_controls():
        names = cells.controls if some == "controls" else some
        chosen = {name: cells.means[cell][name] for name in names if name in cells.means[cell]}
        every = list((methods | chosen).values())
        if 1 < len(chosen) < len(every):
            yield np.ptp(list(chosen.values()), axis=0) / np.maximum(np.ptp(every, axis=0), np.finfo(float).tiny)


def _middle_half(cells: Cells) -> Iterator[Floats]:
    """Return the interquartile range of the methods' means in each cell."""
    for _, methods in cells.without_controls():
        if len(methods) > 3:
            low, high = np.quantile(list(methods.values()), [0.25, 0.75], axis=0)
            yield high - low


def _best_most_often(cells: Cells) -> Iterator[Floats]:
    """Return the share of the cells in which the method that is first most often is first."""
    first: dict[str, Floats] = {}
    compared = [methods for _, methods in cells.without_controls() if len(methods) > 1]
    for methods in compared:
        best = np.max(list(methods.values()), axis=0)
        for name, mean in methods.items():
            first[name] = first.get(name, 0.0) + (mean == best)
    if len(compared) > 1:
        yield np.max(list(first.values()), axis=0) / len(compared)


def _highest(cells: Cells) -> Iterator[Floats]:
    """Return the highest mean accuracy over the ratios and the cells."""
    if accuracies := [mean for means in cells.means.values() for mean in means.values()]:
        yield np.max(accuracies, axis=0)


def _compare_models(
    cells: Cells, number: Callable[[Mapping[Any, Floats]], Floats], models: tuple[str, str]
) -> Iterator[Floats]:
    """Subtract a number of the second model's accuracies from that of the first, for each data set."""
    for cell, means in cells.means.items():
        other = cells.means.get((*cell[:2], models[1]))
        if cell[2] == models[0] and other:
            yield number(means) - number(other)


def _lead(cells: Cells, *, models: tuple[str, str]) -> Iterator[Floats]:
    """Subtract the mean accuracies over the ratios of two models."""
    return _compare_models(cells, lambda means: np.mean(list(means.values()), axis=0), models)


def _later(cells: Cells, *, models: tuple[str, str], reached: float) -> Iterator[Floats]:
    """Subtract the lowest ratios at which two models reach an accuracy in percent; 1 if no ratio suffices."""

    def lowest(means: Mapping[float, Floats]) -> Floats:
        ratios = np.array(sorted(means))
        suffices = np.array([means[ratio] for ratio in ratios]) >= reached
        return np.where(suffices.any(axis=0), ratios[suffices.argmax(axis=0)], 1.0)

    return _compare_models(cells, lowest, models)


#: Checks of mean scores and accuracies by name.
CHECKS: Mapping[str, Callable[..., Iterator[Floats]]] = {
    "above": _above,
    "above_in_other_cell": _above_in_other_cell,
    "difference": _difference,
    "difference_of_cells": _difference_of_cells,
    "relative_range": _relative_range,
    "middle_half": _middle_half,
    "best_most_often": _best_most_often,
    "highest": _highest,
    "lead": _lead,
    "later": _later,
}


def check_correlations(
    run: RunResults, matrices: Sequence[Matrices], statements: Sequence[Statement], resamples: int, seed: int
) -> list[Claim]:
    """Test statements on pairs of metrics by the mean correlation over the samples of each cell.

    Args:
        run: The run.
        matrices: The scores of its cells.
        statements: The statements to test; the options name the explainers whose scores are correlated.
        resamples: Number of resamples of the groups of samples, at most 500.
        seed: Seed of the resamples.

    Returns:
        A claim per statement and explainer that the run has with the metrics.
    """
    tested, resamples = [], min(resamples, _FEW_RESAMPLES)
    for stated in statements:
        pair = stated.metrics
        for name in stated.options["explainers"]:
            chosen = [cell for cell in matrices if set(pair) <= set(cell.metrics) and name in cell.methods]
            values = [resample_correlation(run, cell, pair, name, resamples, seed) for cell in chosen]
            values = [each for each in values if np.isfinite(each).all()]
            if values:
                labels, explainer = " and ".join(run.metrics[one].label for one in pair), run.explainers[name].label
                quantity = f"correlation of {labels} over the samples, of {explainer}; mean over the cells"
                words = {"statement": f"{stated.statement} ({explainer})", "quantity": quantity}
                tested.append(_make_claim(stated, np.mean(values, axis=0), len(values), pair[0], **words))
    return tested


def check_accuracies(run: RunResults, statements: Sequence[Statement], resamples: int, seed: int) -> list[Claim]:
    """Test statements on test accuracies over signal-to-noise ratios.

    Args:
        run: The run.
        statements: The statements to test.
        resamples: Number of resamples of the trainings.
        seed: Seed of the resamples.

    Returns:
        A claim per statement for which the run has the trainings.
    """
    accuracies = [resampled_accuracies(run, stated.datasets, resamples, seed) for stated in statements]
    found = (evaluate_statement(each, "", Cells(means)) for each, means in zip(statements, accuracies, strict=True))
    return [claim for claim in found if claim is not None]


def resampled_accuracies(run: RunResults, datasets: str, resamples: int, seed: int) -> dict[Cell, dict[float, Floats]]:
    """Return the mean test accuracies of a run over signal-to-noise ratios, and of resamples of its trainings.

    Args:
        run: The run.
        datasets: Ending of the names of the data sets.
        resamples: Number of resamples.
        seed: Seed of the resamples.

    Returns:
        Cell to ratio to mean accuracies in percent ``[1 + R]``: that of the run, then those of the resamples.
    """
    if "alpha" not in run.accuracy_keys:
        return {}
    rng, means = np.random.default_rng(seed), dict[Cell, dict[float, Floats]]()
    rows = run.trainings[run.trainings["dataset"].str.endswith(datasets)]
    for (subset, variant, model, _), group in rows.groupby([*CELL, "alpha"], sort=False):
        reached = group["test_accuracy"].to_numpy(float)
        drawn = rng.integers(len(reached), size=(resamples, len(reached)))
        of_cell = means.setdefault((str(subset), str(variant), str(model)), {})
        of_cell[float(group["alpha"].iloc[0])] = np.concatenate([[reached.mean()], reached[drawn].mean(axis=1)])
    return means


def check_pairs(run: RunResults, paper: PaperClaims, resamples: int, seed: int) -> list[Claim]:
    """Test statements about samples in two forms.

    The middle 95 % of the values on the run and on its resamples are the interval. A resample draws data set seeds with
    replacement, and pairs of samples in each of them. It draws the same ones for all cells and methods, which have the
    same samples.

    Args:
        run: The run.
        paper: The paper of the statements.
        resamples: Number of resamples, at most 500.
        seed: Seed of the resamples.

    Returns:
        A claim per statement for which the run has the scores.
    """
    tested: list[Claim] = []
    for stated in paper.pairs:
        (metric,) = stated.metrics
        scores = paired_scores(run, paper, metric)
        value = evaluate_pairs(stated, scores)
        if not math.isnan(value):
            drawn = [
                evaluate_pairs(stated, each) for each in _resample_pairs(scores, min(resamples, _FEW_RESAMPLES), seed)
            ]
            known = np.array([value, *drawn])
            known = known[~np.isnan(known)]
            tested.append(_make_claim(stated, np.array([value, *known]), len(scores), metric))
    return tested


def evaluate_pairs(stated: Statement, scores: Pairs) -> float:
    """Return the number of a statement about samples in two forms; NaN if the scores lack something."""
    return PAIR_CHECKS[stated.check](scores, **stated.options)


def paired_scores(run: RunResults, paper: PaperClaims, metric: str) -> Pairs:
    """Return the scores of the samples that come in both forms.

    Args:
        run: The run.
        paper: States the cells and the forms.
        metric: Name of the metric.

    Returns:
        Scores ``[D, G, 2]`` by data set seed, pair and form, by cell and explainer. Several trainings on one data set
        are averaged.
    """
    # A run of other data sets may have samples without names.
    if not any(is_selected(cell, paper.applies) for cell in run.scored_cells):
        return {}
    scores = run.scores[(run.scores["metric"] == metric) & run.scores["scored"]]
    keys = ["dataset", "data_seed", "sample"]
    names = run.samples[[*keys, "id", "group"]]
    rows = scores.astype({"dataset": str}).merge(names.astype({"dataset": str}), on=keys)
    rows["form"] = rows["id"].str.rpartition("-")[2]
    excluded = _left_out(run, paper)
    paired: dict[Cell, dict[str, Floats]] = {}
    for key, group in rows.groupby([*CELL, "explainer"], observed=True):
        subset, variant, model, explainer = map(str, key)
        cell = (subset, variant, model)
        if not is_selected(cell, paper.applies) or cell in excluded:
            continue
        table = group.pivot_table("value", "data_seed", ["group", "form"], aggfunc="mean", dropna=False)
        both = [table.xs(form, axis=1, level="form") for form in paper.forms if form in set(group["form"])]
        if len(both) == 2:
            shared = both[0].columns.intersection(both[1].columns)
            paired.setdefault(cell, {})[explainer] = np.stack([each[shared].to_numpy() for each in both], axis=-1)
    return paired


def _resample_pairs(scores: Pairs, resamples: int, seed: int) -> Iterator[Pairs]:
    """Yield scores of drawn data set seeds and of drawn pairs in each of them."""
    seeds, pairs, _ = next(iter(next(iter(scores.values())).values())).shape
    rng = np.random.default_rng(seed)
    for _ in range(resamples):
        sets, which = rng.integers(seeds, size=(seeds, 1)), rng.integers(pairs, size=(seeds, pairs))
        yield {
            cell: {name: values[sets % len(values), which % values.shape[1]] for name, values in methods.items()}
            for cell, methods in scores.items()
        }


# Checks of samples in two forms: each returns the number of the claim.


def _select_pairs(scores: Pairs, methods: Sequence[str], variant: str) -> dict[tuple[str, str], Floats]:
    """Return scores ``[D, G, 2]`` by subset and method."""
    return {
        (cell[0], name): by_method[name]
        for cell, by_method in scores.items()
        for name in methods
        if cell[1] == variant and name in by_method
    }


def _least_rank_share(scores: Pairs, *, methods: Sequence[str], variant: str) -> float:
    """Return the smallest share of ranks with a higher score in the first form, over methods and subsets."""
    chosen = _select_pairs(scores, methods, variant).values()
    return min((rank_share(pairs[..., 0].ravel(), pairs[..., 1].ravel()) for pairs in chosen), default=math.nan)


def _least_effect_of_form(scores: Pairs, *, methods: Sequence[str], variant: str) -> float:
    """Return the smallest share of the variance of scores (R²) that the form explains, over methods and subsets."""
    chosen = _select_pairs(scores, methods, variant).values()
    return min((explained_variance([pairs[..., 0], pairs[..., 1]]) for pairs in chosen), default=math.nan)


def _largest_effect_of_subset(scores: Pairs, *, methods: Sequence[str], variant: str, subsets: Sequence[str]) -> float:
    """Return the largest share of the variance in the first form (R²) that the subset explains, over methods."""
    chosen = _select_pairs(scores, methods, variant)
    groups = [[chosen[key][..., 0] for one in subsets if (key := (one, name)) in chosen] for name in methods]
    return max((explained_variance(each) for each in groups if len(each) == len(subsets)), default=math.nan)


def _ratio_of_variants(scores: Pairs, *, methods: Sequence[str], variants: Sequence[str]) -> float:
    """Return the mean ratio of the scores of the first form in two variants, over methods and subsets."""
    first, second = (_select_pairs(scores, methods, variant) for variant in variants)
    ratios = [np.nanmean(first[key][..., 0]) / np.nanmean(second[key][..., 0]) for key in second if key in first]
    return float(np.mean(ratios)) if ratios else math.nan


#: Checks of samples in two forms by name.
PAIR_CHECKS: Mapping[str, Callable[..., float]] = {
    "least_rank_share": _least_rank_share,
    "least_effect_of_form": _least_effect_of_form,
    "largest_effect_of_subset": _largest_effect_of_subset,
    "ratio_of_variants": _ratio_of_variants,
}
