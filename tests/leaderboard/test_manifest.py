"""``result.json`` is read as it was written; folders without results are named."""

import pytest
from refusals import refused

from xaibench.leaderboard.manifest import RESULT, Manifest, ResultError, find_results, read_manifest

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
