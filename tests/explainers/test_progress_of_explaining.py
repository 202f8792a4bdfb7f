"""Explaining says how far it has come, and how long it takes where an explainer knows its passes."""

import pytest
import torch
from torch import nn

import xaibench as xb
from xaibench.core import progress as module
from xaibench.explainers import EXPLAINERS, build
from xaibench.explainers.shared.passes import Countable
from xaibench.network.explained_output import ExplainedOutput

IMAGES = torch.rand(3, 1, 8, 8, generator=torch.Generator().manual_seed(0))
TARGETS = torch.tensor([0, 1, 0])
COUNTABLE = [name for name in EXPLAINERS if hasattr(EXPLAINERS.resolve(name), "passes")]


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(72, 2)).eval()


@pytest.mark.parametrize("name", COUNTABLE)
def test_the_rows_that_are_announced_are_asked(name):
    explainer = build(name, **({"segmentation_size": 16} if name == "xrai" else {}))
    made = []
    if hasattr(explainer, "fit"):
        explainer = explainer.fit(network(), [IMAGES])
    explained = ExplainedOutput(network())
    explained.on_rows = made.append
    explainer(explained, IMAGES, TARGETS)
    assert isinstance(explainer, Countable)
    assert sum(made) == pytest.approx(explainer.passes(IMAGES), rel=0.05)
    assert explainer.cheaper()


def test_the_slow_ones_are_among_them():
    assert {"rise", "shapley_sampling", "kernel_shap", "lime", "pfi", "occlusion"} <= set(COUNTABLE)


def test_a_long_explanation_warns(monkeypatch):
    monkeypatch.setattr(module, "DELAY", 0.0)
    monkeypatch.setattr(module, "WARN_BEYOND", 0.0)
    monkeypatch.setattr(module, "FORECAST_AFTER", 0.0)
    message = r"RISE takes about .* \(1500 rows\)\. Fewer rows: n_masks below 500, fewer images than 3"
    with pytest.warns(UserWarning, match=message):
        xb.explain("rise", network(), IMAGES, TARGETS, n_masks=500, batch_size=50, device="cpu")


def test_progress_false_turns_the_warning_off(monkeypatch, capsys):
    monkeypatch.setattr(module, "DELAY", 0.0)
    monkeypatch.setattr(module, "WARN_BEYOND", 0.0)
    monkeypatch.setattr(module, "FORECAST_AFTER", 0.0)
    xb.explain("rise", network(), IMAGES, TARGETS, n_masks=50, device="cpu", progress=False)
    assert capsys.readouterr().err == ""


def test_evaluate_shows_a_bar_of_scores(monkeypatch, capsys):
    monkeypatch.setattr(module, "DELAY", 0.0)
    monkeypatch.setattr(module, "shows_bars", lambda: True)
    data = xb.load("xai-tris/lin-white-8x8", n_samples=100)
    xb.evaluate("input", data, metrics=["iou", "f1"], controls=["sobel"], samples=4, batch_size=2)
    bar = capsys.readouterr().err
    assert "evaluate:" in bar
    assert "/16 " in bar
    xb.evaluate("input", data, metrics="iou", controls=False, samples=2, progress=False)
    assert capsys.readouterr().err == ""
