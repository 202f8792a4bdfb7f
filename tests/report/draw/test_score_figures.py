import base64
import io
import re

import matplotlib
import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from PIL import Image

from xaibench.report.draw.inline_images import inline_svg, shrink, tile_uri
from xaibench.report.draw.map_figures import colour_tile, map_figure, map_kinds
from xaibench.report.draw.score_figures import THEME, panel_grid, save, score_figure
from xaibench.report.numbers.summary_tables import summarise
from xaibench.report.read.run_reading import read_run


@pytest.fixture(scope="module")
def run(shared_run):
    return read_run(shared_run)


@pytest.fixture(scope="module")
def summary(run):
    return summarise(run)


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
    rows = summary[(summary["scenario"] == "xor") & (summary["model"] == "cnn") & (summary["metric"] == "emd_perf")]
    drawn = {
        round(float(segment[0, 1]), 9)
        for collection in axes.collections
        if type(collection).__name__ == "LineCollection"
        for segment in collection.get_segments()
        if segment[0, 1] == segment[1, 1]
    }
    assert drawn == {round(value, 9) for value in rows["median"]}


def test_all_that_is_drawn_lies_inside_the_axes(run, summary):
    for style in ("box", "mean"):
        low, high = score_figure(run, summary, "topk_precision", style).axes[0].get_ylim()
        assert low < summary["whisker_low"].min() or style == "mean"
        assert high > (summary["mean"] if style == "mean" else summary["whisker_high"]).max()


def test_labels_do_not_overlap(run, summary):
    figure = score_figure(run, summary, "emd_perf")
    figure.canvas.draw()
    size = figure.bbox
    for axes in figure.axes:
        for text in [*axes.get_xticklabels(), axes.title]:
            box = text.get_window_extent()
            assert box.x0 >= size.x0
            assert box.y0 >= size.y0
    # The lowest label of a row ends above the title of the next.
    by_row = sorted({round(axes.get_position().y0, 6) for axes in figure.axes}, reverse=True)
    first, second = ([a for a in figure.axes if round(a.get_position().y0, 6) == y] for y in by_row[:2])
    lowest = min(text.get_window_extent().y0 for axes in first for text in axes.get_xticklabels())
    highest = max(axes.get_tightbbox().y1 for axes in second)
    assert lowest > highest


def test_a_metric_without_a_defined_score_has_no_figure(run, summary):
    assert score_figure(run, summary.assign(n_valid=0), "emd_perf") is None
    assert map_figure(run, "example", []) is None


def test_drawing_leaves_the_settings_alone_and_repeats_to_the_bit(run, summary):
    with matplotlib.rc_context({"font.size": 31, "axes.facecolor": "red"}):
        before = dict(matplotlib.rcParams)
        first = save(score_figure(run, summary, "emd_perf"), "svg")
        assert dict(matplotlib.rcParams) == before
    assert first == save(score_figure(run, summary, "emd_perf"), "svg")


def test_inline_svg_follows_the_page(run, summary):
    svg = inline_svg(save(score_figure(run, summary, "emd_perf"), "svg"), "box-emd", "Boxes & more")
    assert svg.startswith("<svg viewBox=")
    assert 'aria-label="Boxes &amp; more"' in svg
    assert not any(colour in svg for colour in THEME.values())
    assert "var(--series-1)" in svg
    assert "http" not in svg
    assert " style=" not in svg.partition(">")[2]
    used = set(re.findall(r'class="([^"]+)"', svg))
    assert used == set(re.findall(r"\.(\w+)\{", svg))
    ids = re.findall(r'id="([^"]+)"', svg)
    assert len(ids) == len(set(ids)) > 0
    assert all(name.startswith("box-emd-") for name in ids)
    assert set(re.findall(r'(?:href="#|url\(#)([^")]+)', svg)) <= set(ids)


def test_maps_have_a_row_for_each_cell_and_global_ones_leave_rigid_out(run):
    kinds = map_kinds(run)
    assert len(kinds["example"]) == 18
    assert len(kinds["global"]) == 14
    assert all(row[0] != "rigid" for row in kinds["global"])
    figure = map_figure(run, "example", kinds["example"])
    # Guided GradCAM has maps of the eight CNN cells alone.
    assert len(figure.axes[0].get_images()) == 18 * (2 + 17) - 10


def test_colours_of_a_map_are_those_of_its_magnitude():
    array = np.array([[0.0, -2.0], [1.0, 0.5]])
    assert (colour_tile(array, "map") == colour_tile(-array, "map")).all()
    assert (colour_tile(array, "map") == colour_tile(3 * array, "map")).all()
    assert colour_tile(np.array([[0.0, -1.0, 1.0]]), "image").tolist()[0] == [[128] * 3, [0] * 3, [255] * 3]
    assert (colour_tile(np.full((2, 2), np.nan), "map") == colour_tile(np.zeros((2, 2)), "map")).all()


def test_large_maps_are_reduced_by_block_means():
    array = np.random.default_rng(0).random((64, 64))
    small = shrink(array)
    assert small.shape == (32, 32)
    assert small[3, 5] == pytest.approx(array[6:8, 10:12].mean())
    assert shrink(np.ones((70, 33))).shape == (24, 11)
    assert tile_uri(colour_tile(small, "map")).startswith("data:image/webp;base64,")


def test_small_tiles_are_exact_and_large_ones_near():
    colours = colour_tile(np.random.default_rng(0).random((16, 16)), "map")
    kind, _, data = tile_uri(colours).partition(";base64,")
    assert kind == "data:image/png"
    assert np.array_equal(np.asarray(Image.open(io.BytesIO(base64.b64decode(data)))), colours)
    ramp = np.add.outer(np.arange(32.0), np.arange(32.0))
    data = tile_uri(colour_tile(ramp, "map")).partition(";base64,")[2]
    near = np.asarray(Image.open(io.BytesIO(base64.b64decode(data))).convert("RGB")).astype(int)
    assert np.abs(near - colour_tile(ramp, "map")).mean() < 8


def test_a_drawing_made_lighter_is_the_same_drawing():
    figure = Figure(figsize=(2, 1))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.axis("off")
    axes.plot([0, 0.123456, 1], [0, 0.654321, 1])
    axes.text(0.5, 0.5, "0.123456")
    raw = save(figure, "svg").decode()
    svg = inline_svg(raw.encode(), "p", "t")
    assert ">0.123456<" in svg  # text is text

    def line(text):
        path = next(tag for tag in re.findall(r"<path[^>]*>", text, re.S) if "clip-path" in tag and "d=" in tag)
        return [float(number) for number in re.findall(r"-?[\d.]+", re.search(r' d="([^"]*)"', path).group(1))]

    assert line(svg) == [round(number, 1) for number in line(raw)]
    assert line(svg) != line(raw)
    assert svg.count("<g") == svg.count("</g>")
    assert 'style="--width: 144px"' in svg


def test_a_dollar_sign_in_a_label_is_a_dollar_sign(fresh_run):
    run = read_run(fresh_run)
    run.models["mlp"].__dict__["label"] = r"MLP $\frac"  # matplotlib would fail on this as mathematics
    assert rb"MLP $\frac" in save(score_figure(run, summarise(run), "emd_perf"), "svg")


def test_many_scores_draw_as_few_shapes(run, summary):
    many = pd.concat([summary]).assign(outliers=[tuple(np.linspace(0, 0.2, 16))] * len(summary))
    assert len(save(score_figure(run, many, "emd_perf"), "svg")) < 2_000_000
