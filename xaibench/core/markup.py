"""HTML tables of results in notebooks, without colors or fonts of their own, and text for LaTeX files."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from html import escape

_STYLE = """
:root { color-scheme: light dark } body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem;
padding: 0 1rem } .wide { overflow-x: auto } table { border-collapse: collapse } th, td { padding: .2rem .8rem;
text-align: right; border-bottom: 1px solid #8884; white-space: nowrap } th:first-child { text-align: left } img {
max-width: 100% }
"""


def html_table(
    rows: Iterable[Sequence[object]], *, head: Sequence[object] = (), title: str = "", notes: Iterable[str] = ()
) -> str:
    """Render a table as HTML; all text is escaped.

    Args:
        rows: Rows of the body; the first entry of each is its header cell.
        head: Column names; empty = none.
        title: Text above the table.
        notes: Lines below the table.

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


def html_page(title: str, body: str, *, pictures: Mapping[str, bytes] | None = None) -> str:
    """Render a self-contained HTML page that loads nothing from outside and follows the reader's light or dark mode.

    Args:
        title: Heading of the page.
        body: HTML, for example from :func:`html_table`.
        pictures: PNG images below the body, by their heading.

    Returns:
        Content of the file.

    Example:
        >>> html_page("Mine", "<p>good</p>").count("<h1>Mine</h1>")
        1
    """
    encoded = {escape(name): base64.b64encode(png).decode() for name, png in (pictures or {}).items()}
    shown = "".join(
        f'<h2>{name}</h2><img alt="{name}" src="data:image/png;base64,{png}">' for name, png in encoded.items()
    )
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{_STYLE}</style></head><body><h1>{escape(title)}</h1>"
        f'<div class="wide">{body}</div>{shown}</body></html>'
    )


_LATEX = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "−": "$-$", "–": "--"}
_LATEX |= {sign: f"\\{sign}" for sign in "&%$#_{}"}
_LATEX |= {"↑": r"$\uparrow$", "↓": r"$\downarrow$", "†": r"$^\dagger$", "‡": r"$^\ddagger$", "▾": r"$^\ddagger$"}
_LATEX |= {"×": r"$\times$", "±": r"$\pm$", "<": "$<$", ">": "$>$", "·": r"$\cdot$", "≤": r"$\leq$", "’": "'"}
_LATEX |= {"∞": r"$\infty$"}


def escape_latex(text: str) -> str:
    r"""Escape the special characters of LaTeX, and join words by single spaces.

    Example:
        >>> escape_latex("50 %  of A_1 ↑")
        '50 \\% of A\\_1 $\\uparrow$'
    """
    return "".join(_LATEX.get(sign, sign) for sign in " ".join(text.split()))
