"""Update pages with one section per run; other sections are kept."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path


def renewed(page: Path, head: str, sections: Iterable[str]) -> str:
    """Return the page with a new head and new sections, which replace sections with the same heading.

    Args:
        page: The current page, which need not exist.
        head: Text before the first ``## ``.
        sections: Each begins with a line ``## HEADING``.
    """
    old = page.read_text(encoding="utf-8") if page.exists() else ""
    found = {_heading(part): part for part in re.split(r"(?m)^(?=## )", old)[1:]}
    new = [section.strip("\n") + "\n" for section in sections]
    if len({_heading(part) for part in new}) < len(new):
        raise ValueError(f"Two of the sections have the same heading: {', '.join(map(_heading, new))}.")
    found |= {_heading(part): part for part in new}
    return "\n".join(part.strip("\n") + "\n" for part in (head, *found.values()))


def _heading(section: str) -> str:
    return section.partition("\n")[0]
