"""Test the metrics on maps of known order, and write the verdicts that report pages and docs/metrics.md show.

    python docs/generate/metric_trials.py      # ten minutes
    python docs/generate/metric_trials.py --workers 4
    python docs/generate/metric_trials.py --only srg idsds      # only these; the verdicts of the others are kept

A new metric, or one with a new revision, has no verdict until this is run again (a test reports it). The trials of a
metric do not depend on the other metrics.
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections.abc import Collection, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import pandas as pd

from xaibench.core.truth_kinds import TRUTHS
from xaibench.meta_evaluation import MetaEvaluation, meta_evaluate
from xaibench.metrics import METRICS
from xaibench.scores.results import VERDICTS

#: Samples per draw, about as many as a run explains per network.
SAMPLES = 50
#: Metrics that take longer than all others together; they get an eighth of the draws.
SLOW = (
    *("road", "f_fidelity", "data_consistency", "sensitivity_max"),
    *("smooth_mprt", "efficient_mprt", "random_logit"),
)
#: Parameters: the oracle is the map of the logit, and maps of linear networks have no noise to smooth.
GIVEN: dict[str, dict[str, Any]] = {
    "completeness_error": {"output": "logit"},
    "smooth_mprt": {"n_samples": 5},
}


def jobs(draws: int, seed: int, only: Collection[str]) -> Iterator[tuple[list[str], str, int, int]]:
    """Yield metrics, kind of truth, draws and seed of each independent job."""
    infos = {name: METRICS.resolve(name).info for name in METRICS if name in only}
    for truth in TRUTHS:
        possible = (truth,) if truth == "intervention" else (truth, None)
        names = [name for name, info in infos.items() if info.own_truth in possible and name not in SLOW]
        for kinds in (("ground-truth", "model"), ("explainer",)):
            some = [name for name in names if infos[name].kind in kinds]
            if some:
                yield some, truth, draws, seed
    for name in SLOW:
        if name in only:
            yield [name], "intervention", draws // 8, seed


def run(job: tuple[list[str], Any, int, int]) -> pd.DataFrame:
    """Return the trials of a job."""
    warnings.simplefilter("ignore")
    metrics, truth, draws, seed = job
    given = {name: GIVEN.get(name, {}) for name in metrics}
    return meta_evaluate(given, truth, draws=draws, samples=SAMPLES, seed=seed).trials


def verdicts(found: MetaEvaluation, seed: int) -> dict[str, Any]:
    """Return the content of the file that report pages read; metrics that were not tested again are kept."""
    table, overall = found.table(), found.verdicts()
    tried, before = set(table["metric"]), json.loads(VERDICTS.read_text(encoding="utf-8"))["metrics"]
    metrics: dict[str, Any] = {
        name: {"revision": METRICS.resolve(name).info.revision, "truths": {}}
        if name in tried or name not in before
        else before[name]
        for name in METRICS
    }
    for (metric, truth), rows in table.groupby(["metric", "truth"], sort=False):
        by_way = rows.set_index("degraded").round(3)
        shares = {column: by_way[column].to_dict() for column in ("right", "wrong")}
        metrics[metric]["truths"][truth] = {"verdict": overall[metric, truth]} | shares
    return {"draws": found.draws, "samples": found.samples, "seed": seed, "metrics": metrics}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--draws", type=int, default=200)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="+", choices=list(METRICS), default=list(METRICS), metavar="METRIC")
    options = parser.parse_args()
    with ProcessPoolExecutor(options.workers, get_context("spawn")) as pool:
        trials = pd.concat(pool.map(run, jobs(options.draws, options.seed, options.only)), ignore_index=True)
    found = MetaEvaluation(trials, options.draws, SAMPLES)
    print(found.table().to_string())
    VERDICTS.write_text(json.dumps(verdicts(found, options.seed), indent=1) + "\n", encoding="utf-8")
    print(f"wrote {VERDICTS}; run `python docs/generate` for the tables of docs/metrics.md")


if __name__ == "__main__":
    main()
