"""Import layers, read from the imports themselves; docs/architecture.md draws them. Circles: test_import_cycles.py."""

import ast
from pathlib import Path

import pytest

import xaibench

ROOT = Path(xaibench.__file__).parent
#: Modules and packages of xaibench, lowest layer first. Each may import lower layers only, so those of one layer are
#: independent of each other.
LAYERS = (
    {"_version"},
    {"core"},
    {"registry"},
    {"tensors", "types"},
    {"network"},
    {"kernels"},
    {"data", "models", "explainers", "metrics", "runfolder"},
    {"benchmarks"},
    {"scores"},
    {"plots"},
    {"evaluation"},
    {"runner", "meta_evaluation", "compat"},
    {"report"},
    {"hub", "auditing"},
    {"leaderboard"},
    {"cli"},
    {"__init__", "__main__"},
)
#: Packages that need less than all lower layers.
ONLY = {
    "runfolder": {"core", "registry"},
    "scores": {"core", "registry", "runfolder", "benchmarks"},
    "plots": {"core", "runfolder", "benchmarks", "scores"},
    "report": {"_version", "core", "registry", "runfolder", "plots", "benchmarks", "scores"},
}
ALL = set().union(*LAYERS)
MAY_IMPORT = {
    name: ONLY.get(name, set().union(*LAYERS[:height])) for height, layer in enumerate(LAYERS) for name in layer
}

#: Where, and nowhere else, a package may be imported: paths below xaibench/, as patterns.
ONLY_IN = {
    "captum": ["explainers/captum_adapter.py", "explainers/propagation/captum_lrp.py"],
    "matplotlib": ["plots/*.py", "core/pictures.py", "evaluation/table.py"],
    "ray": ["runner/ray_cluster.py"],
    "ot": ["metrics/localization/*.py"],
    "pydicom": ["data/scans/*.py"],
    "nibabel": ["data/scans/*.py"],
    "typer": ["cli/*.py"],
    "jinja2": ["report/page/*.py"],
    "huggingface_hub": ["hub.py", "data/exchange/hub_sets.py"],
    "datasets": ["data/exchange/datasets_library.py"],
}


def imports(path, root=ROOT):
    """``(line, "dotted.module")`` of every import in a file, wherever it stands: functions and type checking included.

    ``from package import name`` counts as ``package.name``, for ``name`` may be a module.
    """
    package = ["xaibench", *path.relative_to(root).parts[:-1]]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            yield from ((node.lineno, f"{module}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("import_module", "__import__")):
            names = [argument.value for argument in node.args if isinstance(argument, ast.Constant)]
            yield from ((node.lineno, str(name)) for name in names[:1])


def violations(root=ROOT):
    """What breaks the rules in the package at ``root``, one line each."""
    found = []
    for path in sorted(root.rglob("*.py")):
        place = path.relative_to(root)
        owner = place.parts[0].removesuffix(".py")
        if owner not in MAY_IMPORT:
            found.append(f"{place}: say in LAYERS where {owner!r} belongs")
            continue
        for line, module in imports(path, root):
            package, _, rest = module.partition(".")
            other = rest.partition(".")[0]
            if package == "xaibench" and other in MAY_IMPORT and other != owner and other not in MAY_IMPORT[owner]:
                found.append(f"{place}:{line} imports {module}")
            if package in ONLY_IN and not any(place.match(pattern) for pattern in ONLY_IN[package]):
                found.append(f"{place}:{line} imports {module}")
    return found


def test_the_package_keeps_its_rules():
    assert violations() == []


def test_every_module_and_package_has_a_layer():
    there = {
        path.name.removesuffix(".py")
        for path in ROOT.iterdir()
        if path.suffix == ".py" or (path / "__init__.py").exists()
    }
    assert there == ALL
    assert all(any(ROOT.glob(pattern)) for pattern in ONLY_IN["captum"] + ONLY_IN["matplotlib"])


@pytest.mark.parametrize(
    ("path", "code", "imported"),
    [
        ("data/one.py", "import xaibench.models", "xaibench.models"),
        ("data/one.py", "from xaibench import models", "xaibench.models"),
        ("data/deep/one.py", "from ...metrics import emd", "xaibench.metrics.emd"),
        ("metrics/one.py", "if TYPE_CHECKING: import xaibench.runner", "xaibench.runner"),
        ("types.py", "from . import data", "xaibench.data"),
        ("explainers/gradients/one.py", "from captum.attr import LRP", "captum.attr.LRP"),
        ("runner/one.py", "import importlib; importlib.import_module('ray')", "ray"),
        ("data/one.py", "from . import splits; from xaibench.registry.info import DatasetInfo; import torch", None),
        ("explainers/captum_adapter.py", "from captum.attr import LRP", None),
        ("runner/one.py", "import xaibench; from xaibench import data, metrics", None),
    ],
)
def test_a_violation_is_seen(tmp_path, path, code, imported):
    (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / path).write_text(code)
    assert violations(tmp_path) == ([f"{path}:1 imports {imported}"] if imported else [])


def test_a_package_without_a_layer_is_seen(tmp_path):
    (tmp_path / "extra.py").touch()
    assert violations(tmp_path) == ["extra.py: say in LAYERS where 'extra' belongs"]
