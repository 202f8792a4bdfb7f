"""A request for a run, and for the estimate of its cost."""

import dataclasses
import inspect
import json
import os
import re

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from refusals import refused

from xaibench.cli.options import help_of
from xaibench.cli.run_commands import run as run_command
from xaibench.registry.table import UnknownNameError
from xaibench.runner import RunRequest, estimate, run
from xaibench.runner.stages import execute as execution

SUITE = """
name = "request"
title = "Request"

[data]
parameters = { n_samples = 60 }

[training]
seeds = [0]
epochs = 1

[explaining]
samples = 3

[[cells]]
datasets = ["xai-tris/lin-white-8x8", "xai-tris/xor-white-8x8"]
models = ["mlp"]

[explainers]
saliency = {}
uniform = {}

[metrics]
iou = {}
"""


@pytest.fixture
def request_of(tmp_path):
    (tmp_path / "suite.toml").write_text(SUITE)

    def make(**settings):
        return RunRequest(tmp_path / "suite.toml", tmp_path / "run", **settings)

    return make


@pytest.mark.parametrize(
    ("choice", "jobs"),
    [
        ({}, 12),
        ({"datasets": ["xai-tris/xor-white-8x8"]}, 6),
        ({"models": ["mlp", "llr"]}, 18),
        ({"explainers": ["oracles.simple_explainers:saliency"], "metrics": ["hit", "roc_auc"], "samples": 2}, 16),
    ],
)
def test_what_is_priced_is_what_runs(request_of, choice, jobs):
    request = request_of(**choice)
    priced = estimate(request)
    assert priced.stages["jobs"].sum() == jobs
    assert run(request, engine="serial").jobs == jobs
    assert estimate(request).stages["done"].sum() == jobs


def test_arguments_say_the_same_as_a_request(request_of, tmp_path):
    asked = request_of(protocol="scaled", datasets=["xai-tris/xor-white-8x8"])
    said = {"protocol": "scaled", "datasets": ["xai-tris/xor-white-8x8"]}
    other = estimate(tmp_path / "suite.toml", tmp_path / "run", **said)
    assert other.stages.equals(estimate(asked).stages)
    with asked.opened() as opened:
        assert 'protocol = "scaled"' in opened.text
        assert 'sign = "magnitude"' in opened.text
        assert opened.plan.suite.explaining.protocol == "scaled"


def test_an_explainer_is_built_once_per_explain_job_and_not_to_score(request_of, monkeypatch):
    built, build = [], execution.AppliedExplainer
    monkeypatch.setattr(
        execution, "AppliedExplainer", lambda *args, **more: built.append(args[0]) or build(*args, **more)
    )
    assert run(request_of(), engine="serial").jobs == 12
    assert sorted(built) == ["saliency", "saliency", "uniform", "uniform"]


def test_root_counts_for_the_price_too(request_of, tmp_path, monkeypatch):
    """A suite that names $XAIBENCH_DATA can be priced with a root, and the variable is as it was afterwards."""
    monkeypatch.delenv("XAIBENCH_DATA", raising=False)
    text = SUITE.replace("n_samples = 60", 'n_samples = 60, images_dir = "$XAIBENCH_DATA"')
    (tmp_path / "suite.toml").write_text(text.replace("-white-", "-imagenet-").replace("8x8", "64x64"))
    assert estimate(request_of(root=tmp_path)).stages["jobs"].sum() == 12
    assert "XAIBENCH_DATA" not in os.environ


def test_a_request_and_other_arguments_are_refused(request_of):
    refused(TypeError, "with workers, protocol", lambda: run(request_of(), workers=3, protocol="scaled"))
    refused(TypeError, "got a request together with quick", lambda: estimate(request_of(), quick=True))


@pytest.mark.parametrize("function", [run, estimate])
def test_an_unknown_argument_names_the_nearest(function):
    error = refused(TypeError, "did you mean 'samples'", lambda: function("xai-tris-8x8", sampels=1))
    assert error.parameter == "sampels"


def test_every_field_is_an_option_of_the_command_line_with_its_description():
    names = {field.name for field in dataclasses.fields(RunRequest)}
    assert inspect.signature(run_command).parameters.keys() == names | {"engine", "address", "plan"}
    assert help_of(RunRequest).keys() == names
    assert not re.search("``|:[a-z]+:`", " ".join(help_of(RunRequest).values()))


IMAGENET = f"""{SUITE}
[[cells]]
datasets = ["xai-tris/lin-imagenet-64x64"]
models = ["llr"]
data = {{ images_dir = "$XAIBENCH_IMAGES" }}
"""


def test_sets_on_photographs_run_if_a_folder_is_given_and_say_how_often_each_is_repeated(tmp_path, monkeypatch):
    monkeypatch.delenv("XAIBENCH_IMAGES", raising=False)
    monkeypatch.setenv("XAIBENCH_CACHE", str(tmp_path / "cache"))
    rng, photographs = np.random.default_rng(0), tmp_path / "photographs"
    photographs.mkdir()
    for number in range(6):
        Image.fromarray(rng.integers(0, 256, (64, 70, 3), dtype=np.uint8)).save(photographs / f"{number}.png")
    (tmp_path / "suite.toml").write_text(IMAGENET)
    without = run(tmp_path / "suite.toml", tmp_path / "without", engine="serial", samples=1)
    assert without.jobs == 12
    assert "give a folder of them with --images DIR" in without.missing["xai-tris/lin-imagenet-64x64"]
    request = RunRequest(
        tmp_path / "suite.toml", tmp_path / "run", images=photographs, datasets=["xai-tris/lin-imagenet-64x64"]
    )
    found = run(request, engine="serial")
    assert (found.jobs, found.failures, found.missing) == (6, {}, {})
    (note,) = found.notes.values()
    assert note.startswith("6 photographs are the backgrounds of 60 samples: each is used 10 times on average")
    assert json.loads((tmp_path / "run" / "environment.json").read_text())["notes"] == found.notes
    samples = pd.read_csv(tmp_path / "run" / "samples.csv")
    assert samples["group"].nunique() == 1, "all test samples lie on one photograph, and are one draw"
    assert "XAIBENCH_IMAGES" not in os.environ
    assert estimate(request).stages["done"].sum() == 6


def test_code_of_a_suite_is_named_before_it_is_imported(request_of, tmp_path, capsys):
    estimate(request_of())
    assert "runs code" not in capsys.readouterr().err
    (tmp_path / "of_a_stranger.py").write_text("import sys\nprint('ran', file=sys.stderr)\n")
    (tmp_path / "suite.toml").write_text(SUITE.replace("iou = {}", 'mine = { use = "of_a_stranger:score" }'))
    refused(UnknownNameError, "no attribute 'score'", lambda: estimate(request_of()))
    named, ran = capsys.readouterr().err.splitlines()[-2:]
    assert "'of_a_stranger:score'" in named
    assert ran == "ran"
