"""The results that come with the library are those of its explainers as they are, and were verified."""

import json
from pathlib import Path

import pytest

from xaibench.explainers import EXPLAINERS
from xaibench.hub.results.checking import check_result
from xaibench.hub.results.result_manifest import VERIFICATION, find_results, read_manifest
from xaibench.hub.results.run_splitting import slug
from xaibench.runner.parts import part_info
from xaibench.runner.suites.suite_files import load_suite

RESULTS = Path(__file__).parents[3] / "examples" / "leaderboard" / "results"
FOLDERS = find_results(RESULTS) if RESULTS.is_dir() else []

pytestmark = pytest.mark.skipif(not FOLDERS, reason="the archive of the source has no results")


def there(suite):
    manifests = [read_manifest(folder) for folder in FOLDERS]
    return {one.method.name for one in manifests if one.suite.name == suite}


def test_every_explainer_of_the_library_is_there():
    networks = {name for name in EXPLAINERS if part_info("explainer", name).family != "Attention"}  # for transformers
    assert there("xai-tris-8x8") == {slug(name) for name in networks}


def test_every_method_of_the_certified_networks_is_there():
    assert there("certified") == {slug(part.name) for part in load_suite("certified")[0].explainers}


def test_every_method_of_the_suite_at_64_pixels_is_there():
    assert there("xai-tris-64x64") >= {slug(part.name) for part in load_suite("xai-tris-64x64")[0].explainers}


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: "-".join(folder.parts[-2:]))
def test_it_passes_the_check_and_was_equal_to_the_bit(folder):
    assert check_result(folder) == []
    assert json.loads((folder / VERIFICATION).read_text())["verdict"] == "bit-equal"
