import importlib.util
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_the_page_is_that_of_the_registry():
    spec = importlib.util.spec_from_file_location("datasets_page", ROOT / "docs" / "generate" / "datasets.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    page = (ROOT / "docs" / "datasets.md").read_text(encoding="utf-8")
    assert page == module.page(), "run python docs/generate/datasets.py"
    assert ":class:" not in page
    assert ":func:" not in page
