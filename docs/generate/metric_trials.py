"""Test the metrics on known maps: tables of docs/metrics-tested.md, and the verdicts that report pages read.

    python docs/generate/metric_trials.py      # ten minutes; writes the page's tables and the file of verdicts
    python docs/generate/metric_trials.py --workers 4
    python docs/generate/metric_trials.py --only srg idsds      # only these

A new metric, or one with a new revision, has no verdict until this is run again (a test reports it). The trials of a
metric do not depend on the other metrics.
"""

from __future__ import annotations

import argparse
import json
import re
import warnings
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pandas as pd

from xaibench.core.truth_kinds import TRUTHS
from xaibench.meta_evaluation import MetaEvaluation, meta_evaluate
from xaibench.metrics import METRICS
from xaibench.report.read.metric_verdicts import FILE

PAGE = Path(__file__).parents[1] / "metrics-tested.md"
START, END = "<!-- {} -->\n", "<!-- until here -->"

#: Smaller shares of wrong draws are shown as below one percent.
DOUBTLESS = 0.01

#: Ways of degrading maps or explainers, with their names on the page, in the order of the columns.
WAYS = {"moved": "moved", "noisy": "noise", "unmoved": "unmoved"}
SHOWN = {"passes": "passes", "coarse": "**coarse**", "fails": "**fails**"}


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
    tried, before = set(table["metric"]), json.loads(FILE.read_text(encoding="utf-8"))["metrics"]
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


def truth_tables(found: MetaEvaluation, truth: str, before: str) -> str:
    """Return the tables of one kind of truth: maps, and explainers.

    Metrics that were not tested again keep their row in ``before``. The order is that of the registry.
    """
    lines = {name: line for line in before.splitlines() if (name := _metric_of(line))} | dict(_rows(found, truth))
    tables = []
    for asking, ways in ((False, ("moved", "noisy")), (True, ("noisy", "unmoved"))):
        names = [name for name in METRICS if (METRICS.resolve(name).info.kind == "explainer") == asking]
        heads = ["metric", "verdict", *(WAYS[way] for way in ways), "one sample", "where not"]
        head = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
        if some := [lines[name] for name in names if name in lines]:
            tables.append("\n".join([*head, *some]) + "\n")
    return "\n".join(tables)


def _metric_of(line: str) -> str:
    found = re.match(r"\| \[`(\w+)`\]", line)
    return found[1] if found else ""


def _rows(found: MetaEvaluation, kind: str) -> Iterator[tuple[str, str]]:
    """Yield metric and row for each metric that was tested with this kind of truth."""
    table, overall = found.table(), found.verdicts()
    for (metric, truth), rows in table[table["truth"] == kind].groupby(["metric", "truth"], sort=False):
        ways = [way for way in WAYS if way in set(rows["degraded"])]
        by_way = [row for way in ways for row in rows[rows["degraded"] == way].to_dict("records")]
        singles = "&nbsp;/ ".join(f"{100 * row['one_right']:.0f}&nbsp;%" for row in by_way)
        line = [f"[`{metric}`](metrics/{metric}.md)", SHOWN[overall[metric, truth]]]
        line += [*map(share_text, by_way), singles, _where_not(found, metric, truth)]
        yield metric, "| " + " | ".join(line) + " |"


def share_text(row: Mapping[Hashable, Any]) -> str:
    """Return the shares of right and wrong draws as text, with the interval of the former."""
    right = f"{100 * row['right']:.0f}&nbsp;% ({100 * row['low']:.0f}–{100 * row['high']:.0f})".replace(" (", "&nbsp;(")
    wrong = f"{100 * row['wrong']:.0f}" if row["wrong"] >= DOUBTLESS else "<1"
    return right + (f"<br>{wrong}&nbsp;% wrong" if row["wrong"] > 0 else "")


def _where_not(found: MetaEvaluation, metric: str, truth: str) -> str:
    """Return the cases in which a metric does not pass; ``"all"``, or empty if it passes in every case."""
    table = found.table(["metric", "truth", "degraded", "case"])
    own = table[(table["metric"] == metric) & (table["truth"] == truth)]
    cases = own.groupby("case", sort=False)["verdict"].apply(lambda given: (given == "passes").all())
    # A function is named once where it fails in all its forms.
    failed = dict.fromkeys(str(case).split("-")[0] for case in cases.index[~cases])
    if len(failed) == len({str(case).split("-")[0] for case in cases.index}):
        return "all" if len(failed) > 1 else ""
    return ", ".join(failed)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--draws", type=int, default=200)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="+", choices=list(METRICS), default=list(METRICS), metavar="METRIC")
    options = parser.parse_args()
    with ProcessPoolExecutor(options.workers, get_context("spawn")) as pool:
        trials = pd.concat(pool.map(run, jobs(options.draws, options.seed, options.only)), ignore_index=True)
    write(MetaEvaluation(trials, options.draws, SAMPLES), options.seed)


def write(found: MetaEvaluation, seed: int) -> None:
    FILE.write_text(json.dumps(verdicts(found, seed), indent=1) + "\n", encoding="utf-8")
    for truth in TRUTHS:
        write_tables(truth, partial(truth_tables, found, truth))
    print(f"wrote {FILE} and {PAGE}")


def write_tables(block: str, tables: Callable[[str], str]) -> None:
    """Replace the tables of a block of the page, given the tables before."""
    above, start, rest = PAGE.read_text(encoding="utf-8").partition(START.format(block))
    before, end, below = rest.partition(END)
    PAGE.write_text(f"{above}{start}\n{tables(before)}\n{end}{below}", encoding="utf-8")


if __name__ == "__main__":
    main()
