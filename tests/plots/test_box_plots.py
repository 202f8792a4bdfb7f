import re

import matplotlib
import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch

from xaibench.plots.box_plots import panel_grid, score_figure
from xaibench.plots.figures import THEME, encode, inline_svg
from xaibench.scores.results import read_run
from xaibench.scores.summary import summarize


@pytest.fixture(scope="module")
def run(shared_run):
    return read_run(shared_run)


@pytest.fixture(scope="module")
def summary(run):
    return summarize(run)


def test_panels_stand_in_rows_of_scenarios_and_columns_of_models():
    panels = [("lin", "llr")] + [(s, m) for s in ("lin", "mult", "xor") for m in ("mlp", "cnn")]
    grid = panel_grid(panels, ["lin", "mult", "xor"], ["llr", "mlp", "cnn"])
    assert grid == [
        [("lin", "llr"), None],
        [("lin", "mlp"), ("lin", "cnn")],
        [("mult", "mlp"), ("mult", "cnn")],
        [("xor", "mlp"), ("xor", "cnn")],
    ]
    assert panel_grid([("lin", "mlp"), ("xor", "cnn")], ["lin", "xor"], ["mlp", "cnn"]) == [
        [("lin", "mlp"), None],
        [None, ("xor", "cnn")],
    ]


def test_every_panel_has_every_method_and_the_boxes_of_the_summary(run, summary):
    figure = score_figure(run, summary, "emd_perf")
    assert len(figure.axes) == 9
    assert {tuple(np.round(axes.get_position().size, 9)) for axes in figure.axes}.__len__() == 1
    axes = next(axes for axes in figure.axes if axes.get_title(loc="left") == "XOR · CNN")
    ticks = [text.get_text() for text in axes.get_xticklabels()]
    assert ticks[0] == "PFI"
    assert ticks[-4:] == ["Sobel", "Laplace", "Uniform", "Input"]
    rows = summary[(summary["subset"] == "xor") & (summary["model"] == "cnn") & (summary["metric"] == "emd_perf")]
    horizontal = [line.get_ydata() for line in axes.lines if line.get_linewidth() == 2.0]
    drawn = {round(float(value), 9) for y in horizontal for value in y[~np.isnan(y)]}
    assert drawn == {round(value, 9) for value in rows["median"]}
    boxes = [artist for artist in axes.artists + axes.patches if isinstance(artist, PathPatch)]
    corners = {round(float(y), 9) for box in boxes for y in box.get_path().vertices[:, 1]}
    assert corners == {round(value, 9) for name in ("q25", "q75") for value in rows[name]}


def test_labels_do_not_overlap(run, summary):
    figure = score_figure(run, summary, "emd_perf")
    figure.canvas.draw()
    size = figure.bbox
    for axes in figure.axes:
        for text in [*axes.get_xticklabels(), axes.title]:
            box = text.get_window_extent()
            assert box.x0 >= size.x0
            assert box.y0 >= size.y0
    # The explainers are named once, below the lowest panel of each column.
    names = {round(axes.get_position().x0, 6): [] for axes in figure.axes}
    for axes in sorted(figure.axes, key=lambda axes: axes.get_position().y0):
        names[round(axes.get_position().x0, 6)].append(len(axes.get_xticklabels()))
    assert all(counts[0] > 0 and not any(counts[1:]) for counts in names.values())
    # A row, with its labels, ends above the title of the next.
    by_row = sorted({round(axes.get_position().y0, 6) for axes in figure.axes}, reverse=True)
    first, second = ([a for a in figure.axes if round(a.get_position().y0, 6) == y] for y in by_row[:2])
    lowest = min(axes.get_tightbbox().y0 for axes in first)
    highest = max(axes.get_tightbbox().y1 for axes in second)
    assert lowest > highest


def test_a_metric_without_a_defined_score_has_no_figure(run, summary):
    assert score_figure(run, summary.assign(n_valid=0), "emd_perf") is None


def test_drawing_leaves_the_settings_alone_and_repeats_to_the_bit(run, summary):
    summary = summary[summary["subset"] == "xor"]
    with matplotlib.rc_context({"font.size": 31, "axes.facecolor": "red"}):
        before = dict(matplotlib.rcParams)
        first = encode(score_figure(run, summary, "emd_perf"), "svg")
        assert dict(matplotlib.rcParams) == before
    assert first == encode(score_figure(run, summary, "emd_perf"), "svg")


def test_a_dollar_sign_in_a_label_is_a_dollar_sign(few_cells_run):
    run = read_run(few_cells_run)
    run.models["mlp"].__dict__["label"] = r"MLP $\frac"  # matplotlib would fail on this as mathematics
    assert rb"MLP $\frac" in encode(score_figure(run, summarize(run), "emd_perf"), "svg")


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
