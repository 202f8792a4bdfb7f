"""What a result shows in a notebook: a small table of plain HTML, which takes the notebook's own colours and fonts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape


def html_table(
    rows: Iterable[Sequence[object]], *, head: Sequence[object] = (), title: str = "", notes: Iterable[str] = ()
) -> str:
    """A table as HTML; everything is escaped.

    Args:
        rows: Of the body; the first entry of each is its head.
        head: Names of the columns; empty = none.
        title: Above the table.
        notes: Lines below it.

    Returns:
        A ``div``.

    Example:
        >>> html_table([("train", 80)], head=("", "samples"), title="A <set>")
        '<div><p><b>A &lt;set&gt;</b></p><table><thead><tr><th></th><th>samples</th></tr></thead><tbody><tr>\
<th>train</th><td>80</td></tr></tbody></table></div>'
    """
    said = f"<p><b>{escape(title)}</b></p>" if title else ""
    columns = "".join(f"<th>{escape(str(name))}</th>" for name in head)
    top = f"<thead><tr>{columns}</tr></thead>" if columns else ""
    body = "".join(f"<tr>{_cells(row)}</tr>" for row in rows)
    below = "".join(f"<p>{escape(note)}</p>" for note in notes)
    return f"<div>{said}<table>{top}<tbody>{body}</tbody></table>{below}</div>"


def _cells(row: Sequence[object]) -> str:
    first, *others = (escape(str(value)) for value in row)
    return f"<th>{first}</th>" + "".join(f"<td>{value}</td>" for value in others)
