"""A run becomes a result for each method, with what its intervals need and without what is nobody's business."""

import shutil

import pandas as pd
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from xaibench.leaderboard import run_splitting
from xaibench.leaderboard.checks import check
from xaibench.leaderboard.manifest import ResultError, read_manifest
from xaibench.leaderboard.run_splitting import split_run
from xaibench.runfolder.sample_file import read_samples, to_safetensors
from xaibench.runfolder.tables import FAILURES, SAMPLES, SCORES, RunFolderError
from xaibench.runner import run


@pytest.fixture
def finished(tiny, tmp_path):
    return run(tiny, tmp_path / "run", engine="serial").folder


def test_each_method_has_its_scores_and_no_other(finished, tmp_path):
    folders = split_run(finished, tmp_path / "results")
    scores = SCORES.read(finished)
    assert {read_manifest(folder).method.name for folder in folders} == {"saliency", "uniform"}
    for folder in folders:
        assert check(folder) == []
        own = SCORES.read(folder)
        name = read_manifest(folder).method.name
        assert own["value"].tolist() == scores[scores["explainer"] == name]["value"].tolist()
        assert read_manifest(folder).method.control == (name == "uniform")


def test_groups_go_along_and_names_of_files_stay(finished, tmp_path):
    known = {"dataset": "xai-tris/lin-white-8x8", "data_seed": 0, "id": "ann", "group": 7, "file": "/home/ann/scan.png"}
    pd.DataFrame([known | {"sample": sample} for sample in range(6)]).to_csv(finished / SAMPLES.name, index=False)
    folder = split_run(finished, tmp_path / "results", methods=["saliency"])[0]
    assert SAMPLES.read(folder)["group"].tolist() == [7] * 6
    assert "ann" not in (folder / SAMPLES.name).read_text()
    assert check(folder) == []


def test_so_many_samples_go_along_as_fit(finished, tmp_path, monkeypatch):
    (whole,) = split_run(finished, tmp_path / "whole", methods=["saliency"])
    cells = read_samples(whole)
    assert [len(cell.samples) > 2 for cell in cells] == [True, True]
    room = max(len(to_safetensors([cell.lowest(2)])) for cell in cells)
    monkeypatch.setattr(run_splitting, "_MAX_SAMPLE_BYTES", 2 * room)  # of a suite of two cells
    (cut,) = split_run(finished, tmp_path / "cut", methods=["saliency"])
    for cell, kept in zip(cells, read_samples(cut), strict=True):
        assert sorted(kept.samples) == sorted(cell.samples)[:2]  # which others have, too
    assert check(cut) == []
    monkeypatch.setattr(run_splitting, "_MAX_SAMPLE_BYTES", 2 * room - 2)
    (less,) = split_run(finished, tmp_path / "less", methods=["saliency"])
    assert [len(cell.samples) for cell in read_samples(less)] == [1, 1]
    monkeypatch.setattr(run_splitting, "_MAX_SAMPLE_BYTES", 100)
    assert read_samples(split_run(finished, tmp_path / "none", methods=["saliency"])[0]) == []


def test_a_run_on_images_of_ones_own_is_no_result(finished, tmp_path):
    text = (finished / "suite.toml").read_text()
    (finished / "suite.toml").write_text(text.replace("xai-tris/lin-white-8x8", "folder:mine"))
    with pytest.raises(ResultError, match="is of another suite than tiny of the library"):
        split_run(finished, tmp_path / "results")
    assert not (tmp_path / "results").exists()


def test_sets_that_were_not_there_are_no_part_of_the_result(tiny, ships, tmp_path, monkeypatch):
    monkeypatch.delenv("XAIBENCH_IMAGES", raising=False)
    file = ships(
        tiny.read_text()
        + '\n[[cells]]\ndatasets = ["xai-tris/lin-imagenet-8x8"]\nmodels = ["llr"]\n'
        + 'data = { images_dir = "$XAIBENCH_IMAGES" }\n'
    )
    done = run(file, tmp_path / "run", engine="serial")
    assert list(done.missing) == ["xai-tris/lin-imagenet-8x8"]
    (with_all,) = split_run(done.folder, tmp_path / "results", methods=["saliency"])
    assert check(with_all) == []
    alone = run(tiny, tmp_path / "alone", engine="serial", store=tmp_path / "run" / "store").folder
    (without,) = split_run(alone, tmp_path / "alone-results", methods=["saliency"])
    assert read_manifest(with_all).suite.version == read_manifest(without).suite.version


@pytest.mark.parametrize(
    "change",
    [
        ("samples = 6", "samples = 5"),
        ("seeds = [0]", "seeds = [1]"),
        ("n_samples = 200", "n_samples = 400"),
        ("[explaining]", '[explaining]\nscored = "all"'),
        ("samples = 6", "samples = 6\nseed = 7"),
        ('models = ["llr", "mlp"]', 'models = ["llr", "mlp"]\nmetrics = ["topk_precision"]'),
        ("topk_precision = {}", "topk_precision = {}\nemd_perf = {}"),
        ("epochs = 20", "epochs = 21"),
    ],
    ids=lambda change: change[1].strip().replace("\n", " ")[-24:],
)
def test_a_suite_that_was_made_easier_is_another_suite(change, tiny, finished, tmp_path):
    """Only what the library has under a name is that suite; explainers are free."""
    text = (finished / "suite.toml").read_text()
    assert change[0] in text
    (finished / "suite.toml").write_text(text.replace(*change))
    with pytest.raises(ResultError, match="is of another suite than tiny of the library"):
        split_run(finished, tmp_path / "results")


def test_two_methods_are_two_results(tiny, ships, tmp_path):
    text = tiny.read_text().replace("saliency = {}", 'gradcam = {}\n"gradcam++" = {}').replace('"llr", "mlp"', '"cnn"')
    folder = run(ships(text), tmp_path / "run", engine="serial").folder
    results = split_run(folder, tmp_path / "results")
    assert sorted(place.parent.name for place in results) == ["gradcam", "gradcamplusplus", "uniform"]
    assert [check(place) for place in results] == [[], [], []]
    with pytest.raises(ResultError, match="saliency and Saliency would have the same folder"):
        run_splitting._check_names_differ(folder, ["saliency", "Saliency"])


def test_what_can_treat_no_network_has_no_result(tiny, ships, tmp_path):
    text = tiny.read_text().replace("uniform = {}", "'gradcam++' = {}")  # for convolutions, which the networks lack
    folder = run(ships(text), tmp_path / "run", engine="serial").folder
    results = split_run(folder, tmp_path / "results")
    assert [read_manifest(place).method.name for place in results] == ["saliency"]
    with pytest.raises(ResultError, match=r"has no scores of gradcam\+\+, which support none of its networks"):
        split_run(folder, tmp_path / "results", methods=["gradcam++"])


def test_scores_of_before_they_had_a_truth_and_damaged_ones(finished, tmp_path):
    older = pq.read_table(finished / SCORES.name).drop_columns(["truth"])
    pq.write_table(older, finished / SCORES.name)
    (folder,) = split_run(finished, tmp_path / "results", methods=["saliency"])
    assert len(SCORES.read(folder)) == pc.sum(pc.equal(older["explainer"].cast("string"), "saliency")).as_py()
    (finished / SCORES.name).write_bytes(b"PAR1")
    with pytest.raises(RunFolderError, match="cannot be read"):
        split_run(finished, tmp_path / "results")


def test_a_result_is_replaced_whole(finished, tmp_path):
    (folder,) = split_run(finished, tmp_path / "results", methods=["saliency"])
    (folder / "left-over.txt").write_text("x")
    assert split_run(finished, tmp_path / "results", methods=["saliency"]) == [folder]
    assert check(folder) == []
    assert [path.name for path in folder.parent.iterdir()] == [folder.name], "nothing half written lies beside it"


def test_what_is_no_whole_run_is_refused(finished, tmp_path):
    with pytest.raises(ResultError, match="has no method 'salienci'; did you mean 'saliency'"):
        split_run(finished, tmp_path / "results", methods=["salienci"])
    shutil.copytree(finished, tmp_path / "failed")
    (tmp_path / "failed" / FAILURES.name).write_bytes(FAILURES.to_csv([{"job": "j", "stage": "score", "error": "e"}]))
    with pytest.raises(ResultError, match="1 jobs failed"):
        split_run(tmp_path / "failed", tmp_path / "results")


def test_a_method_for_some_networks_brings_the_same_samples_as_one_for_all(tiny, ships, tmp_path, monkeypatch):
    text = (
        tiny.read_text().replace("saliency = {}", "saliency = {}\ngradcam = {}").replace('"llr", "mlp"', '"mlp", "cnn"')
    )
    folder = run(ships(text), tmp_path / "run", engine="serial").folder
    whole = read_samples(split_run(folder, tmp_path / "whole", methods=["saliency"])[0])
    room = max(len(to_safetensors([cell.lowest(1)])) for cell in whole)
    monkeypatch.setattr(run_splitting, "_MAX_SAMPLE_BYTES", 2 * room)
    both = split_run(folder, tmp_path / "results", methods=["saliency", "gradcam"])
    many, few = ({cell.model: sorted(cell.samples) for cell in read_samples(place)} for place in both)
    assert (list(many), list(few)) == (["mlp", "cnn"], ["cnn"])
    assert few["cnn"] == many["cnn"]
    assert len(few["cnn"]) == 1 < max(len(cell.samples) for cell in whole if cell.model == "cnn")
