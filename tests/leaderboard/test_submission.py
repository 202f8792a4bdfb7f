"""A method becomes a result; what cannot be repeated or called is refused before the suite is run."""

import importlib
import os
import re
import sys

import pytest
import torch

from xaibench.leaderboard.checks import check
from xaibench.leaderboard.citation import bibtex_entry
from xaibench.leaderboard.manifest import METHOD, ResultError, read_manifest
from xaibench.leaderboard.method_source import stage_method
from xaibench.leaderboard.submission import hide_secrets, submit, try_method
from xaibench.runfolder.tables import SCORES
from xaibench.runner import run

RANDOM = "import torch\ndef draws(model, images, targets):\n    return torch.rand_like(images[:, 0])\n"
BROKEN = "def broken(model, images, targets):\n    return 1 / 0\n"
TWO = "def one(model, images, targets): ...\ndef other(model, images, targets): ...\n"
FEW = "def few(model):\n    return model\n"
EXACT = (
    "def XAI_Method(data, target, model):\n    data = data.clone().requires_grad_()\n"
    "    model(data).gather(1, target[:, None]).sum().backward()\n    return data.grad\n"
)
BESIDE = "def beside(model, images, targets):\n    return images.sum(1) - images.sum(1).mean(0)\n"


def test_a_result_says_what_was_run_and_scores_it_as_a_run_does(submitted, tiny, tmp_path):
    manifest = read_manifest(submitted)
    assert (manifest.method.name, manifest.method.label, manifest.method.entry) == (
        "gxi",
        "Gradient × input",
        "mine:gxi",
    )
    assert manifest.method.summary == "Gradient times input."
    assert re.fullmatch(r"gxi/tiny@[0-9a-f]{32}", "/".join(submitted.parts[-2:]))
    assert (submitted / METHOD / "mine.py").is_file()
    assert check(submitted) == []
    done = run(tiny, tmp_path / "run", engine="serial", explainers=["input_x_gradient"])
    ours = SCORES.read(submitted)
    theirs = SCORES.read(done.folder)
    theirs = theirs[theirs["explainer"] == "input_x_gradient"]
    keys = ["dataset", "model", "sample"]
    assert ours.sort_values(keys)["value"].tolist() == theirs.sort_values(keys)["value"].tolist()
    assert "author = {Ann Other}" in bibtex_entry(manifest)


def test_what_a_library_has_needs_no_code(tiny, tmp_path):
    folder = submit("saliency", tiny, tmp_path / "results", work=tmp_path / "work", engine="serial")
    manifest = read_manifest(folder)
    assert manifest.method.entry == manifest.method.name == "saliency"
    assert "Simonyan" in manifest.method.citation
    assert not (folder / METHOD).exists()
    assert check(folder) == []


@pytest.mark.parametrize(
    ("text", "which", "said"),
    [
        (RANDOM, "", "returns different maps on a second call"),
        (BROKEN, "", "fails in its trial on a small mlp: ZeroDivisionError"),
        (TWO, "", r"has 2 public functions and classes \(one, other\); say which one"),
        (FEW, "", r"is called as \(model\); expected \(model, images, targets\)"),
        (BROKEN, ":nothing", "has no 'nothing'|no attribute"),
    ],
)
def test_what_cannot_be_a_method_is_refused(text, which, said, tmp_path):
    (tmp_path / "mine.py").write_text(text)
    with pytest.raises((ResultError, ValueError), match=said):
        try_method(stage_method(f"{tmp_path / 'mine.py'}{which}", tmp_path / "code"))


READS = """
class Fitted:
    def fit(self, model, loader):
        for images, masks, targets in loader:
            {statement}
        return self

    def __call__(self, model, images, targets):
        return images[:, 0]
"""


@pytest.mark.parametrize(
    "statement",
    [
        "self.mean = masks.double().mean(0)",
        "self.first = masks[0]",
        "\n            try:\n                masks.sum()\n            except Exception:\n                pass",
    ],
)
def test_a_method_that_reads_the_training_masks_is_refused_as_in_verification(statement, tmp_path):
    (tmp_path / "mine.py").write_text(READS.format(statement=statement))
    with pytest.raises(ResultError, match="mine:Fitted is refused: it reads the masks of the training samples"):
        try_method(stage_method(str(tmp_path / "mine.py"), tmp_path / "code"))


def test_fitting_to_images_and_a_control_with_masks_are_allowed(tmp_path):
    (tmp_path / "mine.py").write_text(READS.format(statement="self.mean = images.mean(0), targets.sum()"))
    assert try_method(stage_method(str(tmp_path / "mine.py"), tmp_path / "code")).seconds > 0
    assert try_method(stage_method("prior", tmp_path / "other")).seconds > 0


def test_there_must_be_something_of_that_name(tmp_path):
    with pytest.raises(ResultError, match="there is no file"):
        stage_method(str(tmp_path / "none.py"), tmp_path / "code")
    with pytest.raises(ResultError, match="there is no module 'no_such_package'"):
        stage_method("no_such_package.module:method", tmp_path / "code")
    with pytest.raises(ResultError, match=r"expected a listed explainer .*, module:name, or file.py:name"):
        stage_method("salienci", tmp_path / "code")


def test_a_method_to_the_template_of_exact_is_taken_as_it_is(tmp_path):
    (tmp_path / "their_method.py").write_text(EXACT)
    source = stage_method(str(tmp_path / "their_method.py"), tmp_path / "code")
    assert (source.entry, source.name) == ("their_method:XAI_Method", "their_method")
    assert try_method(source).remarks == ()


def test_a_map_that_depends_on_its_neighbors_is_remarked_on(tmp_path):
    (tmp_path / "mine.py").write_text(BESIDE)
    (remark,) = try_method(stage_method(str(tmp_path / "mine.py"), tmp_path / "code")).remarks
    assert "depends on the other images of the batch" in remark


def test_a_file_that_was_changed_is_read_again(tmp_path):
    for answer in ("images[:, 0]", "-images[:, 0]"):
        (tmp_path / "mine.py").write_text(f"def changing(model, images, targets):\n    return {answer}\n")
        source = stage_method(str(tmp_path / "mine.py"), tmp_path / "code")
        assert (source.folder / "mine.py").read_text().endswith(f"{answer}\n")
        assert try_method(source).seconds > 0


def test_another_module_of_that_name_is_not_taken_for_it(tiny, tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "mine.py").write_text("def other(model, images, targets): ...\n")
    (tmp_path / "mine.py").write_text(BESIDE)
    monkeypatch.syspath_prepend(tmp_path / "elsewhere")
    importlib.import_module("mine")
    where = {"work": tmp_path / "work", "engine": "serial"}
    assert read_manifest(submit(str(tmp_path / "mine.py"), tiny, tmp_path / "results", **where)).method.name == "beside"
    assert hasattr(sys.modules["mine"], "other"), "what was there is there again"


def test_trials_leave_random_numbers_as_they_were(tmp_path):
    (tmp_path / "mine.py").write_text(BESIDE)
    state = torch.get_rng_state()
    try_method(stage_method(str(tmp_path / "mine.py"), tmp_path / "code"))
    assert torch.equal(torch.get_rng_state(), state)


def test_a_run_sees_no_tokens(monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    monkeypatch.setenv("MY_API_KEY", "k")
    with hide_secrets():
        assert not {"HF_TOKEN", "MY_API_KEY"} & os.environ.keys()
    assert os.environ["HF_TOKEN"] == "hf_secret"


def test_images_of_ones_own_are_refused_before_anything_is_run(tmp_path, monkeypatch):
    monkeypatch.setenv("XAIBENCH_DATA", str(tmp_path))
    with pytest.raises(ResultError, match=r"photographs uses images of a local folder \(photographs:\$XAIBENCH_DATA\)"):
        submit("saliency", "photographs", tmp_path / "results", work=tmp_path / "work")
    assert not (tmp_path / "work").exists()
