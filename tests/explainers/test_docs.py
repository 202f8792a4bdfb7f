import csv
import importlib.util
import re
from pathlib import Path

import pytest

from xaibench.explainers import EXPLAINERS

ROOT = Path(__file__).parents[2]


def page(name="explainers"):
    return (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def generator():
    spec = importlib.util.spec_from_file_location("explainers_page", ROOT / "docs" / "generate" / "explainers.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_overview_lists_what_is_registered(generator):
    assert page() == generator.page(), "run python docs/generate/explainers.py"
    rows = dict(re.findall(r"^\| \[`(.+?)`\]\(explainers/(\S+)\.md\)", page(), re.MULTILINE))
    assert sorted(rows) == sorted(EXPLAINERS)
    assert all(rows[name] == generator.file_name(name) for name in rows)


def test_every_explainer_has_a_page_with_example_limits_source_and_parameters(generator):
    entries = generator.entries()
    assert sorted(entries) == sorted(EXPLAINERS)
    for name, text in entries.items():
        part = EXPLAINERS.resolve(name)
        assert text.startswith(f"# {part.info.label}: `{name}`\n"), name
        assert f'xb.explain("{name}", model, images, targets)' in text, name
        assert re.search(r"^## Limits\n\n\S", text, re.MULTILINE), name
        assert "## Source\n\n" in text or part.info.control, name
        # Shared parameters are linked; the reference, made from the docstring, has the others.
        others = {field.name for field in generator.fields(part) if f"`{field.name}" not in text}
        assert others - {"patterns"} <= set(generator.described(part)), name
        assert not re.search(r":\w+:`", text), name
        assert not re.search(r"\]\((?!\.\./|https?:|#)", text), name  # a page in a folder of its own


def test_limits_state_refused_networks_and_measured_leaks(generator):
    assert "Refuses resnet18, efficientnet_b0" in generator.limits("lrp")
    assert re.search(r"\(0\.99 times what chance puts there", generator.limits("rise"))
    assert "exactly zero" in generator.limits("saliency")
    assert "does not use the network" in generator.limits("sobel")


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
    with (ROOT / "docs" / "tables" / "explainers-memory.csv").open(encoding="utf-8", newline="") as file:
        memory = list(csv.reader(file))
    times = [re.split(r" *\| *", line)[1:-1] for line in sections["Milliseconds"].splitlines() if line.startswith("|")]
    for heading, lines in (("Milliseconds", times), ("Memory", memory)):
        rows = {first.strip("`"): cells for first, *cells in lines if first.strip("`") in EXPLAINERS}
        assert list(rows) == [name for name in EXPLAINERS if name in rows], "run python benchmarks/networks.py"
        assert {len(line) for line in lines} == {11}
        cells = [cell for row in rows.values() for cell in row]
        assert all(re.fullmatch(r"– \d+|> [\d,]+|stopped|[\d,]+(\xa0±[\d,]+)?", cell) for cell in cells), heading
        refused[heading] = {name: [cell for cell in row if cell.startswith("– ")] for name, row in rows.items()}
        assert {int(cell[2:]) for row in refused[heading].values() for cell in row} == numbered
    assert refused["Memory"] == refused["Milliseconds"]
