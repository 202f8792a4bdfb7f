import importlib.util
import re
from pathlib import Path

from xaibench.metrics import METRICS

ROOT = Path(__file__).parents[2]


def load(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / "generate" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def page():
    return (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")


def test_the_page_is_that_of_the_registry():
    assert page() == load("metrics").page(), "run python docs/generate/metrics.py"


def test_the_page_lists_what_is_registered_and_nothing_else():
    rows = re.findall(r"^\| \[`(\w+)`\]\(#\w+\) \|(.*)\|$", page(), re.MULTILINE)
    assert [name for name, _ in rows] == list(METRICS)
    assert all(cell.strip() for _, row in rows for cell in row.replace(r"\|", "").split("|"))
    assert sorted(re.findall(r"^### (\w+)$", page(), re.MULTILINE)) == sorted(METRICS)


def test_every_metric_has_its_equation_and_its_departures():
    sections = dict(re.findall(r"^### (\w+)\n(.*?)(?=^##)", page(), re.MULTILINE | re.DOTALL))
    for name, text in sections.items():
        assert "```math" in text, name
        assert ":math:" not in text, name
        assert ":func:" not in text, name
        if METRICS.target(name) != f"xaibench.metrics.transport:{name}":  # the EMD departs from its source alone
            assert "Departures: " in text, name


def test_every_case_that_went_wrong_elsewhere_is_a_test():
    tests = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests" / "metrics").glob("test_*.py"))
    cases = load("metrics").CASES
    assert len({test for *_, test in cases}) == len(cases) > 20
    for *_, test in cases:
        assert f"def {test}(" in tests, test
