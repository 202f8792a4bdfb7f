"""The papers' tables with ours beside: writes docs/papers.md.

xaibench run xai-tris-8x8-paper && xaibench run xai-tris-64x64
python docs/generate/papers.py runs/xai-tris-8x8-paper runs/xai-tris-64x64
"""

from __future__ import annotations

import sys
from pathlib import Path

import pandas as pd

from xaibench.benchmarks.saliency_bench import published_tables as published
from xaibench.report.numbers.accuracy_differences import accuracy_margins
from xaibench.report.read.results import RunResults, place, read_run

PAGE = Path(__file__).parents[1] / "papers.md"
NAMES = {"iou": "IoU", "precision": "precision", "recall": "recall", "hit": "pointing", "insertion": "insertion"}
NAMES |= {"deletion": "deletion"}

HEAD = """# Papers' tables beside ours

What the two papers print, and what comes out here. Every run shows its own numbers beside the published ones on its
[report page](tutorials/read-the-report.md); this page holds the tables in one place. Made by
`python docs/generate/papers.py RUN RUN64`.

## XAI-TRIS, Table 3: test accuracy at 8×8 pixels

    xaibench run {suite}

Percent; mean and standard deviation of {trainings} trainings a cell on {sets} here, mean of 25 data sets in the paper
(Clark, Wilming, Haufe, Machine Learning 2024). *By chance*: what the difference may come to in 95 % of repetitions. The
paper's number is taken to vary as ours do, since its spread is not printed: as many trainings, with the spread of ours
in the cell, or that of the architecture in all cells where it is larger, on as many test samples. Some trainings of an
architecture end near 50 %: where ours of the cell are above the paper, it also holds what the share of failures takes
away that ours do not exclude (none of {trainings}: up to {most:.0f} %). Bold: more than that.
[Training](training.md) says how close each of two losses comes.

"""

TABLE_1 = """

## XAI-TRIS, Table 1: test accuracy at 64×64 pixels

    xaibench run xai-tris-64x64

Likewise, of {trainings} trainings on one data set, with the [published networks](reproducibility.md#networks); the
paper's are five. Cells of one training have no spread of their own: theirs is that of their architecture. IMAGENET is
left out, for want of the paper's 50,000 photographs
([what was run](findings.md#what-was-run-and-how-it-differs-from-the-paper)).

"""

BETWEEN = """

The paper prints its scores of maps as figures, without numbers; [what our runs give](index.md) stands on the start
page, and where the two must differ in [XAI-TRIS here](xai-tris.md#where-we-depart-from-the-released-code-and-why).

## Saliency-Bench, Table 2: accuracy of ResNet-18

Zhang et al., XAI Benchmark for Visual Explanation, arXiv 2310.08537. As published, in percent. Ours come beside these
on the page of `xaibench run saliency-bench --root ~/data`, for the sets that are there; they have not been reproduced
for this page, because neither the weights nor the whole sets were within reach
([what was run](saliency-bench.md#what-was-run)).

"""

TABLE_3 = """

## Saliency-Bench, Table 3: scores

As published. The published functions cut maps above 0 (recall: above 0.5); `--protocol published --sign signed` does
the same, and `scaled`, the suite's own, cuts at half of each map's range
([how maps are cut](saliency-bench.md#how-maps-are-cut)).
"""

TABLE_4 = """

## Saliency-Bench, Table 4: do metrics agree?

Spearman correlations as published, metrics whose lower values are better turned first. Ours: the section *Do the
metrics agree?* of the report, or [`xb.metrics.agreement`](metrics.md#agreement-of-metrics).

"""


def table(head: list[str], rows: list[list[str]]) -> str:
    numbers = ["---", *["--:"] * (len(head) - 1)]
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, numbers, *rows])


def accuracies(run: RunResults) -> str:
    """A row a cell, with the spread of our trainings, and the difference where it is more than chance in bold."""
    rows, by_chance = [], accuracy_margins(run)
    for row in run.accuracy.to_dict("records"):
        margin = by_chance[row["subset"], row["variant"], row["model"]]
        cell = " ".join((place(row["subset"]), place(row["variant"]), run.models[row["model"]].label))
        paper = "–" if pd.isna(row["paper"]) else f"{row['paper']:.1f}"
        difference = "–" if pd.isna(row["difference"]) else f"{row['difference']:+.1f}".replace("-", "−")
        difference = f"**{difference}**" if abs(row["difference"]) > margin else difference
        spread = "" if pd.isna(row["std"]) else f" ± {row['std']:.1f}"
        chance = "–" if pd.isna(margin) else f"{margin:.1f}"
        rows.append([cell, f"{row['alpha']:g}", paper, f"{row['mean']:.1f}{spread}", difference, chance])
    return table(["cell", "alpha", "paper", "here", "difference", "by chance"], rows)


def page(run: RunResults, large: RunResults) -> str:
    sets, metrics = published.SETS, published.TABLE_3_METRICS
    drawn = run.scores["data_seed"].nunique()
    of = {"trainings": int(run.accuracy["trainings"].iloc[0]), "sets": f"{drawn} data set" + "s" * (drawn > 1)}
    # The share of failures that so many trainings without one do not exclude, at 95 %.
    missed = 100 * (1 - 0.025 ** (1 / of["trainings"]))
    large_of = f"1 to {int(large.accuracy['trainings'].max())}"
    head = HEAD.format(**of, suite=run.suite, most=missed)
    parts = [head, accuracies(run), TABLE_1.format(trainings=large_of), accuracies(large), BETWEEN]
    parts.append(table(list(sets.values()), [[f"{published.TABLE_2[key]:.2f}" for key in sets]]))
    parts.append(TABLE_3)
    for key, label in sets.items():
        rows = [
            [f"`{name}`", *(f"{scores[metric]:.3f}" for metric in metrics)]
            for (of, name), scores in published.TABLE_3.items()
            if of == key
        ]
        parts.append(f"\n### {label}\n\n{table(['explainer', *(NAMES[metric] for metric in metrics)], rows)}\n")
    rows = [
        [f"{NAMES[first]} – {NAMES[second]}", *(f"{value:.1f}".replace("-", "−") for value in values.values())]
        for (first, second), values in published.TABLE_4.items()
    ]
    parts += [TABLE_4, table(["metrics", "Grad-CAM", "Integrated Gradients", "RISE"], rows), "\n"]
    return "".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(*(read_run(Path(folder)) for folder in sys.argv[1:3])), encoding="utf-8")
