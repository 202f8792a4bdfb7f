"""Any command line ends with exit code 0, 1 or 2 and printable text: no traceback, and nothing is written elsewhere."""

import os
import re
import shutil

import numpy as np
import pytest
import typer
from generators.folder import write
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from xaibench import runner
from xaibench.cli import app
from xaibench.data.disk.annotated_set import AnnotatedSet
from xaibench.data.disk.file_readers import MissingDataError

SUITE = """
name = "small"
title = "Small"
data = { parameters = { n_samples = 100 } }
cells = [{ datasets = ["xai-tris/lin-white-8x8"], models = ["llr"] }]
explainers = { saliency = {}, uniform = {} }
metrics = { iou = {} }
quick = { explaining = { samples = 2 } }
"""
NETWORK = """
import torch
network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 16 * 16, 2))
def broken(): raise RuntimeError("broken\\x1b[2J")
"""

#: What a user may give anywhere: names, paths and numbers.
WORDS = """- -- -x --plan , ,, a,b = a=b a.b:c math:pi os:nothing json : a: :b mine.py:broken mine.py:x hf://-x/y hf://../..
hf:// hf://a/b@ hf://a/b hf:a/b hf:../.. hf: folder: parquet: volumes: folder:nothing folder:mine.toml parquet:images
volumes:images photographs:images published:images timm:nothing torchvision:nothing whitened:x:y certified:x
http://127.0.0.1:9/x file:///etc memory://x small pet mlp resnet18 saliency iou road all test magnitude area logit cpu
cuda auto png published head saliency,iuo iou,iou gradcam,mine:x mine.toml mine.toml/x images images/image nothing
nothing/x/y pipe loop broken.png . mine.py sheet.xyz new.csv new.html new noise.bin ~nobody/x $HOME/x damaged
damaged/descriptions.json 0 -1 1 8 16 007 1e3 0.5 nan inf -inf \u0663 1_000 0x10 40,400 1,x"""
ODD = ["", " ", "a b:c", "\x1b[31mred", "\u202eabc", "a\nb", "\x00", "\udcff", "n\udcff.npy", "x" * 5000, "9" * 5000]
VALUES = st.sampled_from([*WORDS.split(), *ODD]) | st.sampled_from(ODD) | st.text(max_size=4)
#: What gets further than the first check, by the name of the argument.
GOOD = {
    "suite": ["mine.toml", "xai-tris-8x8", "whitening", "pipe.toml"],
    "dataset": ["xai-tris/lin-white-8x8", "folder:images"],
    "name": ["xai-tris/lin-white-8x8", "folder:images", "whitened:sphering:xai-tris/lin-white-8x8"],
    "source": ["xai-tris/lin-white-8x8", "folder:images", "damaged"],
    "maps": ["maps.npy", "maps.npz", "new.npz"],
    "network": ["mine.py:network", "mine.py:broken"],
    "images": ["images/image", "images", "folder:images", "broken.png"],
    "folder": ["damaged", "images"],
    "folders": ["damaged", "images"],
    "run": ["damaged"],
    "repo": ["owner/name"],
    "classes": ["healthy,ill", "ill", "a,b"],
    "count": ["8"],
    "size": ["16", "224"],
    "samples": ["8", "all"],
    "metrics": ["iou", "iou,hit"],
    "explainers": ["saliency", "saliency,sobel"],
    "models": ["mlp", "llr"],
    "workers": ["1"],
}

#: Options that download, upload, or change the user's shell.
LEFT_OUT = {"--download", "--yes", "--install-completion", "--show-completion"}
#: What keeps a command from training.
ALWAYS = {("run",): ["--plan"], ("audit",): ["--plan"]}


def walk(command, path=()):
    for name, one in getattr(command, "commands", {}).items():
        yield from walk(one, (*path, name))
    if not hasattr(command, "commands"):
        yield path, command


COMMANDS = dict(walk(typer.main.get_command(app)))


def values(parameter):
    good = st.sampled_from(GOOD.get(parameter.name, ["x"]))
    return good | good | VALUES if parameter.name in GOOD else VALUES


@st.composite
def lines(draw):
    """A command with mostly the arguments that it has, mostly of their kind."""
    path = draw(st.sampled_from(sorted(COMMANDS)))
    arguments, options = [], []
    for one in COMMANDS[path].params:
        if not one.opts[0].startswith("-"):
            arguments += draw(st.lists(values(one), min_size=1, max_size=1 if one.nargs == 1 else 3))
        elif not LEFT_OUT & set(one.opts) and (one.required or not draw(st.integers(0, 5))):
            for _ in range(draw(st.sampled_from([1, 1, 1, 2]))):
                options += [one.opts[0]] if one.is_flag else [one.opts[0], draw(values(one))]
    line = [*path, *arguments, *options, *ALWAYS.get(path, [])]
    kind = draw(st.sampled_from(["none"] * 6 + ["insert", "remove", "misspell"]))
    at = draw(st.integers(0, len(line) - 1))
    if kind == "insert":
        line.insert(at, draw(VALUES))
    elif kind == "remove" and path not in ALWAYS:
        del line[at]
    elif kind == "misspell" and path not in ALWAYS:
        line[at] += draw(st.sampled_from(["x", "\x1b", " "]))
    return line


@pytest.fixture(scope="module")
def room(tmp_path_factory):
    """A folder for the commands: all that they may write is below it."""
    base = tmp_path_factory.mktemp("commands")
    prepare(base)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(base / "work")
        for name in ("HOME", "XDG_CACHE_HOME", "XAIBENCH_CACHE", "HF_HOME", "TORCH_HOME", "TORCHINDUCTOR_CACHE_DIR"):
            patch.setenv(name, str(base / "home"))
        for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
            patch.setenv(name, "1")
        patch.setattr("tempfile.tempdir", str(base / "temporary"))
        patch.setattr(runner, "run", refuse)
        patch.setattr(AnnotatedSet, "download", refuse)
        yield base


def refuse(*_, **__):
    raise MissingDataError("Nothing is run or downloaded here.")


def prepare(base):
    for name in ("work", "home", "temporary"):
        (base / name).mkdir()
    work = base / "work"
    (work / "mine.toml").write_text(SUITE)
    (work / "mine.py").write_text(NETWORK)
    write(work / "images")
    np.save(work / "maps.npy", np.zeros((1000, 8, 8)))
    np.savez(work / "maps.npz", maps=np.zeros((4, 8, 8)))
    (work / "noise.bin").write_bytes(bytes(range(256)))
    (work / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    for name in ("pipe", "pipe.toml", "images/image/ill/pipe.png"):
        os.mkfifo(work / name)
    (work / "damaged").mkdir()
    (work / "damaged" / "descriptions.json").write_text("[" * 5000)
    (work / "damaged" / "scores.parquet").write_bytes(b"PAR1 and no more")
    (work / "loop").symlink_to("loop")


@given(line=lines())
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_any_command_line_ends_with_a_code_and_printable_text(room, line):
    result = CliRunner().invoke(app, line, color=True)
    if result.exc_info and not isinstance(result.exception, SystemExit | None):
        raise result.exception
    assert result.exit_code in (0, 1, 2)
    text = re.sub(r"\x1b\[(0|1|2|31|33)m", "", result.output)
    assert text.replace("\n", "").isprintable(), ascii(text)
    assert text or result.exit_code == 0
    assert sorted(path.name for path in room.iterdir()) == ["home", "temporary", "work"]
    left = sorted((room / "temporary").iterdir())
    for path in (*left, *(room / "work").iterdir()):  # so that each example begins alike
        if path.name not in KEPT:
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    assert not left


KEPT = {"images", "damaged", "loop", "pipe", "pipe.toml", "mine.toml", "mine.py", "maps.npy", "maps.npz"}
KEPT |= {"noise.bin", "broken.png"}
