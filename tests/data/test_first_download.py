"""A set that can be downloaded, on a machine on which nothing is set: from one call to its samples."""

import os

import pytest
from generators import pet as tree
from refusals import refused
from torchvision.datasets import OxfordIIITPet
from torchvision.datasets.voc import DATASET_YEAR_DICT
from typer.testing import CliRunner

from xaibench.cli import app
from xaibench.data import DATASETS, load, loading
from xaibench.data.annotated import MissingDataError
from xaibench.runner import RunRequest, SuiteError

PET, PASCAL = DATASETS.resolve("pet"), DATASETS.resolve("pascal")


@pytest.fixture(autouse=True)
def pets(server, tmp_path, monkeypatch):
    """The official archives, of a tiny tree, on a server; returns what they hold."""
    monkeypatch.delenv("XAIBENCH_DATA", raising=False)
    expected = tree.write(tmp_path)
    folder = tmp_path / "oxford-iiit-pet"
    archives = []
    for part in ("images", "annotations"):
        members = {
            file.relative_to(folder).as_posix(): file.read_bytes()
            for file in (folder / part).rglob("*")
            if file.is_file()
        }
        archives.append(server.offer(f"{part}.tar", members))
    monkeypatch.setattr(PET, "archives", archives)
    return expected


def test_one_call_downloads_into_the_cache_and_later_calls_find_the_set(pets, server, cache):
    refused(MissingDataError, str(cache / "data"), lambda: load("pet"))
    train, val, test = loading("pet", "cat,dog", size=32, download=True, verbose=False)
    assert sum(len(loader.dataset) for loader in (train, val, test)) == len(pets)
    assert (cache / "data" / "oxford-iiit-pet" / "annotations" / "list.txt").exists()
    assert len(load("pet", splits=(0, 0, 1)).test) == len(pets)
    load("pet", download=True)
    assert len(server.ranges) == 2


@pytest.mark.parametrize(
    ("call", "shown"),
    [
        (lambda: loading("pascal", "aeroplane,bicycle"), 'xb.loading("pascal", "aeroplane,bicycle", download=True)'),
        (lambda: load("pet", size=64, download=False), 'xb.load("pet", size=64, download=True)'),
        (
            lambda: loading("pet", ["cat"], splits=(0, 0, 1)),
            "xb.loading(\"pet\", ['cat'], splits=(0, 0, 1), download=True)",
        ),
    ],
)
def test_the_message_begins_with_the_call_that_downloads(call, shown):
    refused(MissingDataError, shown, call)
    assert str(refused(MissingDataError, shown, call)).startswith(f"{shown}  # ")


def test_a_run_downloads_if_asked_to(pets, cache):
    request = RunRequest("pets-offline", download=True)
    with pytest.raises(SuiteError, match="--download"), request.opened():  # as for an estimate
        pass
    with request.opened(download=True) as opened:
        assert not opened.missing
        assert os.environ["XAIBENCH_DATA"] == str(cache / "data")
    assert "XAIBENCH_DATA" not in os.environ
    assert (cache / "data" / "oxford-iiit-pet" / "images").is_dir()


def test_prepare_downloads_and_lists_what_is_missing(pets, cache):
    result = CliRunner().invoke(app, ["prepare", "pet", "--workers", "1"])
    assert result.exit_code == 1
    assert (
        f"missing: {cache / 'data' / 'oxford-iiit-pet' / 'annotations' / 'trimaps' / '*.png'} (masks)" in result.output
    )
    result = CliRunner().invoke(app, ["prepare", "pet", "--workers", "1", "--download"])
    assert (result.exit_code, "missing:" in result.output) == (0, False), result.output
    for image in (cache / "data" / "oxford-iiit-pet" / "images").glob("*.jpg"):
        image.unlink()
    result = CliRunner().invoke(app, ["prepare", "pet", "--workers", "1"])
    assert "(photographs)" in result.output
    assert "(masks)" not in result.output


def test_a_licensed_set_lists_the_files_that_are_missing_and_those_that_are_found(cache):
    list_of_faces = cache / "data" / "CelebAMask-HQ" / "CelebA-HQ-img" / "0.jpg"
    list_of_faces.parent.mkdir(parents=True)
    list_of_faces.touch()
    lines = str(refused(MissingDataError, "", lambda: load("glasses", download=True))).splitlines()
    assert sum(line.startswith("  found: ") for line in lines) == 1
    assert sum(line.startswith("  missing: ") for line in lines) == 2
    assert any("CelebAMask-HQ.zip" in line for line in lines)


def test_the_archives_are_those_of_torchvision():
    (voc,) = PASCAL.archives
    listed = DATASET_YEAR_DICT["2012"]
    assert (voc.name, voc.md5) == (listed["url"].rpartition("/")[2], listed["md5"])
    assert [(archive.url, archive.md5) for archive in type(PET).archives] == list(OxfordIIITPet._RESOURCES)
