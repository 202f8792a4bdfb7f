"""Write docs/findings.md: findings of the papers, tested on runs.

xaibench run xai-tris-8x8 && python docs/generate/findings.py runs/xai-tris-8x8

Takes any number of run folders. Each gives the section of its suite; sections of other suites are kept. Runs of
8×8 and 64×64 pixels together also give the comparison of both sizes. Tables per cell become CSV files.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pandas as pd
from csv_tables import csv_link
from papers import accuracies, table

from xaibench.report.claims import Claim, across_sizes, claims, exclusions
from xaibench.report.numbers.inference import promises
from xaibench.report.numbers.score_summary import summarize
from xaibench.report.page.content import CLASSIFIERS, scored_rule
from xaibench.report.page.share_tables import ShareMeans, cell_shares, share_means
from xaibench.report.read.results import RunResults, place, read_run

PAGE = Path(__file__).parents[1] / "findings.md"
#: On narrow screens, each row of a table becomes a card, or the first column stays in sight (site.css).
CARDS, WIDE = (f'<div class="{name}" markdown>\n\n{{}}\n\n</div>' for name in ("cards", "wide"))
NOTES = Path(__file__).parent / "findings-notes.txt"
#: The sections on the page, in their order; of the suites that come with the library.
SIZES = "sizes"
SUITES = ("xai-tris-8x8", "xai-tris-8x8-paper", "xai-tris-64x64", "xai-tris-64x64-paper", SIZES, "saliency-bench")
BEGIN, END = "<!-- begin of {} -->", "<!-- end of {} -->"

HEAD = """# Findings and comparison with the paper

Look up which findings of the XAI-TRIS paper (Clark, Wilming, Haufe, Machine Learning 2024) hold in runs of this
library. Each finding is a number with its 95 % [interval](uncertainty.md) and a verdict: it *holds* if the whole
interval is on the stated side of the bound, and is *undecided* if the bound is inside the interval. Where the paper
gives only words, such as *nearly all*, the bound is ours and marked so, and the verdict is also given at a lower
and at an upper bound. The report page of every XAI-TRIS run has the same table.
"""


def section(run: RunResults) -> str:
    """Return the section of one run: its verdicts, and links to its tables."""
    found = claims(run)
    scored = run.scores[run.scores["correct"]]
    samples = scored.groupby(["subset", "variant", "model", "data_seed", "seed"], observed=True)["sample"].nunique()
    counts = f"{samples.min()} to {samples.max()}" if samples.min() < samples.max() else f"{samples.min()}"
    names = [name for name, part in run.metrics.items() if not part.skill_of]  # the papers speak of scores
    parts = [f"\n## {run.title}\n\n    xaibench run {run.suite}\n"]
    parts.append(f"\nScored: {counts} samples per network that {CLASSIFIERS[scored_rule(run)]}. ")
    parts.append(" ".join(promises(run)) + "\n")
    if excluded := exclusions(run):
        parts.append(f"\n**Left out** of all verdicts: {'; '.join(excluded)}.\n")
    tested = [name for name in names if any(claim.metric == name for claim in found)]
    parts += [f"\n### {run.metrics[name].label}\n\n{CARDS.format(verdicts(found, name))}\n" for name in tested]
    links = [csv_link(f"findings-{run.suite}-accuracy", "test accuracy next to the paper's", *accuracies(run))]
    links += [
        csv_link(
            f"findings-{run.suite}-{name}",
            f"mean {run.metrics[name].label} of each method in each cell",
            *means(run, name),
        )
        for name in names
    ]
    links += error_shares(run)
    parts.append(f"\n### Tables of this run\n\nDownload (CSV): {'; '.join(links)}.\n")
    return "".join(parts)


def both_sizes(runs: list[RunResults]) -> str:
    """Return the section on both sizes, for the last run of each size; empty if a size is missing."""
    last = {size: run for run in runs for size in ("8x8", "64x64") if f"-{size}" in run.suite}
    if len(last) < 2:
        return ""
    small, large = last["8x8"], last["64x64"]
    found = across_sizes(small, large)
    parts = [f"\n## Comparison of both sizes\n\nThe runs of `{small.suite}` and `{large.suite}` above. "]
    parts.append("Skills rescale each score: 0 is chance at this size, 1 is the ground truth itself.\n")
    for name in dict.fromkeys(claim.metric for claim in found):
        parts.append(f"\n### {small.metrics[name].label}, both sizes\n\n{CARDS.format(verdicts(found, name))}\n")
    return "".join(parts)


def verdicts(found: list[Claim], metric: str) -> str:
    """Return the table of the statements about one metric."""
    rows = [
        [
            f"{each.statement} ({each.place})",
            f"{each.quantity} ({each.cells} {'comparison' if each.cells == 1 else 'comparisons'})",
            f"{each.value:.2f} ({each.low:.2f} to {each.high:.2f})",
            each.bound_text,
            f"**{each.verdict_text}**",
        ]
        for each in found
        if each.metric == metric
    ]
    return table(["the paper says", "measured", "here", "holds if", "verdict"], rows)


def means(run: RunResults, metric: str) -> tuple[list[str], list[list[str]]]:
    """Return head and rows of the table of mean scores, with a column per cell."""
    summary = summarize(run)
    mine = summary[summary["metric"] == metric]
    cells = list(mine.groupby(["subset", "variant", "model"], observed=True, sort=True).groups)
    heads = [" ".join((place(s), place(b), run.models[m].label)) for s, b, m in cells]
    value = mine.set_index(["subset", "variant", "model", "explainer"])["mean"].to_dict()
    rows = []
    for name, part in run.explainers.items():
        found = [value.get((*cell, name)) for cell in cells]
        shown = ["–" if each is None or pd.isna(each) else f"{each:.2f}" for each in found]
        rows.append([part.label + (" (control)" if part.control else ""), *shown])
    return ["method", *heads], rows


def error_shares(run: RunResults) -> list[str]:
    """Return links to the shares of each map's mass; empty if the suite has no reference map."""
    cells = cell_shares(run)
    if not cells:
        return []
    every = share_means(run)
    reference = every[0].explainer
    faithful = {row.cell: row for row in every if row.explainer == reference}
    rows = []
    for row in cells:
        alone = f"{faithful[row.cell].means[0]:.2f}"
        rows.append([cell_name(run, row), alone, *map(spread, row.means, row.intervals), f"{row.doing:.2f}"])
    label = (run.references[reference].label if reference in run.references else reference).lower()
    heads = ["cell", f"{label}: on the ground truth", "methods: on the ground truth"]
    heads += ["elsewhere, relied on", "elsewhere, not relied on", "share of the error due to the network"]
    found = {(row.explainer, row.cell): row.means[2] for row in every}
    order = [row.cell for row in cells]
    methods = [
        [part.label + (" (control)" if part.control else "")]
        + [f"{found.get((name, cell), float('nan')):.2f}".replace("nan", "–") for cell in order]
        for name, part in run.explainers.items()
    ]
    return [
        csv_link(f"findings-{run.suite}-shares", "share of the error due to the network", heads, rows),
        csv_link(
            f"findings-{run.suite}-not-relied-on",
            "mass of each method on pixels that are neither in the ground truth nor relied on",
            ["method", *(cell_name(run, row) for row in cells)],
            methods,
        ),
    ]


def cell_name(run: RunResults, row: ShareMeans) -> str:
    scenario, background, model = row.cell
    return " ".join((place(scenario), place(background), run.models[model].label))


def spread(mean: float, ends: tuple[float, float]) -> str:
    return f"{mean:.2f} ({ends[0]:.2f} to {ends[1]:.2f})"


def sections(page: str) -> dict[str, str]:
    """Return the sections of the page, by suite."""
    found = {}
    for name in SUITES:
        _, begun, rest = page.partition(BEGIN.format(name))
        if begun:
            found[name] = rest.partition(END.format(name))[0]
    return found


def page(before: str, runs: list[RunResults]) -> str:
    """Return the page with the sections of these runs; the other sections are kept."""
    new = {run.suite: section(run) for run in runs}
    if unknown := new.keys() - set(SUITES):
        raise SystemExit(f"No section for a run of {', '.join(unknown)}; known are those of {', '.join(SUITES)}.")
    if sizes := both_sizes(runs):
        new[SIZES] = sizes
    found = sections(before) | new
    parts = [f"{BEGIN.format(name)}{found[name]}{END.format(name)}\n" for name in SUITES if name in found]
    return "\n".join([HEAD, NOTES.read_text(encoding="utf-8"), *parts])


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), [read_run(Path(run)) for run in sys.argv[1:]]), "utf-8")
