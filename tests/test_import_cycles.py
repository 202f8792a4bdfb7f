"""No import circle between modules; tests/test_architecture.py checks layers and folders."""

import ast
import importlib.util
from pathlib import Path

import pytest

import xaibench

ROOT = Path(xaibench.__file__).parent


def modules(root=ROOT):
    """``{dotted name: path}`` of every module; a package goes by its own name."""
    found = {}
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def _runs(tree):
    """Every node that runs some time: all but what only type checkers read."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            waiting.extend(node.orelse)
            continue
        yield node
        waiting.extend(ast.iter_child_nodes(node))


def imports(root=ROOT):
    """``{module: modules that it imports}``, at its top and inside functions alike."""
    there = modules(root)
    graph = {}
    for name, path in there.items():
        graph[name] = set()
        for node in _runs(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                targets = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module:
                full = [f"{node.module}.{alias.name}" for alias in node.names]
                targets = [one if one in there else node.module for one in full]
            else:
                continue
            graph[name] |= {target for target in targets if target in there and target != name}
    return graph


def circles(graph):
    """The groups of modules that reach each other (Tarjan), those of one module left out."""
    index, low, stack, found = {}, {}, [], []

    def visit(name):
        index[name] = low[name] = len(index)
        stack.append(name)
        for other in sorted(graph[name]):
            if other not in index:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], index[other])
        if low[name] == index[name]:
            group = [stack.pop()]
            while group[-1] != name:
                group.append(stack.pop())
            if len(group) > 1:
                found.append(sorted(group))

    for name in sorted(graph):
        if name not in index:
            visit(name)
    return found


def test_no_import_goes_round_in_a_circle():
    assert circles(imports()) == []


@pytest.mark.parametrize(
    ("second", "found"),
    [
        ("from house.one import a", [["house.one", "house.two"]]),
        ("def f():\n    from house import one", [["house.one", "house.two"]]),
        ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from house.one import a", []),
        ("import json", []),
    ],
)
def test_a_circle_is_seen(tmp_path, second, found):
    root = _house(tmp_path, {"__init__.py": "", "one.py": "import house.two\na = 1", "two.py": second})
    assert circles(imports(root)) == found


def _house(folder, files):
    for name, text in files.items():
        (folder / "house" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "house" / name).write_text(text)
    return folder / "house"


def test_no_benchmark_hides_a_module_that_others_import():
    # A script's folder comes first on the path: one called coverage.py was imported by numba in place of the package.
    folder = ROOT.parent / "benchmarks"
    if not folder.is_dir():
        pytest.skip("the benchmarks are not part of an installation")
    # What is found without an origin is a folder of the tests; they also bring docs/generate onto the path.
    found = {path.stem: importlib.util.find_spec(path.stem) for path in folder.glob("*.py")}
    origins = {name: spec.origin for name, spec in found.items() if spec is not None and spec.origin is not None}
    hidden = {name for name, origin in origins.items() if folder.parent not in Path(origin).parents}
    assert hidden == set(), origins
