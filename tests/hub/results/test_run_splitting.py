"""A run becomes a result for each method, with what its intervals need and without what is nobody's business."""

import shutil

import pandas as pd
import pytest

from xaibench.hub.results.checking import check_result
from xaibench.hub.results.result_manifest import ResultError, read_manifest
from xaibench.hub.results.run_splitting import results_of_run
from xaibench.runfolder.tables import FAILURES, SAMPLES, SCORES
from xaibench.runner import run


@pytest.fixture
def finished(tiny, tmp_path):
    return run(tiny, tmp_path / "run", engine="serial").folder


def test_each_method_has_its_scores_and_no_other(finished, tmp_path):
    folders = results_of_run(finished, tmp_path / "results")
    scores = SCORES.read(finished)
    assert {read_manifest(folder).method.name for folder in folders} == {"saliency", "uniform"}
    for folder in folders:
        assert check_result(folder) == []
        own = SCORES.read(folder)
        name = read_manifest(folder).method.name
        assert own["value"].tolist() == scores[scores["explainer"] == name]["value"].tolist()
        assert read_manifest(folder).method.control == (name == "uniform")


def test_groups_go_along_and_names_of_files_stay(finished, tmp_path):
    known = {"dataset": "xai-tris/lin-white-8x8", "data_seed": 0, "id": "ann", "group": 7, "file": "/home/ann/scan.png"}
    pd.DataFrame([known | {"sample": sample} for sample in range(6)]).to_csv(finished / SAMPLES.name, index=False)
    folder = results_of_run(finished, tmp_path / "results", methods=["saliency"])[0]
    assert SAMPLES.read(folder)["group"].tolist() == [7] * 6
    assert "ann" not in (folder / SAMPLES.name).read_text()
    assert check_result(folder) == []


def test_a_result_is_replaced_whole(finished, tmp_path):
    (folder,) = results_of_run(finished, tmp_path / "results", methods=["saliency"])
    (folder / "left-over.txt").write_text("x")
    assert results_of_run(finished, tmp_path / "results", methods=["saliency"]) == [folder]
    assert check_result(folder) == []
    assert [path.name for path in folder.parent.iterdir()] == [folder.name], "nothing half written lies beside it"


def test_what_is_no_whole_run_is_refused(finished, tmp_path):
    with pytest.raises(ResultError, match="has no method 'salienci'; did you mean 'saliency'"):
        results_of_run(finished, tmp_path / "results", methods=["salienci"])
    shutil.copytree(finished, tmp_path / "failed")
    (tmp_path / "failed" / FAILURES.name).write_bytes(FAILURES.to_csv([{"job": "j", "stage": "score", "error": "e"}]))
    with pytest.raises(ResultError, match="1 jobs failed"):
        results_of_run(tmp_path / "failed", tmp_path / "results")
