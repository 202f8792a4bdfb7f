import importlib.util
import re
from pathlib import Path

from xaibench.explainers import EXPLAINERS

ROOT = Path(__file__).parents[2]


def page(name="explainers"):
    return (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")


def test_the_page_lists_what_is_registered_with_its_parameters():
    spec = importlib.util.spec_from_file_location("explainers_page", ROOT / "docs" / "generate" / "explainers.py")
    generator = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generator)
    assert page() == generator.page(), "run python docs/generate/explainers.py"
    assert sorted(re.findall(r"^\| \[`(.+?)`\]", page(), re.MULTILINE)) == sorted(EXPLAINERS)
    sections = dict(re.findall(r"^### (\S+)\n(.*?)(?=^##)", page() + "\n##", re.MULTILINE | re.DOTALL))
    assert sorted(sections) == sorted(EXPLAINERS)
    for name, text in sections.items():
        assert "Source: " in text or EXPLAINERS.resolve(name).info.control, name
        assert not re.search(r":\w+:`", text), name


def test_its_pictures_are_there_and_small():
    shown = re.findall(r"\]\((images/[^)#]+)(#only-\w+)?\)", page())
    assert [theme for _, theme in shown] == ["#only-light", "#only-dark"] * 2
    assert all(f"-{theme.removeprefix('#only-')}." in path for path, theme in shown)
    pictures = [ROOT / "docs" / path for path, _ in shown]
    assert all(10_000 < picture.stat().st_size < 400_000 for picture in pictures)


def test_the_networks_page_has_a_row_for_every_explainer():
    text = page("explainers-networks").splitlines()
    columns = next(line for line in text if line.startswith("| |")).count("|")
    rows = {line.split("`")[1]: line for line in text if line.startswith("| `")}
    methods = [name for name in EXPLAINERS if not EXPLAINERS.resolve(name).info.control]
    assert list(rows) == methods, "run python benchmarks/gallery.py --networks"
    assert all(line.count("|") == columns and "|  |" not in line for line in rows.values())
    numbered = {int(number) for number in re.findall(r"^(\d+)\. ", "\n".join(text), re.MULTILINE)}
    assert numbered == {int(number) for line in rows.values() for number in re.findall(r"\| (\d+) (?=\|)", line)}
