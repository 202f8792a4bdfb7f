"""What the runs found, beside what the paper did: writes docs/findings.md.

xaibench run xai-tris-8x8 && xaibench run xai-tris-64x64 \
    && python docs/generate/findings.py runs/xai-tris-8x8 runs/xai-tris-64x64
"""

from __future__ import annotations

import sys
from pathlib import Path

import pandas as pd
from papers import accuracies, table

from xaibench.report.numbers.paper_claims import Claim, claims
from xaibench.report.numbers.score_summary import summarise
from xaibench.report.read.run_results import RunResults, place, read_run

PAGE = Path(__file__).parents[1] / "findings.md"
#: For narrow screens: each row of such a table is a card, or its first column stays in sight (site.css).
CARDS, WIDE = (f'<div class="{name}" markdown>\n\n{{}}\n\n</div>' for name in ("cards", "wide"))
NOTES = Path(__file__).parent / "findings-notes.txt"

HEAD = """# What the runs found

The paper's findings (Clark, Wilming, Haufe, Machine Learning 2024), held against the runs that were really done for
this page. Each is a number with its 95 % interval (over the data sets, trainings and samples drawn) and a verdict: it
*holds* where the whole interval lies on the stated side of the bound, and is *undecided* where the bound lies inside.
One that does not hold is reported as well. The same table stands on the report page of every XAI-TRIS run. Made by
`python docs/generate/findings.py RUN8 RUN64`.
"""


def section(run: RunResults, command: str) -> str:
    found = claims(run)
    scored = run.scores[run.scores["correct"]]
    samples = scored.groupby(["scenario", "background"], observed=True)["sample"].nunique()
    counts = f"{samples.min()} to {samples.max()}" if samples.min() < samples.max() else f"{samples.min()}"
    parts = [f"\n## {run.title}\n\n    {command}\n"]
    parts.append(f"\nScored: {counts} samples a data set, those that all its networks classify correctly.\n")
    parts += [
        f"\n### {part.label}\n\n{CARDS.format(verdicts(run, found, name))}\n"
        for name, part in run.metrics.items()
        if not part.skill_of  # the papers speak of scores
    ]
    parts.append(f"\n### Test accuracy\n\n{accuracies(run)}\n")
    parts += [
        f"\n### Mean of each method: {run.metrics[name].label}\n\n{WIDE.format(means(run, name))}\n"
        for name in run.metrics
    ]
    return "".join(parts)


def verdicts(run: RunResults, found: list[Claim], metric: str) -> str:
    rows = [
        [
            each.statement,
            f"{each.quantity} ({each.cells} comparisons)",
            f"{each.value:.2f} ({each.low:.2f} to {each.high:.2f})",
            f"{'>' if each.above else '<'} {each.bound:g}",
            f"**{each.verdict}**",
        ]
        for each in found
        if each.metric == metric
    ]
    return table(["the paper says", "number", "here", "holds if", "verdict"], rows)


def means(run: RunResults, metric: str) -> str:
    summary = summarise(run)
    mine = summary[summary["metric"] == metric]
    cells = list(mine.groupby(["scenario", "background", "model"], observed=True, sort=True).groups)
    heads = [" ".join((place(s), place(b), run.models[m].label)) for s, b, m in cells]
    value = mine.set_index(["scenario", "background", "model", "explainer"])["mean"].to_dict()
    rows = []
    for name, part in run.explainers.items():
        found = [value.get((*cell, name)) for cell in cells]
        shown = ["–" if each is None or pd.isna(each) else f"{each:.2f}" for each in found]
        rows.append([part.label + (" (control)" if part.control else ""), *shown])
    return table(["", *heads], rows)


def page(small: RunResults, large: RunResults) -> str:
    notes = NOTES.read_text(encoding="utf-8")
    return (
        HEAD
        + "\n"
        + notes
        + section(small, "xaibench run xai-tris-8x8")
        + section(large, "xaibench run xai-tris-64x64")
    )


if __name__ == "__main__":
    PAGE.write_text(page(read_run(Path(sys.argv[1])), read_run(Path(sys.argv[2]))), encoding="utf-8")
