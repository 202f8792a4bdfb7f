"""The command line: what it prints, and its exit codes."""

import json
import os
import re
import shutil
import subprocess
import sys
from importlib import resources
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from generators.volume_blocks import blocks
from PIL import Image
from typer.testing import CliRunner

import xaibench
from xaibench.cli import app
from xaibench.cli.list_command import PARTS_FILE, _readiness, describe_parts
from xaibench.data import DATASETS
from xaibench.metrics import METRICS

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


ON = ("--dataset", "xai-tris/lin-white-8x8")


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


@pytest.mark.parametrize(
    "line", [("report", "{}"), ("{}",), ("list", "{}"), ("list", "--{}"), ("list", "models", "{}")]
)
def test_control_characters_of_a_command_line_are_not_printed(invoke, line):
    result = CliRunner().invoke(app, [one.format("\x1b[2J\u202e\udcff") for one in line], color=True)
    assert result.exit_code == 2
    assert re.sub(r"\x1b\[(0|1|31)m|\n", "", result.output).isprintable()
    assert r"\x1b[2J\u202e\udcff" in result.output.replace(r"\\", "\\")


def test_list(invoke):
    assert re.search("integrated_gradients +Integrated Gradients", invoke("list", "explainers").output)
    lines = invoke("list", "metrics").output.splitlines()[1:]
    told = {line.split()[0]: line.partition("; truth: ")[2] for line in lines}
    assert (told["iou"], told["mass_outside"], told["road"]) == ("that of the masks", "use", "intervention")
    assert (set(told), told["sparseness"]) == (set(METRICS), "none")
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
        (("run", "nowhere.toml"), "Cannot read the suite"),
        (("run", "small.toml", "--engine", "magic"), "magic"),
        (("run", "small.toml", "--workers", "0"), ("greater than or equal to 1", "0 is not in the range x>=1")),
        (("run", "small.toml", "--device", "abacus"), "There is no device 'abacus'"),
        (("run", "small.toml", "--out", "small.toml/x"), "Cannot write to the run folder"),
        (("run", "small.toml", "--model", ""), "models is []; expected a list of at least one name"),
        (("run", "small.toml", "--address", "here:1"), "address is 'here:1', but engine is 'processes'"),
        (("report", "nowhere"), "nowhere"),
        (("run", "small.toml", "--samples", "9" * 5000, "--plan"), "samples is '9999"),
        (("run", "pipe.toml", "--plan"), "Cannot read the suite pipe.toml: It is a pipe or a device"),
        (("show", "math:pi"), "math:pi: got float, expected a class or function of a data set"),
        (("push", "xai-tris/lin-white-8x8", "../.."), "'../..': expected hf://owner/name"),
        (("results", "check", "hf://-x/y"), "'hf://-x/y': expected hf://owner/name"),
        (("prepare", "math:pi"), "math:pi: got float, expected a class or function of a data set"),
        (("score", "pipe.toml", *ON), "pipe"),
        (("audit", "broken.py:network", "--images", "."), "broken.py:network raised IndexError"),
        (("walk",), "walk"),
        (("show", "xai-tris/lin-white-8x8", "--seed", "-1"), "Error: seed=-1: expected an integer of at least 0"),
        (("show", "xai-tris/lin-white-8x8", "--out", "sheet.xyz"), "Error: Format 'xyz' is not supported"),
        (
            ("show", "xai-tris/lin-imagenet-64x64"),
            "needs photographs as backgrounds. Give a folder of images as images_dir=",
        ),
        (("score", "gone.npz", *ON), "there is no such file"),
        (("score", "small.toml", *ON), "is not a numpy file"),
        (("score", "maps.npy", *ON, "--split", "tset"), "expected train, val, test or all"),
        (("score", "maps.npy", *ON, "--split", "all"), "annotated data sets, which xai-tris/lin-white-8x8 is not"),
        (("score", "maps.npy", *ON, "--model", "resnet18"), "its classes can be mapped to those of pet only"),
        (("score", "maps.npy", *ON, "--metrics", "iuo"), "Error: Unknown metric 'iuo'; did you mean 'iou'"),
        (("score", "maps.npy", *ON, "--metrics", ","), "Error: metrics=[]: expected at least one"),
        (("score", "maps.npy", *ON, "--model", "rsnet18"), "Error: Unknown model 'rsnet18'; did you mean 'resnet18'"),
        (("score", "maps.npy", *ON, "--model", "math:pi"), "got float, expected a torch.nn.Module"),
        (("score", "maps.npy", *ON, "--model", "torch.nn:Linear"), "missing a required argument: 'in_features'"),
    ],
)
def test_bad_arguments_are_exit_code_2_and_one_line(invoke, arguments, message):
    np.save("maps.npy", np.random.default_rng(0).random((1000, 8, 8)))
    os.mkfifo("pipe.toml")
    Path("broken.py").write_text("def network(): return [][0]\n")
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert isinstance(result.exception, SystemExit)  # no traceback
    said = " ".join(result.output.replace("│", " ").split())
    assert any(one in said for one in ([message] if isinstance(message, str) else message))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("show", "xai-tris/lin-white-8x8", "--out", "small.toml/x.png"), "small.toml: File exists. Give another path"),
        (
            ("prepare", "pet", "--download", "--root", "small.toml/x"),
            "pet cannot be downloaded into small.toml/x (Not a directory)",
        ),
        (("score", "small.toml/t.npz", *ON, "--template"), "small.toml: File exists. Give another path"),
        (("run", "small.toml", "--store", "small.toml"), "Cannot read the store small.toml: Not a directory"),
        (("run", "small.toml", "--store", "nowhere://x"), "Cannot reach the store nowhere://x: Protocol not known"),
    ],
)
def test_what_the_disk_refuses_is_exit_code_1_and_one_line(invoke, monkeypatch, arguments, message):
    monkeypatch.delenv("XAIBENCH_DATA", raising=False)
    result = invoke(*arguments, *(["--engine", "serial"] if arguments[0] == "run" else []))
    assert result.exit_code == 1
    assert isinstance(result.exception, SystemExit)
    assert message in result.output


def test_ctrl_c_says_whether_the_command_goes_on(invoke, monkeypatch):
    def stopped(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(xaibench.runner, "run", stopped)
    monkeypatch.setattr(xaibench.data, "load", stopped)
    run, show = invoke("run", "small.toml"), invoke("show", "xai-tris/lin-white-8x8")
    assert run.exit_code == show.exit_code == 130
    assert "Stopped. Run the same command again to continue." in run.output
    assert show.output.strip() == "Stopped."


def test_dev_mode_shows_where_an_error_comes_from(invoke, monkeypatch):
    monkeypatch.setattr("xaibench.cli.terminal.sys.flags", SimpleNamespace(dev_mode=True), raising=False)
    result = invoke("show", "xai-tris/lin-white-8x8", "--seed", "-1")
    assert isinstance(result.exception, ValueError)


@pytest.fixture
def pets(tmp_path, monkeypatch):
    from generators.pet import write

    monkeypatch.setenv("XAIBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("XAIBENCH_DATA", raising=False)
    return write(tmp_path / "data"), tmp_path / "data"


def test_prepare_counts_what_is_there_beside_what_was_published(invoke, pets):
    expected, root = pets
    result = invoke("prepare", "cats_dogs", "--root", str(root), "--workers", "1")
    assert result.exit_code == 0, result.output
    assert f"pet: found in {root}" in result.output
    cats = sum(sample.label == "cat" for sample in expected)
    rows = {line.split()[0]: line.split()[1:] for line in result.output.splitlines() if line.strip()}
    assert rows["cat"] == [str(cats), "0"]
    assert rows["total"][0] == str(len(expected))
    assert "2,371 cat, 4,978 dog" in result.output
    assert "License: " in result.output


def test_prepare_says_how_to_get_what_is_missing(invoke, tmp_path):
    for name in ("lidc", "glasses", "sixray", "gender", "scene", "tumor"):
        result = invoke("prepare", name, "--root", str(tmp_path), "--download")
        assert result.exit_code == 1
        assert result.output.startswith("Error: ")
        assert str(tmp_path) in result.output
        assert "has to be downloaded by hand" in result.output


def test_a_generated_set_needs_no_preparing(invoke):
    result = invoke("prepare", "xai-tris/lin-white-8x8")
    assert (result.exit_code, result.output.count("\n")) == (0, 2)
    assert "no preparation is needed" in result.output
    assert "it is the published data set" in result.output


def test_show_draws_a_sheet(invoke, pets, tmp_path):
    result = invoke("show", "pet", "--root", str(pets[1]), "--count", "6", "--out", "sheets/pets.png")
    assert result.exit_code == 0, result.output
    assert "6 samples of pet" in result.output
    with Image.open(tmp_path / "sheets" / "pets.png") as picture:
        assert picture.width > 500
    assert invoke("show", "xai-tris/lin-white-8x8", "--count", "3").exit_code == 0


def test_list_does_not_import_torch():
    """Importing torch and all parts takes seconds."""
    environment = os.environ | {"XAIBENCH_DATA": "/nowhere"}
    code = (
        "import sys; from typer.testing import CliRunner; from xaibench.cli import app\n"
        "result = CliRunner().invoke(app, ['list']); assert result.exit_code == 0, result.output\n"
        "assert 'missing: xaibench prepare pet' in result.output\n"
        "print(sorted({'torch', 'pandas', 'scipy'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "[]", done.stderr


def test_the_list_is_that_of_the_registered_parts():
    written = resources.files("xaibench.cli").joinpath(PARTS_FILE).read_text(encoding="utf-8")
    assert json.loads(written) == describe_parts(), "run python docs/generate"


def test_list_says_which_sets_are_ready(invoke, pets):
    lines = {line.split()[0]: line for line in invoke("list", "datasets", "--root", str(pets[1])).output.splitlines()}
    assert f"ready in {pets[1]}" in lines["pet"]
    assert "missing: xaibench prepare lidc" in lines["lidc"]
    assert "truth: data; generated" in lines["xai-tris/lin-white-8x8"]
    assert "; truth: human; ready" in lines["pet"]


def test_list_says_ready_only_where_there_are_annotated_images(pets, tmp_path, monkeypatch):
    from generators import gender, tumor

    monkeypatch.setenv("XAIBENCH_CACHE", str(tmp_path / "cache"))

    def said(name, root):
        return _readiness(DATASETS.resolve(name), root)

    gender.write_coco(tmp_path / "captions")  # photographs, but no masks
    assert said("gender", tmp_path / "captions").startswith("no annotated image in ")
    bare = shutil.copytree(pets[1], tmp_path / "bare")
    for trimap in bare.rglob("trimaps/*"):
        trimap.unlink()
    assert said("pet", bare).startswith("no annotated image in ")
    root = tmp_path / "scans"
    tumor.write_case(root, "pancreas_001")
    gender.write(root)
    for name in ("tumor", "gender"):
        assert said(name, root) == f"not prepared: xaibench prepare {name}"
        part = DATASETS.resolve(name)
        part.prepare(part.find(root))
        assert said(name, root).startswith("ready in ")


def test_score_own_maps(invoke, pets, tmp_path):
    expected, root = pets
    where = ["--dataset", "pet", "--root", str(root), "--split", "all"]
    result = invoke("score", "mine.npz", *where, "--template")
    assert result.exit_code == 0, result.output
    assert f"{len(expected)} samples" in result.output
    with np.load("mine.npz") as template:
        content = dict(template)
    assert sorted(content["ids"]) == sorted(sample.id for sample in expected)
    content["maps"] = np.random.default_rng(0).random(content["maps"].shape)
    np.savez("mine.npz", **content)
    result = invoke("score", "mine.npz", *where, "--metrics", "topk_precision,hit", "--out", "scores.csv")
    assert result.exit_code == 0, result.output
    assert "mine" in result.output
    assert "hit ↑" in result.output
    assert (tmp_path / "scores.csv").read_text().count("mine,topk_precision") == len(expected)
    content["ids"][0] = "nobody"
    np.savez("mine.npz", **content)
    result = invoke("score", "mine.npz", *where)
    assert result.exit_code == 2
    assert "1 maps have unknown sample ids (nobody)" in result.output


def test_score_maps_of_volumes(invoke, tmp_path):
    where = ["--dataset", "generators.volume_blocks:blocks", "--split", "test"]
    result = invoke("score", "mine.npz", *where, "--template")
    assert result.exit_code == 0, result.output
    with np.load("mine.npz") as template:
        content = dict(template)
    assert content["maps"].shape == (4, 6, 8, 10)
    np.save("noise.npy", np.random.default_rng(0).random((4, 6, 8, 10)))
    np.savez("mine.npz", **content | {"maps": blocks().test.masks.numpy().astype(float)})
    result = invoke("score", "noise.npy", *where, "--metrics", "iou,hit", "--html", "page.html")
    assert result.exit_code == 0, result.output
    assert "hit ↑" in result.output
    page = (tmp_path / "page.html").read_text()
    assert 'type="range"' in page
    result = invoke("score", "mine.npz", *where, "--metrics", "iou", "--out", "scores.csv")
    rows = [line.split(",") for line in (tmp_path / "scores.csv").read_text().splitlines()]
    assert [row[rows[0].index("value")] for row in rows if row[0] == "mine"] == ["1.0"] * 4


def test_score_asks_a_model(invoke, pets):
    expected, root = pets
    where = ["--dataset", "pet", "--root", str(root), "--split", "all"]
    np.save("mine.npy", np.random.default_rng(0).random((len(expected), 224, 224), dtype=np.float32))
    result = invoke("score", "mine.npy", *where, "--metrics", "average_drop", "--model", "generators.networks:pets")
    assert result.exit_code == 0, result.output
    assert "average_drop ↓" in result.output
    assert invoke("score", "mine.npy", *where, "--metrics", "average_drop").exit_code == 2


def test_score_refuses_to_guess_which_class_folder_is_which_output(invoke):
    for folder, name in (("image", "b"), ("image", "a"), ("mask", "a"), ("mask", "b")):
        Path(f"own/{folder}/{name}").mkdir(parents=True)
        Image.fromarray(np.eye(8, dtype=np.uint8) * 255).save(f"own/{folder}/{name}/1.png")
    np.save("mine.npy", np.random.default_rng(0).random((2, 224, 224)))
    arguments = ["score", "mine.npy", "--dataset", "folder:own", "--split", "all", "--metrics", "average_drop"]
    arguments += ["--model", "generators.networks:pets", "--scored", "all"]
    refused = invoke(*arguments)
    assert refused.exit_code == 2
    assert "a, b, in the order of the outputs as --classes" in " ".join(refused.output.split())
    assert invoke(*arguments, "--classes", "b,a").exit_code == 0


def test_compare_runs(invoke):
    assert invoke("run", "small.toml", "--engine", "serial", "--out", "one").exit_code == 0
    shutil.copytree("one", "two")
    result = invoke("compare", "one", "two", "--out", "moved.csv")
    assert result.exit_code == 0, result.output
    assert "two: of 2 means, 0 better and 0 worse than one" in result.output
    assert invoke("compare", "one", "three").exit_code == 2


@pytest.fixture
def own_folder(tmp_path, monkeypatch):
    """A folder of the user: a class with masks, and ``normal`` without."""
    monkeypatch.setenv("XAIBENCH_CACHE", str(tmp_path / "cache"))
    rng = np.random.default_rng(0)
    for label in ("ill", "normal"):
        for number in range(6):
            for place in ("image", "mask") if label == "ill" else ("image",):
                file = tmp_path / "scans" / place / label / f"{label}{number}.png"
                file.parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray(rng.integers(0, 256, (20, 20), dtype=np.uint8)).save(file)
    return tmp_path / "scans"


def test_classes_without_marks_are_named_on_the_command_line(invoke, own_folder, tmp_path):
    name = f"folder:{own_folder}"
    commands = [
        ("prepare", name),
        ("show", name, "--size", "16", "--out", str(tmp_path / "sheet.png")),
        ("score", str(tmp_path / "maps.npz"), "--dataset", name, "--size", "16", "--template"),
    ]
    for command in commands:
        refused = invoke(*command)
        assert refused.exit_code == 1
        assert "class 'normal': it has 6 images without annotation; none has a mask. If there is" in refused.output
        assert "(--negatives 'normal' on the command line)" in refused.output
        result = invoke(*command, "--negatives", "normal", "--window", "128,256")
        assert result.exit_code == 0, result.output
    result = invoke("show", "xai-tris/lin-white-8x8", "--negatives", "normal")
    assert result.exit_code == 2
    assert "has no parameter 'negatives'" in result.output


def test_prepare_reads_every_file_of_a_folder(invoke, own_folder):
    (own_folder / "image" / "ill" / "ill3.png").write_bytes(b"no image")
    result = invoke("prepare", f"folder:{own_folder}", "--negatives", "normal")
    assert result.exit_code == 1
    assert "ill3.png is not an image that Pillow reads" in result.output


def test_prepare_says_that_a_folder_is_too_small_to_split(invoke, own_folder):
    for number in range(2, 6):
        (own_folder / "image" / "ill" / f"ill{number}.png").unlink()
    result = invoke("prepare", f"folder:{own_folder}", "--negatives", "normal")
    assert result.exit_code == 0
    assert "It cannot be divided into train, validation and test: Class 'ill' has 2 independent" in result.output
