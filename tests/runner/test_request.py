"""One request for a run and for its price: what is priced is what would run."""

import json
import os

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from xaibench.runner import RunRequest, estimate, run

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
        ({"explainers": ["oracles.simple_explainers:saliency"], "metrics": ["hit", "auc"], "samples": 2}, 16),
    ],
)
def test_what_is_priced_is_what_runs(request_of, choice, jobs):
    request = request_of(**choice)
    priced = estimate(request, measure=False)
    assert priced.stages["jobs"].sum() == jobs
    assert run(request, engine="serial").jobs == jobs
    assert estimate(request, measure=False).stages["done"].sum() == jobs


def test_arguments_say_the_same_as_a_request(request_of, tmp_path):
    asked = request_of(protocol="scaled", datasets=["xai-tris/xor-white-8x8"])
    said = {"protocol": "scaled", "datasets": ["xai-tris/xor-white-8x8"], "measure": False}
    other = estimate(tmp_path / "suite.toml", tmp_path / "run", **said)
    assert other.stages.equals(estimate(asked, measure=False).stages)
    with asked.opened() as opened:
        assert 'protocol = "scaled"' in opened.text
        assert {job.protocol for job in opened.plan.jobs if job.stage == "score"} == {"scaled"}


def test_root_counts_for_the_price_too(request_of, tmp_path, monkeypatch):
    """A suite that names $XAIBENCH_DATA can be priced with a root, and the variable is as it was afterwards."""
    monkeypatch.delenv("XAIBENCH_DATA", raising=False)
    text = SUITE.replace("n_samples = 60", 'n_samples = 60, images_dir = "$XAIBENCH_DATA"')
    (tmp_path / "suite.toml").write_text(text.replace("-white-", "-imagenet-").replace("8x8", "64x64"))
    assert estimate(request_of(root=tmp_path), measure=False).stages["jobs"].sum() == 12
    assert "XAIBENCH_DATA" not in os.environ


def test_what_stands_beside_a_request_is_not_lost(request_of):
    with pytest.raises(TypeError, match="got a request and workers, protocol beside it"):
        run(request_of(), workers=3, protocol="scaled")
    with pytest.raises(TypeError, match="got a request and quick beside it"):
        estimate(request_of(), quick=True)


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
    assert estimate(request, measure=False).stages["done"].sum() == 6
