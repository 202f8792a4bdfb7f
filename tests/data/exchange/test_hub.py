"""``load("hf://...")`` and ``xaibench push`` with a folder in place of the Hub."""

import json
from pathlib import Path

import huggingface_hub
import pandas as pd
import pytest
import torch
from generators import folder as own_folder
from generators.hub import hub  # noqa: F401
from refusals import refused
from report.conftest import write_run
from typer.testing import CliRunner

import xaibench as xb
from xaibench.cli import app
from xaibench.data.annotated import MissingDataError
from xaibench.data.exchange.hub_sets import HubAddress
from xaibench.hub import LicenseError, push_dataset, push_run
from xaibench.runfolder.schema import RunFolderError

SET = "xai-tris/rigid-corr-8x8"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return write_run(tmp_path_factory.mktemp("made") / "run", samples=6, cells=[("lin", "white", "llr")])


def push(*arguments):
    return CliRunner().invoke(app, ["push", *map(str, arguments)])


def small(seed=0):
    return xb.load(SET, seed=seed, n_samples=100)


def assert_same(one, other):
    assert (one.info, dict(one.parameters), one.batch_size) == (other.info, dict(other.parameters), other.batch_size)
    for split in ("train", "val", "test"):
        assert all(torch.equal(a, b) for a, b in zip(getattr(one, split)[:], getattr(other, split)[:], strict=True))


def test_a_data_set_is_uploaded_and_loaded(hub):  # noqa: F811
    arguments = (SET, "ann/sets", "--seed", 3, "--set", "n_samples=100")
    listed = push(*arguments)
    assert listed.exit_code == 0, listed.output
    assert "data/train.parquet" in listed.output
    assert not hub.folder.exists()
    assert hub.private == {}  # nothing is uploaded without --yes
    assert push(*arguments, "--yes").exit_code == 0
    assert hub.private == {"ann/sets": True}
    assert_same(xb.load("hf://ann/sets"), small(3))
    card = huggingface_hub.DatasetCard.load(hub.folder / "ann/sets/main/README.md")
    assert card.data.license == "cc0-1.0"
    assert "XAI-TRIS" in card.text


def test_branches_and_visibility(hub):  # noqa: F811
    assert push_dataset(small(), "ann/open", public=True, revision="v2") == "https://hub/ann/open/tree/v2"
    assert_same(xb.load("hf://datasets/ann/open@v2"), small())
    refused(ValueError, "ann/open", lambda: push_dataset(small(), "ann/open"))
    refused(MissingDataError, "hf://ann/none", xb.load, "hf://ann/none")


def test_results_of_a_run_are_uploaded_without_names_of_machines_and_files(hub, run):  # noqa: F811
    assert push(run, "ann/scores", "--yes", "--license", "mit").exit_code == 0
    there = hub.folder / "ann/scores/main"
    names = {file.name for file in there.iterdir()}
    assert {"README.md", "scores.parquet", "suite.toml", "environment.json", "descriptions.json"} <= names
    assert names.isdisjoint({"jobs.csv", "failures.csv", "samples.csv", "maps", "images"})
    pd.testing.assert_frame_equal(pd.read_parquet(there / "scores.parquet"), pd.read_parquet(run / "scores.parquet"))
    assert CliRunner().invoke(app, ["compare", str(there), str(run)]).exit_code == 0
    assert huggingface_hub.DatasetCard.load(there / "README.md").data.license == "mit"
    refused(RunFolderError, "", push_run, run.parent, "ann/scores")


@pytest.mark.parametrize("name", ["pet", "voc", "lidc", "sixray", "gender"])
def test_data_sets_of_others_are_not_uploaded(hub, name):  # noqa: F811
    result = push(name, "ann/sets", "--yes", "--license", "mit")
    assert result.exit_code == 2
    assert "cannot be uploaded" in result.output
    assert hub.private == {}


def test_own_images_need_a_license(hub, tmp_path):  # noqa: F811
    own_folder.write(tmp_path / "mine")
    dataset = xb.load(f"folder:{tmp_path / 'mine'}", size=16)
    refused(LicenseError, "", push_dataset, dataset, "ann/sets")
    push_dataset(dataset, "ann/sets", license="cc-by-4.0")
    loaded = xb.load("hf://ann/sets")
    assert (loaded.info.name, loaded.info.license) == ("folder:mine", "cc-by-4.0")
    assert all(torch.equal(a, b) for a, b in zip(loaded.test[:], dataset.test[:], strict=True))
    everything = b"".join(file.read_bytes() for file in Path(hub.folder).rglob("*.*"))
    assert json.dumps(str(tmp_path))[1:-1].encode() not in everything


@pytest.mark.parametrize(
    "arguments", [("xai-tris/nothing", "a/b"), (SET, "sets"), (SET, "a/b@v1"), (SET, "a/b", "--set", "alpha")]
)
def test_bad_arguments(hub, arguments):  # noqa: F811
    result = push(*arguments, "--yes")
    assert (result.exit_code, hub.private) == (2, {})
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
    "bad",
    [
        *("sets", "", "a/b/c", "ann/sets@", "ann/se ts", "@v1", "-x/y", "../..", "ann/a--b", "ann/a..b", "ann/sets."),
        *("ann/sets.git", "ann/sets\n", "ann/m\u00e4", f"ann/{'a' * 97}"),
    ],
)
def test_malformed_addresses(bad):
    refused(ValueError, "hf://owner/name", xb.load, f"hf://{bad}")


@pytest.mark.parametrize(
    ("text", "address"),
    [("hf://ann/sets", HubAddress("ann/sets")), ("ann/sets@refs/pr/3", HubAddress("ann/sets", "refs/pr/3"))],
)
def test_addresses(text, address):
    assert HubAddress.parse(text) == HubAddress.parse(str(address)) == address
