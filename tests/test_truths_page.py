"""docs/truths.md says what the tables of the library say, and its example is of the parts as they are now."""

import importlib.util
import re
from pathlib import Path

import pytest

from xaibench.core.truth_kinds import NO_TRUTH, TRUTHS
from xaibench.data import DATASETS
from xaibench.metrics import METRICS

DOCS = Path(__file__).parents[1] / "docs"


@pytest.fixture(scope="module")
def generator():
    spec = importlib.util.spec_from_file_location("truths_page", DOCS / "generate" / "truths.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def page():
    return (DOCS / "truths.md").read_text(encoding="utf-8")


def block(page, title):
    return re.search(rf"<!-- {title} -->\n\n(.*?)\n\n<!-- until here -->", page, re.S)[1]


def test_the_tables_are_those_of_the_library(generator, page):
    for title, made in (("kinds", generator.kinds()), ("belonging", generator.belonging())):
        assert block(page, title) == made, "run python docs/generate/truths.py"


def test_every_kind_is_shown_with_its_question_and_what_it_cannot_tell(generator):
    rows = generator.kinds().splitlines()[2:]
    assert [row.split("|")[1].strip() for row in rows] == [f"*{kind}*" for kind in TRUTHS]
    for row, words in zip(rows, TRUTHS.values(), strict=True):
        assert [cell.strip() for cell in row.split("|")[2:6]] == [words.question, words.source, words.low, words.silent]


def test_every_metric_and_set_belongs_somewhere_once(generator):
    text = generator.belonging()
    table, _, below = text.partition("\n\n")
    rows = {row.split("|")[1].strip(" *"): row for row in table.splitlines()[2:]}
    for name in METRICS:
        kind = METRICS.resolve(name).info.own_truth
        where = (
            below.partition("Without a kind of truth")[2 if kind == NO_TRUTH else 0]
            if kind in (None, NO_TRUTH)
            else rows[kind]
        )
        assert f"(metrics/{name}.md)" in where
        assert text.count(f"(metrics/{name}.md)") == 1
    for name in DATASETS:
        family = f"{name.partition('/')[0]}/..." if "/" in name else name
        assert f"`{family}`" in rows[DATASETS.resolve(name).info.truth]


def test_the_example_is_of_the_parts_as_they_are_now(generator, page):
    made = re.search(r"<!-- made of: (.*) -->", page)
    assert made[1] == generator.made_of(), "run python docs/generate/truths.py"
    rows = [line for line in block(page, "example").splitlines() if line.startswith("| ")][1:]
    assert len(rows) == len(generator.METHODS)
    assert all(re.search(r"(\| -?\d\.\d\d ){4}\|$", row) for row in rows)
