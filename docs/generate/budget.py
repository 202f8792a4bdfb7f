"""What methods score at equal cost: writes docs/budget.md and its pictures, from a run of each suite or several.

xaibench run budget
xaibench run budget-certified
xaibench run budget-photographs --root DIR --model efficientnet_lite0
python docs/generate/budget.py runs/budget runs/budget-certified runs/budget-photographs

A run of photographs has a section by its largest budget: many samples at few passes, few at many. The sections of runs
that are not given stay as they are.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
from findings import WIDE
from page_sections import renewed
from papers import table
from scipy.stats import kendalltau
from scipy.stats import t as student

from xaibench.core.figure_style import THEME
from xaibench.plots.files import encode
from xaibench.report.figures.budgets import BudgetScore, BudgetScores, budget_figure, budget_lines, budget_scores
from xaibench.report.figures.style import inline_svg
from xaibench.report.numbers.inference import infer
from xaibench.report.numbers.score_summary import summarize
from xaibench.report.read.results import RunResults, read_run
from xaibench.runfolder.tables import CELL
from xaibench.runner import load_suite

DOCS = Path(__file__).parents[1]
PAGE, IMAGES = DOCS / "budget.md", DOCS / "images"
#: The colors of the page of a run, for readers of dark pages; the sheet itself is left out.
DARK = {"ink": "#e6eaf0", "soft": "#9ba7b6", "line": "#2e3846", "series-1": "#5cb6ec"}

HEAD = """# Methods at equal cost

Kernel SHAP with 25 samples measures the 25, not Kernel SHAP. A *budget* is the most passes that a method may take for
an image: rows that go through the network, forward or back ([what counts](explainers.md)).

    xb.explain("kernel_shap", model, images, targets, budget=1000)
    xb.explainers.build("kernel_shap").within(1000, images)     # KernelSHAP(n_samples=1000, ...)

In a suite of your own: `kernel_shap-1000 = { use = "kernel_shap", budget = 1000 }`. Each method gets the largest count
that the budget affords for images of that size: samples, steps, masks, permutations; nothing else about it changes, and
what comes out is to the bit that of the count given by hand. Sobol' indices take a power of two, Shapley sampling whole
permutations, Occlusion the smallest stride that fits, so that they may stay below. A budget below the fewest passes
that a method can do with is an error that says how many these are, in a suite before anything runs. A function of your
own, or a method of Captum's, is stopped as soon as it has spent the budget.

The suites `budget`, `budget-certified` and `budget-photographs` compare all methods that sample or step at 100, 1,000
and 10,000 passes, and Kernel SHAP and LIME at the 25 and 50 samples of the released XAI-TRIS runs as well. Their pages
show every metric; here is one of each. Lines are means over the cells, bands their 95 % intervals, dots methods whose
cost is no choice, dashed the best control, gray the other methods. In the tables: the mean, its interval, and the place
among the methods at that budget and those whose cost is no choice. Differences are paired by sample, with a 95 %
interval. Made by `python docs/generate/budget.py` from runs of these suites on two cores, with few samples, and where
`--explainers` is stated with some of the methods, or without their largest budgets: a thousand passes of a network for
photographs are half a minute of a core for each method and photograph, ten thousand some minutes. So of the photographs
there are two runs, one of a hundred at 100 passes, one of ten at up to 1,000; those that the network gets right count.

Gradient Pattern is [PatternLocal](explainers.md#pattern_local) with the mean gradient as its surrogate, not the LIME
surrogate of its paper.
"""

SECTION = """
## {title}

    {command}

{what} {metric}, {direction}.

![{metric} against passes, a panel for each method](images/{name}-light.svg#only-light)
![{metric} against passes, a panel for each method](images/{name}-dark.svg#only-dark)

{found}

"""

#: Of each suite its heading, how it was run, and what the page shows of it.
SECTIONS = {
    "budget": ("XAI-TRIS at 8×8 pixels", "xaibench run budget --samples {samples}", "emd_perf"),
    "budget-certified": ("Certified networks", "xaibench run budget-certified --samples {samples}", "use_ap"),
    "budget-photographs": (
        "Photographs",
        "xaibench run budget-photographs --root DIR --model efficientnet_lite0 --samples {samples}",
        "insertion",
    ),
}


def cell(score: BudgetScore | None) -> str:
    """A mean, its interval, and its place."""
    if score is None:
        return ""
    place = f"<br>place {score.place}" if score.place else ""
    return f"{score.mean:.3f} ({score.low:.2f}–{score.high:.2f}){place}".replace("-", "−")


def by(mean: float, half: float) -> str:
    """A difference and half its interval, which is rounded up."""
    return f"{mean:+.3f} ± {np.ceil(1000 * half) / 1000:.3f}".replace("-", "−")


def numbers(scores: BudgetScores) -> str:
    """A row a method, a column a budget; then those whose cost is no choice."""
    rows = [[name, *(cell(line.get(budget)) for budget in scores.budgets)] for name, line in scores.methods.items()]
    last = len(scores.budgets) - 1
    for name, (passes, score) in scores.fixed.items():
        said = f"{name}, {passes} passes" if passes else name
        rows.append([said, *[""] * last, cell(score)])
    rows += [[f"{name} (control)", *[""] * last, cell(score)] for name, score in scores.controls.items()]
    return table(["", *(f"{budget:,}" for budget in scores.budgets)], rows)


def change(run: RunResults, metric: str, before: str, after: str) -> tuple[float, float]:
    """By how much the mean of an entry is above that of another, and half the width of its 95 % interval.

    Paired by sample. What is drawn independently are the data sets of a cell, or its samples where it has one; their
    spread is taken to be that of all cells together.
    """
    rows = run.scores[(run.scores["metric"] == metric) & run.scores["correct"]]
    keys = [*CELL, "data_seed", "seed", "sample"]
    found = rows[rows["explainer"].isin([before, after])].pivot_table("value", keys, "explainer", observed=True)
    apart = (found[after] - found[before]).dropna()
    sets = apart.groupby([*CELL, "data_seed"], observed=True).mean()
    draws = sets if sets.groupby(list(CELL), observed=True).size().min() > 1 else apart
    cells = draws.groupby(list(CELL), observed=True)
    counts, freedom = cells.size(), len(draws) - cells.ngroups
    spread = (draws - cells.transform("mean")).pow(2).sum() / freedom
    half = student.ppf(0.975, freedom) * np.sqrt((spread / counts).sum()) / cells.ngroups
    return float(cells.mean().mean()), float(half)


def orders(scores: BudgetScores) -> Iterator[str]:
    """How alike the methods' orders are at each budget and at the largest."""
    last = scores.budgets[-1]
    for budget in scores.budgets[:-1]:
        both = [(line[budget].mean, line[last].mean) for line in scores.methods.values() if {budget, last} <= set(line)]
        if len(both) > 4:
            tau = kendalltau(*zip(*both, strict=True)).statistic
            yield f"{tau:.2f} between {budget:,} and {last:,} passes ({len(both)} methods)".replace("-", "−")


def found(run: RunResults, scores: BudgetScores) -> str:
    """What the run says: whose score moves with its budget, and whose place."""
    metric, said = run.metrics[scores.metric], []
    lines = budget_lines(run)
    for name in ("Kernel SHAP", "LIME"):
        steps = list(lines.get(name, {}).items())
        own = scores.methods.get(name, {})
        places = [f"{own[budget].place} of {own[budget].of} at {budget:,}" for budget, _ in steps if budget in own]
        gains = []
        for (low, before), (high, after) in pairwise(steps):
            mean, half = change(run, scores.metric, before, after)
            gains.append(f"{by(mean, half)} from {low:,} to {high:,}")
        if places:
            said.append(f"- **{name}** has place {', '.join(places)} passes. Its score changes by {'; '.join(gains)}.")
    moved, still = [], []
    for name, entries in lines.items():
        first = max(min(entries), 100)
        if name in ("Kernel SHAP", "LIME") or first not in entries or first == max(entries):
            continue
        mean, half = change(run, scores.metric, entries[first], entries[max(entries)])
        better = mean if metric.higher_is_better else -mean
        text = f"{name} ({by(mean, half)})"
        (moved if abs(mean) > half else still).append((better, text))
    if moved:
        texts = ", ".join(text for _, text in sorted(moved, reverse=True))
        said.append(f"- From its fewest passes, 100 or more, to its most these change by more than chance: {texts}.")
    if still:
        said.append(f"- These do not: {', '.join(text for _, text in sorted(still, reverse=True))}.")
    if taus := list(orders(scores)):
        said.append(f"- Kendall's tau of the methods' orders: {'; '.join(taus)}.")
    return "\n".join(said)


def draw(run: RunResults, scores: BudgetScores, name: str) -> None:
    """Both pictures."""
    figure = encode(budget_figure(run, scores), "svg")
    drawn = str(inline_svg(figure, name, f"{run.suite}: score against passes"))
    for theme, colors in (("light", THEME), ("dark", THEME | DARK)):
        text = drawn.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1).replace(
            "var(--sans)", "sans-serif"
        )
        for role, color in colors.items():
            text = text.replace(f"var(--{role})", color)
        (IMAGES / f"{name}-{theme}.svg").write_text(text + "\n", encoding="utf-8")


def section(run: RunResults) -> str:
    """What is said of one run, with its pictures."""
    title, command, metric = SECTIONS[run.suite]
    every = budget_scores(run, infer(run, summarize(run))[0])
    scores, part = every[metric], run.metrics[metric]
    name, most = run.suite, scores.budgets[-1]
    if run.suite == "budget-photographs":
        title, name = f"{title}, at most {most:,} passes", f"{name}-{most}"
    draw(run, scores, name)
    images = run.scores[run.scores["correct"]].groupby([*CELL, "data_seed"], observed=True)["sample"].nunique()
    samples = run.settings["explaining"]["samples"]
    sets = run.scores["data_seed"].nunique()
    fewer = len(run.settings["explainers"]) < len(load_suite(run.suite)[0].explainers)
    what = f"{scores.cells} cells of {sets} data sets" if sets > 1 else "One set"
    what += f", {int(images.sum()):,} images, {len(scores.methods)} methods at several budgets."
    text = SECTION.format(
        title=title,
        command=command.format(samples=samples) + (" --explainers ..." if fewer else ""),
        what=what,
        metric=part.label,
        direction="higher is better" if part.higher_is_better else "lower is better",
        name=name,
        found=found(run, scores),
    )
    return text + WIDE.format(numbers(scores)) + "\n"


if __name__ == "__main__":
    sections = [section(read_run(Path(folder))) for folder in sys.argv[1:]]
    PAGE.write_text(renewed(PAGE, HEAD, sections), encoding="utf-8")
