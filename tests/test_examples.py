"""The examples run, and print what they say. The notebooks themselves are run by ``examples/run.py``, in CI."""

import importlib.util
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


def test_every_notebook_is_in_the_readme_and_asserts_its_conclusion(runner):
    listed = re.findall(r"^\| \[(\w+)\]\(\1\.py\)", (EXAMPLES / "README.md").read_text(encoding="utf-8"), flags=re.M)
    assert sorted(listed) == runner.notebooks()
    assert len(listed) == 3  # the three ways in of the home page
    for name in listed:
        prose, conclusion = (EXAMPLES / f"{name}.py").read_text(encoding="utf-8").split("# ## Conclusion\n")
        assert "plt.show()" in prose
        assert conclusion.count("\nassert ") >= 2 or "    assert " in conclusion


def test_the_runner_tells_what_passes_what_fails_and_what_takes_too_long(runner, tmp_path, monkeypatch, capsys):
    for package in ("jupytext", "nbclient", "ipykernel"):
        pytest.importorskip(package)
    (tmp_path / "passes.py").write_text("# %% [markdown]\n# # A title\n\n# %%\nprint(6 * 7)\n")
    (tmp_path / "fails.py").write_text("# %%\nassert 6 * 7 == 41, 'no'\n")
    (tmp_path / "sleeps.py").write_text("# %%\nx = 1\n\n# %%\nimport time\ntime.sleep(60)\n")
    monkeypatch.setattr(runner, "HERE", tmp_path)
    monkeypatch.setattr(sys, "argv", ["run.py", "--limit", "2", "--out", str(tmp_path / "out")])
    assert runner.main() == 1
    lines = capsys.readouterr().out.splitlines()
    outcomes = {line.split()[0]: line for line in lines if " s  " in line}
    assert outcomes["passes"].endswith("passed")
    assert "FAILED" in outcomes["fails"]
    assert "FAILED" in outcomes["sleeps"]
    assert any(line == "AssertionError: no" for line in lines)
    assert lines[-1] == "1 passed, 2 failed"
