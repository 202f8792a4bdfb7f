"""The command line: what it prints, and its exit codes."""

import shutil

import pytest
from typer.testing import CliRunner

import xaibench
from xaibench.cli import app

SUITE = """
name = "small"
title = "Small"
data = { parameters = { n_samples = 100 } }
training = { seeds = [0], epochs = 1 }
explaining = { samples = 4 }
cells = [{ datasets = ["xai-tris/lin-white-8x8"], models = ["llr"] }]
explainers = { saliency = {}, input = {} }
metrics = { emd_perf = {} }
quick = { explaining = { samples = 2 } }
"""


@pytest.fixture
def invoke(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.toml").write_text(SUITE)
    return lambda *arguments: CliRunner().invoke(app, list(arguments))


def test_version(invoke):
    result = invoke("--version")
    assert (result.exit_code, result.output) == (0, f"xaibench {xaibench.__version__}\n")


def test_help_shows_the_way(invoke):
    result = invoke()
    assert "xaibench run xai-tris-8x8 --quick" in result.output
    for command in ("run", "report", "list"):
        assert command in result.output
    assert "--workers" in invoke("run", "--help").output


def test_list(invoke):
    assert "integrated_gradients  Integrated Gradients" in invoke("list", "explainers").output
    everything = invoke("list")
    assert everything.exit_code == 0
    for name in ("xai-tris/xor-corr-8x8", "cnn", "lime", "emd_perf", "xai-tris-8x8-paper"):
        assert name in everything.output
    assert invoke("list", "fruits").exit_code == 2


def test_run_and_report(invoke, tmp_path):
    result = invoke("run", "small.toml", "--engine", "serial")
    assert result.exit_code == 0, result.output
    page = tmp_path / "runs" / "small" / "report.html"
    assert str(page) in result.output
    assert "emd" in result.output.lower()
    page.unlink()
    shutil.rmtree(tmp_path / "runs" / "small" / "figures")
    again = invoke("report", "runs/small")
    assert again.exit_code == 0, again.output
    assert page.exists()


def test_quick_goes_to_a_folder_of_its_own(invoke, tmp_path):
    assert invoke("run", "small.toml", "--quick", "--engine", "serial").exit_code == 0
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["small-quick"]


def test_failed_jobs_are_listed_with_exit_code_1(invoke, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "cli_failing_part.py").write_text("def broken(model, images, targets):\n    raise OSError('no map')\n")
    (tmp_path / "small.toml").write_text(SUITE.replace("saliency = {}", '"cli_failing_part:broken" = {}'))
    result = invoke("run", "small.toml", "--engine", "serial")
    assert result.exit_code == 1
    assert "1 jobs failed; the same command tries them again:" in result.output
    assert "OSError: no map" in result.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("run", "xai-tris-8"), "did you mean 'xai-tris-8x8'"),
        (("run", "nowhere.toml"), "cannot read the suite"),
        (("run", "small.toml", "--engine", "magic"), "magic"),
        (("run", "small.toml", "--workers", "0"), "greater than or equal to 1"),
        (("run", "small.toml", "--device", "abacus"), "there is no device 'abacus'"),
        (("run", "small.toml", "--out", "small.toml/x"), "cannot write to the run folder"),
        (("report", "nowhere"), "nowhere"),
        (("walk",), "walk"),
    ],
)
def test_bad_arguments_are_exit_code_2_and_one_line(invoke, arguments, message):
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert message in result.output
    assert "Traceback" not in result.output
