"""``result.json`` is read as it was written; a repository on the Hub is checked and shown as one in a folder."""

import shutil

import pytest
from refusals import refused

from xaibench.data.annotated import MissingDataError
from xaibench.leaderboard.checks import check
from xaibench.leaderboard.repository import RESULT, Manifest, ResultError, find_results, open_repository, read_manifest

VERSION = "0123abcd" * 4
GOOD = Manifest(
    "gxi", "G × I", "mine:gxi", "tiny", VERSION, "2026-11-23", authors=("Ann",), parameters={"n": [1, None]}
)


def test_a_description_is_read_as_it_was_written(tmp_path):
    (tmp_path / RESULT).write_bytes(GOOD.to_json())
    assert read_manifest(tmp_path) == GOOD
    assert GOOD.folder == f"gxi/tiny@{VERSION}"


def test_folders_without_results(finished, tmp_path):
    (tmp_path / "empty").mkdir()
    for folder in (tmp_path / "empty", tmp_path / "nowhere", finished):
        refused(ResultError, "", find_results, folder)
    refused(ResultError, "", lambda: read_manifest(tmp_path / "empty"))


@pytest.mark.parametrize(
    ("citation", "expected"),
    [
        ("@article{a, title={B}}\n", "@article{a, title={B}}"),
        (
            "Ann: } evil = {x}",
            "@misc{gxi,\n  title = {G × I},\n  author = {Ann},\n  note = {Ann: ) evil = (x)},\n  year = {2026}\n}",
        ),
    ],
)
def test_a_citation_is_bibtex_or_a_note_that_cannot_end_its_field(citation, expected):
    assert (
        Manifest("gxi", "G × I", "x", "tiny", VERSION, "2026-11-23", citation=citation, authors=("Ann",)).bibtex()
        == expected
    )


@pytest.fixture
def published(hub, repository):
    """The address of the repository."""
    shutil.copytree(repository, hub.folder / "ann/results/main")
    return "hf://ann/results"


def test_a_folder_is_itself_and_one_on_the_hub_a_copy(published, repository, tmp_path):
    with open_repository(tmp_path) as folder:
        assert folder == tmp_path
    with open_repository(published) as folder:
        names = [result.relative_to(folder) for result in find_results(folder)]
        assert names == [result.relative_to(repository) for result in find_results(repository)]
        assert [check(result) for result in find_results(folder)] == [[], []], "its files are no links into a cache"
    assert not folder.exists()
    with pytest.raises(MissingDataError, match="ann/none"), open_repository("hf://ann/none"):
        pass


def test_it_is_checked_and_made_into_a_site(published, typed, tmp_path):
    printed = typed(["results", "check", published])
    assert (printed.exit_code, printed.output.count("ok  ")) == (0, 2), printed.output
    printed = typed(["leaderboard", published, "--out", "site"])
    assert printed.exit_code == 0, printed.output
    assert "2 methods on 1 suite" in printed.output
    assert (tmp_path / "site" / "methods" / "mine-gxi.html").is_file()


def test_one_without_results_is_named_by_its_address(hub):
    (hub.folder / "ann/empty/main").mkdir(parents=True)
    with (
        pytest.raises(ResultError, match="hf://ann/empty contains no results"),
        open_repository("hf://ann/empty") as folder,
    ):
        find_results(folder)
