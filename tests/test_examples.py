"""The examples run, and print what they say. The notebooks themselves are run by ``examples/run.py``, in CI."""

import importlib.util
import json
import re
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"


@pytest.fixture
def runner(monkeypatch):
    """``examples/run.py`` as a module."""
    spec = importlib.util.spec_from_file_location("run_examples", EXAMPLES / "run.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_notebook_is_in_the_readme(runner):
    listed = re.findall(r"^\| \[\w+\]\((\S+)\)", (EXAMPLES / "README.md").read_text(encoding="utf-8"), flags=re.M)
    assert sorted(listed) == sorted(path.name for path in runner.notebooks().values())


def test_the_runner_tells_what_passes_what_fails_and_what_takes_too_long(runner, tmp_path, monkeypatch, capsys):
    for package in ("jupytext", "nbclient", "ipykernel"):
        pytest.importorskip(package)
    (tmp_path / "passes.py").write_text("# %% [markdown]\n# # A title\n\n# %%\nprint(6 * 7)\n")
    (tmp_path / "fails.py").write_text("# %%\nassert 6 * 7 == 41, 'no'\n")
    cell = {"cell_type": "code", "id": "a", "metadata": {}, "execution_count": None, "source": "print('score 0.50')"}
    for name, printed in (("close", "score 0.501\n"), ("changed", "score 0.51\n")):
        stored = cell | {"outputs": [{"output_type": "stream", "name": "stdout", "text": printed}]}
        notebook = {"cells": [stored], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
        (tmp_path / f"{name}.ipynb").write_text(json.dumps(notebook))
    (tmp_path / "sleeps.py").write_text("# %%\nx = 1\n\n# %%\nimport time\ntime.sleep(60)\n")
    monkeypatch.setattr(runner, "HERE", tmp_path)
    monkeypatch.setattr(sys, "argv", ["run.py", "--limit", "2", "--out", str(tmp_path / "out")])
    assert runner.main() == 1
    lines = capsys.readouterr().out.splitlines()
    outcomes = {line.split()[0]: line for line in lines if " s  " in line}
    assert outcomes["passes"].endswith("passed")
    assert outcomes["close"].endswith("passed")
    assert "FAILED" in outcomes["changed"]
    assert "FAILED" in outcomes["fails"]
    assert "FAILED" in outcomes["sleeps"]
    assert any(line == "AssertionError: no" for line in lines)
    assert lines[-1] == "2 passed, 3 failed"
