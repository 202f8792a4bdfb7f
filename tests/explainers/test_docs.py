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


def test_the_networks_page_says_of_every_explainer_what_it_takes_or_why_it_does_not_run():
    sections = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", page("explainers-networks"), re.MULTILINE | re.DOTALL))
    numbered = {int(number) for number in re.findall(r"^(\d+)\. ", sections["Why not"], re.MULTILINE)}
    refused = {}
    for heading in ("Milliseconds", "Memory"):
        lines = [re.split(r" *\| *", line)[1:-1] for line in sections[heading].splitlines() if line.startswith("|")]
        rows = {first.strip("`"): cells for first, *cells in lines if first.startswith("`")}
        assert list(rows) == [name for name in EXPLAINERS if name in rows], "run python benchmarks/networks.py"
        assert {len(line) for line in lines} == {9}
        cells = [cell for row in rows.values() for cell in row]
        assert all(re.fullmatch(r"– \d+|> [\d,]+|stopped|[\d,]+(\xa0±[\d,]+)?", cell) for cell in cells), heading
        refused[heading] = {name: [cell for cell in row if cell.startswith("– ")] for name, row in rows.items()}
        assert {int(cell[2:]) for row in refused[heading].values() for cell in row} == numbered
    assert refused["Memory"] == refused["Milliseconds"]
