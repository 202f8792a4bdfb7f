"""Write tables that are too large for a page as CSV files, to which the page links."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "tables"


def csv_link(name: str, text: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Write ``docs/tables/NAME.csv`` and return a Markdown link to it with the given text."""
    FOLDER.mkdir(exist_ok=True)
    with (FOLDER / f"{name}.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([head, *rows])
    return f"[{text}](tables/{name}.csv)"
