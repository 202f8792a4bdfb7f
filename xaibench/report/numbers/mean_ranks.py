"""Average ranks with a critical difference: which methods are told apart over the cells of a run, and which are not.

Demšar: Statistical comparisons of classifiers over multiple data sets, JMLR 2006. His blocks are data sets; here they
are the cells of a run where it has enough of them, and else the samples.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from xaibench.report.draw.score_figures import THEME, house_style, short
from xaibench.report.numbers.inference import Floats, Matrices, cell_matrices
from xaibench.report.read.run_reading import CELL, Run
from xaibench.statistics.intervals import average_ranks, critical_difference

#: From so many cells on, cells are the blocks (Demšar asks for more than ten data sets).
ENOUGH_CELLS = 10
#: Inches: width, room for labels at either side, a line of labels, what is above the axis, a bar.
_WIDTH, _SIDE, _STEP, _TOP, _BAR = 6.9, 2.15, 0.19, 0.62, 0.085


@dataclass(frozen=True)
class Ranking:
    """Explainers by their mean rank for one metric.

    Attributes:
        metric: Name.
        ranks: Explainer to mean rank, best (smallest) first.
        blocks: How many rankings the mean is over.
        unit: What one of them is of: ``"cells"`` or ``"samples"``.
        difference: Mean ranks at least this far apart differ at 5 % (Nemenyi's test).
        p: Of Friedman's test that all are the same, ``nan`` where it cannot be asked.
        left_out: Explainers without a score in some cell, or without any.
    """

    metric: str
    ranks: dict[str, float]
    blocks: int
    unit: str
    difference: float
    p: float
    left_out: tuple[str, ...]

    @property
    def cliques(self) -> list[tuple[str, ...]]:
        """The largest sets of neighbours whose ranks all lie within the critical difference; two or more each."""
        names, values = list(self.ranks), np.array(list(self.ranks.values()))
        ends = np.searchsorted(values, values + self.difference, side="left")
        found: list[tuple[str, ...]] = []
        reached = 0
        for start, end in enumerate(ends):
            if end - start > 1 and end > reached:
                found.append(tuple(names[start:end]))
            reached = max(reached, int(end))
        return found


def rankings(run: Run, summary: pd.DataFrame) -> dict[str, Ranking]:
    """The ranking of each metric that ranks three explainers or more in two blocks or more.

    Args:
        run: The run.
        summary: From :func:`xaibench.report.numbers.summary_tables.summarise`.

    Returns:
        By metric. Over cells, an explainer has its rank by median; over samples, each group of samples counts once,
        with its mean scores over samples, trainings and models.
    """
    cells = summary.groupby(CELL, observed=True).ngroups if len(summary) else 0
    by_cells = cells >= ENOUGH_CELLS
    blocks = _cell_blocks(run, summary) if by_cells else _sample_blocks(run)
    found = {}
    for metric, scores, higher in blocks:
        whole = scores.dropna(axis="columns", how="all")
        if by_cells:  # a mean over other cells is another quantity
            whole = whole.dropna(axis="columns")
        ranks, n = average_ranks(whole.to_numpy(), higher_is_better=higher)
        if n < 2 or len(ranks) < 3:
            continue
        ordered = sorted(zip(whole.columns, ranks, strict=True), key=lambda pair: pair[1])
        found[metric] = Ranking(
            metric=metric,
            ranks={str(name): float(rank) for name, rank in ordered},
            blocks=n,
            unit="cells" if by_cells else "samples",
            difference=critical_difference(len(ranks), n),
            p=_friedman(whole.dropna().to_numpy()),
            left_out=tuple(str(name) for name in scores.columns if name not in whole.columns),
        )
    return found


def _cell_blocks(run: Run, summary: pd.DataFrame) -> Iterable[tuple[str, pd.DataFrame, bool]]:
    """Ranks within cells, as scores of which lower is better."""
    for metric in run.metrics:
        mine = summary[summary["metric"] == metric].astype(dict.fromkeys([*CELL, "explainer"], str))
        wide = mine.pivot(index=CELL, columns="explainer", values="rank")
        yield metric, wide[[name for name in run.explainers if name in wide]], False


def _sample_blocks(run: Run) -> Iterable[tuple[str, pd.DataFrame, bool]]:
    """Mean scores of each group of samples; explainers that some cell lacks are all undefined."""
    matrices = list(cell_matrices(run))
    directions = run.scores.groupby("metric", observed=True)["higher_is_better"].first()
    for metric in run.metrics:
        mine = [cell for cell in matrices if metric in cell.metrics]
        if not mine:
            continue
        frames = [_group_means(cell, metric) for cell in mine]
        everywhere = [name for name in run.explainers if all(name in frame for frame in frames)]
        scores = pd.concat(frames)[everywhere].groupby(level=[0, 1]).mean()
        missing = [name for name in run.explainers if name not in everywhere and any(name in f for f in frames)]
        yield metric, scores.reindex(columns=[*everywhere, *missing]), bool(directions[metric])


def _group_means(cell: Matrices, metric: str) -> pd.DataFrame:
    scores = pd.DataFrame(cell.values[:, cell.metrics.index(metric)], columns=list(cell.methods))
    return scores.groupby([pd.Index([cell.cell[:2]] * len(scores), tupleize_cols=False), cell.groups]).mean()


def _friedman(scores: Floats) -> float:
    from scipy.stats import friedmanchisquare

    if (scores == scores[:, :1]).all():
        return float("nan")
    return float(friedmanchisquare(*scores.T).pvalue)


def ranking_figure(run: Run, ranking: Ranking) -> Figure:
    """The critical-difference diagram: mean ranks on a line, best on the left; bars join what is not told apart."""
    names = list(ranking.ranks)
    half = -(-len(names) // 2)
    bars = ranking.cliques
    first = _TOP + 0.25 + _BAR * len(bars)
    height = first + _STEP * half
    low, high = int(min(ranking.ranks.values())), int(np.ceil(max(ranking.ranks.values())))
    high = min(max(high, low + int(np.ceil(ranking.difference)), low + 1), max(len(names), low + 1))
    soft, ink = THEME["soft"], THEME["ink"]

    def at(rank: float) -> float:
        return _SIDE + (rank - low) * (_WIDTH - 2 * _SIDE) / (high - low)

    with house_style():
        figure = Figure(figsize=(_WIDTH, height))
        FigureCanvasAgg(figure)
        axes = figure.add_axes((0, 0, 1, 1))
        axes.set(xlim=(0, _WIDTH), ylim=(height, 0))
        axes.axis("off")
        axes.plot([at(low), at(high)], [_TOP, _TOP], color=soft, lw=1)
        for rank in range(low, high + 1):
            axes.plot([at(rank)] * 2, [_TOP - 0.05, _TOP], color=soft, lw=1)
            axes.text(at(rank), _TOP - 0.08, str(rank), ha="center", va="bottom", color=soft)
        axes.plot([at(low), at(min(low + ranking.difference, high))], [0.26, 0.26], color=ink, lw=1.6)
        axes.text(at(low), 0.2, f"critical difference {ranking.difference:.2f}", va="bottom", color=ink)
        for number, clique in enumerate(bars):
            ends = [at(ranking.ranks[clique[0]]) - 0.03, at(ranking.ranks[clique[-1]]) + 0.03]
            axes.plot(ends, [_TOP + 0.12 + _BAR * number] * 2, color=THEME["series-1"], lw=3)
        for position, name in enumerate(names):
            left = position < half
            y = first + _STEP * (position if left else len(names) - 1 - position)
            x, edge = at(ranking.ranks[name]), _SIDE - 0.12 if left else _WIDTH - _SIDE + 0.12
            control = run.explainers[name].control
            axes.plot([x, x, edge], [_TOP, y, y], color=soft, lw=0.7, ls=":" if control else "-")
            label, rank_text = short(run.explainers[name].label), f"{ranking.ranks[name]:.2f}"
            axes.text(
                edge + (-0.05 if left else 0.05),
                y,
                f"{label}  {rank_text}" if left else f"{rank_text}  {label}",
                ha="right" if left else "left",
                va="center",
                color=soft if control else ink,
                style="italic" if control else "normal",
            )
    return figure
