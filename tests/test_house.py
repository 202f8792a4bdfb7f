"""The rooms of the package: few things in each, names that tell them apart, and no way round in a circle."""

import ast
import importlib.util
from collections import Counter
from pathlib import Path

import pytest

import xaibench

ROOT = Path(xaibench.__file__).parent

#: Files and folders in one folder; lines of one file.
ROOMS, LINES = 15, 360


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


def crowded(root=ROOT):
    """Folders with more rooms than one takes in at a glance."""
    folders = [root, *(path for path in root.rglob("*") if path.is_dir() and path.name != "__pycache__")]
    for folder in sorted(folders):
        # py.typed is a mark for type checkers, no room.
        rooms = [path for path in folder.iterdir() if not path.name.startswith(("_", ".", "py.typed"))]
        if len(rooms) > ROOMS:
            yield f"{folder.relative_to(root)}: {len(rooms)} rooms"


def named_twice(root=ROOT):
    """Base names that two modules share."""
    names = Counter(path.stem for path in root.rglob("*.py") if path.stem != "__init__")
    return sorted(name for name, count in names.items() if count > 1)


def hidden(root=ROOT):
    """Modules with a function or class of their own name, and those that a name of their package's covers."""
    for name, path in modules(root).items():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        own = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
        if path.stem == "__init__":
            brought = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
            own |= {alias.asname or alias.name for node in brought for alias in node.names}
            rooms = {other.stem for other in path.parent.glob("*.py")} | {
                other.parent.name for other in path.parent.glob("*/__init__.py")
            }
            here = {alias.name for node in brought if node.module == name for alias in node.names}
            yield from (f"{name}.{room}" for room in sorted(own & rooms - here))
        elif path.stem in own:
            yield name


def long(root=ROOT):
    """Files of many lines."""
    for path in sorted(root.rglob("*.py")):
        lines = len(path.read_text(encoding="utf-8").splitlines())
        if lines > LINES:
            yield f"{path.relative_to(root)}: {lines} lines"


@pytest.mark.parametrize("fault", [crowded, named_twice, hidden, long], ids=lambda fault: fault.__name__)
def test_the_house_is_in_order(fault):
    assert list(fault()) == []


def test_no_import_goes_round_in_a_circle():
    assert circles(imports()) == []


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ({"one.py": "def one(): pass"}, ["house.one"]),
        ({"__init__.py": "from house.two import one", "one.py": "", "two.py": "def one(): pass"}, ["house.one"]),
        ({"__init__.py": "from house import one", "one.py": ""}, []),
    ],
)
def test_a_hidden_module_is_seen(tmp_path, files, found):
    assert list(hidden(_house(tmp_path, files))) == found


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


def test_names_and_sizes_are_seen(tmp_path):
    root = _house(tmp_path, {f"m{i}.py": "" for i in range(ROOMS + 1)} | {"deep/m1.py": "\n" * (LINES + 1)})
    assert named_twice(root) == ["m1"]
    assert list(crowded(root)) == [f".: {ROOMS + 2} rooms"]
    assert list(long(root)) == [f"deep/m1.py: {LINES + 1} lines"]


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
