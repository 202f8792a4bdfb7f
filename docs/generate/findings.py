"""What the runs found, beside what the papers did: writes docs/findings.md.

xaibench run xai-tris-8x8 && python docs/generate/findings.py runs/xai-tris-8x8

Any number of run folders; each has a section by the name of its suite, and sections of other suites stay as they are.
A run of 8×8 and one of 64×64 pixels together have one more, of both sizes.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pandas as pd
from papers import accuracies, table

from xaibench.report.claims.across_sizes import across_sizes
from xaibench.report.claims.evaluation import Claim
from xaibench.report.claims.paper_claims import claims, exclusions
from xaibench.report.numbers.inference import promises
from xaibench.report.numbers.score_summary import summarize
from xaibench.report.page.content import CLASSIFIERS, scored_rule
from xaibench.report.page.share_tables import ShareMeans, cell_shares, share_means
from xaibench.report.read.results import RunResults, place, read_run

PAGE = Path(__file__).parents[1] / "findings.md"
#: For narrow screens: each row of such a table is a card, or its first column stays in sight (site.css).
CARDS, WIDE = (f'<div class="{name}" markdown>\n\n{{}}\n\n</div>' for name in ("cards", "wide"))
NOTES = Path(__file__).parent / "findings-notes.txt"
#: The sections on the page, in their order; of the suites that come with the library.
SIZES = "sizes"
SUITES = ("xai-tris-8x8", "xai-tris-8x8-paper", "xai-tris-64x64", "xai-tris-64x64-paper", SIZES, "saliency-bench")
BEGIN, END = "<!-- begin of {} -->", "<!-- end of {} -->"

HEAD = """# What the runs found

The paper's findings (Clark, Wilming, Haufe, Machine Learning 2024), held against the runs that were really done for
this page. Each is a number with its 95 % interval ([over all that was drawn](uncertainty.md)) and a verdict: it *holds*
where the whole interval lies on the stated side of the bound, and is *undecided* where the bound lies inside. One that
does not hold is reported as well. Where the paper gives only words, such as *nearly all*, the bound is ours and marked
so, and the verdict is also given at a lower and at an upper bound. The same table stands on the report page of every
XAI-TRIS run. Made by `python docs/generate/findings.py RUN`, with any run folder.
"""


def section(run: RunResults) -> str:
    found = claims(run)
    scored = run.scores[run.scores["correct"]]
    samples = scored.groupby(["subset", "variant", "model", "data_seed", "seed"], observed=True)["sample"].nunique()
    counts = f"{samples.min()} to {samples.max()}" if samples.min() < samples.max() else f"{samples.min()}"
    names = [name for name, part in run.metrics.items() if not part.skill_of]  # the papers speak of scores
    parts = [f"\n## {run.title}\n\n    xaibench run {run.suite}\n"]
    parts.append(f"\nScored: {counts} samples per network, those that {CLASSIFIERS[scored_rule(run)]}. ")
    parts.append(" ".join(promises(run)) + "\n")
    if excluded := exclusions(run):
        parts.append(f"\n**Left out** of all verdicts: {'; '.join(excluded)}.\n")
    tested = [name for name in names if any(claim.metric == name for claim in found)]
    parts += [f"\n### {run.metrics[name].label}\n\n{CARDS.format(verdicts(found, name))}\n" for name in tested]
    parts.append(f"\n### Test accuracy\n\n{accuracies(run)}\n")
    parts += [
        f"\n### Mean of each method: {run.metrics[name].label}\n\n{WIDE.format(means(run, name))}\n" for name in names
    ]
    parts.append(whose_doing(run))
    return "".join(parts)


def both_sizes(runs: list[RunResults]) -> str:
    """The statements about both sizes, of the last run of each; nothing without one of each."""
    last = {size: run for run in runs for size in ("8x8", "64x64") if f"-{size}" in run.suite}
    if len(last) < 2:
        return ""
    small, large = last["8x8"], last["64x64"]
    found = across_sizes(small, large)
    parts = [f"\n## Both sizes beside each other\n\nThe runs of `{small.suite}` and `{large.suite}` above. "]
    parts.append("Skills: how far a score is from chance at its size (0) towards the ground truth itself (1).\n")
    for name in dict.fromkeys(claim.metric for claim in found):
        parts.append(f"\n### {small.metrics[name].label}, both sizes\n\n{CARDS.format(verdicts(found, name))}\n")
    return "".join(parts)


def verdicts(found: list[Claim], metric: str) -> str:
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
    return table(["the paper says", "number", "here", "holds if", "verdict"], rows)


def means(run: RunResults, metric: str) -> str:
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
    return table(["", *heads], rows)


def whose_doing(run: RunResults) -> str:
    """How much of what lies beside the truth is the network's doing; empty where the suite has no reference."""
    cells = cell_shares(run)
    if not cells:
        return ""
    every = share_means(run)
    reference = every[0].explainer
    faithful = {row.cell: row for row in every if row.explainer == reference}
    rows = []
    for row in cells:
        alone = f"{faithful[row.cell].means[0]:.2f}"
        rows.append([cell_name(run, row), alone, *map(spread, row.means, row.intervals), f"**{row.doing:.2f}**"])
    heads = ["", "a faithful map on the truth", "methods: on the truth", "beside, relied on", "beside, not relied on"]
    of_cells = table([*heads, "of what is beside: the network’s doing"], rows)
    found = {(row.explainer, row.cell): row.means[2] for row in every}
    order = [row.cell for row in cells]
    methods = [
        [part.label + (" (control)" if part.control else "")]
        + [f"{found.get((name, cell), float('nan')):.2f}".replace("nan", "–") for cell in order]
        for name, part in run.explainers.items()
    ]
    of_methods = table(["", *(cell_name(run, row) for row in cells)], methods)
    label = run.references[reference].label if reference in run.references else reference
    return (
        f"\n### Whose doing it is\n\nWhat lies beside the truth, split by what the network relies on "
        f"([how](xai-tris.md#whose-doing-it-is)); means over the methods, 95 % intervals. “A faithful map” is "
        f"{label}.\n\n{WIDE.format(of_cells)}\n\nThe third part, beside the truth and not relied on, of each method:"
        f"\n\n{WIDE.format(of_methods)}\n"
    )


def cell_name(run: RunResults, row: ShareMeans) -> str:
    scenario, background, model = row.cell
    return " ".join((place(scenario), place(background), run.models[model].label))


def spread(mean: float, ends: tuple[float, float]) -> str:
    return f"{mean:.2f} ({ends[0]:.2f} to {ends[1]:.2f})"


def sections(page: str) -> dict[str, str]:
    """What stands on the page, by suite."""
    found = {}
    for name in SUITES:
        _, begun, rest = page.partition(BEGIN.format(name))
        if begun:
            found[name] = rest.partition(END.format(name))[0]
    return found


def page(before: str, runs: list[RunResults]) -> str:
    new = {run.suite: section(run) for run in runs}
    if unknown := new.keys() - set(SUITES):
        raise SystemExit(f"No section for a run of {', '.join(unknown)}; there are those of {', '.join(SUITES)}.")
    if sizes := both_sizes(runs):
        new[SIZES] = sizes
    found = sections(before) | new
    parts = [f"{BEGIN.format(name)}{found[name]}{END.format(name)}\n" for name in SUITES if name in found]
    return "\n".join([HEAD, NOTES.read_text(encoding="utf-8"), *parts])


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), [read_run(Path(run)) for run in sys.argv[1:]]), "utf-8")
