import importlib.util
import re
from pathlib import Path

import pytest

from xaibench.metrics import METRICS

ROOT = Path(__file__).parents[2]
PICTURES = ROOT / "docs" / "images" / "metrics"


def load(name):
    spec = importlib.util.spec_from_file_location(f"{name}_page", ROOT / "docs" / "generate" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def page():
    return (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def generator():
    return load("metrics")


@pytest.fixture(scope="module")
def entries(generator):
    return generator.entries()


def test_the_overview_lists_what_is_registered_and_nothing_else():
    rows = re.findall(r"^\| \[`(\w+)`\]\(metrics/(\w+)\.md\) \|(.*)\|$", page(), re.MULTILINE)
    assert len(rows) == len(METRICS)
    assert all(name == file for name, file, _ in rows)
    assert {name for name, *_ in rows} == set(METRICS)
    assert all(cell.strip() for *_, row in rows for cell in row.split("|"))


def test_every_metric_has_a_page_with_its_range_pitfalls_source_and_equation(entries):
    assert sorted(entries) == sorted(METRICS)
    for name, text in entries.items():
        info, doc = METRICS.resolve(name).info, METRICS.resolve(name).__doc__
        assert text.startswith(f"# {info.label}: `{name}`\n"), name
        assert re.search(r"^\| range \| [\[(].*(?:higher|lower) is better \|$", text, re.MULTILINE), name
        assert re.search(r"^\| undefined \| (?:for|where|with) \S", text, re.MULTILINE), name
        assert re.search(r"^## Limits\n\n\S", text, re.MULTILINE), name
        assert f"## Source\n\n{info.citation}." in text, name
        assert not re.search(r"\]\((?!\.\./|https?:|#)", text), name  # a page in a folder of its own
        assert ":math:" not in text, name
        # The reference, made from the docstring, has the equation and the departures from the source.
        assert ".. math::" in doc, name
        assert "Example:" in doc, name
        if METRICS.target(name) != f"xaibench.metrics.localization.emd:{name}":  # the EMD departs from its source alone
            assert "Departures: " in doc, name


def test_every_metric_has_a_picture_whose_numbers_are_those_of_the_library(entries):
    drawn = load("pictures").pictures()
    assert sorted(drawn) == sorted(METRICS)
    for name, svg in drawn.items():
        assert f"](../images/metrics/{name}.svg)" in entries[name], name
        kept = (PICTURES / f"{name}.svg").read_text(encoding="utf-8")
        # What is written in it; places of lines may differ in their last digit between machines.
        written = [re.findall(r">([^<\n]+)</(?:text|title)>", text) for text in (kept, svg)]
        assert written[0] == written[1], f"{name}: run python docs/generate/pictures.py"
        assert len(written[0]) > 3
    assert sum(path.stat().st_size for path in PICTURES.iterdir()) < 500_000
    assert {path.stem for path in PICTURES.iterdir()} == set(METRICS)


def test_every_case_that_went_wrong_elsewhere_is_a_test(generator):
    tests = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests" / "metrics").rglob("test_*.py"))
    cases = generator.CASES
    assert len({test for *_, test in cases}) == len(cases) > 20
    for *_, test in cases:
        assert f"def {test}(" in tests, test


def test_type_checkers_see_what_is_registered():
    for text in load("typing_stubs").stubs().values():
        assert text.count("\nfrom xaibench.metrics.") == len(METRICS)


def test_a_metric_without_a_drawing_of_its_own_has_the_one_of_its_kind(generator):
    pictures = load("pictures")
    shown = pictures.example()
    first = {METRICS.resolve(name).info.kind: METRICS.resolve(name) for name in reversed(list(METRICS))}
    for kind, metric in first.items():
        svg = pictures.plain_picture(shown, metric)
        assert f">{metric.info.label}</text>" in svg, kind
        assert svg.count("<rect") > 64
