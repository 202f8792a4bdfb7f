"""Every part that is described is in its table, and has tests."""

import re
from pathlib import Path

import pytest

import xaibench
from xaibench.explainers import EXPLAINERS
from xaibench.metrics import METRICS
from xaibench.models import MODELS

PACKAGE, TESTS = Path(xaibench.__file__).parent, Path(__file__).parents[1]
#: Of the evaluation of metrics and audits; not a method that users choose.
INTERNAL = {"xaibench.explainers.perturbation.reliance"}
every_kind = pytest.mark.parametrize(
    ("record", "registry"), [("MetricInfo", METRICS), ("ExplainerInfo", EXPLAINERS), ("ModelInfo", MODELS)]
)


def modules(registry):
    return {name: registry.target(name).partition(":")[0] for name in registry}


@every_kind
def test_a_described_part_is_in_its_table(record, registry):
    described = [path for path in PACKAGE.rglob("*.py") if re.search(rf"^@{record}\(", path.read_text("utf-8"), re.M)]
    names = {".".join(("xaibench", *path.relative_to(PACKAGE).with_suffix("").parts)) for path in described}
    missing = names - set(modules(registry).values()) - INTERNAL
    assert missing == set(), f"add their lines to the table of {registry.kind}s"


@every_kind
def test_a_part_has_tests(record, registry):
    def is_tested(name, module):
        _, *folders, last = module.split(".")
        folder = TESTS.joinpath(*folders)
        texts = (path.read_text(encoding="utf-8") for path in folder.glob("test_*.py"))
        return (folder / f"test_{last}.py").exists() or any(f'"{name}"' in text for text in texts)

    untested = [name for name, module in modules(registry).items() if not is_tested(name, module)]
    assert untested == [], "write their test files, in tests/ as in xaibench/"
