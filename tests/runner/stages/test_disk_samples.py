"""Runs on data sets on disk, with a pretrained network whose head is trained, from the suite to the run folder."""

import json

import numpy as np
import pandas as pd
import pytest
from generators.pet import write
from PIL import Image
from scipy.integrate import trapezoid

import xaibench as xb
from xaibench.hub import prepare_run
from xaibench.report import write_report
from xaibench.runfolder.sample_file import read_samples
from xaibench.runner import DataChangedError, run
from xaibench.runner.request import RunRequest
from xaibench.runner.stages.samples import read_data, read_test_split
from xaibench.runner.store import Store

SUITE = """
name = "visual"
title = "Visual"
data = {{ parameters = {{ root = "$XAIBENCH_DATA", size = 32 }} }}
training = {{ method = "{method}", epochs = 3, lr = 0.05, batch_size = 8 }}
explaining = {{ samples = "all", scored = "all", protocol = "scaled" }}
explainers = {{ gradcam = {{}}, saliency = {{}}, uniform = {{}}, center_prior = {{}}, prior = {{}} }}

[[cells]]
label = "animals"
datasets = ["pet"]
models = ["{model}"]

[metrics]
iou = {{}}
hit = {{}}
deletion = {{ steps = 8, return_curves = true }}
"""
SMALL = "generators.networks:Small"


@pytest.fixture(scope="module")
def pets(tmp_path_factory):
    root = tmp_path_factory.mktemp("pets")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XAIBENCH_CACHE", str(root / "cache"))
        patch.setenv("XAIBENCH_DATA", "/nowhere")
        write(root)
        yield root


def run_it(pets, folder, method="head", model=SMALL, **options):
    (folder / "suite.toml").write_text(SUITE.format(method=method, model=model))
    return run(folder / "suite.toml", folder / "run", engine="serial", root=pets, **options)


@pytest.fixture(scope="module")
def finished(pets, tmp_path_factory):
    folder = tmp_path_factory.mktemp("visual")
    result = run_it(pets, folder)
    assert result.failures == {}
    return folder / "run"


def test_the_plan_counts_the_images_that_lie_there(pets, tmp_path):
    (tmp_path / "suite.toml").write_text(SUITE.format(method="head", model=SMALL))
    with RunRequest(tmp_path / "suite.toml", root=pets).opened() as request:
        jobs = {job.stage: job for job in request.plan.jobs}
        there = xb.load("pet", root=pets, size=32)
        assert jobs["data"].sizes == (len(there.train), len(there.val), len(there.test))
        assert jobs["explain"].amount == len(there.test)


def test_the_run_says_who_the_samples_are(finished, pets):
    samples = pd.read_csv(finished / "samples.csv")
    test = xb.load("pet", root=pets, size=32).test
    assert samples["id"].tolist() == [note["id"] for note in test.meta]
    assert samples["dataset"].unique().tolist() == ["animals"]
    scores = pd.read_parquet(finished / "scores.parquet")
    assert set(scores["dataset"]) == set(scores["subset"]) == {"animals"}
    assert scores["scored"].all()
    assert sorted(scores["sample"].unique()) == samples["sample"].tolist()


def test_scores_are_those_of_evaluate(finished, pets):
    """A run and ``evaluate`` binarize and score maps in the same way."""
    scores = pd.read_parquet(finished / "scores.parquet")
    test = xb.load("pet", root=pets, size=32).test
    result = xb.evaluate("uniform", test, metrics=["iou", "hit"], controls=False, protocol="scaled")
    for metric in ("iou", "hit"):
        mine = scores[(scores["explainer"] == "uniform") & (scores["metric"] == metric)].sort_values("sample")
        assert np.array_equal(mine["value"], result.matrix(metric)["uniform"], equal_nan=True)


def weights(folder):
    """The names of the weights of the only training of a run."""
    store = Store(folder / "store")
    (key,) = store.keys("train")
    return {name for name in store.load_tensors("train", key)[0] if name.startswith("weights.")}


def test_the_trunk_is_left_and_only_the_head_is_kept(finished):
    assert weights(finished) == {"weights.6.weight", "weights.6.bias"}
    assert pd.read_csv(finished / "accuracy.csv")["mean"].between(0, 100).all()


def test_curves_are_the_means_of_the_scores_curves(finished):
    curves = pd.read_parquet(finished / "curves.parquet")
    assert set(curves["metric"]) == {"deletion"}
    scores = pd.read_parquet(finished / "scores.parquet")
    for explainer, points in curves.groupby("explainer"):
        assert len(points) == 9
        assert (points["low"] <= points["high"]).all()
        area = trapezoid(points["mean"], points["fraction"])
        chosen = scores[(scores["explainer"] == explainer) & (scores["metric"] == "deletion")]["value"]
        assert area == pytest.approx(chosen.mean(), abs=1e-6)


def test_the_sheet_has_every_map_of_some_samples(finished, pets):
    (cell,) = read_samples(finished)
    assert cell.cell == ("animals", "-", SMALL)
    assert cell.photographs
    assert cell.example is None
    assert cell.images.shape[1:] == (32, 32, 3)
    assert {"gradcam", "saliency", "uniform", "center_prior", "prior"} == set(cell.explainers)
    test = xb.load("pet", root=pets, size=32).test
    on_sheet = [cell.samples[number] for number in cell.sheet]
    assert {int(test.targets[sample]) for sample in on_sheet} == {0, 1}
    assert {cell.labels[number].split(": ")[1] for number in cell.sheet} == {"cat", "dog"}
    for number, sample in zip(cell.sheet, on_sheet, strict=True):
        shown = cell.images[number].transpose(2, 0, 1)
        assert np.abs(shown - 255 * test[sample][0].numpy()).max() <= 0.51


def test_going_on_changes_nothing(finished, pets):
    before = (finished / "scores.parquet").read_bytes()
    run_it(pets, finished.parent)
    assert (finished / "scores.parquet").read_bytes() == before


def test_files_that_changed_under_the_run_are_noticed(pets, tmp_path):
    run_it(pets, tmp_path)
    other = tmp_path / "other"
    write(other)
    (other / "oxford-iiit-pet" / "annotations" / "list.txt").write_text(
        "\n".join((other / "oxford-iiit-pet" / "annotations" / "list.txt").read_text().splitlines()[:-3]) + "\n"
    )
    suite = (tmp_path / "suite.toml").read_text()
    (tmp_path / "suite.toml").write_text(suite.replace("hit = {}", "hit = {}\nf1 = {}"))
    read_data.cache_clear()  # as in a new process that continues a run
    read_test_split.cache_clear()
    with pytest.raises(DataChangedError, match="The samples of pet have changed on disk since this run began"):
        run(tmp_path / "suite.toml", tmp_path / "run", engine="serial", root=other)


@pytest.fixture
def photographs(tmp_path, monkeypatch):
    """Twenty photographs of each of two classes; the third of a class cannot be read."""
    monkeypatch.setenv("XAIBENCH_CACHE", str(tmp_path / "cache"))
    rng = np.random.default_rng(0)
    for label, damaged in (("cat", 1), ("dog", 0)):
        (tmp_path / "photographs" / label).mkdir(parents=True)
        for number in range(20):
            file = tmp_path / "photographs" / label / f"{number:02}.png"
            Image.fromarray(rng.integers(0, 256, (40, 40, 3), dtype=np.uint8)).save(file)
            if damaged and number == 3:
                file.write_bytes(file.read_bytes()[:100])
    return tmp_path / "photographs"


@pytest.mark.filterwarnings("error:Mean of empty slice")  # all scores by the masks that photographs lack
def test_a_damaged_image_is_left_out_of_the_run_by_name(photographs, tmp_path):
    suite = SUITE.format(method="none", model=SMALL).replace('root = "$XAIBENCH_DATA", ', "splits = [0.0, 0.0, 1.0], ")
    suite = suite.replace(", prior = {}", "").replace('"pet"', f'"photographs:{photographs}"')
    (tmp_path / "suite.toml").write_text(suite)
    result = run(tmp_path / "suite.toml", tmp_path / "run", engine="serial")
    assert result.failures == {}
    assert result.notes == {"animals": "1 of 40 images cannot be read and are left out."}
    environment = json.loads((tmp_path / "run" / "environment.json").read_text())
    ((name, reason),) = environment["unreadable"]["animals"].items()
    assert name.startswith("cat/03")
    assert str(photographs / "cat" / "03.png") in reason
    (tmp_path / "published").mkdir()
    published = prepare_run(tmp_path / "run", tmp_path / "published")
    assert json.loads((published / "environment.json").read_text())["notes"] == result.notes
    for file in (*published.iterdir(), write_report(tmp_path / "run")):
        assert "cat/03" not in file.read_text(errors="replace"), "names are private"
    samples = pd.read_csv(tmp_path / "run" / "samples.csv")
    assert len(samples) == 39
    assert not samples["id"].str.contains("cat/03").any()
    scores = pd.read_parquet(tmp_path / "run" / "scores.parquet")
    assert (scores.groupby(["explainer", "metric"], observed=True)["sample"].nunique() == 39).all()


def test_many_damaged_images_are_an_error_of_the_run(photographs, tmp_path):
    for number in range(3):
        (photographs / "dog" / f"{number:02}.png").write_bytes(b"no picture")
    (tmp_path / "suite.toml").write_text(
        SUITE.format(method="none", model=SMALL)
        .replace('root = "$XAIBENCH_DATA", ', "")
        .replace('"pet"', f'"photographs:{photographs}"')
    )
    result = run(tmp_path / "suite.toml", tmp_path / "run", engine="serial")
    assert any("4 of 40 images cannot be read" in error for error in result.failures.values())


@pytest.mark.parametrize("method", ["all", "none"])
def test_other_ways_to_weights(pets, tmp_path, method):
    result = run_it(pets, tmp_path, method)
    assert result.failures == {}
    assert bool(weights(tmp_path / "run")) == (method == "all")


def test_a_model_that_returns_nan_fails_by_name_and_the_rest_goes_on(pets, tmp_path):
    result = run_it(pets, tmp_path, model="generators.networks:Broken")
    assert result.failures
    assert any("NaN" in error or "nan" in error for error in result.failures.values())
