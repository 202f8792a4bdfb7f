"""Write docs/budget.md and its pictures: scores of methods at equal cost.

xaibench run budget
xaibench run budget-certified
xaibench run budget-photographs --root DIR --model efficientnet_lite0
python docs/generate/budget.py runs/budget runs/budget-certified runs/budget-photographs

A run of photographs has a section per largest budget: many samples with few passes, few samples with many. Sections of
other runs are kept.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
from csv_tables import csv_link
from findings import WIDE
from page_sections import renewed
from papers import table
from scipy.stats import kendalltau
from scipy.stats import t as student

from xaibench.plots.figure_style import THEME
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
#: Colors for dark pages.
DARK = {"ink": "#e6eaf0", "soft": "#9ba7b6", "line": "#2e3846", "series-1": "#5cb6ec"}

HEAD = """# Methods at equal cost

Compare methods with the same number of passes through the network. Kernel SHAP with 25 samples measures the 25
samples, not Kernel SHAP. A *budget* is the largest number of [passes](explainers.md#passes-and-budgets) per image:
rows that go through the network, forward or backward.

    xb.explain("kernel_shap", model, images, targets, budget=1000)
    xb.explainers.build("kernel_shap").within(1000, images)     # KernelSHAP(n_samples=1000, ...)

In a suite: `kernel_shap-1000 = { use = "kernel_shap", budget = 1000 }`. Each method gets the largest count
(samples, steps, masks, permutations) that the budget allows; nothing else changes. Sobol' indices use a power of
two, Shapley sampling whole permutations, Occlusion the smallest stride that fits. A budget below the minimum of a
method is an error that states the minimum. Your own function, or a method of Captum, is stopped when it has spent
the budget.

The suites `budget`, `budget-certified` and `budget-photographs` compare all methods that sample or step at 100,
1,000 and 10,000 passes, and Kernel SHAP and LIME also at the 25 and 50 samples of the released XAI-TRIS runs. In
the figures, lines are means over the cells with 95 % intervals, dots are methods with a fixed cost, dashed is the
mean of each cell's best control, and gray are the other methods. A control that is the answer by construction of the
data, such as the mean mask of patterns at fixed positions, does not count in that cell. In the tables, places are
among the methods at that budget and those with a fixed cost. Differences are paired by sample, with a 95 % interval.
The runs on photographs have few samples or fewer methods (`--explainers`): a thousand passes per method and photograph
take half a minute of a core. Only samples that the network classifies correctly count. Gradient Pattern is
[PatternLocal](explainers/pattern_local.md) with the mean gradient as surrogate, not the LIME surrogate of its paper.
The [leaderboard](leaderboard.md#the-site) has the results of `budget` and `budget-certified` at 1,000 passes.
"""

SECTION = """
## {title}

    {command}

{what} {metric}, {direction}.

![{metric} against passes, a panel for each method](images/{name}-light.svg#only-light)
![{metric} against passes, a panel for each method](images/{name}-dark.svg#only-dark)

{found}

"""

#: Methods that the page shows; the CSV file has all.
SHOWN = (
    *("Kernel SHAP", "LIME", "Shapley Value Sampling", "RISE", "Integrated Gradients", "SmoothGrad"),
    *("Random-baseline IG", "Occlusion", "Saliency, 2 passes", "Grad-CAM, 2 passes", "Uniform (control)"),
    *("Laplace (control)", "Sobel (control)", "Center prior (control)"),
)
#: Heading, command and metric of the section of each suite.
SECTIONS = {
    "budget": ("XAI-TRIS at 8×8 pixels", "xaibench run budget", "emd_perf"),
    "budget-certified": ("Certified networks", "xaibench run budget-certified", "use_ap"),
    "budget-photographs": (
        "Photographs",
        "xaibench run budget-photographs --root DIR --model efficientnet_lite0",
        "insertion",
    ),
}


def cell(score: BudgetScore | None) -> str:
    """Return a mean, its interval, and its place as text."""
    if score is None:
        return ""
    place = f"<br>place {score.place}" if score.place else ""
    return f"{score.mean:.3f} ({score.low:.2f}–{score.high:.2f}){place}".replace("-", "−")


def by(mean: float, half: float) -> str:
    """Return a difference and half the width of its interval, rounded up, as text."""
    return f"{mean:+.3f} ± {np.ceil(1000 * half) / 1000:.3f}".replace("-", "−")


def numbers(scores: BudgetScores) -> tuple[list[str], list[list[str]]]:
    """Return head and rows of the scores, with one column per budget; methods with a fixed cost come last."""
    rows = [[name, *(cell(line.get(budget)) for budget in scores.budgets)] for name, line in scores.methods.items()]
    last = len(scores.budgets) - 1
    for name, (passes, score) in scores.fixed.items():
        said = f"{name}, {passes} passes" if passes else name
        rows.append([said, *[""] * last, cell(score)])
    for name, score in scores.controls.items():
        where = f"<br>{score.cells} of {scores.cells} cells" if score.cells < scores.cells else ""
        rows.append([f"{name} (control)", *[""] * last, cell(score) + where])
    return ["method", *(f"{budget:,}" for budget in scores.budgets)], rows


def change(run: RunResults, metric: str, before: str, after: str) -> tuple[float, float]:
    """Return the difference of two means, and half the width of its 95 % interval.

    Differences are paired by sample. Independent draws are the data sets of a cell, or its samples if it has one data
    set; their standard deviation is pooled over the cells.
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
    """Yield Kendall's tau between the orders of the methods at each budget and at the largest one."""
    last = scores.budgets[-1]
    for budget in scores.budgets[:-1]:
        both = [(line[budget].mean, line[last].mean) for line in scores.methods.values() if {budget, last} <= set(line)]
        if len(both) > 4:
            tau = kendalltau(*zip(*both, strict=True)).statistic
            yield f"{tau:.2f} between {budget:,} and {last:,} passes ({len(both)} methods)".replace("-", "−")


def found(run: RunResults, scores: BudgetScores) -> str:
    """Return the conclusions from a run: how scores and places change with the budget."""
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
        said.append(f"- From its fewest passes, 100 or more, to its most these change significantly: {texts}.")
    if still:
        said.append(f"- These do not: {', '.join(text for _, text in sorted(still, reverse=True))}.")
    if taus := list(orders(scores)):
        said.append(f"- Kendall's tau of the methods' orders: {'; '.join(taus)}.")
    return "\n".join(said)


def draw(run: RunResults, scores: BudgetScores, name: str) -> None:
    """Write the pictures for light and dark pages."""
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
    """Return the section of one run, and write its pictures and its table."""
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
    suite = load_suite(run.suite)[0]
    options = f" --samples {samples}" if samples != suite.explaining.samples else ""
    options += " --explainers ..." if len(run.settings["explainers"]) < len(suite.explainers) else ""
    what = f"{scores.cells} cells of {sets} data sets" if sets > 1 else "One set"
    what += f", {int(images.sum()):,} images, {len(scores.methods)} methods at several budgets."
    text = SECTION.format(
        title=title,
        command=command + options,
        what=what,
        metric=part.label,
        direction="higher is better" if part.higher_is_better else "lower is better",
        name=name,
        found=found(run, scores),
    )
    head, rows = numbers(scores)
    link = csv_link(name, "All methods (CSV)", head, [[cell.replace("<br>", ", ") for cell in row] for row in rows])
    return text + WIDE.format(table(head, [row for row in rows if row[0] in SHOWN])) + f"\n\n{link}\n"


if __name__ == "__main__":
    sections = [section(read_run(Path(folder))) for folder in sys.argv[1:]]
    PAGE.write_text(renewed(PAGE, HEAD, sections), encoding="utf-8")
