import importlib.util
from pathlib import Path

from xaibench.explainers import EXPLAINERS

ROOT = Path(__file__).parents[2]


def test_the_page_lists_what_is_registered_with_its_parameters():
    spec = importlib.util.spec_from_file_location("gallery", ROOT / "benchmarks" / "gallery.py")
    gallery = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(gallery)
    page = (ROOT / "docs" / "explainers.md").read_text(encoding="utf-8")
    assert page == gallery.page(), "run python benchmarks/gallery.py"
    assert all(f"| `{name}` |" in page for name in EXPLAINERS)
    networks = page.partition("## Networks")[2].splitlines()
    columns = next(line for line in networks if line.startswith("| |")).count("|")
    rows = {line.split("`")[1]: line for line in networks if line.startswith("| `")}
    methods = [name for name in EXPLAINERS if not EXPLAINERS.resolve(name).info.control]
    assert list(rows) == methods, "run python benchmarks/gallery.py --networks"
    assert all(line.count("|") == columns and "|  |" not in line for line in rows.values())
    assert (ROOT / "docs" / "images" / "explainers.png").stat().st_size > 10_000
