import importlib.util
import re
from pathlib import Path

import pytest

from xaibench.data import DATASETS

ROOT = Path(__file__).parents[2]
#: Saliency-Bench's table of April 2025.
TABLE = {
    **{"gender": 5000, "scene": 5000, "glasses": 2614, "sixray": 17_654, "lidc": 5250, "tumor": 361},
    **{"pet": 7390, "pascal": 4318},
}


@pytest.fixture(scope="module")
def generator():
    spec = importlib.util.spec_from_file_location("datasets_page", ROOT / "docs" / "generate" / "data_sets.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def page():
    return (ROOT / "docs" / "datasets.md").read_text(encoding="utf-8")


def test_the_page_is_that_of_the_registry(generator, page):
    assert page == generator.page(), "run python docs/generate/data_sets.py"
    assert ":class:" not in page
    assert ":func:" not in page


def test_the_page_says_where_every_set_is_and_how_to_get_it(page):
    sections = dict(re.findall(r"^### (\S+)\n(.*?)(?=^##)", page, re.MULTILINE | re.DOTALL))
    annotated = [name for name in DATASETS if "/" not in name]
    assert list(sections) == annotated
    for name in annotated:
        info = DATASETS.resolve(name).info
        assert re.search(r"\]\(https?://", info.address), name
        assert re.search(r"\d", info.download_size), name
        assert info.by_hand, name
        for fact in ("- Source: ", "- License: ", "How to get it:\n\n```text\n"):
            assert fact in sections[name], (name, fact)
        assert not re.search(r"\d [MG]B", re.sub(r"\[[^]]*\]\(https://", "", info.download_size)), "a size has a source"
    assert f"{sum(name.startswith('xai-tris/') for name in DATASETS)} names" in page


def test_sizes_stand_beside_those_of_the_benchmark_today(page):
    sizes = dict(re.findall(r"^\| \[`(\w+)`\]\(#\w+\) \|(?:[^|]*\|){3} ([\d,]+) \|", page, re.MULTILINE))
    assert {name: int(size.replace(",", "")) for name, size in sizes.items()} == TABLE
