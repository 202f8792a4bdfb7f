"""A part is its file, its test and one line: one of each kind is added to a copy, and passes whatever gates there are.

Nothing else of the copy is touched. What is written by commands (pages, pictures, typing stubs) is made in memory.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from generators.added_parts import FILES, LINES

ROOT = Path(__file__).parents[1]

#: What the suites of tests over all parts say of these, and of tables as wholes.
WHOLE = (
    "labels_are_unique",
    "every_metric_has_a_class",
    "every_metric_is_a_public_name",
    "registered_part_is_documented",
)
TESTS = (
    "conformance/test_metrics.py",
    "conformance/test_explainers.py",
    "conformance/test_models.py",
    "conformance/test_annotated.py",
    "conformance/test_input_copies.py",
    "conformance/test_one_caller.py",
    "explainers/test_api.py",
    "metrics/test_bad_input.py",
    "metrics/test_fuzz.py",
    "metrics/test_torchmetrics.py",
    "test_import.py",
    "test_docstrings.py",
)

#: What a user of the parts meets, and the makers of pages: a test among those of the copy, whose process it shares.
USE = """
import importlib.util, json, pickle, sys
from pathlib import Path
import pandas as pd
from typer.testing import CliRunner
import xaibench as xb
from xaibench.cli import app
from xaibench.runner import run

def test_what_is_added_is_there_for_users_and_on_the_pages():
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

    spec = importlib.util.spec_from_file_location("bars", "tests/data/photographs/test_added_bars.py")
    bars = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(bars)
    bars.write(Path("data"))
    result = run("added-suite", "run", engine="serial", device="cpu")
    assert result.failures == {}, result.failures
    scores = pd.read_parquet("run/scores.parquet")
    assert set(scores["metric"]) == {"added_share"} and len(scores) == 8 and scores["value"].between(0, 1).all()
    assert "Positive mass inside" in json.loads(Path("run/parts.json").read_text())["metrics"]["added_share"]["meaning"]

    sys.path.insert(0, "docs/generate")
    import data_sets, explainers, metrics, pictures, typing_stubs
    shown = pictures.example()
    pictures.FOLDER.mkdir(parents=True)
    (pictures.FOLDER / "added_share.svg").write_text(pictures.drawn("added_share", shown))
    assert "[`added_share`](#added_share)" in metrics.table()
    assert "Only a test adds it." in metrics.entry("added_share", shown)
    assert "### added_gradient" in explainers.page().partition("## Gradients with")[0]
    assert "### added-bars" in data_sets.page()
    assert all("Added" in text or "added" in text for text in typing_stubs.stubs().values())
"""


def ran(folder, *command):
    """A command in the copy, which alone it can import."""
    places = {"PYTHONPATH": str(folder), "XAIBENCH_DATA": str(folder / "data"), "XAIBENCH_CACHE": str(folder / "cache")}
    given = [sys.executable, *command]
    return subprocess.run(
        given, cwd=folder, env=os.environ | places, capture_output=True, text=True, timeout=300, check=False
    )


@pytest.fixture(scope="module")
def copied(tmp_path_factory):
    """The package, its tests and its pages' makers, with one part of each kind more; and what was so before."""
    folder = tmp_path_factory.mktemp("copy")
    for name in ("xaibench", "tests", "docs/generate"):  # what is compiled comes along, which saves half of the time
        shutil.copytree(ROOT / name, folder / name)
    for name in ("pyproject.toml", "conftest.py"):
        shutil.copy(ROOT / name, folder / name)
    assert "no attribute 'added_share'" in ran(folder, "-c", "import xaibench; xaibench.added_share").stderr
    for name, text in FILES.items():
        assert not (folder / name).exists()
        (folder / name).write_text(text, encoding="utf-8")
    for name, (before, line) in LINES.items():
        text = (folder / name).read_text(encoding="utf-8")
        assert text.count(before) == 1, f"{name}: {before}"
        (folder / name).write_text(text.replace(before, f"{before}\n        {line}"), encoding="utf-8")
    return folder


def test_each_part_is_its_file_its_test_and_one_line():
    kinds = [name.split("/")[:2] for name in FILES]
    suites = "runner"  # where the suites lie
    assert sorted(kind for top, kind in kinds if top == "xaibench") == sorted(
        ["metrics", "explainers", "models", "data", suites]
    )
    assert len(FILES) == 2 * 5 - 1  # a suite has no test of its own
    assert len(LINES) == 4  # and no line


def test_a_part_that_is_added_passes_the_tests_over_all_parts_and_is_there_for_users_and_on_the_pages(copied):
    (copied / "tests/test_use.py").write_text(USE, encoding="utf-8")
    own = [name for name in FILES if name.startswith("tests/")]
    chosen = " or ".join(["added", *WHOLE])
    options = ("-m", "pytest", "-n", "0", "-p", "no:cacheprovider", "-rA", "-k", chosen)
    finished = ran(copied, *options, *own, *(f"tests/{name}" for name in (*TESTS, "test_use.py")))
    assert finished.returncode == 0, finished.stdout[-6000:] + finished.stderr[-2000:]
    assert int(re.search(r"(\d+) passed", finished.stdout)[1]) > 80
    assert "test_what_is_added_is_there_for_users" in finished.stdout


def test_a_part_that_is_added_passes_ruff(copied):
    pytest.importorskip("ruff")
    for command in (("check",), ("format", "--check")):
        finished = ran(copied, "-m", "ruff", *command, *(name for name in [*FILES, *LINES] if name.endswith(".py")))
        assert finished.returncode == 0, finished.stdout
