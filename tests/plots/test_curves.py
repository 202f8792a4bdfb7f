"""Scores against passes."""

import numpy as np
import pandas as pd
import torch

import xaibench as xb


def test_each_explainer_has_its_mean_its_band_and_its_area():
    x = np.linspace(0, 1, 5)
    values = np.array([[1, 0.5, 0.2, 0.1, 0.0], [1, 0.9, 0.8, 0.3, 0.2], [np.nan] * 5])
    curves = {"one": (x, values), "two": (torch.from_numpy(x), torch.from_numpy(values[:1]))}
    axes = xb.plots.curves(curves, ylabel="probability").axes[0]
    np.testing.assert_allclose(axes.lines[0].get_ydata(), values[:2].mean(0))
    np.testing.assert_allclose(axes.lines[1].get_ydata(), values[0])
    texts = [text.get_text() for text in axes.get_legend().get_texts()]
    assert texts == ["one: 0.487 (n=2)", "two: 0.325 (n=1)"]
    assert len(axes.collections) == 1
    assert axes.get_ylabel() == "probability"


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
