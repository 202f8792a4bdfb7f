"""A run becomes a result for each method, with what its intervals need and without what is nobody's business."""

import dataclasses
import json
import shutil

import numpy as np
import pandas as pd
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from xaibench.leaderboard import run_splitting
from xaibench.leaderboard.checks import check
from xaibench.leaderboard.manifest import ResultError, find_results, read_manifest
from xaibench.leaderboard.pictures import decode_sheet
from xaibench.leaderboard.run_splitting import split_run
from xaibench.leaderboard.score_files import PICTURE, read_note
from xaibench.leaderboard.suite_facts import image_checksums, read_facts, write_facts
from xaibench.report.page.sample_browser import levels
from xaibench.runfolder.sample_file import read_samples
from xaibench.runfolder.tables import ACCURACY, FAILURES, IMAGES, SAMPLES, SCORES, TRAININGS, RunFolderError
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


def test_a_run_folder_is_not_taken_for_a_result(finished):
    with pytest.raises(ResultError, match=r"is a run folder, not a result; `xaibench results add .* turns"):
        find_results(finished)


def test_facts_are_written_once_for_all_results_of_a_suite(finished, tmp_path):
    first, second = split_run(finished, tmp_path / "results")
    (facts,) = (tmp_path / "results" / "suites").iterdir()
    assert facts.name == first.name == second.name
    assert sorted(path.name for path in first.iterdir()) == ["scores.parquet"]
    found = read_facts(facts)
    assert (found.parts.title, set(found.parts.models), found.parts.explainers) == ("Tiny", {"llr", "mlp"}, {})
    of_methods = ["explained", "scored"]  # numbers of samples of the run, which are no facts of the suite
    assert sorted(path.name for path in facts.iterdir()) == ["facts.json", "samples.png"]
    for table, own in ((ACCURACY, found.accuracy), (TRAININGS, found.trainings)):
        kept = [name for name in table.columns if name not in of_methods]
        pd.testing.assert_frame_equal(own[kept], table.read(finished)[kept])
    before = {path.name: path.stat().st_mtime_ns for path in facts.iterdir()}
    split_run(finished, tmp_path / "results", methods=["saliency"])
    assert {path.name: path.stat().st_mtime_ns for path in facts.iterdir()} == before


def test_groups_are_facts_and_names_of_files_are_not(finished, tmp_path):
    known = {"dataset": "xai-tris/lin-white-8x8", "data_seed": 0, "id": "ann", "group": 7, "file": "/home/ann/scan.png"}
    rows = pd.DataFrame([known | {"sample": sample, "group": 7 + sample // 2} for sample in range(6)])
    rows.loc[5, "group"] = None  # a sample on its own
    rows.astype({"group": "Int64"}).to_csv(finished / SAMPLES.name, index=False)
    (folder,) = split_run(finished, tmp_path / "results", methods=["saliency"])
    facts = tmp_path / "results" / "suites" / folder.name
    found = read_facts(facts).samples
    assert set(found["dataset"]) == {known["dataset"]}
    assert set(found["data_seed"]) == {0}
    assert found[["sample", "group"]].to_numpy().tolist() == [[0, 7], [1, 7], [2, 8], [3, 8], [4, 9]]
    assert [file for file in (tmp_path / "results").rglob("*") if file.is_file() and b"ann" in file.read_bytes()] == []
    assert check(folder) == []


def test_groups_of_a_large_suite_can_be_read_again(finished, tmp_path):
    (folder,) = split_run(finished, tmp_path / "results", methods=["saliency"])
    facts = read_facts(tmp_path / "results" / "suites" / folder.name)
    samples = pd.DataFrame({"dataset": "pascal", "data_seed": 0, "sample": range(100_000), "group": range(100_000)})
    (facts.folder / "facts.json").write_bytes(dataclasses.replace(facts, samples=samples).to_json())
    assert read_facts(facts.folder).samples["group"].tolist() == list(range(100_000))


def test_results_of_other_images_do_not_join_a_suite(finished, tmp_path):
    split_run(finished, tmp_path / "results", methods=["saliency"])
    images = pd.read_parquet(finished / IMAGES.name)
    images.assign(image=images["image"] + 1).to_parquet(finished / IMAGES.name)
    with pytest.raises(ResultError, match="explained other images than the results of tiny@"):
        split_run(finished, tmp_path / "results", methods=["uniform"])
    # Who verifies a result decides what the facts are.
    (facts,) = (tmp_path / "results" / "suites").iterdir()
    write_facts(finished, facts, replace=True)
    assert read_facts(facts).images == image_checksums(finished)
    assert split_run(finished, tmp_path / "results", methods=["uniform"])


GROUP = {"dataset": "xai-tris/lin-white-8x8", "data_seed": 0, "sample": "0 1", "group": "7 7"}


@pytest.mark.parametrize(
    ("name", "value"),
    [("parts", {}), ("groups", [GROUP]), ("accuracy", []), ("trainings", []), ("images", {}), ("pictures", None)],
)
def test_a_verification_replaces_facts_that_a_submitter_wrote(name, value, finished, tmp_path):
    """The first result of a suite brings its facts; nothing in them may outlive the keeper's own run."""
    (folder,) = split_run(finished, tmp_path / "results", methods=["saliency"])
    facts = tmp_path / "results" / "suites" / folder.name
    before = {path.name: path.read_bytes() for path in facts.iterdir()}
    words = json.loads(before["facts.json"])
    assert words[name] != value
    (facts / "facts.json").write_text(json.dumps(words | {name: value}))
    (facts / "samples.png").write_bytes(before["samples.png"] + b" ")
    write_facts(finished, facts, replace=True)
    assert {path.name: path.read_bytes() for path in facts.iterdir()} == before


@pytest.mark.parametrize("changed", [{}, {"accuracy": []}, {"images": {}}, {"groups": [GROUP]}])
def test_pictures_of_more_cells_protect_no_other_fact(changed, finished, tmp_path):
    (folder,) = split_run(finished, tmp_path / "results", methods=["saliency"])
    facts = tmp_path / "results" / "suites" / folder.name
    before = json.loads((facts / "facts.json").read_text())
    layout = before["pictures"]
    more = layout | {"cells": [*layout["cells"], ["xor", "white", "mlp"]], "samples": layout["samples"] * 2}
    more["samples"] = more["samples"][: len(more["cells"])]
    (facts / "facts.json").write_text(json.dumps(before | {"pictures": more} | changed))
    write_facts(finished, facts, replace=True)
    after = json.loads((facts / "facts.json").read_text())
    assert after == (before if changed else before | {"pictures": more})


@pytest.mark.parametrize("group", [GROUP | {"group": "7"}, GROUP | {"sample": 3}, {"sample": "0"}, "text"])
def test_malformed_groups_are_a_clear_error(group, finished, tmp_path):
    (folder,) = split_run(finished, tmp_path / "results", methods=["saliency"])
    file = tmp_path / "results" / "suites" / folder.name / "facts.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"groups": [group]}))
    with pytest.raises(ResultError, match=r"facts\.json has malformed groups of samples .* writes it again"):
        read_facts(file.parent)


def test_pictures_of_more_cells_are_kept(tiny, ships, tmp_path):
    text = tiny.read_text().replace("uniform = {}", "gradcam = {}").replace('"llr", "mlp"', '"mlp", "cnn"')
    runs = {
        name: run(ships(text), tmp_path / name, engine="serial", store=tmp_path / "store", explainers=[name]).folder
        for name in ("saliency", "gradcam")
    }
    facts = tmp_path / "results" / "suites" / "tiny"
    write_facts(runs["gradcam"], facts)
    assert [model for _, _, model in read_facts(facts).layout.cells] == ["cnn"]
    for name in ("saliency", "gradcam"):
        write_facts(runs[name], facts, replace=True)
        assert [model for _, _, model in read_facts(facts).layout.cells] == ["mlp", "cnn"]


def test_a_picture_has_the_maps_of_the_first_samples(finished, tmp_path):
    (folder,) = split_run(finished, tmp_path / "results", methods=["saliency"])
    facts = read_facts(tmp_path / "results" / "suites" / folder.name)
    layout = facts.layout
    assert layout.cells == (("lin", "white", "llr"), ("lin", "white", "mlp"))
    assert layout.samples == ((0, 1, 2, 3), (0, 1, 2, 3))
    sheet = decode_sheet(read_note(folder, PICTURE), "sheet", layout.size)
    samples = decode_sheet((facts.folder / "samples.png").read_bytes(), "samples", mode="RGB")
    assert (sheet.shape, samples.shape) == ((16, 32), (16, 64, 3))
    for row, cell in enumerate(read_samples(finished)):
        where = cell.samples.index(3)
        expected = levels(cell.maps[where, cell.explainers.index("saliency")])
        assert np.array_equal(sheet[8 * row : 8 * row + 8, 24:], expected)
        assert np.array_equal(samples[8 * row : 8 * row + 8, 24:32], cell.images[where])
        assert np.array_equal(samples[8 * row : 8 * row + 8, 56:, 0], 255 * cell.masks[where])


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
        ("samples = 6", "samples = 5", "explaining.samples is 5 instead of 6"),
        ("seeds = [0]", "seeds = [1]", "data.seeds differ"),
        ("n_samples = 200", "n_samples = 400", "data.parameters differ"),
        ("[explaining]", '[explaining]\nscored = "all"', "explaining.scored is 'all' instead of 'correct'"),
        ("samples = 6", "samples = 6\nseed = 7", "explaining.seed is 7 instead of 0"),
        ('models = ["llr", "mlp"]', 'models = ["llr", "mlp"]\nmetrics = ["topk_precision"]', "cells differ"),
        ("topk_precision = {}", "topk_precision = {}\nemd_perf = {}", "metrics differ"),
        ("epochs = 20", "epochs = 21", "training.epochs is 21 instead of 20"),
    ],
    ids=lambda change: change[1].strip().replace("\n", " ")[-24:],
)
def test_a_suite_that_was_made_easier_is_another_suite(change, tiny, finished, tmp_path):
    """Only what the library has under a name is that suite; explainers are free."""
    text = (finished / "suite.toml").read_text()
    old, new, difference = change
    assert old in text
    (finished / "suite.toml").write_text(text.replace(old, new))
    with pytest.raises(ResultError, match=f"is of another suite than tiny of the library: .*{difference}"):
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


def test_a_method_for_some_networks_has_no_maps_in_the_other_rows(tiny, ships, tmp_path):
    text = (
        tiny.read_text().replace("saliency = {}", "saliency = {}\ngradcam = {}").replace('"llr", "mlp"', '"mlp", "cnn"')
    )
    folder = run(ships(text), tmp_path / "run", engine="serial").folder
    both = split_run(folder, tmp_path / "results", methods=["saliency", "gradcam"])
    many, few = (decode_sheet(read_note(place, PICTURE), "sheet") for place in both)
    assert many.shape == few.shape == (16, 32)
    assert many[:8].any()
    assert few[8:].any()
    assert not few[:8].any()
