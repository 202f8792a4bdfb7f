import pytest

from xaibench.plots.run_figures import ranking_figure
from xaibench.scores.leaderboards import Ranking, boards, rankings
from xaibench.scores.results import read_run


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
