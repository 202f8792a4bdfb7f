"""A pytest plugin that writes down every message that xaibench raises, to be read in one sitting.

    pytest -p messages --messages FILE          # python -m pytest with tests/ on PYTHONPATH

FILE gets, as tab-separated values, each ``raise`` that the tests ran: where it stands, the type and the message (once
for each message), and a test that met it. ``python tests/messages.py FILE ...`` lists the raises that no test met.

While the package is imported, each ``raise ERROR`` of it becomes ``raise note(ERROR, line)``; so a raise counts also
where the error is caught again, printed by the command line or kept as the failure of a job. Raises in other
processes do not count.
"""

from __future__ import annotations

import ast
import csv
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

PACKAGE = "xaibench"
_NOTE = "__note_raise__"
_COLUMNS = ("place", "type", "message", "test")
_met: dict[tuple[str, str, str], str] = {}


def raises(tree: ast.AST) -> Iterator[ast.Raise]:
    """Every ``raise ERROR``; a bare ``raise`` says nothing of its own."""
    return (node for node in ast.walk(tree) if isinstance(node, ast.Raise) and node.exc is not None)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--messages", type=Path, default=None, help="write every message xaibench raises to this file")


@pytest.hookimpl(tryfirst=True, optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """All tests in this process, where the messages are."""
    return None if config.getoption("--messages") is None else 0


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Before any conftest.py, which may import the package."""
    if early_config.known_args_namespace.messages is not None:
        sys.meta_path.insert(0, _Finder())


def pytest_unconfigure(config: pytest.Config) -> None:
    path = config.getoption("--messages")
    if path is None:
        return
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, dialect="excel-tab")
        writer.writerow(_COLUMNS)
        writer.writerows((*found, test) for found, test in sorted(_met.items()))


def _noted(module: str) -> Any:
    def note(error: BaseException | type[BaseException], line: int) -> BaseException | type[BaseException]:
        kind = error if isinstance(error, type) else type(error)
        message = "" if isinstance(error, type) else str(error)
        _met.setdefault((f"{module}:{line}", kind.__name__, message), os.environ.get("PYTEST_CURRENT_TEST", ""))
        return error

    return note


class _Noting(importlib.machinery.SourceFileLoader):
    def get_code(self, fullname: str) -> Any:  # not from the cache, whose code notes nothing
        path = self.get_filename(fullname)
        tree = ast.parse(self.get_data(path), path)
        for node in raises(tree):
            arguments = [node.exc, ast.Constant(node.lineno)]
            node.exc = ast.copy_location(ast.Call(ast.Name(_NOTE, ast.Load()), arguments, []), node.exc)
        return compile(ast.fix_missing_locations(tree), path, "exec", dont_inherit=True)

    def exec_module(self, module: ModuleType) -> None:
        setattr(module, _NOTE, _noted(module.__name__))
        super().exec_module(module)


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, fullname: str, path: Any, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if fullname.partition(".")[0] != PACKAGE:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and isinstance(spec.loader, importlib.machinery.SourceFileLoader):
            spec.loader = _Noting(spec.loader.name, spec.loader.path)
        return spec


def unmet(tables: list[Path], root: Path) -> tuple[int, list[str]]:
    """How many raises the package at ``root`` has, and those that no test of ``tables`` met."""
    seen = set()
    for table in tables:
        with table.open(newline="", encoding="utf-8") as file:
            seen |= {row["place"] for row in csv.DictReader(file, dialect="excel-tab")}
    count, missing = 0, []
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root.parent).with_suffix("").parts
        module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        for node in sorted(raises(ast.parse(path.read_text(encoding="utf-8"))), key=lambda node: node.lineno):
            count += 1
            if f"{module}:{node.lineno}" not in seen:
                missing.append(f"{path.relative_to(root.parent)}:{node.lineno}: {ast.unparse(node)[:160]}")
    return count, missing


if __name__ == "__main__":
    of_all, never = unmet([Path(name) for name in sys.argv[1:]], Path(__file__).parents[1] / PACKAGE)
    print("\n".join(never))
    print(f"{of_all} raises, {of_all - len(never)} met by the tests, {len(never)} not")
