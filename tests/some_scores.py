"""Run a few jobs of a plan without an engine."""

from collections.abc import Collection, Iterable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from xaibench.runner.plan.jobs import Job, Measurement, ScoreJob
from xaibench.runner.stages.execute import execute, split_scores
from xaibench.runner.store import Store


def some_scores(
    jobs: Iterable[Job], store: Store, wanted: Collection[tuple[str, str]]
) -> list[tuple[Measurement, NDArray[np.float64]]]:
    """Run the jobs that the wanted pairs of explainer and metric need, and return their scores."""
    scores = []
    for job in jobs:
        if isinstance(job, ScoreJob):
            pairs = [(each.explain.explainer.name, each.metric.name) for each in job.measurements]
            chosen = [each for each, pair in zip(job.measurements, pairs, strict=True) if pair in wanted]
            if chosen:
                part = replace(job, measurements=tuple(chosen))
                execute(part, store, "cpu")
                tables = dict(split_scores(store.load_table("score", part.key)))
                scores += [(each, tables[each.key]["value"].to_numpy()) for each in chosen]
        elif job.stage != "explain" or job.explainer.name in {explainer for explainer, _ in wanted}:
            execute(job, store, "cpu")
    return scores
