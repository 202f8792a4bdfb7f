"""Each table of the page as CSV and as LaTeX, read from the page itself: a table is laid out once."""

from __future__ import annotations

import base64
import csv
import io
import re
from dataclasses import dataclass, field
from html.parser import HTMLParser

_TABLE = re.compile(r'<table[^>]* data-file="([^"]+)".*?</table>', re.S)
_PLACE = re.compile(r"<!-- files ([\w.+-]+) -->")
#: A link holds the file itself up to so many bytes; beyond, it leads to the one in the folder.
INLINE = 60_000
#: What is shown to eyes or to screen readers alone.
_SKIPPED = {"hidden", "whisker", "own", "note"}
#: What a head says beside the name of its column.
_NO_NAME = re.compile(r"(, 95 % interval)?[↑↓ ]*$")
_VOID = {"br", "img", "input"}


@dataclass
class Cell:
    """A cell: its text, what stands smaller behind it (an interval), its exact value, and how it lies."""

    head: bool
    span: int = 1
    value: str | None = None
    right: bool = False
    strong: bool = False
    text: str = ""
    small: str = ""
    flag: str = ""


@dataclass
class Table:
    """A table: its caption, the lines of its head and those of its body."""

    caption: str = ""
    head: list[list[Cell]] = field(default_factory=list)
    body: list[list[Cell]] = field(default_factory=list)


def page_tables(page: str) -> dict[str, Table]:
    """The tables of a page that have a ``data-file``, by that name."""
    return {found[1]: _Reader(found[0]).table for found in _TABLE.finditer(page)}


def with_links(page: str, tables: dict[str, Table]) -> str:
    """The page with links to the files of each table where it says ``<!-- files NAME -->``."""
    files = {name: {"csv": to_csv(table), "tex": to_latex(table)} for name, table in tables.items()}

    def links(found: re.Match[str]) -> str:
        return " · ".join(
            _link(f"{found[1]}.{kind}", text, title)
            for (kind, text), title in zip(files.get(found[1], {}).items(), ("CSV", "LaTeX"), strict=False)
        )

    return _PLACE.sub(links, page)


def _link(file: str, text: str, title: str) -> str:
    content = text.encode()
    kind = "text/csv" if file.endswith("csv") else "application/x-tex"
    inline = f"data:{kind};base64,{base64.b64encode(content).decode()}"
    return f'<a download="{file}" href="{inline if len(content) <= INLINE else f"tables/{file}"}">{title}</a>'


class _Reader(HTMLParser):
    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.table = Table()
        view = re.search(r'data-view="(\w+)"', html)
        shown = view[1] if view else "median"
        # The leaderboard of many metrics shows one column of each; the others come with the choice of a metric.
        self._brief = 'class="board"' in html
        self._skipped = _SKIPPED | {f"v-{other}" for other in ("median", "mean", "rank") if other != shown}
        self._open: list[tuple[str, frozenset[str]]] = []
        self._cell: Cell | None = None
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        classes = frozenset(given.get("class", "").split())
        if tag not in _VOID:
            self._open.append((tag, classes))
        inside = {name for name, _ in self._open}
        lines = self.table.head if "thead" in inside else self.table.body
        if tag == "tr":
            lines.append([])
        elif tag in ("td", "th"):
            span = int(given.get("colspan") or 1)
            self._cell = Cell(tag == "th", span, given.get("data-v"), "n" in classes, "best" in classes)
            if not (self._brief and "detail" in classes):
                lines[-1].append(self._cell)

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open.pop()[0] != tag:
            pass
        if tag in ("td", "th"):
            self._cell = None

    def handle_data(self, data: str) -> None:
        tags = {name for name, _ in self._open}
        classes = {name for _, some in self._open for name in some}
        if "caption" in tags:
            self.table.caption += data
        elif self._cell is not None and not classes & self._skipped:
            kind = "flag" if "flag" in classes else "small" if "small" in tags else "text"
            setattr(self._cell, kind, getattr(self._cell, kind) + data)


def _words(text: str) -> str:
    return " ".join(text.split())


def _plain(text: str) -> str:
    """A number as programs write it; other text as it stands; nothing for what is missing."""
    words = _words(text)
    number = words.replace("−", "-").removeprefix("+")
    return "" if words in ("–", "·") else number if re.fullmatch(r"-?\d+(\.\d+)?", number) else words


def to_csv(table: Table) -> str:
    """The table as CSV: one line of heads, exact values, the ends of an interval in columns of their own."""
    rows = [_spread(line) for line in table.body]
    width = max(map(len, [*rows, *(_spread(line) for line in table.head)]), default=0)
    split = {n for row in rows for n, cell in enumerate(row) if cell and " – " in _words(cell.small)}
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(_csv_line([_head(table, n) for n in range(width)], split, [(" low", " high")] * width))
    for row in rows:
        texts = ["" if cell is None else _plain(cell.value or cell.text) for cell in row]
        ends = [tuple(map(_plain, _words(cell.small).split(" – "))) if cell else () for cell in row]
        writer.writerow(_csv_line(texts, split, ends))
    return out.getvalue()


def _csv_line(texts: list[str], split: set[int], ends: list[tuple[str, ...]]) -> list[str]:
    line: list[str] = []
    for number, text in enumerate(texts):
        both = ends[number] if len(ends[number]) == 2 else ("", "")
        heads = tuple(f"{text}{end}" if end.startswith(" ") else end for end in both)
        line += [text, *heads] if number in split else [text]
    return line


def _spread(line: list[Cell]) -> list[Cell | None]:
    """A cell for each column; the further columns of a wide one are empty."""
    return [one for cell in line for one in (cell, *[None] * (cell.span - 1))]


def _head(table: Table, column: int) -> str:
    """All lines of the head above a column, in words."""
    words: list[str] = []
    for line in table.head:
        start = 0
        for cell in line:
            if start <= column < start + cell.span and (text := _NO_NAME.sub("", _words(cell.text))):
                words.append(text)
            start += cell.span
    return " ".join(words)


_LATEX = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "−": "$-$", "–": "--"}
_LATEX |= {sign: f"\\{sign}" for sign in "&%$#_{}"}
_LATEX |= {"↑": r"$\uparrow$", "↓": r"$\downarrow$", "†": r"$^\dagger$", "▾": r"$^\ddagger$", "×": r"$\times$"}
_LATEX |= {"±": r"$\pm$", "<": "$<$", ">": "$>$", "·": r"$\cdot$", "≤": r"$\leq$", "’": "'", "∞": r"$\infty$"}


def _tex(text: str) -> str:
    return "".join(_LATEX.get(sign, sign) for sign in _words(text))


def to_latex(table: Table) -> str:
    """The table for LaTeX with the package booktabs, as it is shown; the best of a column is bold."""
    first = _spread(table.body[0] if table.body else [])
    align = "".join("r" if cell is None or cell.right or _plain(cell.text)[:1].isdigit() else "l" for cell in first)
    lines = ["% \\usepackage{booktabs}", f"% {_words(table.caption)}"]
    if any(cell.flag for line in table.body for cell in line):
        lines.append("% dagger: does not beat the controls; double dagger: median not above the best control's")
    lines += [f"\\begin{{tabular}}{{{align}}}", "\\toprule"]
    lines += [_latex_line(line, head=True) for line in table.head]
    lines += ["\\midrule", *(_latex_line(line, head=False) for line in table.body), "\\bottomrule", "\\end{tabular}"]
    return "\n".join(lines) + "\n"


def _latex_line(line: list[Cell], *, head: bool) -> str:
    cells = []
    for cell in line:
        text = f"\\textbf{{{_tex(cell.text)}}}" if cell.strong else _tex(cell.text)
        text += _tex(cell.flag)
        if " – " in _words(cell.small):
            text += f" {{\\scriptsize [{_tex(cell.small.replace(' – ', ', '))}]}}"
        cells.append(f"\\multicolumn{{{cell.span}}}{{{'c' if head else 'l'}}}{{{text}}}" if cell.span > 1 else text)
    return " & ".join(cells) + r" \\"
