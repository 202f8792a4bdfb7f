"""``xaibench push`` and ``xaibench.hub`` against a stand-in for the Hub: what goes there, and what never does."""

import json
import logging
import re
import shutil
import traceback
from dataclasses import replace

import pandas as pd
import pyarrow.parquet as pq
import pytest
import torch
from generators import folder as own_folder
from generators.hub import TOKEN, Repo, hub, set_constants, set_endpoint  # noqa: F401
from huggingface_hub import DatasetCard
from huggingface_hub.repocard_data import model_index_to_eval_results
from report.conftest import write_run
from typer.testing import CliRunner

import xaibench as xb
from xaibench.cli import app
from xaibench.data import load
from xaibench.data.annotated import MissingDataError
from xaibench.hub import (
    HubError,
    LicenseError,
    Target,
    prepare_dataset,
    prepare_run,
    push_dataset,
    push_run,
    set_datasheet,
    uploading,
)
from xaibench.hub.card_text import strip_folders
from xaibench.report.numbers.run_comparison import compare_runs

SET = "xai-tris/rigid-corr-8x8"
SMALL = ("--set", "n_samples=100")


@pytest.fixture
def invoke(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return lambda *arguments, **options: CliRunner().invoke(app, ["push", *map(str, arguments)], **options)


@pytest.fixture(scope="module")
def made_run(tmp_path_factory):
    cells = [("lin", "white", "llr"), ("rigid", "corr", "cnn")]
    return write_run(tmp_path_factory.mktemp("made") / "run", samples=6, cells=cells)


@pytest.fixture
def run(made_run, tmp_path):
    return shutil.copytree(made_run, tmp_path / "run")


def tables_of(run):
    """The files that are made of a run folder's tables; not of one without a row."""
    texts = [file for file in run.glob("*.csv") if len(file.read_text().splitlines()) > 1]
    return {f"{file.stem}.parquet" for file in [*texts, *run.glob("*.parquet")]}


def small(seed=0):
    return xb.load(SET, seed=seed, n_samples=100)


def assert_same(one, other):
    assert (one.info, dict(one.parameters), one.batch_size) == (other.info, dict(other.parameters), other.batch_size)
    for part in ("train", "val", "test"):
        assert all(torch.equal(a, b) for a, b in zip(getattr(one, part)[:], getattr(other, part)[:], strict=True))


def test_a_set_goes_there_and_comes_back(hub, invoke):  # noqa: F811
    result = invoke(SET, "ann/sets", "--seed", 3, *SMALL, input="y\n")
    assert result.exit_code == 0, result.output
    assert re.search(r"[\d,]+ bytes  data/train-00000-of-00001.parquet\n", result.output)
    assert (
        f"to the branch main of the dataset ann/sets, public, new; as ann at {hub.url}\nUpload? [y/N]" in result.output
    )
    assert f"Uploaded: {hub.url}/datasets/ann/sets\n" in result.output
    assert 'Load it with: xaibench.load("hf://ann/sets")' in result.output
    assert sorted(hub.repos["ann/sets"].files) == [
        ".gitattributes",
        "README.md",
        *(f"data/{part}-00000-of-00001.parquet" for part in ("test", "train", "validation")),
    ]
    assert_same(xb.load("hf://ann/sets"), small(3))
    assert xb.load("hf://ann/sets", seed=3).parameters["seed"] == 3


def test_the_card_of_a_set_counts_and_says_how_it_was_made(tmp_path):
    dataset = small(7)
    prepare_dataset(dataset, tmp_path, repo="ann/sets")
    card = DatasetCard((tmp_path / "README.md").read_text(encoding="utf-8"))
    assert card.data.license == "cc0-1.0"
    assert card.data.task_categories == ["image-classification"]
    assert card.data.size_categories == ["n<1K"]
    assert {"xaibench", "synthetic"} <= set(card.data.tags)
    told = card.data.to_dict()
    assert {one["name"]: one["num_examples"] for one in told["dataset_info"]["splits"]} == {
        "train": 80,
        "validation": 10,
        "test": 10,
    }
    assert [one["split"] for one in told["configs"][0]["data_files"]] == ["train", "validation", "test"]
    for heading in (
        "Motivation",
        "Composition",
        "Collection process",
        "Preprocessing",
        "Uses",
        "Distribution",
        "Maintenance",
    ):
        assert f"\n## {heading}\n" in card.text
    assert "| train | 80 | 40 | 40 |" in card.text
    everything = torch.cat([dataset.train.images, dataset.val.images, dataset.test.images]).double()
    values = (everything.min(), everything.max(), everything.mean(), everything.std(correction=0))
    low, high, mean, std = (f"{float(value):.6g}" for value in values)
    assert f"- Pixel values: {low} to {high}, mean {mean}, standard deviation {std}." in card.text
    assert "6.25 % to 6.25 %, 6.25 % on average; 0 masks are empty" in card.text
    call = re.search(r"```python\n(xb\.load\(.*\))\n```", card.text)[1]
    assert_same(eval(call, {"xb": xb}), dataset)
    assert 'xb.load("hf://ann/sets")' in card.text
    assert "XAI-TRIS" in card.text


@pytest.mark.parametrize("subset", ["lin", "mult", "rigid", "xor"])
@pytest.mark.parametrize("variant", ["white", "corr"])
def test_every_generated_set_has_a_card(tmp_path, subset, variant):
    prepare_dataset(xb.load(f"xai-tris/{subset}-{variant}-8x8", n_samples=40, split=(0.5, 0.25, 0.25)), tmp_path)
    text = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert ("(1 − alpha·a)·η" in text) == (subset == "mult")
    assert ("suppressor" in text) == (variant == "corr")


def test_results_go_there_and_come_back(hub, invoke, run, tmp_path):  # noqa: F811
    result = invoke(run, "ann/scores", "--yes", "--license", "cc-by-4.0")
    assert result.exit_code == 0, result.output
    assert 'Load it with: xaibench.hub.load_results("hf://ann/scores")' in result.output
    there = set(hub.repos["ann/scores"].files)
    assert there == tables_of(run) | {".gitattributes", "README.md", "parts.json", "environment.json", "suite.toml"}
    results = xb.hub.load_results("hf://ann/scores")
    assert repr(results).startswith("Results(scores: ")
    pd.testing.assert_frame_equal(results.scores, pd.read_parquet(run / "scores.parquet"))
    for name in ("accuracy", "trainings"):
        pd.testing.assert_frame_equal(results.tables[name], pd.read_csv(run / f"{name}.csv"), check_dtype=False)
    assert set(compare_runs([results.folder, run])["difference"]) == {0.0}


def test_the_card_of_results_holds_the_report_s_numbers(run, tmp_path):
    from xaibench.report.numbers.inference import infer
    from xaibench.report.numbers.leaderboards import leaderboard, place_text
    from xaibench.report.numbers.score_summary import summarize
    from xaibench.report.read.results import read_run

    prepare_run(run, tmp_path / "out", license="mit", repo="ann/scores")
    card = DatasetCard((tmp_path / "out" / "README.md").read_text(encoding="utf-8"))
    assert card.data.license == "mit"
    told = card.data.to_dict()
    assert {one["data_files"] for one in told["configs"]} == tables_of(run)
    summary = summarize(read_run(run)).set_index(["explainer", "subset", "variant", "model", "metric"])
    labels = {part.label: name for name, part in read_run(run).explainers.items()}
    found = 0
    for entry in told["model-index"]:
        name, results = model_index_to_eval_results([entry])
        for one in results:
            scenario, background = one.dataset_type.removeprefix("xai-tris/").split("-")[:2]
            row = summary.loc[labels[name], scenario, background, one.dataset_args["model"], one.metric_type]
            assert one.metric_value == pytest.approx(row["mean"], abs=1e-6)
            assert one.metric_args == {
                "n": row["n"],
                "n_valid": row["n_valid"],
                "median": pytest.approx(row["median"], abs=1e-6),
            }
            found += 1
    assert found == summary["mean"].notna().sum() > 50
    results = read_run(run)
    summary, pairs = infer(results, summarize(results))
    first = leaderboard(results, summary, pairs=pairs).iloc[0]
    place, metric = place_text(first["place"], first["last_place"]), next(iter(results.metrics))
    assert place
    label = results.explainers[first["explainer"]].label
    assert f"| {place} | {label} | {first[f'mean:{metric}']:.3f} | {first[f'beats:{metric}']}/" in card.text
    assert "Lime" not in card.text
    assert "| torch | 2.9.0 |" in card.text
    assert 'name = "xai-tris-8x8"' in card.text


def test_a_dry_run_asks_nobody(hub, invoke, run, monkeypatch):  # noqa: F811
    monkeypatch.delenv("HF_TOKEN")
    for source in (SET, run):
        result = invoke(source, "ann/sets", "--dry-run", *(SMALL if source == SET else ()))
        assert result.exit_code == 0, result.output
        assert "of the dataset ann/sets\nNothing was uploaded (--dry-run).\n" in result.output
    assert hub.requests == []


def test_out_keeps_the_files_to_look_at(invoke, tmp_path):
    result = invoke(SET, "ann/sets", "--dry-run", "--out", "mine", *SMALL)
    assert result.exit_code == 0, result.output
    assert_same(xb.load(f"parquet:{tmp_path / 'mine'}"), small())
    again = invoke(SET, "ann/sets", "--dry-run", "--out", "mine", *SMALL)
    assert (again.exit_code, "expected a new or an empty folder" in again.output) == (2, True)


def test_results_that_are_kept_are_a_run_folder_to_compare_with(hub, invoke, run, tmp_path):  # noqa: F811
    """As they are attached to a release: smaller than the run, and all that a comparison needs."""
    result = invoke(run, "ann/scores", "--dry-run", "--out", "kept")
    assert result.exit_code == 0, result.output
    kept = {file.name: file.stat().st_size for file in (tmp_path / "kept").iterdir()}
    assert set(kept) == tables_of(run) | {"README.md", "parts.json", "environment.json", "suite.toml"}
    assert all(f"{size:,} bytes  {name}\n" in result.output for name, size in kept.items())
    assert set(compare_runs([tmp_path / "kept", run])["difference"]) == {0.0}
    assert hub.requests == []


def test_the_card_of_results_says_what_is_to_be_known_of_the_sets(run, tmp_path):
    file = run / "environment.json"
    said = {"notes": {"xai-tris/lin-imagenet-8x8": "9 photographs are the backgrounds of 100 samples | <b>"}}
    file.write_text(json.dumps(json.loads(file.read_text()) | said))
    text = (prepare_run(run, tmp_path / "out") / "README.md").read_text(encoding="utf-8")
    note = r"- xai-tris/lin-imagenet-8x8: 9 photographs are the backgrounds of 100 samples \| &lt;b&gt;"
    assert text.index("jobs failed") < text.index(note) < text.index("## Leaderboard")


@pytest.mark.parametrize("answer", ["n\n", "\n", ""])
def test_nothing_is_uploaded_without_a_yes(hub, invoke, answer):  # noqa: F811
    result = invoke(SET, "ann/sets", *SMALL, input=answer)
    assert result.exit_code == 1
    assert "Nothing was uploaded." in result.output
    assert hub.writes == []
    assert hub.repos == {}


def test_a_new_set_replaces_the_files_of_an_older_one(hub, invoke):  # noqa: F811
    hub.repos["ann/sets"] = repo = Repo(private=True)
    old = {"data/train-00000-of-00009.parquet": b"old", "data/notes.csv": b"mine", "model.bin": b"mine"}
    repo.branches["main"] = repo.commit(old)
    result = invoke(SET, "ann/sets", "--yes", "--private", *SMALL)
    assert result.exit_code == 0, result.output
    assert "removed  data/train-00000-of-00009.parquet\n" in result.output
    assert "private, existing" in result.output
    assert {"data/notes.csv", "model.bin"} < set(repo.files)
    assert "data/train-00000-of-00009.parquet" not in repo.files
    assert_same(xb.load("hf://ann/sets"), small())


def test_branches_and_pull_requests_leave_main_alone(hub, invoke):  # noqa: F811
    hub.repos["ann/sets"] = repo = Repo(private=False)
    result = invoke(SET, "ann/sets", "--yes", "--branch", "v2", *SMALL)
    assert result.exit_code == 0, result.output
    assert f"Uploaded: {hub.url}/datasets/ann/sets/tree/v2" in result.output
    assert_same(xb.load("hf://ann/sets@v2"), small())
    result = invoke(SET, "ann/sets", "--yes", "--create-pr", *SMALL)
    assert f"Uploaded: {hub.url}/datasets/ann/sets/discussions/1" in result.output
    assert_same(xb.load("hf://ann/sets@refs/pr/1"), small())
    assert list(repo.files) == [".gitattributes"]


def test_a_private_repository_is_private(hub):  # noqa: F811
    push_dataset(small(), "ann/sets", private=True)
    assert hub.repos["ann/sets"].private
    hub.repos["ann/open"] = Repo(private=False)
    with pytest.raises(HubError, match=r"ann/open exists and is public, but a private repository was requested"):
        push_dataset(small(), "ann/open", private=True)


def test_sets_and_results_do_not_overwrite_each_other(hub, run):  # noqa: F811
    push_dataset(small(), "ann/sets")
    with pytest.raises(HubError, match=r"ann/sets contains a data set; choose another repository for results of a run"):
        push_run(run, "ann/sets")
    push_run(run, "ann/scores")
    with pytest.raises(
        HubError, match=r"ann/scores contains results of a run; choose another repository for a data set"
    ):
        push_dataset(small(), "ann/scores")
    with pytest.raises(MissingDataError, match=r"hf://ann/sets holds no results of a run: expected scores.parquet"):
        xb.hub.load_results("hf://ann/sets")
    with pytest.raises(MissingDataError, match=r"hf://ann/scores is not a data set of xaibench"):
        xb.load("hf://ann/scores")


@pytest.mark.parametrize(
    ("name", "license"), [("pet", "CC BY-SA 4.0"), ("voc", "flickr"), ("lidc", "CC BY 3.0"), ("sixray", "ACADEMIC")]
)
def test_sets_of_others_are_not_handed_on(hub, invoke, name, license):  # noqa: F811
    result = invoke(name, "ann/sets", "--yes", "--license", "mit")
    assert result.exit_code == 2
    assert "cannot be uploaded: its files belong to their publishers, under this license: " in result.output
    assert license in result.output
    assert hub.requests == []


def test_photographs_need_a_license(hub, invoke, tmp_path):  # noqa: F811
    own_folder.write(tmp_path / "mine")
    source = f"folder:{tmp_path / 'mine'}"
    refused = invoke(source, "ann/sets", "--yes")
    assert (refused.exit_code, "--license cc-by-4.0" in refused.output) == (2, True)
    assert "state the license" in invoke("xai-tris/lin-imagenet-8x8", "ann/sets", "--yes").output
    assert hub.requests == []
    result = invoke(source, "ann/sets", "--yes", "--license", "cc-by-4.0", "--set", "size=16", "--seed", 2)
    assert result.exit_code == 0, result.output
    loaded = xb.load("hf://ann/sets")
    assert (loaded.info.name, loaded.info.license) == ("folder:…/mine", "cc-by-4.0")
    assert (loaded.parameters["seed"], loaded.parameters["size"]) == (2, 16)
    mine = xb.load(source, seed=2, size=16)
    assert all(torch.equal(a, b) for a, b in zip(loaded.test[:], mine.test[:], strict=True))
    everything = b"".join(hub.repos["ann/sets"].files.values())
    assert str(tmp_path).encode() not in everything
    assert b"healthy.v1" not in everything
    with pytest.raises(LicenseError, match=r"expected a license identifier of the Hub"):
        push_dataset(mine, "ann/sets", license="My own!")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("xai-tris/nothing", "ann/sets"), "did you mean"),
        ((SET, "sets"), "expected hf://owner/name"),
        ((SET, "ann/sets@v1"), "the branch is given as revision"),
        ((SET, "ann/sets", "--set", "alpha"), "expected NAME=VALUE, such as n_samples=1000"),
        ((SET, "ann/sets", "--set", "alfa=1"), "has no parameter 'alfa'; did you mean 'alpha'?"),
        ((SET, "ann/sets", "--set", "alpha=7"), "alpha=7: expected a signal-to-noise ratio in [0, 1]"),
        ((SET, "ann/sets", "--license", "©"), "expected a license identifier of the Hub"),
        (("run", "ann/scores", "--set", "alpha=1"), "--set is for data sets"),
        (("empty", "ann/scores"), "is a folder without scores.parquet; expected a run folder"),
    ],
)
def test_bad_arguments_are_exit_code_2_and_one_line(hub, invoke, run, arguments, message, tmp_path):  # noqa: F811
    (tmp_path / "empty").mkdir()
    result = invoke(*arguments, "--yes")
    assert result.exit_code == 2
    assert message in result.output
    assert "Traceback" not in result.output
    assert hub.writes == []


def fail(hub, monkeypatch, how):  # noqa: F811
    if how == "logged out":
        monkeypatch.delenv("HF_TOKEN")
    elif how == "bad token":
        monkeypatch.setenv("HF_TOKEN", "hf_another")
    elif how == "offline":
        set_constants(monkeypatch, HF_HUB_OFFLINE=True)
    elif how == "no network":
        set_endpoint(monkeypatch, "http://127.0.0.1:9")
    elif how == "read only":
        hub.fail["/api/repos/create"] = 403
    elif how == "gone":
        hub.fail["/preupload/"] = 404
    elif how == "trouble":
        hub.fail["/commit/"] = 418


@pytest.mark.parametrize(
    ("how", "repo", "message"),
    [
        (
            "logged out",
            "ann/sets",
            "No user is logged in to the Hugging Face Hub. Log in with `hf auth login`, or set HF_TOKEN",
        ),
        ("bad token", "ann/sets", "Your token is unknown to the Hub, or it has expired. Log in"),
        ("no network", "ann/sets", r"http://127.0.0.1:9 cannot be reached \(\w+\). Check the network, and HF_ENDPOINT"),
        ("offline", "ann/sets", "HF_HUB_OFFLINE is set, so nothing can be uploaded; unset it"),
        ("", "bob/sets", "You may not write to bob/sets. Choose a repository of your own, ask its owner"),
        ("read only", "ann/sets", "You may not write to ann/sets"),
        ("gone", "ann/sets", "There is no dataset repository ann/sets, or you have no access to it"),
        ("trouble", "ann/sets", "The Hub returned HTTP status 418"),
    ],
)
def test_what_can_go_wrong_is_said_in_a_line(hub, invoke, monkeypatch, how, repo, message):  # noqa: F811
    fail(hub, monkeypatch, how)
    result = invoke(SET, repo, "--yes", *SMALL)
    assert result.exit_code == 1, result.output
    assert re.search(message, result.output), result.output
    assert "Traceback" not in result.output
    assert all(list(repo.files) == [".gitattributes"] for repo in hub.repos.values())


def test_a_pull_request_needs_a_repository(hub):  # noqa: F811
    with pytest.raises(HubError, match=r"no dataset repository ann/sets to open a pull request in"):
        push_dataset(small(), "ann/sets", create_pr=True)


def test_nothing_of_the_token_is_left_anywhere(hub, invoke, run, tmp_path, monkeypatch, caplog):  # noqa: F811
    caplog.set_level(logging.DEBUG)
    for name in ("huggingface_hub", "httpx", "httpcore", "urllib3", "xaibench"):
        monkeypatch.setattr(logging.getLogger(name), "propagate", True)
        caplog.set_level(logging.DEBUG, logger=name)
    outputs = [
        invoke(SET, "ann/sets", "--yes", "--out", "kept", *SMALL),
        invoke(run, "ann/scores", "--yes"),
        invoke(SET, "bob/sets", "--yes", *SMALL),
    ]
    xb.load("hf://ann/sets")
    xb.hub.load_results("hf://ann/scores")
    for how in ("trouble", "no network"):
        fail(hub, monkeypatch, how)
        outputs.append(invoke(SET, "ann/more", "--yes", *SMALL))
    assert [result.exit_code for result in outputs] == [0, 0, 1, 1, 1]
    assert any(token == TOKEN for _, _, token, _ in hub.requests)  # it did go to the Hub, in the head of requests
    assert not any(TOKEN.encode() in body for *_, body in hub.requests)
    assert not any(TOKEN in path for _, path, *_ in hub.requests)
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert len(files) > 20
    assert not any(TOKEN.encode() in file.read_bytes() for file in files)
    assert caplog.records
    said = [record.getMessage() + str(record.exc_info) for record in caplog.records]
    assert not any(TOKEN in text for text in [*said, *(result.output for result in outputs)])
    assert not any(TOKEN in repr(result.exception) for result in outputs)


def test_a_file_with_the_token_is_not_uploaded(hub, run):  # noqa: F811
    with (run / "suite.toml").open("a") as stream:
        stream.write(f'# my token is "{TOKEN}"\n')
    with pytest.raises(HubError, match=r"README.md contains your Hub token; nothing was uploaded") as caught:
        push_run(run, "ann/scores")
    assert TOKEN not in str(caught.value)
    assert hub.writes == []


def test_nothing_of_the_machine_is_uploaded(run, tmp_path):
    mine = "folder:/home/ann/secret/dogs"
    scores = pd.read_parquet(run / "scores.parquet")
    scores["dataset"] = scores["subset"] = mine
    scores["variant"] = "-"
    scores.to_parquet(run / "scores.parquet")
    (run / "suite.toml").write_text(
        f'[data]\nparameters = {{ root = "/home/ann/secret/data", at = "C:\\\\\\\\Users\\\\\\\\ann\\\\\\\\x" }}\n'
        f'[[cells]]\ndatasets = ["{mine}", "pet"]\nmodels = ["cnn"]\n'
    )
    (run / "jobs.csv").write_text(f"stage,key,dataset,seconds,worker\ndata,12345678901234567890,{mine},1.5,host7:12\n")
    (run / "failures.csv").write_text(
        f'job,stage,error\n"lime for {mine}",explain,"OSError: /home/ann/secret/a.png,\nbad"\n'
    )
    (run / "samples.csv").write_text(
        "dataset,data_seed,sample,id,group,file\n"
        f"{mine},0,0,patient-9,0,image/ill/patient-9.png\npet,0,0,beagle_1,0,images/beagle_1.jpg\n"
    )
    out = prepare_run(run, tmp_path / "out")
    for file in out.iterdir():
        text = (
            pq.read_table(file).to_pandas().to_csv() if file.suffix == ".parquet" else file.read_text(encoding="utf-8")
        )
        for word in ("secret", "/home", "Users", "host7", "patient-9"):
            assert word not in text, file.name
    assert set(pq.read_table(out / "scores.parquet")["dataset"].to_pylist()) == {"folder:…/dogs"}
    assert pq.read_table(out / "samples.parquet")["id"].to_pylist() == [None, "beagle_1"]
    assert pq.read_table(out / "jobs.parquet").to_pylist() == [
        {"stage": "data", "key": "12345678901234567890", "dataset": "folder:…/dogs", "seconds": 1.5}
    ]
    assert pq.read_table(out / "failures.parquet")["error"].to_pylist() == ["OSError: …/a.png,\nbad"]


def test_a_damaged_run(run, tmp_path):
    from xaibench.report import RunFolderError

    (run / "jobs.csv").write_text("a,b\n1,2,3\n")
    with pytest.raises(RunFolderError, match=r"jobs.csv cannot be read .* Run the suite again"):
        prepare_run(run, tmp_path / "out")
    with pytest.raises(RunFolderError, match=r"nowhere is not a folder"):
        prepare_run(tmp_path / "nowhere", tmp_path / "out")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("/home/ann/x.png", "…/x.png"),
        ('"~/data/sets"', '"…/sets"'),
        (r"C:\Users\ann\x", "…/x"),
        (json.dumps(r"C:\Users\ann\x"), '"…/x"'),
        ("https://hub.example/datasets/ann/x and s3://bucket/a/b", None),
        ("and/or, 1/2, xai-tris/lin-white-8x8, images/a/b.png, N / A, //", None),
    ],
)
def test_folders_of_this_machine_are_left_out(text, shown):
    assert strip_folders(text) == (text if shown is None else shown)


def test_names_from_outside_cannot_break_out_of_the_card(tmp_path):
    from dataclasses import replace

    dataset = small()
    odd = ("a|b\n## c", "<img src=x onerror=alert(1)>")
    prepare_dataset(replace(dataset, info=replace(dataset.info, classes=odd)), tmp_path)
    card = DatasetCard((tmp_path / "README.md").read_text(encoding="utf-8"))
    assert r"| split | samples | a\|b \#\# c | &lt;img src=x onerror=alert(1)&gt; |" in card.text
    assert "<img" not in card.text
    label = card.data.to_dict()["dataset_info"]["features"][2]["dtype"]["class_label"]
    assert tuple(label["names"].values()) == odd


def test_datasets_reads_the_tables_by_name(run, tmp_path):
    datasets = pytest.importorskip("datasets")
    out = prepare_run(run, tmp_path / "out")
    found = datasets.get_dataset_config_names(str(out))
    assert {f"{name}.parquet" for name in found} == tables_of(run)
    scores = datasets.load_dataset(str(out), "scores", split="train", cache_dir=str(tmp_path / "cache"))
    assert len(scores) == pq.read_metadata(run / "scores.parquet").num_rows


def test_a_token_that_the_server_echoes_is_not_repeated(monkeypatch):
    monkeypatch.setattr("huggingface_hub.get_token", lambda: "hf_secret")

    class AnswerError(Exception):
        response = type("Response", (), {"status_code": 418})()
        server_message = "no hf_secret here"

    with (
        pytest.raises(HubError, match=r"418: no \(your token\) here") as caught,
        uploading._translate_errors(Target("ann/sets"), None),
    ):
        raise AnswerError("hf_secret is refused")
    assert "hf_secret" not in "".join(traceback.format_exception(caught.value, chain=True))


def test_the_name_of_a_set_does_not_leave_its_block_of_code(monkeypatch):
    monkeypatch.setattr(set_datasheet, "is_generated_set", lambda info: True)
    hostile = small(0)
    hostile = replace(hostile, info=replace(hostile.info, name='x")\n```\n# a heading'))
    text = set_datasheet._collection(hostile)
    fence = "`" * 4
    assert text.count(fence) == 2
    assert text.rstrip().endswith(fence)


def test_the_datasheet_of_creatures_says_how_they_are_made():
    data = load("parts/creatures-96x96", n_samples=40, split=(0.6, 0.2, 0.2))
    sheet = set_datasheet.render_datasheet(data, set_datasheet.measure_dataset(data), "cc0-1.0", "ann/creatures")
    assert "a creature of 7 parts" in sheet
    assert "4 parts (tail, feet, beak, wing)" in sheet
    assert "the visible pixels of the parts that decide the class" in sheet
    assert "The samples are independent." in sheet
    assert "divided by its largest" not in sheet
