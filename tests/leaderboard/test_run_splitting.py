"""A run becomes a result for each method, with what its intervals need and without private names."""

import json
import shutil
import tomllib

import numpy as np
import pandas as pd
import pytest
import tomli_w
from refusals import refused

from xaibench.core.pictures import levels
from xaibench.leaderboard.checks import check
from xaibench.leaderboard.facts import read_facts
from xaibench.leaderboard.repository import ResultError, read_manifest
from xaibench.leaderboard.run_splitting import split_run
from xaibench.leaderboard.scores import STEP, decode_sheet, read_picture
from xaibench.runfolder.sample_file import read_samples
from xaibench.runfolder.schema import (
    ACCURACY,
    CLASSIFICATION,
    FAILURES,
    IMAGES,
    SAMPLES,
    SCORES,
    TRAININGS,
    RunFolderError,
)
from xaibench.runner import run


def test_each_method_has_its_scores_and_no_other(finished, tmp_path):
    folders = split_run(finished, tmp_path / "results")
    scores = SCORES.read(finished)
    methods = {read_manifest(folder).method: folder for folder in folders}
    assert {"mine-gxi", "saliency", "uniform"} <= set(methods)
    for name, folder in methods.items():
        assert check(folder) == []
        entry = read_manifest(folder).entry
        expected = scores[scores["explainer"] == entry]["value"].to_numpy()
        assert SCORES.read(folder)["value"].to_numpy() == pytest.approx(expected, abs=STEP, nan_ok=True)
        assert read_manifest(folder).control == (name not in ("mine-gxi", "saliency"))


def test_facts_are_written_once_for_all_results_of_a_suite(finished, tmp_path):
    first, second = split_run(finished, tmp_path / "results", methods=["mine:gxi", "saliency"])
    (folder,) = (tmp_path / "results" / "suites").iterdir()
    assert folder.name == first.name == second.name
    assert sorted(path.name for path in first.iterdir()) == ["result.json", "scores.parquet"]
    assert sorted(path.name for path in folder.iterdir()) == ["facts.json", "samples.png"]
    facts = read_facts(folder)
    assert (facts.parts.title, set(facts.parts.models), facts.parts.explainers) == ("Tiny", {"llr", "mlp"}, {})
    for table, stored in ((ACCURACY, facts.accuracy), (TRAININGS, facts.trainings)):
        columns = [name for name in table.columns if name not in ("explained", "scored", *CLASSIFICATION)]
        pd.testing.assert_frame_equal(stored[columns], table.read(finished)[columns])
    rows = SCORES.read(finished).query("model == 'mlp'").drop_duplicates("sample").sort_values("sample")
    for name in ("correct", "scored"):
        (digits,) = facts.networks[facts.networks["model"] == "mlp"][name]
        assert [digit == "1" for digit in digits] == rows[name].tolist()
    before = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    split_run(finished, tmp_path / "results", methods=["saliency"])
    assert {path.name: path.stat().st_mtime_ns for path in folder.iterdir()} == before


def test_groups_are_facts_and_names_of_files_are_not(finished, tmp_path):
    known = {"dataset": "xai-tris/lin-white-8x8", "data_seed": 0, "id": "ann", "group": 7, "file": "/home/ann/scan.png"}
    rows = pd.DataFrame([known | {"sample": sample, "group": 7 + sample // 2} for sample in range(6)])
    rows.loc[5, "group"] = None  # a sample on its own
    rows.astype({"group": "Int64"}).to_csv(finished / SAMPLES.name, index=False)
    (folder,) = split_run(finished, tmp_path / "results", methods=["saliency"])
    samples = read_facts(tmp_path / "results" / "suites" / folder.name).samples
    assert set(samples["dataset"]) == {known["dataset"]}
    assert samples[["sample", "group"]].to_numpy().tolist() == [[0, 7], [1, 7], [2, 8], [3, 8], [4, 9]]
    assert [file for file in (tmp_path / "results").rglob("*") if file.is_file() and b"ann/" in file.read_bytes()] == []
    assert check(folder) == []


def test_results_of_other_images_or_networks_do_not_join_a_suite(finished, tmp_path):
    split_run(finished, tmp_path / "results", methods=["saliency"])
    images, scores = (pd.read_parquet(finished / table.name) for table in (IMAGES, SCORES))
    images.assign(image=images["image"] + 1).to_parquet(finished / IMAGES.name)
    refused(ResultError, "has other images", lambda: split_run(finished, tmp_path / "results"))
    images.to_parquet(finished / IMAGES.name)
    scores.assign(correct=~scores["correct"]).to_parquet(finished / SCORES.name)
    refused(ResultError, "has other networks", lambda: split_run(finished, tmp_path / "results"))


def test_a_picture_has_the_maps_of_the_first_samples(finished, tmp_path):
    (folder,) = split_run(finished, tmp_path / "results", methods=["saliency"])
    facts = read_facts(tmp_path / "results" / "suites" / folder.name)
    layout = facts.layout
    assert layout.cells == (("lin", "white", "llr"), ("lin", "white", "mlp"))
    assert layout.samples == ((0, 1, 2, 3), (0, 1, 2, 3))
    sheet = decode_sheet(read_picture(folder), "sheet", layout.size)
    samples = decode_sheet((facts.folder / "samples.png").read_bytes(), "samples", mode="RGB")
    assert (sheet.shape, samples.shape) == ((16, 32), (16, 64, 3))
    for row, cell in enumerate(read_samples(finished)):
        where = cell.samples.index(3)
        expected = levels(cell.maps[where, cell.explainers.index("saliency")])
        assert np.array_equal(sheet[8 * row : 8 * row + 8, 24:], expected)
        assert np.array_equal(samples[8 * row : 8 * row + 8, 24:32], cell.images[where])
        assert np.array_equal(samples[8 * row : 8 * row + 8, 56:, 0], 255 * cell.masks[where])


def test_sets_that_were_missing_are_not_part_of_the_result(tiny, ships, tmp_path, monkeypatch):
    monkeypatch.delenv("XAIBENCH_IMAGES", raising=False)
    file = ships(
        tiny.read_text()
        + '\n[[cells]]\ndatasets = ["xai-tris/lin-imagenet-8x8"]\nmodels = ["llr"]\n'
        + 'data = { images_dir = "$XAIBENCH_IMAGES" }\n'
    )
    done = run(file, tmp_path / "run", engine="serial")
    assert list(done.missing) == ["xai-tris/lin-imagenet-8x8"]
    (folder,) = split_run(done.folder, tmp_path / "results", methods=["saliency"])
    assert check(folder) == []


@pytest.mark.parametrize(
    ("table", "changes", "difference"),
    [
        ("explaining", {"samples": 5}, "explaining.samples is 5 instead of 6"),
        ("explaining", {"scored": "all"}, "explaining.scored is 'all' instead of 'correct'"),
        ("data", {"seeds": [1]}, "data.seeds differ"),
        ("data", {"parameters": {"n_samples": 400, "alpha": 0.9}}, "data.parameters differ"),
        ("training", {"epochs": 21}, "training.epochs is 21 instead of 20"),
        ("metrics", {"emd_perf": {}}, "metrics differ"),
        ("cells", {"models": ["llr"]}, "cells differ"),
        ("cells", {"datasets": ["folder:mine"]}, "cells differ"),
    ],
)
def test_a_suite_that_was_made_easier_is_another_suite(table, changes, difference, finished, tmp_path):
    file = finished / "suite.toml"
    tables = tomllib.loads(file.read_text())
    (tables["cells"][0] if table == "cells" else tables[table]).update(changes)
    file.write_text(tomli_w.dumps(tables))
    refused(ResultError, difference, split_run, finished, tmp_path / "results")
    assert not (tmp_path / "results").exists()


def test_a_method_for_some_networks_or_none(tiny, ships, tmp_path):
    text = tiny.read_text().replace("saliency = {}", "saliency = {}\n'gradcam++' = {}")
    folder = run(ships(text.replace('"llr", "mlp"', '"mlp", "cnn"')), tmp_path / "run", engine="serial").folder
    saliency, gradcam = split_run(folder, tmp_path / "results", methods=["saliency", "gradcam++"])
    assert gradcam.parent.name == "gradcamplusplus"
    assert [check(saliency), check(gradcam)] == [[], []]
    many, few = (decode_sheet(read_picture(place), "sheet") for place in (saliency, gradcam))
    assert (many[:8].any(), few[8:].any(), few[:8].any()) == (True, True, False)
    folder = run(ships(text), tmp_path / "other", engine="serial").folder
    assert "gradcamplusplus" not in {place.parent.name for place in split_run(folder, tmp_path / "others")}
    refused(ResultError, "gradcam++", lambda: split_run(folder, tmp_path / "others", methods=["gradcam++"]))


def test_incomplete_runs_are_refused(finished, tmp_path, typed):
    refused(ResultError, "'saliency'", lambda: split_run(finished, tmp_path / "results", methods=["salienci"]))
    parts = json.loads((finished / "descriptions.json").read_text())
    parts["explainers"]["Saliency"] = parts["explainers"]["saliency"]
    (finished / "descriptions.json").write_text(json.dumps(parts))
    both = ["saliency", "Saliency"]
    refused(ResultError, "the same folder, saliency", lambda: split_run(finished, tmp_path / "results", methods=both))
    failed = shutil.copytree(finished, tmp_path / "failed")
    (failed / FAILURES.name).write_bytes(FAILURES.to_csv([{"job": "j", "stage": "score", "error": "e"}]))
    refused(ResultError, "1 jobs failed", lambda: split_run(failed, tmp_path / "results"))
    (finished / SCORES.name).write_bytes(b"PAR1")
    refused(RunFolderError, "", lambda: split_run(finished, tmp_path / "results", methods=["saliency"]))
    printed = typed(["results", "add", "nowhere"])
    assert (printed.exit_code, printed.output[:6]) == (2, "Error:")
