"""The page of all registered metrics, generated from the registry and the docstrings.

python docs/generate/metrics.py      # writes docs/metrics.md
"""

from __future__ import annotations

import inspect
import math
import re
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parent))

from drawing import title_of
from example import Example, example
from metric_notes import CASES
from pictures import SHOWN_WITH
from prose import plain, section

from xaibench.core.truth_kinds import NO_TRUTH, TRUTHS
from xaibench.metrics import METRICS, chance_level

PICTURES = Path(__file__).parents[1] / "images" / "metrics"
PAGE = Path(__file__).parents[1] / "metrics.md"

#: Kind of metric -> its call, and its title on the page.
KINDS = {
    "ground-truth": ("(maps, masks)", "Metrics with a ground truth"),
    "map": ("(maps)", "Metrics of the map alone"),
    "model": ("(model, images, maps, targets)", "Metrics that call the model"),
    "explainer": ("(explainer, model, images, targets)", "Metrics that call the explainer"),
}

#: Kind of metric -> what it uses.
USES = {"ground-truth": "the masks", "map": "the map", "model": "the model", "explainer": "the explainer"}
#: Order of the kinds of truth in the table; None: the kind depends on the masks.
TRUTH_ORDER = (None, *TRUTHS, NO_TRUTH)
#: Number of random maps, and their threshold; the published thresholds would mark all or half of each.
CHANCE, THRESHOLD = 30, 0.5

#: Departures, for readers who know the metric from elsewhere.
FOLDED = """
<details markdown="1"><summary>Departures from the source, and from other libraries</summary>

{text}

</details>"""

HEAD = """# Metrics

    score = xb.deletion(model, images, maps, targets)  # the mean over the defined ones
    scores = xb.iou(maps, masks, threshold="area", reduction="none")  # [N], nan: undefined
    score, curves = xb.deletion(model, images, maps, targets, return_curves=True)

Maps are `[N, H, W]` (or `[H, W]`, a batch of one), numpy or torch; scores have the same type. Samples are scored
independently: a score does not depend on the other samples or on the batch size. There is no hidden absolute value,
scaling, threshold or resize; if a metric uses the magnitude of a map or normalizes it, this page says so. In one table,
`xb.evaluate` and suites let all metrics with masks read a map in one way: by magnitude, or with `sign="signed"` by
value ([sign](saliency-bench.md#sign)). Undefined scores are `nan`; `xb.metrics.undefined_reasons(maps, masks, name)`
returns the reasons. `xb.evaluate` and suites score a map that a metric with a ground truth cannot score (a constant
map, or no pixel above the threshold) as chance, so that a method does not gain by an empty map, and count such maps.
Invalid maps (`nan` in a map, shapes that do not match) raise an error.

Each metric belongs to one of [four kinds of truth](truths.md), by which the table is sorted. For a metric with masks it
is the truth of the masks (*data*, *use* or *human*). A metric that changes the image or the model measures an
*intervention*. A metric of the map alone has no truth. [Tests of the metrics](metrics-tested.md) shows for each metric
whether it ranks a right map above a worse one.

{table}

Aliases: {aliases}. A metric of your own is given by `"package.module:name"` wherever a name is.

For training loops each metric has a class in `xaibench.metrics.torchmetrics`
(`pip install "xaibench[torchmetrics]"`). If inputs are passed by name, each class takes those that it needs:

    from torchmetrics import MetricCollection
    from xaibench.metrics.torchmetrics import Deletion, IoU, Sparseness

    scores = MetricCollection([IoU(threshold=0.5), Sparseness(), Deletion(steps=56)])
    scores.update(maps=maps, masks=masks, model=model, images=images, targets=targets)
    scores.compute()

[metrics-speed.md](metrics-speed.md) reports how fast they are.

**The pictures** show one sample, and their numbers are computed by the library. An XAI-TRIS image shows a T; its ground
truth consists of the positions of the T and of the L. The network is defined by hand: it compares the brightness at the
two positions. The map is also defined by hand: it marks most of the T, little of the L, and some other pixels. *By
chance* is the score of random maps on this sample: a map with a similar or worse score is not informative. For metrics
with a ground truth it is the expected score of independent uniform noise (`xb.metrics.chance_level(name, masks)`:
exact, except for the earth mover's distance, which is integrated to 0.3 %). For the others it is the mean over {chance}
maps with values drawn from [0, 1].

## Chance-corrected scores

If noise scores 0.81, a score of 0.83 is hardly better than chance. `emd_skill`, `precision_skill`, `iou_skill` and
`average_precision_skill` are (score − chance) / (1 − chance) per sample: 0 is chance, 1 perfect, below 0 worse than
noise. In a suite or in `xb.evaluate` they are derived from scores that are already computed, so both together cost no
second distance. `iou_skill` is that of IoU at the mask's area, under every protocol. Leaderboards use the skill of a
metric if it has one.

    xb.emd_perf(maps, masks), xb.emd_skill(maps, masks)
    xb.metrics.chance_level("iou", masks, {{"threshold": "area"}})  # [N]

## Agreement of metrics

    matrix = xb.metrics.agreement({{
        "iou": xb.iou(maps, masks, threshold="area", reduction="none"),
        "hit": xb.hit(maps, masks, reduction="none"),
        "insertion": xb.insertion(model, images, maps, targets, reduction="none"),
        "deletion": xb.deletion(model, images, maps, targets, reduction="none"),
    }})
    matrix.coefficients.loc["iou", "deletion"]      # also matrix.n and matrix.kind
    xb.plots.save(xb.plots.agreement(matrix), "agreement.svg")

This is Spearman's rank correlation over the samples that both metrics score, or the point-biserial correlation if a
metric is binary (Zhang et al. 2023, Table 4). Metrics for which lower is better are negated first, so a positive
coefficient always means that both prefer the same maps. Curves of several explainers are combined in one figure by
`xb.plots.curves({{"Saliency": curves, ...}}, ylabel="probability")`.
"""

TAIL = """
## Known problems of other implementations

A test for each makes sure that it does not occur here.

| where | what | test |
|---|---|---|
{cases}

This page is generated by `python docs/generate/metrics.py`.
"""


def undefined(doc: str) -> str:
    """Return when the score is ``nan``, from the docstring."""
    returns = plain(section(doc, "Returns"))
    found = re.search(r"(with `\w+`, )?`nan` ((?:for|where) [^.]*)", returns)
    return f"{found[1] or ''}{found[2]}" if found else ""


def interval(low: float, high: float) -> str:
    return ("(−∞, " if math.isinf(low) else f"[{low:g}, ") + ("∞)" if math.isinf(high) else f"{high:g}]")


def table() -> str:
    rows = ["| name | | uses | truth | range | better |", "|---|---|---|---|---|---|"]
    for name in sorted(METRICS, key=lambda name: TRUTH_ORDER.index(METRICS.resolve(name).info.own_truth)):
        metric = METRICS.resolve(name)
        info, summary = metric.info, plain((inspect.getdoc(metric) or "").partition("\n")[0])
        better = "higher" if info.higher_is_better else "lower"
        truth = info.own_truth or "that of the masks"
        cells = [f"[`{name}`](#{name})", summary, USES[info.kind], truth, interval(*info.range), better]
        rows.append("| " + " | ".join(cells) + " |")
    return "\n".join(rows)


def given(name: str) -> dict[str, float]:
    """Return the non-default parameters for the sample of the pictures."""
    info = METRICS.resolve(name).info
    return {"threshold": THRESHOLD} if info.thresholded else SHOWN_WITH.get(info.picture, {})


def by_chance(name: str, shown: Example) -> float:
    """Return the score of random maps on the sample of the pictures."""
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
    """Return range, direction, undefined cases and chance level as a sentence."""
    info = METRICS.resolve(name).info
    better = "higher" if info.higher_is_better else "lower"
    line = f"**{interval(*info.range)}, {better} is better.** Undefined {undefined(doc)}."
    if info.kind != "explainer":
        stated = "".join(f" (`{key}={value}`)" for key, value in given(name).items())
        said = f" {info.chance}" if info.chance and not info.skill_of else ""
        line += f" By chance{stated}: {by_chance(name, shown):.2g}.{said}"
    return line


def entry(name: str, shown: Example, svg: str) -> str:
    """Return the section of one metric."""
    metric = METRICS.resolve(name)
    doc = inspect.getdoc(metric) or ""
    summary, _, body = doc.partition("\n\n")
    body = body.partition("\nArgs:")[0]
    picture = f"![{title_of(svg)}](images/metrics/{name}.svg)"
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


def page(drawings: Mapping[str, str] | None = None) -> str:
    """Return the page, with the titles of the given pictures (metric to SVG), by default of the written ones."""
    if drawings is None:
        drawings = {name: (PICTURES / f"{name}.svg").read_text(encoding="utf-8") for name in METRICS}
    aliases = ", ".join(f"`{alias}` for `{METRICS.canonical(alias)}`" for alias in METRICS._aliases)
    shown = example()
    text = [HEAD.format(table=table(), aliases=aliases, chance=CHANCE)]
    for kind, (call, title) in KINDS.items():
        names = [name for name in METRICS if METRICS.resolve(name).info.kind == kind]
        entries = [entry(name, shown, drawings[name]) for name in names]
        text.append(f"\n## {title}: `{call}`\n\n" + "\n\n".join(entries) + "\n")
    cases = "\n".join(f"| {where} | {what} | `{test}` |" for where, what, test in CASES)
    return "".join(text) + TAIL.format(cases=cases)


def main() -> None:
    PAGE.write_text(page(), encoding="utf-8")
    print(f"wrote {PAGE}")


if __name__ == "__main__":
    main()
