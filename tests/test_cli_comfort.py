"""What the command line offers beside its results: completion, color, a page of a score."""

import json
import re
import subprocess
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

from xaibench.cli import app
from xaibench.cli.completion import completer
from xaibench.metrics import METRICS
from xaibench.runner import SUITES

ON = ("--dataset", "xai-tris/lin-white-8x8")


@pytest.fixture
def invoke(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    np.save("maps.npy", np.random.default_rng(0).random((1000, 8, 8)))
    return lambda *arguments, **options: CliRunner().invoke(app, list(arguments), **options)


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("xaibench ru", ["run"]),
        ("xaibench run xai-tris-8x8-p", ["xai-tris-8x8-paper"]),
        ("xaibench run x --explainers mine:f,gradcam", ["mine:f,gradcam", "mine:f,gradcam++"]),
        ("xaibench score m.npy --metrics io", ["iou", "iou_skill"]),
        ("xaibench score m.npy --dataset xai-tris/lin-white-8", ["xai-tris/lin-white-8x8"]),
    ],
)
def test_the_shell_is_offered_names(invoke, words, offered):
    environment = {"_XAIBENCH_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    result = invoke(env=environment, prog_name="xaibench")
    assert result.output.split() == offered


def test_completion_can_be_installed(invoke):
    assert "--install-completion" in invoke("--help").output


def test_all_names_are_offered_without_loading_torch():
    assert set(completer("metrics")("")) == set(METRICS)
    assert set(completer("suites")("")) == set(SUITES)
    program = (
        "import json, sys; from xaibench.cli.completion import completer; "
        "found = [completer(kind)('') for kind in ('datasets', 'models', 'explainers', 'metrics', 'suites')]; "
        "print(json.dumps([list(map(bool, found)), 'torch' in sys.modules]))"
    )
    finished = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert json.loads(finished.stdout) == [[True] * 5, False]


def test_colors_are_for_terminals_and_can_be_turned_off_and_on(invoke, monkeypatch):
    np.save("noise.npy", np.random.default_rng(0).random((4, 6, 8, 10)))
    command = ("score", "noise.npy", "--dataset", "generators.volume_blocks:blocks", "--metrics", "hit")
    assert "\x1b[" not in invoke(*command).output
    assert "\x1b[1m" in invoke(*command, color=True).output
    assert "\x1b[31m" in invoke("score", "gone.npy", *ON, color=True).output
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert re.search(r"\x1b\[2msobel", invoke(*command).output)
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[" not in invoke(*command, color=True).output


def test_a_score_is_written_as_a_page(invoke, tmp_path):
    result = invoke("score", "maps.npy", *ON, "--metrics", "hit", "--html", "pages/mine.html")
    assert result.exit_code == 0, result.output
    page = (tmp_path / "pages" / "mine.html").read_text(encoding="utf-8")
    assert f"Page: {tmp_path / 'pages' / 'mine.html'}" in result.output
    assert "<th>maps</th>" in page
    assert "1000 samples; mean and 95 % interval." in page
    assert "data:image/png;base64," in page
    assert not re.search(r"(src|href)=.?https?:", page)


def test_the_size_of_a_set_on_disk_is_the_users(invoke, tmp_path):
    from generators.folder import write

    write(tmp_path / "mine")
    where = ("--dataset", f"folder:{tmp_path / 'mine'}", "--split", "all", "--size", "32")
    assert invoke("score", "own.npz", *where, "--template").exit_code == 0
    with np.load("own.npz") as template:
        assert template["maps"].shape[1:] == (32, 32)
    result = invoke("score", "maps.npy", *ON, "--size", "32")
    assert result.exit_code == 2
    assert "has a fixed size" in result.output
