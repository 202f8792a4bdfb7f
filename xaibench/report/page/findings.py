"""The numbers of a run that its page, tables and figures share, each computed once."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from xaibench.report.figures.budgets import BudgetScores, budget_scores
from xaibench.report.figures.curves import curve_sets
from xaibench.report.numbers.inference import infer
from xaibench.report.numbers.leaderboards import Boards, boards
from xaibench.report.numbers.metric_agreement import MetricCorrelations, agreements
from xaibench.report.numbers.rankings import Ranking, rankings
from xaibench.report.numbers.score_summary import summarize
from xaibench.report.read.results import RunResults


@dataclass(frozen=True)
class Findings:
    """The numbers of a run.

    Attributes:
        summary: From :func:`xaibench.report.numbers.inference.infer`.
        pairs: The paired tests, from the same function.
        boards: Leaderboards by kind of truth.
        ranks: Rankings by metric.
        agreements: From :func:`xaibench.report.numbers.metric_agreement.agreements`.
        curves: Insertion and deletion curves by data set, model and metric.
        budgets: Scores by number of passes, by metric.
    """

    summary: pd.DataFrame
    pairs: pd.DataFrame
    boards: dict[str, Boards]
    ranks: dict[str, Ranking]
    agreements: dict[tuple[str, str, str, str], MetricCorrelations]
    curves: dict[tuple[str, str, str], pd.DataFrame]
    budgets: dict[str, BudgetScores]


def compute_findings(run: RunResults) -> Findings:
    """Compute the numbers of a run."""
    summary, pairs = infer(run, summarize(run))
    ranked, at_budgets = boards(run, summary, pairs), budget_scores(run, summary)
    return Findings(summary, pairs, ranked, rankings(ranked), agreements(run), curve_sets(run), at_budgets)
