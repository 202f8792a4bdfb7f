"""Tables of docs/truths.md that derive from the registries."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from prose import with_blocks

from xaibench.benchmarks.certified.functions import FUNCTIONS
from xaibench.core.truth_kinds import NO_TRUTH, TRUTHS
from xaibench.data import DATASETS
from xaibench.metrics import METRICS

PAGE = Path(__file__).parents[1] / "truths.md"


def kinds() -> str:
    """Return the table of the questions and limits of each kind."""
    rows = [f"| *{kind}* | {w.question} | {w.source} | {w.low} | {w.silent} |" for kind, w in TRUTHS.items()]
    head = "| truth | question | source of the answer | a low score means | not answered |\n"
    return head + "|---|---|---|---|---|\n" + "\n".join(rows)


def belonging() -> str:
    """Return the data sets and metrics of each kind."""
    named = [*DATASETS, *(f"certified:{function}" for function in FUNCTIONS)]
    sets = {name: DATASETS.resolve(name).info.truth for name in named}
    metrics = {name: METRICS.resolve(name).info.own_truth for name in METRICS}
    links = {name: f"[`{name}`](metrics/{name}.md)" for name in metrics}
    free = ", ".join(link for name, link in links.items() if metrics[name] is None)
    rows = ["| truth | data sets | metrics |", "|---|---|---|"]
    for kind in TRUTHS:
        mine = _families(name for name, truth in sets.items() if truth == kind)
        own = ", ".join(link for name, link in links.items() if metrics[name] == kind)
        rows.append(
            f"| *{kind}* | {mine or 'any'} | {own}{', ' * bool(own and mine)}{'metrics with masks' * bool(mine)} |"
        )
    none = ", ".join(link for name, link in links.items() if metrics[name] == NO_TRUTH)
    return (
        "\n".join(rows)
        + f"\n\nMetrics with masks: {free}. Without a kind of truth, because they describe the map alone: {none}."
    )


def _families(names: Iterable[str]) -> str:
    """Return the names, with one entry per family of names such as ``xai-tris/...``."""
    found: dict[str, int] = {}
    for name in names:
        start = next((name.partition(sign)[0] + sign for sign in "/:" if sign in name), "")
        found[f"{start}..." if start else name] = found.get(f"{start}..." if start else name, 0) + 1
    return ", ".join(f"`{name}`" + (f" ({count} sets)" if count > 1 else "") for name, count in found.items())


def page() -> str:
    """Return the page with new tables."""
    return with_blocks(PAGE, {"kinds": kinds(), "belonging": belonging()})
