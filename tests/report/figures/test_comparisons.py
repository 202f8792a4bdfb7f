import re
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy.stats import spearmanr

import xaibench as xb
from xaibench.report.figures.comparisons import agreement_figure, ranking_figure
from xaibench.report.figures.style import save
from xaibench.report.numbers.leaderboards import boards
from xaibench.report.numbers.rankings import Ranking, rankings
from xaibench.report.read.results import read_run

NAMES = ["iou", "deletion", "hit"]


def table(values):
    return pd.DataFrame(values, index=NAMES, columns=NAMES)


@pytest.fixture
def matrix():
    r = table([[1.0, -0.5, 0.25], [-0.5, 1.0, np.nan], [0.25, np.nan, 1.0]])
    kind = table([["spearman", "spearman", "point-biserial"]] * 2 + [["point-biserial"] * 3])
    return SimpleNamespace(coefficients=r, n=table([[9, 7, 8], [7, 7, 6], [8, 6, 8]]), kind=kind)


def texts(figure):
    (axes,) = figure.axes
    return {(t.get_position()[1] + 0.5, t.get_position()[0] + 0.5): t.get_text() for t in axes.texts}


def test_each_pair_is_one_cell_with_its_number(matrix):
    figure = agreement_figure(matrix)
    assert texts(figure) == {(1, 1): "−0.50", (2, 1): "0.25†", (2, 2): "–"}
    (axes,) = figure.axes
    assert [t.get_text() for t in axes.get_xticklabels()] == ["iou", "deletion"]
    assert [t.get_text() for t in axes.get_yticklabels()] == ["deletion", "hit"]
    assert figure.texts[0].get_text() == "Spearman, † point-biserial; n = 6 to 8"


def test_color_shows_sign_and_strength(matrix):
    filled = {p.get_xy(): p for p in agreement_figure(matrix).axes[0].patches if p.get_fill()}
    assert filled[0, 0].get_facecolor()[:3] != filled[0, 1].get_facecolor()[:3]
    assert filled[0, 0].get_alpha() == pytest.approx(2 * filled[0, 1].get_alpha())
    assert filled[1, 1].get_alpha() == 0


def test_what_rounds_to_zero_has_no_sign(matrix):
    matrix.coefficients.loc["deletion", "iou"] = -0.001
    assert texts(agreement_figure(matrix))[1, 1] == "0.00"


def test_labels_and_one_number_of_samples(matrix):
    matrix.n.loc[:, :] = 5
    matrix.kind.loc[:, :] = "spearman"
    figure = agreement_figure(matrix, {"iou": "IoU $x$"})
    assert figure.texts[0].get_text() == "Spearman; n = 5"
    svg = save(figure, "svg").decode()
    assert re.search(r">IoU \$x\$<", svg)
    assert save(agreement_figure(matrix, {"iou": "IoU $x$"}), "svg").decode() == svg
    assert save(figure, "png")[:4] == b"\x89PNG"


def test_one_metric_is_refused(matrix):
    alone = SimpleNamespace(coefficients=matrix.coefficients.iloc[:1, :1], n=matrix.n, kind=matrix.kind)
    with pytest.raises(ValueError, match=r"two or more metrics to compare, got \['iou'\]"):
        agreement_figure(alone)


def test_from_scores_to_the_figure_as_the_page_of_metrics_shows_it():
    maps, masks = np.random.default_rng(0).random((2, 12, 6, 6))
    masks = masks > 0.7
    scores = {
        "iou": xb.iou(maps, masks, threshold=0.5, reduction="none"),
        "hit": xb.hit(maps, masks, reduction="none"),
        "emd": xb.emd(maps, masks, reduction="none"),
    }
    matrix = xb.metrics.agreement(scores)
    assert matrix.kind.loc["iou", "hit"] == "point-biserial"
    shown = texts(xb.report.agreement_figure(matrix))
    turned = -spearmanr(scores["iou"], scores["emd"]).statistic  # lower is better for the distance
    assert shown[2, 1] == f"{turned:.2f}".replace("-", "−")
    assert shown[1, 1].endswith("†")


def assert_texts_are_within(figure):
    figure.canvas.draw()
    sheet = figure.bbox
    for text in figure.axes[0].texts:
        box = text.get_window_extent()
        assert sheet.x0 <= box.x0
        assert box.x1 <= sheet.x1
        assert sheet.y0 <= box.y0
        assert box.y1 <= sheet.y1


def test_the_diagram_shows_every_method_with_its_mean_and_joins_groups(annotated_findings):
    run, summary, pairs = annotated_findings
    found = rankings(boards(run, summary, pairs))["iou"]
    figure = ranking_figure(run, found)
    (axes,) = figure.axes
    texts = [text.get_text() for text in axes.texts]
    for name, mean in found.means.items():
        label, shown = run.explainers[name].label, f"{mean:.3f}".replace("-", "−")
        assert f"{label}  {shown}" in texts or f"{shown}  {label}" in texts
    bars = [line for line in axes.lines if line.get_linewidth() == 3]
    assert len(bars) == len(found.groups) > 0
    assert_texts_are_within(figure)


@pytest.mark.parametrize(("metric", "best"), [("iou", 0.9), ("deletion", 0.1)])
def test_the_best_mean_is_on_the_left_and_bars_span_their_group(annotated_run, metric, best):
    run = read_run(annotated_run)
    means = {"cam": best, "rise": 0.5, "sobel": 1 - best}
    figure = ranking_figure(run, Ranking(metric, means, 1, (("rise", "sobel"),), ()))
    lines = [line.get_xdata() for line in figure.axes[0].lines if line.get_linewidth() == 0.7]
    places = [float(line[0]) for line in lines]  # from the axis to the label
    assert places == sorted(places)
    (bar,) = (line.get_xdata() for line in figure.axes[0].lines if line.get_linewidth() == 3)
    assert bar == pytest.approx([places[1] - 0.03, places[2] + 0.03])
    assert_texts_are_within(figure)


def test_equal_means_can_be_drawn(annotated_run):
    run = read_run(annotated_run)
    means = {"cam": 0.5, "rise": 0.5, "sobel": 0.5}
    figure = ranking_figure(run, Ranking("iou", means, 1, (tuple(means),), ()))
    assert sum(line.get_linewidth() == 3 for line in figure.axes[0].lines) == 1
    assert_texts_are_within(figure)
