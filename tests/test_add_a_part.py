"""Adding a part takes its file, its test and one table line; then all tests pass that look at whatever is registered.

One part of each kind is added to a copy of the repository. Nothing else is edited by hand: ``python docs/generate``
writes the derived pages. The tests and doctests that go through a registry then run in the copy, with those of the
added parts and of the repository as a whole, which takes half as long as the suite::

    pytest -m slow tests/test_add_a_part.py
"""

import faulthandler
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from generators.added_parts import FILES, LINES

ROOT = Path(__file__).parents[1]
#: Folders and files that a clone has; a copy of an installed package would lack some of them.
COPIED = (
    *("xaibench", "tests", "docs", "examples", "speed", ".github", ".ci"),
    *("pyproject.toml", "conftest.py", "mkdocs.yml", "_typos.toml", ".pre-commit-config.yaml", ".gitignore"),
    *("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "CODE_OF_CONDUCT.md", "CITATION.cff", "LICENSE"),
)

#: What a user of the added parts does: a test among those of the copy.
USE = """
import json, pickle
from pathlib import Path
import importlib.util
import pandas as pd
from typer.testing import CliRunner
import xaibench as xb
from xaibench.cli import app
from xaibench.runner import run

def test_added_parts_are_public_listed_and_run_in_a_suite(tmp_path, monkeypatch):
    assert "added_share" in xb.__all__ and "added_share" in dir(xb) and callable(xb.added_share)
    assert xb.explainers.AddedGradient(factor=1.0).factor == 1.0
    try:
        from xaibench.metrics.torchmetrics import AddedShare
    except ModuleNotFoundError as error:
        assert error.name == "torchmetrics"
    else:
        assert pickle.loads(pickle.dumps(AddedShare())).n_valid == 0

    listed = CliRunner().invoke(app, ["list"]).output
    for name in ("added_share", "added_gradient", "added_network", "added-bars", "added-suite"):
        assert f"  {name} " in listed, listed

    test = Path(__file__).parent / "data/photographs/test_added_bars.py"
    spec = importlib.util.spec_from_file_location("bars", test)
    bars = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(bars)
    bars.write(tmp_path / "data")
    monkeypatch.setenv("XAIBENCH_DATA", str(tmp_path / "data"))
    result = run("added-suite", tmp_path / "run", engine="serial", device="cpu")
    assert result.failures == {}, result.failures
    scores = pd.read_parquet(tmp_path / "run/scores.parquet")
    assert set(scores["metric"]) == {"added_share"} and len(scores) == 8 and scores["value"].between(0, 1).all()
    parts = json.loads((tmp_path / "run/descriptions.json").read_text())
    assert "Positive mass inside" in parts["metrics"]["added_share"]["meaning"]
"""


def run_in(folder, *command, timeout):
    """Run a command that imports the copy only."""
    variables = os.environ | {"PYTHONPATH": str(folder), "XAIBENCH_CACHE": str(folder / ".cache")}
    return subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env=variables,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


@pytest.fixture(scope="module")
def copied(tmp_path_factory):
    """A copy of the repository with one more part of each kind."""
    folder = tmp_path_factory.mktemp("copy")
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name)
        elif source.exists():
            shutil.copy(source, folder / name)
    before = run_in(folder, "-c", "import xaibench; xaibench.added_share", timeout=60)
    assert "AttributeError" in before.stderr
    for name, text in FILES.items():
        assert not (folder / name).exists()
        (folder / name).write_text(text, encoding="utf-8")
    for name, (before, line) in LINES.items():
        text = (folder / name).read_text(encoding="utf-8")
        assert text.count(before) == 1, f"{name}: {before}"
        indent = next(row for row in text.splitlines() if before in row).partition(before)[0]
        (folder / name).write_text(text.replace(before, f"{before}\n{indent}{line}"), encoding="utf-8")
    return folder


def test_each_part_is_its_file_its_test_and_one_line():
    kinds = [name.split("/")[1] for name in FILES if name.startswith("xaibench/")]
    assert sorted(kinds) == ["benchmarks", "data", "explainers", "metrics", "models"]
    assert len(FILES) == 2 * 5 - 1  # a suite has no test of its own,
    assert len(LINES) == 4  # and no table line


#: What goes through all parts of a registry rather than naming one.
OVER_PARTS = re.compile(
    r"(?:\bin |\*|[(=,|] ?)(?:EXPLAINERS|METRICS|MODELS|DATASETS|SUITES)\b(?![.\[])"
    r"|explainer_trials|\bcase\(|\b(?:gradient_free|list_\w+)\("
)


def files_over_parts(folder):
    """Return the test files, and modules with examples, that the added parts may change the outcome of."""
    tests = [path for path in folder.glob("tests/**/test_*.py") if path.name != Path(__file__).name]
    chosen = [path for path in tests if path.parent.name == "tests" or OVER_PARTS.search(path.read_text("utf-8"))]
    modules = [(path, path.read_text("utf-8")) for path in folder.glob("xaibench/**/*.py")]
    chosen += [path for path, text in modules if ">>>" in text and OVER_PARTS.search(text)]
    added = [folder / name for name in FILES if name.endswith(".py")]
    return sorted({path.relative_to(folder).as_posix() for path in chosen + added})


def test_the_files_that_go_through_registries_are_found():
    found = files_over_parts(ROOT)
    assert {path.relative_to(ROOT).as_posix() for path in ROOT.glob("tests/conformance/test_*.py")} <= set(found)
    assert {"tests/registry/test_table.py", "xaibench/explainers/registered.py"} <= set(found)


@pytest.mark.slow
def test_tests_over_all_parts_pass_with_one_more_of_each_kind(copied):
    faulthandler.cancel_dump_traceback_later()  # pytest would end a test that takes ten minutes
    before = snapshot(copied)
    made = run_in(copied, "docs/generate", timeout=600)
    assert made.returncode == 0, made.stdout + made.stderr
    derived = sorted(name for name, text in snapshot(copied).items() if before.get(name) != text)
    print("by hand:", *FILES, *LINES, "by `python docs/generate`:", *derived, sep="\n  ")
    generated = {"xaibench/metrics/registered_functions.pyi", "xaibench/cli/names.json"}
    assert all(name.startswith("docs/") or name in generated for name in derived), derived
    (copied / "tests/test_use_of_added_parts.py").write_text(USE, encoding="utf-8")
    finished = run_in(copied, "-m", "pytest", *files_over_parts(copied), timeout=3000)
    assert finished.returncode == 0, finished.stdout[-8000:] + finished.stderr[-2000:]
    assert int(re.search(r"(\d+) passed", finished.stdout)[1]) > 3000


def snapshot(folder):
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and ".cache" not in path.parts
    }


def test_added_parts_pass_ruff(copied):
    pytest.importorskip("ruff")
    for command in (("check",), ("format", "--check")):
        files = [name for name in [*FILES, *LINES] if name.endswith(".py")]
        finished = run_in(copied, "-m", "ruff", *command, *files, timeout=60)
        assert finished.returncode == 0, finished.stdout
