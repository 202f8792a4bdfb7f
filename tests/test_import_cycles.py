"""No import circle between modules, and none between folders.

A folder is what a reader takes as one subject: if two folders need each other, neither can be read alone. Every import
between modules counts as one between the two folders in which they first part: ``metrics/shared/a.py`` importing
``metrics/localization/b.py`` joins ``metrics/shared`` to ``metrics/localization``. So folders are compared with their
siblings only, at every depth, the top packages included. What lies in a folder itself (its ``__init__``, its own
modules) may import from its subfolders and the reverse; there the rule on modules holds.
"""

import ast
import functools
import graphlib
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


@functools.cache  # of the package, for both tests
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


def circle(graph):
    """The modules of one circle; empty where there is none."""
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        return sorted(set(error.args[1]))
    return []


def folders(root=ROOT):
    """``{folder: sibling folders that it imports}``, as dotted names."""
    there = modules(root)
    graph = {}
    for name, others in imports(root).items():
        for other in others:
            here, to = (
                (one if there[one].stem == "__init__" else one.rpartition(".")[0]).split(".") for one in (name, other)
            )
            parting = next((i for i, (a, b) in enumerate(zip(here, to, strict=False)) if a != b), None)
            if parting is not None:
                ends = [".".join(path[: parting + 1]) for path in (here, to)]
                graph.setdefault(ends[0], set()).add(ends[1])
                graph.setdefault(ends[1], set())
    return graph


def test_modules_do_not_import_in_a_circle():
    assert circle(imports()) == []


def test_folders_do_not_import_in_a_circle():
    assert circle(folders()) == []


@pytest.mark.parametrize(
    ("second", "found"),
    [
        ("from house.one import a", ["house.one", "house.two"]),
        ("def f():\n    from house import one", ["house.one", "house.two"]),
        ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from house.one import a", []),
    ],
)
def test_a_circle_is_seen(tmp_path, second, found):
    root = _house(tmp_path, {"__init__.py": "", "one.py": "import house.two\na = 1", "two.py": second})
    assert circle(imports(root)) == found


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ({"a/x.py": "from house.b import y", "a/w.py": "", "b/y.py": "", "b/z.py": "import house.a.w"}, ["a", "b"]),
        ({"p/a/x.py": "import house.p.b.y", "p/a/w.py": "", "p/b/y.py": "from house.p.a import w"}, ["p.a", "p.b"]),
        (
            {"a/__init__.py": "from house.a.deep.x import one", "a/deep/x.py": "import house.a.base", "a/base.py": ""},
            [],
        ),
        ({"a/x.py": "import house.b.y", "b/y.py": "", "b/z.py": "import house.c.u", "c/u.py": ""}, []),
    ],
)
def test_a_circle_of_folders_is_seen(tmp_path, files, found):
    inits = {f"{folder}/__init__.py": "" for path in files for folder in _parents(path)}
    root = _house(tmp_path, {"__init__.py": "", **inits, **files})
    assert circle(folders(root)) == [f"house.{name}" for name in found]


def _parents(path):
    return [str(parent) for parent in Path(path).parents if parent.name]


def _house(folder, files):
    for name, text in files.items():
        (folder / "house" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "house" / name).write_text(text)
    return folder / "house"
