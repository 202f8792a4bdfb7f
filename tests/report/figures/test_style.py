import re

import pytest
from matplotlib.figure import Figure

from xaibench.plots.figure_style import THEME
from xaibench.plots.files import encode, inline_svg
from xaibench.report.figures.scores import score_figure
from xaibench.report.numbers.summary import summarize
from xaibench.report.results import read_run


@pytest.fixture(scope="module")
def run(shared_run):
    return read_run(shared_run)


@pytest.fixture(scope="module")
def summary(run):
    return summarize(run)


def test_inline_svg_follows_the_page(run, summary):
    svg = inline_svg(encode(score_figure(run, summary, "emd_perf"), "svg"), "box-emd", "Boxes & more")
    assert svg.startswith("<svg viewBox=")
    assert 'aria-label="Boxes &amp; more"' in svg
    assert not any(color in svg for color in THEME.values())
    assert "var(--series-1)" in svg
    assert "http" not in svg
    assert " style=" not in svg.partition(">")[2]
    used = set(re.findall(r'class="([^"]+)"', svg))
    assert used == set(re.findall(r"\.(\w+)\{", svg))
    ids = re.findall(r'id="([^"]+)"', svg)
    assert len(ids) == len(set(ids)) > 0
    assert all(name.startswith("box-emd-") for name in ids)
    assert set(re.findall(r'(?:href="#|url\(#)([^")]+)', svg)) <= set(ids)


def test_a_drawing_made_lighter_is_the_same_drawing():
    figure = Figure(figsize=(2, 1))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.axis("off")
    axes.plot([0, 0.123456, 1], [0, 0.654321, 1])
    axes.text(0.5, 0.5, "0.123456")
    raw = encode(figure, "svg").decode()
    svg = inline_svg(raw.encode(), "p", "t")
    assert ">0.123456<" in svg  # text is text

    def line(text):
        path = next(tag for tag in re.findall(r"<path[^>]*>", text, re.S) if "clip-path" in tag and "d=" in tag)
        return [float(number) for number in re.findall(r"-?[\d.]+", re.search(r' d="([^"]*)"', path).group(1))]

    assert line(svg) == [round(number, 1) for number in line(raw)]
    assert line(svg) != line(raw)
    assert svg.count("<g") == svg.count("</g>")
    assert 'style="--width: 144px"' in svg
