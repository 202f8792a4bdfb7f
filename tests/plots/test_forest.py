"""The forest plot: rows, lines of controls, intervals and what is refused."""

import numpy as np
import pandas as pd
import pytest

import xaibench as xb


@pytest.fixture
def scores():
    rows = [("iou", "a", 0.5, 0.4, 0.6), ("iou", "b", 0.3, np.nan, np.nan), ("iou", "c", np.nan, np.nan, np.nan)]
    rows += [("iou", "noise", 0.1, 0.0, 0.2), ("emd", "a", 0.9, 0.8, 1.0), ("emd", "noise", 0.2, 0.1, 0.3)]
    return pd.DataFrame(rows, columns=["metric", "method", "mean", "low", "high"])


def markers(axes):
    return {line.get_ydata()[0]: line.get_xdata()[0] for line in axes.get_lines() if line.get_marker() == "o"}


def test_methods_are_rows_in_their_order_and_controls_are_lines(scores):
    figure = xb.plots.forest(scores, metrics={"emd": "EMD", "iou": "IoU"}, controls=["noise"], labels={"a": "A" * 40})
    emd, iou = figure.axes
    assert [axes.get_title() for axes in figure.axes] == ["EMD", "IoU"]
    assert [label.get_text() for label in emd.get_yticklabels()] == ["A" * 25 + "…", "b", "c"]
    assert markers(iou) == {0: 0.5, 1: 0.3}
    assert markers(emd) == {0: 0.9}
    bars = [list(line.get_xdata()) for line in iou.get_lines() if list(line.get_ydata()) == [0, 0]]
    assert bars == [[0.4, 0.6]]
    assert [line.get_xdata()[0] for line in iou.get_lines() if line.get_label() == "noise"] == [0.1]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["noise"]


def test_controls_alone_are_rows(scores):
    figure = xb.plots.forest(scores[scores["method"] == "noise"], controls=["noise"])
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["noise"]
    assert not figure.legends
