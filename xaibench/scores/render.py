"""The model of a table, from which the page's HTML, CSV, LaTeX and Markdown are rendered.

A table holds values; a column says how they are shown. The HTML is rendered by the macro ``table`` of
``page/templates/tables.html.j2``, the other formats by the functions of this module.
"""

from __future__ import annotations

import csv
import io
import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from xaibench.core.markup import escape_latex
from xaibench.runfolder.sanitize import quote_formula

#: Shown in place of a missing value.
MISSING = ("–", "·")


@dataclass(frozen=True)
class ColumnGroup:
    """A heading above several columns.

    Attributes:
        label: Text.
        direction: Arrow behind it: ``"↑"`` where higher is better, ``"↓"`` where lower is, or empty.
        flag: Footnote mark behind it.
        flag_title: Explanation of the mark, shown as a tooltip.
        key: Value of ``data-m`` on the page; groups with different keys are never merged.
    """

    label: str
    direction: str = ""
    flag: str = ""
    flag_title: str = ""
    key: str = ""


@dataclass(frozen=True)
class Column:
    """A column and how its values are shown.

    Attributes:
        label: Heading.
        cell: Key of the value in the rows, or a function that returns the value of a row, or its :class:`TableCell`.
        unit: Rest of the heading, which the CSV file leaves out: ``", 95 % interval"``.
        groups: Headings above, outermost first.
        format: Turns a value (neither text nor missing) into text.
        missing: Text of a missing value.
        is_number: Whether the values are numbers, which LaTeX aligns to the right.
        is_exact: Whether sorting and the CSV file use the exact value instead of the formatted one.
        is_range: Whether the suffix is the end of a range (places 1–4), so that the CSV file has the text.
        has_interval: Whether the cells have a confidence interval, whose ends are columns of the CSV file.
        is_row_head: Whether the cells are headings of their rows.
        is_page_only: Whether the column is a drawing, left out of the files.
        is_detail: Whether the column is left out of the LaTeX file, which has to fit a page.
        is_hidden: Whether the column is hidden until the page's script shows it; it is left out of the files.
        kind: Name of the cells' layout in ``tables.html.j2``; empty for text.
        css: Classes of its cells on the page.
        head_css: Classes of its heading.
        head_attributes: Further HTML attributes of its heading.
        attributes: Further HTML attributes of its cells.
    """

    label: str
    cell: str | Callable[[Any], Any]
    unit: str = ""
    groups: tuple[ColumnGroup, ...] = ()
    format: Callable[[Any], str] = str
    missing: str = "–"
    is_number: bool = False
    is_exact: bool = False
    is_range: bool = False
    has_interval: bool = False
    is_row_head: bool = False
    is_page_only: bool = False
    is_detail: bool = False
    is_hidden: bool = False
    kind: str = ""
    css: str = ""
    head_css: str = ""
    head_attributes: Mapping[str, Any] = field(default_factory=dict)
    attributes: Mapping[str, Any] = field(default_factory=dict)

    def text(self, value: Any) -> str:
        """Return a value as it is shown; text is returned unchanged."""
        return value if isinstance(value, str) else self.missing if _is_missing(value) else self.format(value)


@dataclass(frozen=True)
class TableCell:
    """A value and the marks displayed with it.

    Attributes:
        value: Number, text or truth value; None if it is missing.
        badge: Word in front of the value, shown as a badge: ``"below"``.
        suffix: Text behind the value: ``" / 18"``.
        interval: Ends of the confidence interval.
        flag: Footnote mark behind the value.
        note: Remark that only the page shows.
        is_best: Whether the value is the best of its column; bold in LaTeX.
        css: Classes of the cell on the page.
        style: Inline style of the cell on the page.
        detail: Whatever the column's ``kind`` shows beyond the value.
    """

    value: Any = None
    badge: str = ""
    suffix: str = ""
    interval: tuple[Any, Any] | None = None
    flag: str = ""
    note: str = ""
    is_best: bool = False
    css: str = ""
    style: str = ""
    detail: Any = None


@dataclass(frozen=True)
class GroupRow:
    """The heading of the rows below it: a value or :class:`TableCell` of the first column; None for a line only."""

    head: Any = None


@dataclass(frozen=True)
class Table:
    """A table of the report.

    Attributes:
        name: Name of its files, without suffix.
        caption: Caption.
        columns: Its columns.
        rows: Its rows: records that the columns read, and :class:`GroupRow`.
        notes: Explanations of footnote marks, written into the LaTeX file as comments.
        id: Identifier on the page.
        css: Classes on the page.
        region_css: Classes of the scrollable region.
        sort: Key under which the page's script remembers the order; empty if rows cannot be sorted.
        row_css: Returns the classes of a row.
        row_attributes: Returns further HTML attributes of a row.
    """

    name: str
    caption: str
    columns: Sequence[Column]
    rows: Sequence[Any]
    notes: Sequence[str] = ()
    id: str = ""
    css: str = ""
    region_css: str = ""
    sort: str | None = None
    row_css: Callable[[Any], str] = lambda row: ""
    row_attributes: Callable[[Any], Mapping[str, Any]] = lambda row: {}

    @property
    def sort_key(self) -> str:
        """``sort``, by default from the name."""
        return f"sort.{self.name}" if self.sort is None else self.sort

    def is_group(self, row: Any) -> bool:
        """Return whether a row is the heading of those below it."""
        return isinstance(row, GroupRow)

    def cells(self, row: Any) -> list[tuple[Column, TableCell, str]]:
        """Return each cell of a row with its column and the value's text; of a heading, the first column's only."""
        if isinstance(row, GroupRow):
            values = [(self.columns[0], row.head)]
        else:
            values = [(one, row[one.cell] if isinstance(one.cell, str) else one.cell(row)) for one in self.columns]
        cells = [(column, value if isinstance(value, TableCell) else TableCell(value)) for column, value in values]
        return [(column, cell, column.text(cell.value)) for column, cell in cells]

    def head_lines(self, columns: Sequence[Column] | None = None) -> list[list[tuple[ColumnGroup | None, int]]]:
        """Return the lines of the head above the columns' own headings.

        Args:
            columns: Columns to include; by default all that are not hidden.

        Returns:
            Groups of each line and the number of columns that each spans; None above columns without a group.
        """
        shown = [column for column in self.columns if not column.is_hidden] if columns is None else columns
        lines = []
        for level in range(max((len(column.groups) for column in shown), default=0)):
            line: list[tuple[ColumnGroup | None, int]] = []
            before: tuple[ColumnGroup, ...] | None = None
            for column in shown:
                path = column.groups[: level + 1]
                if path == before:
                    line[-1] = line[-1][0], line[-1][1] + 1
                else:
                    line.append((path[level] if len(path) > level else None, 1))
                before = path
            lines.append(line)
        return lines


def _is_missing(value: Any) -> bool:
    return value is None or value != value


def _normalize(text: str) -> str:
    return " ".join(text.split())


def _plain_number(text: str) -> str:
    """Return a formatted number as programs write it, other text unchanged, and a missing value as empty."""
    words = _normalize(text)
    number = words.replace("−", "-").removeprefix("+")
    return "" if words in MISSING else number if re.fullmatch(r"-?\d+(\.\d+)?", number) else words


def _file_columns(table: Table) -> list[int]:
    return [i for i, column in enumerate(table.columns) if not (column.is_page_only or column.is_hidden)]


def _shown(cell: TableCell, text: str) -> str:
    return _normalize(f"{cell.badge} {text}{cell.suffix}")


def to_csv(table: Table) -> str:
    r"""Render a table as CSV.

    Args:
        table: The table.

    Returns:
        One line of headings, then one line per row; the ends of confidence intervals are columns of their own, and
        missing values are empty.

    Example:
        >>> columns = [Column("Method", "method"), Column("IoU", "iou", is_exact=True, format="{:.2f}".format)]
        >>> rows = [{"method": "LRP", "iou": 0.1234}, {"method": "LIME", "iou": None}]
        >>> to_csv(Table("scores", "Scores", columns, rows))
        'Method,IoU\nLRP,0.1234\nLIME,\n'
    """
    chosen = _file_columns(table)
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    heads: list[str] = []
    for column in (table.columns[i] for i in chosen):
        head = _normalize(" ".join([*(group.label for group in column.groups), column.label]))
        heads += [head, f"{head} low", f"{head} high"] if column.has_interval else [head]
    writer.writerow(map(quote_formula, heads))
    for row in table.rows:
        cells = table.cells(row)
        line: list[str] = []
        for i in chosen:
            line += _csv_values(*cells[i]) if i < len(cells) else [""] * (1 + 2 * table.columns[i].has_interval)
        writer.writerow(map(quote_formula, line))
    return out.getvalue()


def _csv_values(column: Column, cell: TableCell, text: str) -> list[str]:
    is_exact = column.is_exact and not column.is_range and not _is_missing(cell.value)
    values = [str(cell.value) if is_exact else _plain_number(_shown(cell, text))]
    if column.has_interval:
        values += [_plain_number(column.text(end)) for end in cell.interval or ("", "")]
    return values


#: Largest number of columns of a tabular; more do not fit a page.
_MOST_COLUMNS = 8


def to_latex(table: Table, *, caption: str | None = None, label: str | None = None) -> str:
    r"""Render a table in LaTeX, with values as they are shown and the best ones bold.

    Args:
        table: The table.
        caption: Caption in LaTeX. With a caption or a label, the table is in an environment ``table``.
        label: Label for ``\ref``.

    Returns:
        Environments ``tabular`` for the package booktabs, with the caption and the notes as comments above them. A
        table with more than 8 columns is divided into several that repeat the headings of the rows. Details are left
        out; the CSV file has them.
    """
    chosen = [i for i in _file_columns(table) if not table.columns[i].is_detail]
    notes = filter(None, [_normalize(table.caption), *table.notes])
    text = "".join(f"% {note}\n" for note in ("\\usepackage{booktabs}", *notes))
    inside = "\n".join(_tabular(table, block) for block in _divide_columns(table, chosen))
    if caption is None and label is None:
        return text + inside
    head = f"\\caption{{{caption}}}\n" if caption is not None else ""
    head += f"\\label{{{label}}}\n" if label is not None else ""
    return f"{text}\\begin{{table}}\n\\centering\n{head}{inside}\\end{{table}}\n"


def to_markdown(table: Table) -> str:
    """Render a table in Markdown with the best values bold, and its notes below it; headings of rows are left out."""
    chosen = _file_columns(table)
    rows = [table.cells(row) for row in table.rows if not isinstance(row, GroupRow)]
    lines = [[table.columns[i].label for i in chosen], ["---"] * len(chosen)]
    lines += [[_cell_markdown(*cells[i]).replace("|", "\\|") for i in chosen] for cells in rows]
    return "\n\n".join(["\n".join(f"| {' | '.join(line)} |" for line in lines), *table.notes]) + "\n"


def _divide_columns(table: Table, chosen: Sequence[int]) -> list[list[int]]:
    """Return blocks of at most 8 columns. Each begins with the columns in front of the first number."""
    if len(chosen) <= _MOST_COLUMNS:
        return [list(chosen)]
    count = next((place for place, i in enumerate(chosen) if table.columns[i].is_number), 1)
    heads, rest = list(chosen[:count]), chosen[count:]
    room = max(_MOST_COLUMNS - count, 1)
    return [[*heads, *rest[start : start + room]] for start in range(0, len(rest), room)]


def _tabular(table: Table, chosen: Sequence[int]) -> str:
    columns = [table.columns[i] for i in chosen]
    align = "".join("r" if column.is_number else "l" for column in columns)
    lines = [f"\\begin{{tabular}}{{{align}}}", "\\toprule"]
    for line in table.head_lines(columns):
        heads = [(escape_latex(each.label + each.direction + each.flag) if each else "", span) for each, span in line]
        lines.append(_latex_line([_multicolumn(text, span, "c") for text, span in heads]))
        ends = list(itertools.accumulate(span for _, span in line))
        rules = [
            f"\\cmidrule(lr){{{end - span + 1}-{end}}}"
            for (group, span), end in zip(line, ends, strict=True)
            if group and span > 1
        ]
        lines += [" ".join(rules)] if rules else []
    lines.append(_latex_line([escape_latex(column.label + column.unit) for column in columns]))
    lines.append("\\midrule")
    for row in table.rows:
        if isinstance(row, GroupRow) and row.head is None:
            lines.append("\\midrule")
            continue
        cells = table.cells(row)
        texts = [_cell_latex(*cells[i]) for i in chosen if i < len(cells)]
        if isinstance(row, GroupRow):
            texts.append(_multicolumn("", len(columns) - 1, "l"))
        lines.append(_latex_line(texts))
    lines += ["\\bottomrule", "\\end{tabular}"]
    return "\n".join(lines) + "\n"


def _latex_line(texts: Sequence[str]) -> str:
    return " & ".join(texts) + r" \\"


def _multicolumn(text: str, span: int, align: str) -> str:
    if not text:
        return " & ".join([""] * span)
    return f"\\multicolumn{{{span}}}{{{align}}}{{{text}}}" if span > 1 else text


def _cell_latex(column: Column, cell: TableCell, text: str) -> str:
    shown = escape_latex(_shown(cell, text))
    shown = f"\\textbf{{{shown}}}" if cell.is_best else shown
    shown += escape_latex(cell.flag)
    if cell.interval is not None:
        low, high = (escape_latex(column.text(end)) for end in cell.interval)
        shown += f" {{\\scriptsize [{low}, {high}]}}"
    return shown


def _cell_markdown(column: Column, cell: TableCell, text: str) -> str:
    shown = _shown(cell, text)
    shown = (f"**{shown}**" if cell.is_best else shown) + cell.flag
    if cell.interval is not None:
        shown += f" [{', '.join(column.text(end) for end in cell.interval)}]"
    return shown
