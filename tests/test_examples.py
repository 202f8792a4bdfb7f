"""The examples run, and print what they say."""

import runpy
from pathlib import Path

EXAMPLES = Path(__file__).parent.parent / "examples"


def test_own_explainer(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["own_explainer.py", "--epochs", "2", "--samples", "10"])
    runpy.run_path(str(EXAMPLES / "own_explainer.py"), run_name="__main__")
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[2:]] == [
        *("input_times_gradient_squared", "integrated_gradients", "laplace", "uniform"),
    ]
    assert all(0 <= float(line.split()[1]) <= 1 for line in lines[2:])
