"""Results of the library's explainers, in examples/leaderboard/results: current, complete, small and verified."""

from pathlib import Path

import pytest

from xaibench.explainers import EXPLAINERS
from xaibench.leaderboard.checks import check
from xaibench.leaderboard.repository import find_results, read_manifest, read_verified, result_checksum
from xaibench.leaderboard.suites import official_suite
from xaibench.runner.suites.parsing import load_suite

RESULTS = Path(__file__).parents[2] / "examples" / "leaderboard" / "results"
#: Suites of which every explainer has a result, but for those that take too long.
SUITES = [
    "xai-tris-8x8",
    "xai-tris-64x64",
    "xai-tris-16x16x16",
    "certified",
    "watermarks",
    "budget",
    "budget-certified",
]
HOW = "run the suite again, and `xaibench results add RUN --out examples/leaderboard/results`"


@pytest.fixture(scope="module")
def results():
    return {folder: read_manifest(folder) for folder in find_results(RESULTS)}


def test_they_are_of_the_suites_as_they_are_now(results):
    stale = {one.folder for one in results.values() if official_suite(one.suite).version != one.version}
    assert stale == set(), HOW


@pytest.mark.parametrize("suite", SUITES)
def test_every_explainer_of_a_suite_has_a_result(results, suite):
    ranked = {part.use for part in load_suite(suite)[0].explainers if not EXPLAINERS.resolve(part.use).info.reference}
    there = {EXPLAINERS.canonical(one.entry) for one in results.values() if one.suite == suite}
    assert {EXPLAINERS.canonical(name) for name in ranked} <= there, HOW


def test_some_of_them_pass_the_check(results):
    chosen = sorted(results)[:: max(1, len(results) // 6)]
    assert {folder.name: check(folder) for folder in chosen} == {folder.name: [] for folder in chosen}


def test_they_are_small():
    files = [path for path in RESULTS.rglob("*") if path.is_file()]
    assert len(files) <= 800
    assert sum(path.stat().st_size for path in files) <= 12e6


def test_all_of_them_are_verified(results):
    verified = read_verified(RESULTS)
    known = {manifest.folder: folder for folder, manifest in results.items()}
    stale = {name for name, row in verified.items() if name not in known or row.sha256 != result_checksum(known[name])}
    assert stale == set(), "`xaibench results verify examples/leaderboard/results --new --record`"
    assert {name: row.verdict for name, row in verified.items()} == dict.fromkeys(known, "bit-equal")
