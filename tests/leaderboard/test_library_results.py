"""The results of the library's own explainers, in examples/leaderboard/results: current, whole and small."""

import shutil
from collections import Counter
from pathlib import Path

import pytest

from xaibench.explainers import EXPLAINERS
from xaibench.leaderboard.checks import check
from xaibench.leaderboard.manifest import find_results, read_manifest, result_checksum
from xaibench.leaderboard.suite_text import suite_version
from xaibench.leaderboard.verdicts import VERDICTS, read_records
from xaibench.runner.suites.files import load_suite

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
HOW_VERIFIED = (
    "add your public key to `keepers` there, `xaibench results verify examples/leaderboard/results --new` and "
    "`xaibench results sign examples/leaderboard/results --key KEY`"
)
HOW = "run the suite again, and `xaibench results add RUN --out examples/leaderboard/results`"


@pytest.fixture(scope="module")
def results():
    return {folder: read_manifest(folder) for folder in find_results(RESULTS)}


def test_they_are_of_the_suites_as_they_are_now(results):
    stale = {one.folder for one in results.values() if suite_version(one.suite.name) != one.suite.version}
    assert stale == set(), HOW


@pytest.mark.parametrize("suite", SUITES)
def test_every_explainer_of_a_suite_has_a_result(results, suite):
    ranked = {part.use for part in load_suite(suite)[0].explainers if not EXPLAINERS.resolve(part.use).info.reference}
    there = {EXPLAINERS.canonical(one.method.entry) for one in results.values() if one.suite.name == suite}
    assert {EXPLAINERS.canonical(name) for name in ranked} <= there, HOW


def test_some_of_them_pass_the_check(results):
    chosen = sorted(results)[:: max(1, len(results) // 6)]
    assert {folder.name: check(folder) for folder in chosen} == {folder.name: [] for folder in chosen}


def test_they_are_small():
    files = [path for path in RESULTS.rglob("*") if path.is_file()]
    assert len(files) <= 400
    assert sum(path.stat().st_size for path in files) <= 12e6


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="ssh-keygen checks signatures")
def test_those_that_were_run_again_have_a_signed_verdict(results):
    records = read_records(RESULTS)
    known = {manifest.folder: folder for folder, manifest in results.items()}
    stale = {name for name, one in records.items() if name not in known or one.result != result_checksum(known[name])}
    assert stale == set(), HOW_VERIFIED
    verdicts = {name: one.verification.verdict for name, one in records.items() if one.verification}
    assert {name: found for name, found in verdicts.items() if found not in VERDICTS[:2]} == {}
    run_again = Counter(known[name].name.partition("@")[0] for name in verdicts)
    assert {suite for suite in SUITES if run_again[suite] < 25} == set(), HOW_VERIFIED
