"""Generate one page per metric and per explainer, with its reference by mkdocstrings, when the site is built."""

from __future__ import annotations

from typing import Any

import explainers
import metrics
from api import reference, reference_block

from xaibench.explainers import EXPLAINERS
from xaibench.metrics import METRICS


def pages() -> dict[str, str]:
    """Return the Markdown of each page by its path, without ``.md``."""
    made = {
        f"metrics/{name}": text + _reference(f"xaibench.metrics.{name}") for name, text in metrics.entries().items()
    }
    for name, text in explainers.entries().items():
        target = EXPLAINERS.target(name).replace(":", ".")
        made[f"explainers/{explainers.file_name(name)}"] = text + _reference(target)
    return made


def _reference(path: str) -> str:
    return "\n".join(reference_block(reference(path), "heading_level: 3"))


def navigation() -> dict[str, list[Any]]:
    """Return the menu below each overview page."""
    by_call: dict[str, list[Any]] = {}
    for name in METRICS:
        info = METRICS.resolve(name).info
        by_call.setdefault(metrics.KINDS[info.kind][1], []).append({info.label: f"metrics/{name}.md"})
    by_family = {
        heading: [
            {EXPLAINERS.resolve(name).info.label: f"explainers/{explainers.file_name(name)}.md"} for name in names
        ]
        for heading, names in explainers.families().items()
    }
    return {
        overview: [{heading: pages} for heading, pages in groups.items()]
        for overview, groups in (("metrics.md", by_call), ("explainers.md", by_family))
    }
