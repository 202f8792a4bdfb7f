"""Tables of docs/metrics.md, and one page per metric, from the registry and the docstrings."""

from __future__ import annotations

import inspect
import math
import re
from pathlib import Path

import numpy as np
import torch
from drawing import title_of
from example import Example, example
from pictures import SHOWN_WITH
from prose import from_subfolder, plain, section, with_blocks

from xaibench.core.truth_kinds import NO_TRUTH, TRUTHS
from xaibench.metrics import METRICS, chance_level
from xaibench.scores.results import known_verdicts

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
    return f"[{listed}](../metrics.md#reliability)" if listed else "not tested"


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


def tested(truth: str) -> str:
    """Return the metrics that pass the trials with one kind of truth, and the right and wrong draws of the others."""
    found = {name: one[truth] for name, one in known_verdicts().items() if truth in one}
    links = {name: f"[`{name}`](metrics/{name}.md)" for name in found}
    passing = ", ".join(links[name] for name, one in found.items() if one.verdict == "passes")
    rows = ["| metric | verdict | moved | noise | unmoved |", "|---|---|--:|--:|--:|"]
    for name, one in found.items():
        if one.verdict != "passes":
            shares = (
                f"{100 * one.right[way]:.0f} / {100 * one.wrong[way]:.0f}" if way in one.right else ""
                for way in ("moved", "noisy", "unmoved")
            )
            rows.append(f"| {links[name]} | {one.verdict} | {' | '.join(shares)} |")
    return f"Pass: {passing}.\n\n" + "\n".join(rows)


def page() -> str:
    """Return the overview with new tables."""
    aliases = ", ".join(f"`{alias}` for `{METRICS.canonical(alias)}`" for alias in METRICS._aliases)
    assumed = {
        "model": " A model that is random in evaluation mode, or whose output for an image depends on its batch, is\n"
        "[refused](models.md#what-is-assumed-of-a-network)."
    }
    tables = "\n\n".join(
        f"## {title}\n\nCall: `{call}`.{assumed.get(kind, '')}\n\n{table(kind)}"
        for kind, (call, title) in KINDS.items()
    )
    trials = {f"tested: {truth}": tested(truth) for truth in TRUTHS}
    return with_blocks(PAGE, {"tables": f"{tables}\n\nAliases: {aliases}."} | trials)
