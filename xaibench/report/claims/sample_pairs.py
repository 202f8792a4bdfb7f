"""Tests of papers' statements about samples in two forms, such as an image with and without a watermark."""

from __future__ import annotations

import math

import numpy as np

from xaibench.benchmarks.claims import Cell, Floats, Pairs, PaperClaims
from xaibench.report.claims.evaluation import Claim, left_out
from xaibench.report.read.results import RunResults
from xaibench.runfolder.tables import CELL

#: Largest number of resamples.
_RESAMPLES = 500


def check_pairs(run: RunResults, paper: PaperClaims, resamples: int, seed: int) -> list[Claim]:
    """Test statements about samples in two forms.

    The middle 95 % of the values on resamples are the interval. A resample draws data set seeds with replacement, and
    pairs of samples in each of them. It draws the same ones for all cells and methods, which have the same samples.

    Args:
        run: The run.
        paper: The paper of the statements.
        resamples: Number of resamples, at most 500.
        seed: Seed of the resamples.

    Returns:
        A claim per statement for which the run has the scores.
    """
    found: list[Claim] = []
    for stated in paper.pairs:
        scores = paired_scores(run, paper, stated.metric)
        value = stated.compute(scores) if scores else math.nan
        if math.isnan(value):
            continue
        drawn = [stated.compute(each) for each in _resample(scores, min(resamples, _RESAMPLES), seed)]
        low, high = np.nanquantile([value, *drawn], [0.025, 0.975])
        found.append(
            Claim(
                statement=stated.statement,
                source=stated.source,
                metric=stated.metric,
                quantity=stated.quantity,
                cells=len(scores),
                value=value,
                low=float(low),
                high=float(high),
                bound=stated.bound,
                above=stated.above,
                tried=stated.tried,
            )
        )
    return found


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
    cells = run.scores[list(CELL)].drop_duplicates().astype(str).itertuples(index=False, name=None)
    if not any(map(paper.applies, cells)):  # a run of other data sets, whose samples may be without names
        return {}
    scores = run.scores[(run.scores["metric"] == metric) & run.scores["correct"]]
    keys = ["dataset", "data_seed", "sample"]
    names = run.samples[[*keys, "id", "group"]]
    rows = scores.astype({"dataset": str}).merge(names.astype({"dataset": str}), on=keys)
    rows["form"] = rows["id"].str.rpartition("-")[2]
    excluded = left_out(run, paper)
    found: dict[Cell, dict[str, Floats]] = {}
    for key, mine in rows.groupby([*CELL, "explainer"], observed=True):
        subset, variant, model, explainer = map(str, key)
        cell = (subset, variant, model)
        if not paper.applies(cell) or cell in excluded:
            continue
        table = mine.pivot_table(
            index="data_seed", columns=["group", "form"], values="value", aggfunc="mean", dropna=False
        )
        both = [table.xs(form, axis=1, level="form") for form in paper.forms if form in set(mine["form"])]
        if len(both) == 2:
            shared = both[0].columns.intersection(both[1].columns)
            found.setdefault(cell, {})[explainer] = np.stack([each[shared].to_numpy() for each in both], axis=-1)
    return found


def _resample(scores: Pairs, resamples: int, seed: int) -> list[Pairs]:
    """Return scores of drawn data set seeds and of drawn pairs in each of them."""
    seeds, pairs, _ = next(iter(next(iter(scores.values())).values())).shape
    rng = np.random.default_rng(seed)
    drawn: list[Pairs] = []
    for _ in range(resamples):
        sets, which = rng.integers(seeds, size=(seeds, 1)), rng.integers(pairs, size=(seeds, pairs))
        drawn.append(
            {
                cell: {name: values[sets % len(values), which % values.shape[1]] for name, values in mine.items()}
                for cell, mine in scores.items()
            }
        )
    return drawn
