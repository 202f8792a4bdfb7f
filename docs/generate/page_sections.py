"""Pages of which a run makes one section: those of runs that are not at hand stay as they are."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path


def renewed(page: Path, head: str, sections: Iterable[str]) -> str:
    """The page with a new head and the sections given, each in the place of the one with its heading, or behind all.

    Args:
        page: As it is; it need not be there.
        head: All before the first ``## ``.
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
