"""Text for LaTeX files."""

from __future__ import annotations

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
