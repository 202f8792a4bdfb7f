"""The results that come with the library are those of its explainers as they are, and were verified."""

import json
from pathlib import Path

import pytest

from xaibench.hub.results.checking import check_result
from xaibench.hub.results.result_manifest import VERIFICATION, find_results, read_manifest
from xaibench.runner.suites.suite_files import load_suite

RESULTS = Path(__file__).parents[3] / "examples" / "leaderboard" / "results"

pytestmark = pytest.mark.skipif(not RESULTS.is_dir(), reason="the archive of the source has no results")


def test_every_method_of_the_suite_is_there():
    suite, _ = load_suite("xai-tris-8x8")
    there = {read_manifest(folder).method.name for folder in find_results(RESULTS)}
    assert there == {part.name for part in suite.explainers} - {"reliance"}  # which says what a map should show


@pytest.mark.parametrize(
    "folder", find_results(RESULTS) if RESULTS.is_dir() else [], ids=lambda folder: folder.parent.name
)
def test_it_passes_the_check_and_was_equal_to_the_bit(folder):
    assert check_result(folder) == []
    assert json.loads((folder / VERIFICATION).read_text())["verdict"] == "bit-equal"
