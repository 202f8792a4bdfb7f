"""The page that lists every registered metric, made of the registry and of the docstrings.

python docs/generate/metrics.py      # writes docs/metrics.md
"""

from __future__ import annotations

import inspect
import math
import re
import sys
import textwrap
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parent))

from drawing import title_of
from example import Example, example
from metric_notes import CASES
from pictures import SHOWN_WITH
from prose import plain, section

from xaibench.core.truths import NO_TRUTH, TRUTHS
from xaibench.metrics import METRICS, chance_level

PICTURES = Path(__file__).parents[1] / "images" / "metrics"
PAGE = Path(__file__).parents[1] / "metrics.md"

#: What a metric of each kind is called with, and what the page says of the kind.
KINDS = {
    "ground-truth": ("(maps, masks)", "Against a ground truth"),
    "map": ("(maps)", "Of the map alone"),
    "model": ("(model, images, maps, targets)", "Asking the model"),
    "explainer": ("(explainer, model, images, targets)", "Asking the explainer"),
}

#: The kinds in a word.
ASKS = {"ground-truth": "the masks", "map": "the map", "model": "the model", "explainer": "the explainer"}
#: The kinds of truth as the table groups them: first what takes that of the masks it is given.
TRUTH_ORDER = (None, *TRUTHS, NO_TRUTH)
#: Maps by chance; what cuts them does so in the middle, for the published thresholds would mark all or half of each.
CHANCE, THRESHOLD = 30, 0.5

#: What is of interest to who knows the metric from elsewhere; folded, for it is much.
FOLDED = """
<details markdown="1"><summary>Departures from the source, and from other libraries</summary>

{text}

</details>"""

HEAD = """# Metrics

    score = xb.deletion(model, images, maps, targets)  # the mean over the defined ones
    scores = xb.iou(maps, masks, threshold=0.5, reduction="none")  # [N], nan: undefined
    score, curves = xb.deletion(model, images, maps, targets, return_curves=True)

Maps are `[N, H, W]` (or `[H, W]`, a batch of one), numpy or torch; the scores are of the same kind. A sample is scored
by itself: neither its neighbours nor the size of the batch change it. Nothing hides an absolute value, a scaling, a
threshold or a resize; where a metric takes the magnitude of a map or norms it, this page says so. Undefined is `nan`,
in its place; `xb.metrics.undefined_reasons(maps, masks, name)` says why. What is no map at all (`nan` in it, a shape
that does not fit) is an error.

Each is of one of [four kinds of truth](truths.md), and the table is in their order: a score against masks is of that
which the masks are of (*data*, *use* or *human*), one that changes something is of an *intervention*; what describes
the map asks for none. [Do the metrics judge well?](metrics-tested.md) says of each whether it ranks a right map before
a worse one.

{table}

Aliases: {aliases}. A metric of your own is given by `"package.module:name"` wherever a name is.

For training loops there is a class for each in `xaibench.metrics.torchmetrics`
(`pip install "xaibench[torchmetrics]"`); by name, each takes what it asks for:

    from torchmetrics import MetricCollection
    from xaibench.metrics.torchmetrics import Deletion, IoU, Sparseness

    scores = MetricCollection([IoU(threshold=0.5), Sparseness(), Deletion(steps=56)])
    scores.update(maps=maps, masks=masks, model=model, images=images, targets=targets)
    scores.compute()

How fast they are is in [metrics-speed.md](metrics-speed.md).

**The pictures** are of one sample, and their numbers what the library returns for it. An XAI-TRIS image shows a T; its
ground truth are the places of the T and of the L. The network is written down by hand: it compares how bright the two
places are. So is the map: it marks most of the T, little of the L, and some of what lies beside. *By chance* is what
random maps score on this sample: below it, or near it, a map says nothing. Against a ground truth it is the expected
score of independent uniform noise (`xb.metrics.chance_level(name, masks)`: exact, but for the earth mover's distance,
which is integrated to 0.3 %); else the mean of {chance} maps with values drawn from [0, 1].

## Against chance and against the best

What is a score of 0.83 worth, where noise has 0.81? `emd_skill`, `precision_skill`, `iou_skill` and
`average_precision_skill` are (score − chance) / (1 − chance), sample by sample: 0 is chance, 1 perfect, below 0 worse
than noise. In a suite or in `xb.evaluate` they follow from the scores that are there already, so that asking for both
costs no second distance, and noise is cut as the maps are. Leaderboards are by the skill where there is one.

    xb.emd_perf(maps, masks), xb.emd_skill(maps, masks)
    xb.metrics.chance_level("iou", masks, {{"threshold": 0.5, "scaled": True}})  # [N]

## Do metrics agree?

    matrix = xb.metrics.agreement({{
        "iou": xb.iou(maps, masks, threshold=0.5, reduction="none"),
        "hit": xb.hit(maps, masks, reduction="none"),
        "insertion": xb.insertion(model, images, maps, targets, reduction="none"),
        "deletion": xb.deletion(model, images, maps, targets, reduction="none"),
    }})
    matrix.coefficients.loc["iou", "deletion"]      # also matrix.n and matrix.kind
    xb.report.agreement_figure(matrix).savefig("agreement.svg")

Spearman's rank correlation over the samples that both metrics score, the point-biserial one where a metric is a hit or
a miss (Zhang et al. 2023, Table 4). Metrics whose lower values are better are turned first, so that a positive number
always means that both prefer the same maps. Curves of several explainers become one figure with
`xb.report.curve_figure({{"Saliency": curves, ...}}, ylabel="probability")`.
"""

TAIL = """
## What went wrong elsewhere

Each is a test, so that it does not happen here.

| where | what | test |
|---|---|---|
{cases}

This page is made by `python docs/generate/metrics.py`.
"""


def undefined(doc: str) -> str:
    """When the score is ``nan``, as the docstring says it."""
    returns = plain(section(doc, "Returns"))
    found = re.search(r"(with `\w+`, )?`nan` ((?:for|where) [^.]*)", returns)
    return f"{found[1] or ''}{found[2]}" if found else ""


def interval(low: float, high: float) -> str:
    return ("(−∞, " if math.isinf(low) else f"[{low:g}, ") + ("∞)" if math.isinf(high) else f"{high:g}]")


def table() -> str:
    rows = ["| name | | asks | truth | range | better |", "|---|---|---|---|---|---|"]
    for name in sorted(METRICS, key=lambda name: TRUTH_ORDER.index(METRICS.resolve(name).info.own_truth)):
        metric = METRICS.resolve(name)
        info, summary = metric.info, plain((inspect.getdoc(metric) or "").partition("\n")[0])
        better = "higher" if info.higher_is_better else "lower"
        truth = info.own_truth or "that of the masks"
        cells = [f"[`{name}`](#{name})", summary, ASKS[info.kind], truth, interval(*info.range), better]
        rows.append("| " + " | ".join(cells) + " |")
    return "\n".join(rows)


def given(name: str) -> dict[str, float]:
    """What the sample of the pictures is scored with where that is not the default."""
    info = METRICS.resolve(name).info
    return {"threshold": THRESHOLD} if info.thresholded else SHOWN_WITH.get(info.picture, {})


def by_chance(name: str, shown: Example) -> float:
    """What maps without any knowledge score on the sample of the pictures."""
    metric = METRICS.resolve(name)
    if metric.info.skill_of:
        return 0.0
    if metric.info.kind == "ground-truth":
        cut = given(name) | {"scaled": True} if metric.info.thresholded else {}
        return float(chance_level(name, shown.mask, cut)[0])
    maps = torch.from_numpy(np.random.default_rng(0).random((CHANCE, 8, 8)))
    if metric.info.kind == "map":
        return float(metric(maps))
    images = shown.image.expand(CHANCE, -1, -1, -1)
    return float(metric(shown.model, images, maps, shown.target.expand(CHANCE), **given(name)))


def facts(name: str, doc: str, shown: Example) -> str:
    """Range, direction, when it is undefined, and what chance scores."""
    info = METRICS.resolve(name).info
    better = "higher" if info.higher_is_better else "lower"
    line = f"**{interval(*info.range)}, {better} is better.** Undefined {undefined(doc)}."
    if info.kind != "explainer":
        stated = "".join(f" (`{key}={value}`)" for key, value in given(name).items())
        said = f" {info.chance}" if info.chance and not info.skill_of else ""
        line += f" By chance{stated}: {by_chance(name, shown):.2g}.{said}"
    return line


def entry(name: str, shown: Example) -> str:
    """One metric: what it is, its picture and equation, what to mind, and its parameters."""
    metric = METRICS.resolve(name)
    doc = inspect.getdoc(metric) or ""
    summary, _, body = doc.partition("\n\n")
    body = body.partition("\nArgs:")[0]
    picture = f"![{title_of(PICTURES / f'{name}.svg')}](images/metrics/{name}.svg)"
    parts, departures = [f"### {name}\n", f"{plain(summary)}\n\n{picture}"], ""
    for block in re.split(r"\n\n(?=\S)", body):
        if block.startswith(".. math::"):
            first, _, rest = block.removeprefix(".. math::").partition("\n\n")
            parts.append(f"\n```math\n{textwrap.dedent(first).strip()}\n```")
            block = rest
        if block.startswith("Departures: "):
            departures = plain(block.removeprefix("Departures: "))
        elif block.strip():
            bullets = re.split(r"\n(?=- )", block.strip())
            parts.append("\n" + "\n".join(plain(bullet) for bullet in bullets))
    parts += [f"\n{facts(name, doc, shown)}", f"\n**Mind:** {metric.info.pitfalls}"]
    own = [p for p in inspect.signature(metric).parameters.values() if p.kind is p.KEYWORD_ONLY]
    parts.append("\nParameters: " + ", ".join(f"`{p.name}={p.default!r}`" for p in own) + ".")
    parts.append(f"\nSource: {metric.info.citation}.")
    if departures:
        parts.append(FOLDED.format(text=departures[0].upper() + departures[1:]))
    return "\n".join(parts)


def page() -> str:
    aliases = ", ".join(f"`{alias}` for `{METRICS.canonical(alias)}`" for alias in METRICS._aliases)
    shown = example()
    text = [HEAD.format(table=table(), aliases=aliases, chance=CHANCE)]
    for kind, (call, title) in KINDS.items():
        names = [name for name in METRICS if METRICS.resolve(name).info.kind == kind]
        text.append(f"\n## {title}: `{call}`\n\n" + "\n\n".join(entry(name, shown) for name in names) + "\n")
    cases = "\n".join(f"| {where} | {what} | `{test}` |" for where, what, test in CASES)
    return "".join(text) + TAIL.format(cases=cases)


def main() -> None:
    PAGE.write_text(page(), encoding="utf-8")
    print(f"wrote {PAGE}")


if __name__ == "__main__":
    main()
