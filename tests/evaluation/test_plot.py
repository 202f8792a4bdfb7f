"""The forest plot: markers, intervals and lines are where the summary has them."""

import sys

import pytest
from matplotlib.colors import to_hex

from xaibench.plots.figures import THEME


def test_each_panel_has_the_numbers_of_the_summary(scored):
    figure = scored.plot()
    assert [axes.get_title() for axes in figure.axes] == ["Average precision ↑", "EMD ↓"]
    methods = [name for name in scored.methods if name not in scored.controls]
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == methods
    for axes, metric in zip(figure.axes, scored.metrics, strict=True):
        summary = scored.summary().query("metric == @metric").set_index("method")
        lines = axes.get_lines()
        verticals = {line.get_label(): line.get_xdata()[0] for line in lines if line.get_label() in scored.controls}
        assert verticals == pytest.approx(summary.loc[sorted(scored.controls), "mean"].to_dict())
        markers = {line.get_ydata()[0]: line for line in lines if line.get_marker() == "o"}
        bars = [line for line in lines if len(line.get_xdata()) == 2 and line.get_label() not in verticals]
        intervals = {line.get_ydata()[0]: line for line in bars}
        for place, method in enumerate(methods):
            assert markers[place].get_xdata()[0] == summary["mean"][method]
            assert list(intervals[place].get_xdata()) == summary.loc[method, ["low", "high"]].tolist()
            is_filled = to_hex(markers[place].get_markerfacecolor()) == THEME["series-1"]
            assert is_filled == (method in scored.best_methods(metric))


def test_some_metrics_and_a_file(scored, tmp_path):
    figure = scored.plot(["emd"])
    assert len(figure.axes) == 1
    figure.savefig(tmp_path / "emd.pdf")
    assert (tmp_path / "emd.pdf").stat().st_size > 1000
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    assert sorted(legend) == sorted(scored.controls)


def test_without_matplotlib_the_error_tells_the_command(scored, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ModuleNotFoundError, match="Figures need matplotlib: pip install matplotlib"):
        scored.plot()
