"""Scores against passes."""

import pandas as pd
import pytest

import xaibench as xb


def test_a_panel_per_method_with_its_numbers_dots_and_the_control():
    scores = pd.DataFrame(
        {"method": ["RISE", "RISE", "LIME"], "passes": [1000, 100, 100], "mean": [0.6, 0.4, 0.5]}
    ).assign(low=0.3, high=0.7)
    figure = xb.plots.budget(scores, fixed=[(2, 0.45), (None, 0.1)], control=0.2, label="IoU")
    panels = {axes.get_title(loc="left"): axes for axes in figure.axes}
    assert set(panels) == {"RISE", "LIME"}
    rise = panels["RISE"]
    assert rise.lines[-1].get_xdata().tolist() == [100, 1000]
    assert [text.get_text() for text in rise.texts] == ["0.40 → 0.60"]
    dots = next(line for line in rise.lines if line.get_linestyle() == "None")
    assert dots.get_xdata().tolist() == [2]
    assert next(line for line in rise.lines if line.get_linestyle() == "--").get_ydata()[0] == 0.2
    assert rise.get_ylim()[0] < 0.1
    assert [text.get_text() for text in figure.texts] == ["passes per image", "IoU"]


def test_no_scores_are_refused():
    with pytest.raises(ValueError, match="got no row"):
        xb.plots.budget(pd.DataFrame(columns=["method", "passes", "mean", "low", "high"]))
