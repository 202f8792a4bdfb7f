"""Generate the overview of all metrics and one page per metric, from the registry and the docstrings.

python docs/generate/metrics.py      # writes docs/metrics.md; the pages of the metrics are made when the site is built
"""

from __future__ import annotations

import inspect
import math
import re
import sys
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parent))

from drawing import title_of
from example import Example, example
from metric_notes import CASES
from pictures import SHOWN_WITH
from prose import from_subfolder, plain, section

from xaibench.core.truth_kinds import NO_TRUTH
from xaibench.metrics import METRICS, chance_level
from xaibench.report.read.metric_verdicts import known_verdicts

PICTURES = Path(__file__).parents[1] / "images" / "metrics"
PAGE = Path(__file__).parents[1] / "metrics.md"

#: Kind of metric -> its call, and its heading in the overview.
KINDS = {
    "ground-truth": ("(maps, masks)", "Metrics with a ground truth"),
    "map": ("(maps)", "Metrics of the map alone"),
    "model": ("(model, images, maps, targets)", "Metrics that call the model"),
    "explainer": ("(explainer, model, images, targets)", "Metrics that call the explainer"),
}
#: Number of random maps, and their threshold; the published thresholds would mark all or half of each.
CHANCE, THRESHOLD = 30, 0.5

HEAD = """# Metrics

Choose a metric and look up its definition. Each name links to a page with formula, picture, example, limits and source.

    score = xb.deletion(model, images, maps, targets)  # mean of the defined scores
    scores = xb.iou(maps, masks, threshold="area", reduction="none")  # [N]; nan = undefined
    score, curves = xb.deletion(model, images, maps, targets, return_curves=True)

{tables}

Aliases: {aliases}. Your own metric is selected by `"package.module:name"` wherever a name is accepted.

## Conventions

- **Shapes**: maps are `[N, H, W]` (or `[H, W]`, a batch of one), NumPy or torch. Scores have the same type.
- **Independence**: a score does not depend on the other samples or on the batch size.
- **Sign**: no hidden absolute value, scaling, threshold or resize. In one table, `xb.evaluate` and suites let all
  metrics with masks read a map in one way ([sign](saliency-bench.md#sign)).
- **Undefined scores** are `nan`; `xb.metrics.undefined_reasons(maps, masks, name)` returns the reasons. In
  `xb.evaluate` and suites, maps that cannot be scored against a ground truth (constant, or without a pixel above
  the threshold) score as chance and are counted. Invalid maps (`nan` in a map, shapes that do not match) raise an
  error.
- **Kind of truth**: a metric with masks measures the [truth of the masks](truths.md) (*data*, *use* or *human*), a
  metric that changes the image or the model an *intervention*, a metric of the map alone none.
- **Reliability**: [tests on maps of known order](metrics-tested.md) show which metrics rank a better map higher.
- **Pictures** show one XAI-TRIS sample with a hand-defined network and map; their numbers are computed by the
  library. *By chance* is the score of random maps on this sample: a map with a similar or worse score is not
  informative. For metrics with a ground truth it is the expected score of uniform noise (`xb.metrics.chance_level`:
  exact, except for the earth mover's distance, which is integrated to 0.3 %), otherwise the mean over {chance}
  random maps.

## Chance-corrected scores

If noise scores 0.81, a score of 0.83 is hardly better than chance. `emd_skill`, `precision_skill`, `iou_skill` and
`average_precision_skill` are (score − chance) / (1 − chance) per sample: 0 is chance, 1 is perfect, and below 0 is
worse than noise. Suites and `xb.evaluate` derive them from scores that are already computed. Leaderboards rank by
the skill of a metric if it has one.

    xb.emd_perf(maps, masks), xb.emd_skill(maps, masks)
    xb.metrics.chance_level("iou", masks, {{"threshold": "area"}})  # [N]

## Agreement of metrics

`xb.metrics.agreement` computes Spearman's rank correlation over the samples that two metrics score, or the
point-biserial correlation if a metric is binary (Zhang et al. 2023, Table 4). Metrics for which lower is better are
negated first, so a positive coefficient means that both prefer the same maps.

    matrix = xb.metrics.agreement({{
        "iou": xb.iou(maps, masks, threshold="area", reduction="none"),
        "deletion": xb.deletion(model, images, maps, targets, reduction="none"),
    }})
    matrix.coefficients.loc["iou", "deletion"]      # also matrix.n and matrix.kind
    xb.plots.save(xb.plots.agreement(matrix), "agreement.svg")

## In training loops

Each metric has a class in [`xaibench.metrics.torchmetrics`](api/torchmetrics.md)
(`pip install "xaibench[torchmetrics]"`), which takes the named inputs that it needs:

    from torchmetrics import MetricCollection
    from xaibench.metrics.torchmetrics import Deletion, IoU, Sparseness

    scores = MetricCollection([IoU(threshold=0.5), Sparseness(), Deletion(steps=56)])
    scores.update(maps=maps, masks=masks, model=model, images=images, targets=targets)
    scores.compute()

## Known problems of other implementations

For each, a test in `tests/metrics` makes sure that it does not occur here.

<details markdown="1"><summary>{count} problems found in other libraries</summary>

| library | problem |
|---|---|
{cases}

</details>
"""

#: The page of one metric; its reference comes from the docstring.
ENTRY = """# {label}: `{name}`

{meaning}

![{title}](../images/metrics/{name}.svg)

| property | value |
|---|---|
| call | `xb.{name}{call}` |
| range | {range}, {better} is better |
| undefined | {undefined} |
{chance}| kind of truth | [{truth}](../truths.md) |
| tested on known maps | {verdicts} |

## Limits

{pitfalls}

## Source

{citation}.

## Reference

"""


def undefined(doc: str) -> str:
    """Return when the score is ``nan``, from the docstring."""
    returns = plain(section(doc, "Returns"))
    found = re.search(r"(with `\w+`, )?`nan` ((?:for|where) [^.]*)", returns)
    return f"{found[1] or ''}{found[2]}" if found else ""


def interval(low: float, high: float) -> str:
    return ("(−∞, " if math.isinf(low) else f"[{low:g}, ") + ("∞)" if math.isinf(high) else f"{high:g}]")


def table(kind: str) -> str:
    """Return the table of the metrics with one call signature."""
    rows = ["| name | what it measures | range | better |", "|---|---|---|---|"]
    for name in (name for name in METRICS if METRICS.resolve(name).info.kind == kind):
        metric = METRICS.resolve(name)
        summary = plain((inspect.getdoc(metric) or "").partition("\n")[0])
        better = "higher" if metric.info.higher_is_better else "lower"
        rows.append(f"| [`{name}`](metrics/{name}.md) | {summary} | {interval(*metric.info.range)} | {better} |")
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


def verdicts(name: str) -> str:
    """Return the results of the trials of a metric, per kind of truth."""
    found = known_verdicts().get(name, {})
    listed = ", ".join(f"{one.verdict} ({truth})" for truth, one in found.items())
    return f"[{listed}](../metrics-tested.md)" if listed else "not tested"


def entry(name: str, shown: Example, svg: str) -> str:
    """Return the page of one metric, without its reference."""
    metric = METRICS.resolve(name)
    info = metric.info
    chance = ""
    if info.kind != "explainer":
        stated = "".join(f" (`{key}={value}`)" for key, value in given(name).items())
        general = f". {info.chance}" if info.chance and not info.skill_of else ""
        chance = f"| by chance | {by_chance(name, shown):.2g} in the picture{stated}{general} |\n"
    truth = {None: "that of the masks", NO_TRUTH: "none: it describes the map alone"}.get(
        info.own_truth, info.own_truth
    )
    return ENTRY.format(
        name=name,
        label=info.label,
        meaning=from_subfolder(info.meaning),
        title=title_of(svg),
        call=KINDS[info.kind][0],
        range=interval(*info.range),
        better="higher" if info.higher_is_better else "lower",
        undefined=undefined(inspect.getdoc(metric) or "") or "never",
        chance=chance,
        truth=truth,
        verdicts=verdicts(name),
        pitfalls=from_subfolder(info.pitfalls),
        citation=info.citation,
    )


def entries() -> dict[str, str]:
    """Return the page of each metric, without its reference."""
    shown = example()
    drawings = {name: (PICTURES / f"{name}.svg").read_text(encoding="utf-8") for name in METRICS}
    return {name: entry(name, shown, drawings[name]) for name in METRICS}


def page() -> str:
    """Return the overview."""
    aliases = ", ".join(f"`{alias}` for `{METRICS.canonical(alias)}`" for alias in METRICS._aliases)
    tables = "\n\n".join(f"## {title}\n\nCall: `{call}`.\n\n{table(kind)}" for kind, (call, title) in KINDS.items())
    cases = "\n".join(f"| {where} | {what} |" for where, what, _ in CASES)
    return HEAD.format(tables=tables, aliases=aliases, chance=CHANCE, cases=cases, count=len(CASES))


def main() -> None:
    PAGE.write_text(page(), encoding="utf-8")
    print(f"wrote {PAGE}")


if __name__ == "__main__":
    main()
