"""Published scores are added to a run for the same images and metrics, and are marked as published."""

import json

import pandas as pd
import pytest
from refusals import refused

from xaibench.explainers import EXPLAINERS
from xaibench.report import best_methods, write_report
from xaibench.runner import RunRequest, SuiteError, estimate, run
from xaibench.runner.published_scores import PUBLISHED, find_published, write_published

SUITE = """
name = "shared"
title = "Shared"
data = { seeds = [0, 1], parameters = { n_samples = 200, alpha = 0.9 } }
training = { seeds = [0, 1], epochs = 60, lr = 0.02 }
explaining = { samples = 8, trainings = "all" }
cells = [{ datasets = ["xai-tris/lin-white-8x8"], models = ["llr", "mlp"] }]
explainers = { saliency = {}, lime = { n_samples = 10 }, uniform = {}, sobel = {} }
metrics = { topk_precision = {}, precision_skill = {}, iou = { threshold = 0.5 } }
quick = { data = { parameters = { n_samples = 60 } } }
"""
MINE = ["oracles.simple_explainers:saliency"]


@pytest.fixture(scope="module")
def suite(tmp_path_factory):
    file = tmp_path_factory.mktemp("shared") / "shared.toml"
    file.write_text(SUITE)
    return file


@pytest.fixture(scope="module")
def published(suite):
    whole = run(suite, suite.parent / "whole", engine="serial")
    write_published(whole.folder, suite.parent / "shared.parquet")
    return suite.parent / "shared.parquet"


@pytest.fixture
def beside(suite, published, tmp_path):
    def ran(**options):
        options = {"explainers": MINE, "against": published} | options
        return run(suite, tmp_path / "mine", engine="serial", **options)

    return ran


def scores_of(folder):
    scores = pd.read_parquet(folder / "scores.parquet")
    keys = ["dataset", "model", "data_seed", "seed", "sample", "explainer", "metric"]
    return scores[scores["scored"]].set_index(keys)["value"].sort_index()


def test_published_scores_stand_beside_ones_own(beside, suite, published):
    result = beside()
    found, whole = scores_of(result.folder), scores_of(suite.parent / "whole")
    assert set(found.index.get_level_values("explainer")) == {*MINE, "uniform", "sobel", "saliency", "lime"}
    pd.testing.assert_series_equal(found.drop(MINE, level="explainer"), whole, rtol=0, atol=1e-6)
    assert set(zip(*map(whole.index.get_level_values, ("data_seed", "seed")), strict=True)) == {
        (0, 0),
        (0, 1),
        (1, 0),
        (1, 1),
    }
    own = found.xs(MINE[0], level="explainer")
    pd.testing.assert_series_equal(
        own, whole.xs("saliency", level="explainer"), rtol=0, atol=1e-6
    )  # it is the same method
    parts = json.loads((result.folder / "descriptions.json").read_text())["explainers"]
    assert parts["lime"]["label"] == "LIME (published)"
    assert not parts["uniform"].get("label", "").endswith("(published)")  # made here
    assert len(result.beside) == 1
    assert result.beside[0].startswith("Compared with the published scores of shared: xaibench ")
    assert "Saliency (published)" in write_report(result.folder).read_text(encoding="utf-8")
    assert len(best_methods(result.folder)) == 3
    pairs = pd.read_csv(result.folder / "comparisons.csv")
    same = pairs[pairs[["first", "second"]].isin(["saliency", MINE[0]]).all(axis=1)]
    assert set(same["metric"]) == {"topk_precision", "precision_skill", "iou"}
    assert (same["difference"] == 0).all()
    assert (same["p"] == 1).all()
    same = same.query("subset != 'all'")
    sizes = own.groupby(["model", "metric"]).count()
    assert sorted(same["n_valid"]) == sorted(sizes)  # the same explainer, on the same samples of the same four networks
    assert sizes.min() > 16
    assert len(pd.read_parquet(published).query("explainer in ('uniform', 'sobel')")) == 0  # they are made in every run


def test_what_is_not_as_published_is_said(beside):
    result = beside(samples=4, metrics=["topk_precision", "hit"])
    assert "Not published: hit." in result.beside
    found = scores_of(result.folder)
    assert found.index.get_level_values("sample").max() < 4
    assert set(found.xs("lime", level="explainer").index.get_level_values("metric")) == {"topk_precision"}


def test_other_networks_and_measures_are_said(beside, suite, tmp_path):
    other = SUITE.replace("epochs = 60", "epochs = 61").replace("threshold = 0.5", "threshold = 0.4")
    (tmp_path / "other.toml").write_text(other.replace('"shared"', '"other"'))
    with RunRequest(tmp_path / "other.toml", against=suite.parent / "shared.parquet").opened() as opened:
        said = opened.beside
    assert "This run is of other, which is another suite." in said
    assert any(
        line.startswith("Trained differently than published: llr on xai-tris/lin-white-8x8 (seed 0), ") for line in said
    )
    assert "Different from the published metrics: iou (measured differently; left out)." in said


def test_only_what_was_drawn_in_both_counts(beside, suite, published, tmp_path):
    """Data sets and trainings without published scores are not compared."""
    other = SUITE.replace("[0, 1], parameters", "[1, 7], parameters").replace("[0, 1], epochs", "[1, 5], epochs")
    (tmp_path / "other.toml").write_text(other)
    result = run(tmp_path / "other.toml", tmp_path / "run", engine="serial", explainers=MINE, against=published)
    found = scores_of(result.folder)
    assert {(data, seed) for _, _, data, seed, *_ in found.index} == {(1, 1)}
    of_each = found.groupby(["explainer", "metric"]).size()
    assert of_each.nunique() == 1
    assert any(line.startswith("Not published: xai-tris/lin-white-8x8 (seed 7).") for line in result.beside)


def test_an_older_revision_is_said(published, suite, monkeypatch):
    with RunRequest(suite, against=published).opened() as opened:
        opened.published.about["explainers"]["lime"]["revision"] = "0"
        said = opened.published.differences(opened.plan)
    assert "Published with another revision: lime; run them to get their current scores." in said


def test_other_images_are_refused_before_anything_runs(beside, suite, published):
    refused(SuiteError, "its data and those of the published scores of shared", lambda: beside(quick=True))
    refused(SuiteError, "its data and those of", lambda: estimate(suite, quick=True, against=published))


def test_what_is_not_published_is_refused(suite, tmp_path):
    refused(SuiteError, "scores of shared. Expected one of ", lambda: run(suite, tmp_path, against="published"))
    (tmp_path / "no.parquet").write_text("no table")
    refused(SuiteError, "no.parquet", lambda: run(suite, tmp_path, against=tmp_path / "no.parquet"))


def test_an_unfinished_run_is_not_published(suite, published, tmp_path):
    result = run(suite, tmp_path / "some", engine="serial", explainers=["saliency"])
    file = result.folder / "suite.toml"
    file.write_text(SUITE)  # which has more
    refused(SuiteError, "lacks 16 scores", lambda: write_published(result.folder, tmp_path / "x.parquet"))


@pytest.mark.parametrize("suite", PUBLISHED)
def test_what_comes_with_the_library_is_whole_and_small(suite):
    with RunRequest(suite, against="published").opened() as opened:
        published = find_published("published", opened.suite)
        infos = {part.name: EXPLAINERS.resolve(part.use).info for part in opened.suite.explainers}
        methods = {name for name, info in infos.items() if not (info.control or info.reference)}
        assert set(published.scores["explainer"]) == methods
        assert set(published.scores["metric"]) == {part.name for part in opened.suite.metrics}
        drawn = published.scores[["data_seed", "seed"]].drop_duplicates()
        assert len(drawn) == len(opened.suite.data.seeds) * len(opened.suite.training.seeds)
        assert {"commit", "finished", "machine", "versions"} <= published.about.keys()
        assert opened.beside
    assert len(PUBLISHED[suite].read_bytes()) < 600_000
