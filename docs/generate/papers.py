"""Write docs/papers.md: the papers' tables next to ours.

xaibench run xai-tris-8x8-paper && xaibench run xai-tris-64x64
python docs/generate/papers.py runs/xai-tris-8x8-paper runs/xai-tris-64x64
"""

from __future__ import annotations

import sys
from pathlib import Path

import pandas as pd
from csv_tables import csv_link

from xaibench.benchmarks.saliency_bench import published_tables as published
from xaibench.report.numbers.accuracy_differences import accuracy_margins
from xaibench.report.read.results import RunResults, place, read_run

PAGE = Path(__file__).parents[1] / "papers.md"
NAMES = {"iou": "IoU", "precision": "precision", "recall": "recall", "hit": "pointing", "insertion": "insertion"}
NAMES |= {"deletion": "deletion"}

HEAD = """# Papers' tables next to ours

Compare the tables of the two papers with the results here. The [report page](tutorials/read-the-report.md) of every
run shows the same comparison.

## XAI-TRIS, Table 3: test accuracy at 8×8 pixels

    xaibench run {suite}

Percent; mean and standard deviation of {trainings} trainings per cell on {sets} here, mean of 25 data sets in the
paper (Clark, Wilming, Haufe, Machine Learning 2024). *By chance*: the largest difference in 95 % of repetitions;
larger ones are bold. The paper prints no spread, so its number is assumed to vary like ours: the same number of
trainings, with the spread of the cell, or of the architecture in all cells if that is larger, on as many test
samples. Some trainings end near 50 %; if ours are above the paper, the margin includes the share of failures that
{trainings} trainings without one do not exclude (up to {most:.0f} %). [Training](training.md) compares two losses.

"""

TABLE_1 = """

## XAI-TRIS, Table 1: test accuracy at 64×64 pixels

    xaibench run xai-tris-64x64

The same for {trainings} trainings on one data set, with the [published networks](reproducibility.md#networks); the
paper has five. A cell of one training gets the spread of its architecture. IMAGENET is left out, because the
paper's 50,000 photographs were not available ([runs](findings.md#runs-and-differences-from-the-paper)).

"""

BETWEEN = """

The paper shows the scores of maps in figures, without numbers. Ours are on the [home page](index.md) and in the
[findings](findings.md); [XAI-TRIS](xai-tris.md#differences-from-the-released-code) lists the differences.

## Saliency-Bench, Table 2: accuracy of ResNet-18

Zhang et al., XAI Benchmark for Visual Explanation, arXiv 2310.08537. As published, in percent. The report of
`xaibench run saliency-bench --root ~/data` compares them with your run; they have not been reproduced for this page,
because neither the weights nor the complete sets were available ([results](saliency-bench.md#results)).

"""

TABLE_3 = """

## Saliency-Bench, Table 3: scores

As published. The published functions cut maps above 0 (recall: above 0.5), as `--protocol published --sign signed`
does; `scaled`, the default of the suite, cuts at half of each map's range ([how maps are
cut](saliency-bench.md#how-maps-are-cut)). All data sets: [Table 3 as CSV](tables/saliency-bench-table-3.csv). The
pets:
"""

TABLE_4 = """

## Saliency-Bench, Table 4: agreement of metrics

Spearman correlations as published, with metrics for which lower is better negated. For your own runs, see the
report page or [`xb.metrics.agreement`](metrics.md#agreement-of-metrics).

"""

VERSION_3 = """
## Saliency-Bench, version 3

Version 3 (*Saliency-Bench*, arXiv 2310.08537v3) replaces these tables by three metrics: mean IoU (`iou`), the pointing
game (`hit`) and the area under the insertion curve (iAUC, `insertion`), for Grad-CAM, Grad-CAM++, Integrated Gradients,
input × gradient, occlusion, RISE and the attention of a vision transformer. `xaibench run saliency-bench-v3 --root
~/data` runs them on two convolutional networks and a transformer. Its numbers are not repeated here: only its summary
was at hand when this page was written.
"""


def table(head: list[str], rows: list[list[str]]) -> str:
    """Return a Markdown table whose columns except the first are right-aligned."""
    numbers = ["---", *["--:"] * (len(head) - 1)]
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, numbers, *rows])


def accuracies(run: RunResults) -> tuple[list[str], list[list[str]]]:
    """Return head and rows of the table of accuracies; differences larger than chance are in bold."""
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
    return ["cell", "alpha", "paper", "here", "difference", "by chance"], rows


def page(run: RunResults, large: RunResults) -> str:
    sets, metrics = published.SETS, published.TABLE_3_METRICS
    drawn = run.scores["data_seed"].nunique()
    of = {"trainings": int(run.accuracy["trainings"].iloc[0]), "sets": f"{drawn} data set" + "s" * (drawn > 1)}
    # The share of failures that so many trainings without one do not exclude, at 95 %.
    missed = 100 * (1 - 0.025 ** (1 / of["trainings"]))
    large_of = f"1 to {int(large.accuracy['trainings'].max())}"
    head = HEAD.format(**of, suite=run.suite, most=missed)
    parts = [head, table(*accuracies(run)), TABLE_1.format(trainings=large_of), table(*accuracies(large)), BETWEEN]
    parts.append(table(list(sets.values()), [[f"{published.TABLE_2[key]:.2f}" for key in sets]]))
    parts.append(TABLE_3)
    heads = ["explainer", *(NAMES[metric] for metric in metrics)]
    rows = {key: [f"{scores[metric]:.3f}" for metric in metrics] for key, scores in published.TABLE_3.items()}
    every = [[sets[key], name, *cells] for (key, name), cells in rows.items()]
    csv_link("saliency-bench-table-3", "", ["data set", *heads], every)
    pets = [[f"`{name}`", *cells] for (key, name), cells in rows.items() if key == "pet"]
    parts.append(f"\n{table(heads, pets)}\n")
    rows = [
        [f"{NAMES[first]} – {NAMES[second]}", *(f"{value:.1f}".replace("-", "−") for value in values.values())]
        for (first, second), values in published.TABLE_4.items()
    ]
    parts += [TABLE_4, table(["metrics", "Grad-CAM", "Integrated Gradients", "RISE"], rows), "\n", VERSION_3]
    return "".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(*(read_run(Path(folder)) for folder in sys.argv[1:3])), encoding="utf-8")
