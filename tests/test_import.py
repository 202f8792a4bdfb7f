"""``import xaibench`` stays light; and the check that says so can fail."""

import importlib
import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

import xaibench
from xaibench.metrics import METRICS

HEAVY = ("torch", "torchvision", "captum", "numpy", "scipy", "pandas", "sklearn", "matplotlib", "ot", "ray", "typer")

PROGRAM = """
import json, sys
before = set(sys.modules)
for statement in sys.argv[1:]:
    exec(statement)
    print(json.dumps(sorted({name.partition(".")[0] for name in set(sys.modules) - before})))
"""


def loaded_by_each(*statements):
    """The packages that are loaded after each statement in one fresh interpreter."""
    program = [sys.executable, "-c", PROGRAM, *statements]
    finished = subprocess.run(program, capture_output=True, text=True, timeout=120, check=False)
    assert finished.returncode == 0, finished.stderr
    return [set(json.loads(line)) for line in finished.stdout.splitlines()]


def test_import_is_light():
    package, registry = loaded_by_each("import xaibench", "import xaibench.registry.table, xaibench.core.types")
    assert "xaibench" in package
    assert registry.isdisjoint(HEAVY)


def test_metrics_do_not_load_torch_for_numpy_users():
    statement = "import numpy, xaibench\nxaibench.topk_precision(numpy.eye(3), numpy.eye(3))"
    (loaded,) = loaded_by_each(statement)
    assert loaded.isdisjoint({"torch", "captum", "matplotlib", "pandas"})


def test_what_is_slow_to_load_is_loaded_on_use():
    """In one process, because each would load torch. The check of ``import xaibench`` would see torch and Captum."""
    applied, opened, adapted = loaded_by_each(
        "import torch, xaibench.evaluation.apply, xaibench.explainers",
        # torchvision, for a `transform` alone, is 160 MB; pyarrow, for the first photograph, 25.
        "import xaibench.data\n[xaibench.data.DATASETS.resolve(name) for name in xaibench.data.DATASETS]",
        "import captum",
    )
    assert {"torch", "numpy"} <= applied
    assert applied.isdisjoint({"pandas", "scipy", "matplotlib", "numba"})
    assert opened.isdisjoint({"torchvision", "pyarrow", "pandas", "matplotlib", "captum", "pydicom", "nibabel"})
    assert "captum" in adapted


@pytest.mark.parametrize("package", ["", ".benchmarks", ".data", ".explainers", ".leaderboard", ".metrics"])
def test_every_public_name_is_there(package):
    module = importlib.import_module(f"xaibench{package}")
    for name in module.__all__:
        called = getattr(getattr(module, name), "__name__", name).rpartition(".")[2]
        assert called in (name, "Literal"), "an entry that leads to something else"
    assert set(module.__all__) <= set(dir(module))
    with pytest.raises(AttributeError):
        _ = module.not_there


def test_every_metric_is_a_public_name():
    assert set(METRICS) <= set(xaibench.__all__) & set(xaibench.metrics.__all__) & set(dir(xaibench.metrics))
    assert all(getattr(xaibench, name) is METRICS.resolve(name) for name in METRICS)


def test_no_speed_script_hides_a_module_that_others_import():
    # A script's folder comes first on the path: one called coverage.py was imported by numba in place of the package.
    folder = Path(xaibench.__file__).parent.parent / "speed"
    if not folder.is_dir():
        pytest.skip("the speed scripts are not part of an installation")
    # What is found without an origin is a folder of the tests; they also bring docs/generate onto the path.
    found = {path.stem: importlib.util.find_spec(path.stem) for path in folder.glob("*.py")}
    origins = {name: spec.origin for name, spec in found.items() if spec is not None and spec.origin is not None}
    hidden = {name for name, origin in origins.items() if folder.parent not in Path(origin).parents}
    assert hidden == set(), origins


@pytest.mark.parametrize("package", [xaibench, xaibench.metrics], ids=lambda package: package.__name__)
@pytest.mark.parametrize(("alias", "name"), [("pointing_game", "hit"), ("dice", "f1"), ("IoU", "iou")])
def test_an_alias_names_the_metric(package, alias, name):
    with pytest.raises(AttributeError, match=rf"{alias}.*{package.__name__}\.{name}\b"):
        getattr(package, alias)
    assert not hasattr(package, "nothing_of_this_name")
