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
    {"component"},
    {"compute", "types"},
    {"kernels"},
    {"data", "models", "explainers", "metrics", "statistics", "runfolder", "plots"},
    {"evaluation"},
    {"benchmarks", "compat"},
    {"runner", "meta_evaluation"},
    {"report"},
    {"hub", "auditing"},
    {"leaderboard"},
    {"cli"},
    {"__init__", "__main__"},
)
#: Packages that need less than all lower layers.
ONLY = {
    "statistics": {"core"},
    "runfolder": {"core", "component"},
    "plots": {"core"},
    "report": {"_version", "core", "component", "statistics", "runfolder", "plots", "benchmarks"},
}
ALL = set().union(*LAYERS)
MAY_IMPORT = {
    name: ONLY.get(name, set().union(*LAYERS[:height])) for height, layer in enumerate(LAYERS) for name in layer
}

#: Where, and nowhere else, a package may be imported: paths below xaibench/, as patterns.
ONLY_IN = {
    "captum": ["explainers/captum_adapter.py", "explainers/propagation/captum_lrp.py"],
    "matplotlib": ["plots/*.py", "report/figures/*.py", "evaluation/table.py"],
    "ray": ["runner/ray_cluster.py"],
    "ot": ["metrics/localization/*.py"],
    "pydicom": ["data/scans/*.py"],
    "nibabel": ["data/scans/*.py"],
    "typer": ["cli/*.py"],
    "jinja2": ["report/page/*.py", "auditing/page.py"],
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
    ("place", "code", "found"),
    [
        ("data/one.py", "import xaibench.models", "data/one.py:1 imports xaibench.models"),
        ("data/one.py", "from xaibench import models", "data/one.py:1 imports xaibench.models"),
        ("data/one.py", "from ..metrics import emd", "data/one.py:1 imports xaibench.metrics.emd"),
        ("data/deep/one.py", "from ...metrics import emd", "data/deep/one.py:1 imports xaibench.metrics.emd"),
        ("models/one.py", "def f():\n    from xaibench.data import load", "models/one.py:2 imports xaibench.data.load"),
        ("metrics/one.py", "if TYPE_CHECKING:\n    import xaibench.runner", "metrics/one.py:2 imports xaibench.runner"),
        ("core/one.py", "from xaibench import data", "core/one.py:1 imports xaibench.data"),
        ("types.py", "from . import data", "types.py:1 imports xaibench.data"),
        ("report/one.py", "from xaibench.runner import run", "report/one.py:1 imports xaibench.runner.run"),
        ("runner/one.py", "import xaibench.report", "runner/one.py:1 imports xaibench.report"),
        (
            "explainers/gradients/integrated_gradients.py",
            "from captum.attr import LRP",
            "explainers/gradients/integrated_gradients.py:1 imports captum.attr.LRP",
        ),
        ("metrics/one.py", "import matplotlib.pyplot as plt", "metrics/one.py:1 imports matplotlib.pyplot"),
        ("runner/one.py", "import importlib\nimportlib.import_module('ray')", "runner/one.py:2 imports ray"),
        ("extra/one.py", "", "extra/one.py: say in LAYERS where 'extra' belongs"),
    ],
)
def test_a_violation_is_seen(tmp_path, place, code, found):
    path = tmp_path / place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(code)
    assert violations(tmp_path) == [found]


@pytest.mark.parametrize(
    ("place", "code"),
    [
        (
            "data/one.py",
            "from xaibench.component.info import DatasetInfo\nfrom xaibench.data import stratified_splits",
        ),
        ("data/one.py", "from . import splits\nfrom .splits import stratified_split\nimport torch"),
        ("runner/one.py", "import xaibench\nfrom xaibench import data, metrics"),
        ("explainers/propagation/captum_lrp.py", "from captum.attr import LRP"),
        ("explainers/captum_adapter.py", "from captum.attr import LRP"),
        ("report/figures/scores.py", "import matplotlib"),
        ("runner/ray_cluster.py", "import ray"),
        ("cli/run_commands.py", "from xaibench.runner import run"),
    ],
)
def test_what_is_allowed_is_not_seen(tmp_path, place, code):
    path = tmp_path / place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(code)
    assert violations(tmp_path) == []
