"""Convert docstrings with Sphinx roles and tables to Markdown for mkdocstrings."""

from __future__ import annotations

import importlib
import inspect
import re
import sys
import textwrap
from pathlib import Path
from typing import Any

import griffe

sys.path.insert(0, str(Path(__file__).parent))

from api import linked

_ROLE = re.compile(r":(?:func|class|data|meth|mod|attr|exc):`(~?)([^`]+)`")
_RULE = re.compile(r"^ *=+(?: +=+)+ *$")


class Markdown(griffe.Extension):
    """Griffe extension that converts every docstring, and uses ``#:`` comments as docstrings of attributes."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Convert the docstring of an object that Griffe found."""
        if isinstance(obj, griffe.Attribute) and obj.docstring is None:
            text = _comment(obj)
            if text:
                obj.docstring = griffe.Docstring(text, parent=obj)
            if str(obj.value).startswith("Registry("):
                obj.value = None  # a long table, which `xaibench list` and other pages show
        if isinstance(obj, griffe.Function) and "fields" in obj.parameters:
            _list_fields(obj)
        if obj.docstring is not None:
            obj.docstring.value = markdown(obj.docstring.value, obj.module.path)


def _list_fields(function: griffe.Function) -> None:
    """Replace ``**fields`` by the parameters that the function lists at run time, with their documentation."""
    made = getattr(importlib.import_module(function.module.path), function.name)
    parameters = inspect.signature(made).parameters
    if "fields" not in parameters and function.docstring is not None:
        del function.parameters["fields"]
        for name in [name for name in parameters if name not in function.parameters]:
            one, kind = parameters[name], griffe.ParameterKind.keyword_only
            shown = griffe.Parameter(name, annotation=one.annotation, kind=kind, default=repr(one.default))
            function.parameters.add(shown)
        function.docstring.value = made.__doc__


def markdown(text: str, module: str = "") -> str:
    """Return a docstring with roles as links, and formulas, tables and examples as Markdown and Griffe expect them."""
    text = re.sub(r":math:`([^`]+)`", r"$\1$", text)
    text = re.sub(r"^( *)\.\. math:: (.*(?:\n\1 +\S.*)*)", _formula, text, flags=re.M)
    text = _ROLE.sub(lambda found: _link(found[2], bool(found[1]), module), text)
    text = re.sub(r"^( *)Example:$", r"\1Examples:", text, flags=re.M)
    text = re.sub(r"::$", ":", text, flags=re.M)
    return _tables(text)


def _formula(found: re.Match[str]) -> str:
    indent = found[1]
    body = " ".join(line.strip() for line in found[2].split("\n"))
    return f"{indent}```math\n{indent}{body}\n{indent}```"


def _link(target: str, last_only: bool, module: str) -> str:
    shown = target.rpartition(".")[2] if last_only else target
    path = linked(target, module)
    return f"[`{shown}`][{path}]" if path else f"`{shown}`"


def _tables(text: str) -> str:
    """Convert simple RST tables: rows between rules of ``=``; with three rules, the first row is the head."""
    paragraphs = text.split("\n\n")
    return "\n\n".join(_table(part) if _RULE.match(part.split("\n")[0]) else part for part in paragraphs)


def _table(paragraph: str) -> str:
    lines = paragraph.rstrip().split("\n")
    # Roles have become longer links, so cells are told by the two spaces between them, not by their column.
    second = [found.start() for found in re.finditer("=+", lines[0])][1]
    rules = [number for number, line in enumerate(lines) if _RULE.match(line)]
    head = re.split(r"  +", lines[1].strip()) if len(rules) == 3 else []
    width = len(lines[0].split())
    rows: list[list[str]] = []
    for line in lines[rules[-2] + 1 : rules[-1]]:
        if line[:second].strip():
            rows.append(re.split(r"  +", line.strip()))
        else:
            rows[-1][-1] += f" {line.strip()}"
    indent = " " * (len(lines[0]) - len(lines[0].lstrip()))
    padded = [[*row, *[""] * (width - len(row))] for row in (head, ["---"] * width, *rows)]
    return "\n".join(f"{indent}| {' | '.join(map(_cell, row))} |" for row in padded)


def _cell(text: str) -> str:
    """Escape bars in formulas, which would end the cell."""
    return re.sub(r"\$[^$]+\$", lambda found: found[0].replace("|", "&#124;"), text)


def _comment(attribute: griffe.Attribute) -> str:
    if attribute.lineno is None or not isinstance(attribute.filepath, Path):
        return ""
    lines = attribute.filepath.read_text(encoding="utf-8").splitlines()
    first = attribute.lineno - 1
    while first > 0 and lines[first - 1].lstrip().startswith("#:"):
        first -= 1
    return textwrap.dedent("\n".join(line.lstrip().removeprefix("#:") for line in lines[first : attribute.lineno - 1]))
