import numpy as np
import pytest
from benchmark_scripts import load_benchmark

from xaibench.component.registry import UnknownNameError
from xaibench.runfolder.robust_rankings import read_robust
from xaibench.runfolder.tables import SCORES, RunFolderError
from xaibench.runner import run

robust_ranking = load_benchmark("robust_rankings").robust_ranking

SUITE = """
name = "robust"
title = "Robust"
[data]
parameters = { n_samples = 200 }
[training]
epochs = 2
batch_size = 64
[explaining]
samples = 8
scored = "all"
[[cells]]
datasets = ["xai-tris/lin-white-8x8"]
models = ["llr", "cnn"]
[[cells]]
datasets = ["xai-tris/rigid-white-8x8"]
models = ["cnn"]
metrics = ["emd_perf"]
[explainers]
saliency = {}
input_x_gradient = {}
gradcam = {}
lime = { n_samples = 20 }
uniform = {}
[metrics]
emd_perf = {}
removal = { use = "deletion", steps = 4 }
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("robust")
    (place / "suite.toml").write_text(SUITE)
    return run(place / "suite.toml", place / "run", engine="serial").folder


def test_settings_are_scored_on_the_maps_that_are_there(folder):
    seen = {}
    grid = {"baseline": [0.0, "blur"], "segmentation": ["pixels", "grid"]}
    found = robust_ranking(folder, "deletion", grid, workers=1, progress=lambda stage, *_: seen.setdefault(stage))
    assert found.metric == "removal"
    assert len(found.settings) == 4
    assert found.tau.shape == (4, 4)
    assert found.cells == 2  # the cell of rigid was not scored by it
    assert set(found.methods) == {"saliency", "input_x_gradient", "lime"}
    assert found.left_out == ("gradcam",)
    assert set(found.by_parameter) == {"baseline", "segmentation"}
    assert repr(read_robust(folder)["removal"]) == repr(found)
    # What the run itself scored comes out the same under the suite's own setting: its parameters stay.
    own = SCORES.read(folder).query("metric == 'removal'")
    scores = SCORES.read(folder / "robustness" / "removal")
    same = scores.query("metric == 'deletion(baseline=0.0, segmentation=pixels)'")
    keys = ["model", "explainer", "sample"]
    merged = own.merge(same, on=keys)
    assert len(merged) == len(own) > 0
    np.testing.assert_array_equal(merged["value_x"], merged["value_y"])


def test_insertion_on_the_same_baseline_is_the_other_order(folder):
    grid = [{"baseline": 0.0}, {"metric": "insertion", "baseline": 0.0, "steps": 4}]
    found = robust_ranking(folder, "removal", grid, workers=1)
    assert [one["metric"] for one in found.settings] == ["removal", "insertion"]
    assert found.by_parameter == {"metric": (1, 0)}
    assert found.ranks.min(axis=1).tolist() >= [1, 1]


@pytest.mark.parametrize(
    ("metric", "grid", "error", "message"),
    [
        ("deletion", {"baseline": [0.0]}, ValueError, "got 1 setting of deletion, expected two or more"),
        ("deletion", {"baseline": "blur"}, ValueError, "baseline='blur', expected a list of the values"),
        ("insertion", {"steps": [2, 4]}, ValueError, "was not scored by 'insertion'"),
        ("deletoin", {"steps": [2, 4]}, UnknownNameError, "deletion"),
    ],
)
def test_what_cannot_be_asked_is_refused(folder, metric, grid, error, message):
    with pytest.raises(error, match=message):
        robust_ranking(folder, metric, grid)


def test_a_folder_that_is_no_run_is_refused(tmp_path):
    with pytest.raises(RunFolderError, match=r"has no suite\.toml"):
        robust_ranking(tmp_path, "deletion", {"steps": [2, 4]})
