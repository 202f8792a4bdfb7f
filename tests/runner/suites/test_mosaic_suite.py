"""The suite of mosaics: a folder and a network that it does not know, and a page without the folder's pictures."""

import os
import tomllib

import numpy as np
import pandas as pd
import pytest
import torch
from generators.photographs import COLORS, write
from refusals import refused

from xaibench.runfolder.sample_file import read_samples
from xaibench.runner import SuiteError, load_suite, run
from xaibench.runner.plan.plan import make_plan
from xaibench.runner.suites.narrowing import narrowed, without_missing

NETWORK = "generators.photographs:Colors"


@pytest.fixture(scope="module")
def photographs(tmp_path_factory):
    root = tmp_path_factory.mktemp("photographs")
    write(root)
    return root


@pytest.fixture(scope="module")
def folder(photographs, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XAIBENCH_CACHE", str(tmp_path_factory.mktemp("cache")))
        asked = {"root": photographs, "models": [NETWORK], "explainers": ["saliency", "gradcam", "input"]}
        done = run("mosaic", tmp_path_factory.mktemp("run"), engine="serial", device="cpu", quick=True, **asked)
    assert done.failures == {}
    assert all("DiFull" in job or "disconnected" in job for job in done.inapplicable), "Grad-CAM of copies"
    assert done.inapplicable
    assert "mosaics of 24 photographs of 6 classes" in done.notes["GridPG 2×2"]
    return done.folder


def test_gridpg_is_scored_by_where_it_points_and_difull_by_leaks_too(folder):
    scores = pd.read_parquet(folder / "scores.parquet")
    asked = scores.groupby("dataset", observed=True)["metric"].unique().map(set).to_dict()
    assert asked == {"GridPG 2×2": {"grid_pointing"}, "DiFull 2×2": {"grid_pointing", "mass_outside", "use_auc"}}
    assert set(scores["truth"]) == {"use"}
    saliency = scores[(scores["explainer"] == "saliency") & (scores["dataset"] == "DiFull 2×2")]
    means = saliency.groupby("metric", observed=True)["value"].mean()
    assert means["mass_outside"] == 0, "a gradient knows that the other cells cannot matter"
    assert means["grid_pointing"] == 1
    uniform = scores[(scores["explainer"] == "uniform") & (scores["metric"] == "mass_outside")]
    assert uniform["value"].to_numpy() == pytest.approx(np.ones(len(uniform)), abs=0.1)
    samples = pd.read_csv(folder / "samples.csv")
    assert (samples.groupby(["dataset", "group"]).size() == 4).all(), "the samples of one mosaic are a group"


def test_no_picture_of_the_folder_is_kept_for_the_page(folder):
    cells = read_samples(folder)
    assert len(cells) == 2
    for cell in cells:
        assert (cell.images == 255).all()
        assert cell.maps.max() == 1
        assert cell.maps[:, cell.explainers.index("uniform")].max() == 1
        assert not cell.maps[:, cell.explainers.index("input")].any(), "its map is the image"
        assert not any(name in label for name in COLORS for label in cell.labels)


class Fixed(torch.nn.Module):
    """A network that takes images of 16×16 pixels only."""

    def __init__(self, in_shape, num_classes):
        super().__init__()
        self.head = torch.nn.Linear(3 * 16 * 16, num_classes)

    def forward(self, images):
        return self.head(images.flatten(1))


@pytest.mark.parametrize("suite", ["photographs", "budget-photographs"])
def test_the_size_is_that_of_the_network(suite, photographs, tmp_path, monkeypatch):
    monkeypatch.setenv("XAIBENCH_CACHE", str(tmp_path / "cache"))
    asked = {
        "root": photographs,
        "models": [f"{__name__}:Fixed"],
        "explainers": ["saliency"],
        "metrics": ["sparseness"],
    }
    how = {"engine": "serial", "device": "cpu", "quick": True, **asked}
    refused = run(suite, tmp_path / "refused", **how)
    assert all("have 224×224 pixels" in said and "--size" in said for said in refused.failures.values())
    assert refused.failures
    done = run(suite, tmp_path / "run", size=16, **how)
    assert done.failures == {}
    assert read_samples(done.folder)[0].maps.shape[-2:] == (16, 16)
    assert tomllib.loads((done.folder / "suite.toml").read_text())["data"]["parameters"]["size"] == 16


def test_a_mosaic_has_photographs_of_the_size(photographs, monkeypatch):
    monkeypatch.setenv("XAIBENCH_DATA", str(photographs))
    suite = narrowed(load_suite("mosaic")[0], models=[NETWORK], explainers=["saliency"], size=96)
    plan = make_plan(without_missing(suite)[0])
    sizes = {cell.label: cell.data.parameters["size"] for cell in plan.cells}
    assert sizes == {"GridPG 2×2": 192, "GridPG 3×3": 288, "DiFull 2×2": 192, "DiFull 3×3": 288}
    published = make_plan(without_missing(narrowed(load_suite("mosaic")[0], models=[NETWORK], size=112))[0])
    unchanged = make_plan(without_missing(narrowed(load_suite("mosaic")[0], models=[NETWORK]))[0])
    assert [cell.data.key for cell in published.cells] == [cell.data.key for cell in unchanged.cells]


def test_an_error_of_a_registered_network_names_the_option(photographs, monkeypatch):
    monkeypatch.setenv("XAIBENCH_DATA", str(photographs))
    suite = without_missing(narrowed(load_suite("photographs")[0], models=["vgg16"], size=16))[0]
    refused(SuiteError, ("expected sides of at least 32 pixels", "state it with --size"), make_plan, suite)


@pytest.mark.parametrize("size", [0, True, 9.5, "96"])
def test_a_size_is_a_whole_number(size):
    refused(SuiteError, "size is", lambda: narrowed(load_suite("photographs")[0], models=[NETWORK], size=size))


def test_the_network_and_the_folder_must_be_given(monkeypatch, photographs):
    monkeypatch.delenv("XAIBENCH_DATA", raising=False)
    with pytest.raises(SuiteError, match=r"mosaic leaves the model open; give one with --model NAME"):
        run("mosaic", root=photographs)
    refused(SuiteError, "Give --root DIR", lambda: run("mosaic", models=["efficientnet_lite0"]))
    assert "XAIBENCH_DATA" not in os.environ


def test_another_network_is_another_data_set(monkeypatch, photographs):
    monkeypatch.setenv("XAIBENCH_DATA", str(photographs))
    suite, _ = load_suite("mosaic", quick=True)

    def asked(name):
        plan = make_plan(without_missing(narrowed(suite, models=[name], explainers=["saliency"]))[0])
        return {cell.label: cell.data for cell in plan.cells}

    one, other = asked(NETWORK), asked("generators.networks:Small")
    assert one["GridPG 2×2"].network[0] == one["DiFull 2×2"].network[0] == NETWORK
    assert one["GridPG 2×2"].key != other["GridPG 2×2"].key
    assert one["DiFull 2×2"].sizes == (2, 0, 8)


def test_a_pretrained_network_comes_with_its_own_last_layer(monkeypatch, tmp_path):
    from generators.photographs import colored
    from PIL import Image

    Image.fromarray(colored(np.random.default_rng(0), (9, 9, 9))).save(tmp_path / "n01440764.png")
    monkeypatch.setenv("XAIBENCH_DATA", str(tmp_path))
    suite = without_missing(
        narrowed(load_suite("mosaic", quick=True)[0], models=["resnet18"], explainers=["saliency"])
    )[0]
    trained = [dict(training.build) for cell in make_plan(suite).cells for training in cell.trainings]
    assert trained == [{"head": "pretrained"}, {"side": 2}]


def test_a_cell_names_metrics_that_the_suite_has():
    suite, _ = load_suite("mosaic")
    assert {cell.label for cell in narrowed(suite, models=["cnn"], metrics=["mass_outside"]).cells} == {
        "DiFull 2×2",
        "DiFull 3×3",
    }
    grid = narrowed(suite, models=["cnn"], datasets=["GridPG 2×2"])
    with pytest.raises(SuiteError, match="mosaic has no cell that is scored by"):
        narrowed(grid, models=["cnn"], metrics=["mass_outside"])


def test_photographs_are_scored_by_what_changes_the_answer(photographs, tmp_path, monkeypatch):
    monkeypatch.setenv("XAIBENCH_CACHE", str(tmp_path / "cache"))
    asked = {"root": photographs, "models": [NETWORK], "explainers": ["saliency", "uniform"]}
    done = run("photographs", tmp_path / "run", engine="serial", device="cpu", quick=True, **asked)
    assert done.failures == {}
    scores = pd.read_parquet(done.folder / "scores.parquet")
    assert set(scores["metric"]) == {"insertion", "deletion", "road"}
    assert set(scores["truth"]) == {"intervention"}
    assert scores.groupby(["explainer", "metric"], observed=True)["sample"].nunique().eq(4).all()
    assert all((cell.images == 255).all() for cell in read_samples(done.folder))
