"""Explaining says how far it has come, and how long it takes where an explainer knows its passes."""

import pytest
import torch
from torch import nn

import xaibench as xb
from xaibench.core import progress as module
from xaibench.explainers import EXPLAINERS, build
from xaibench.explainers.shared.counted_passes import Countable
from xaibench.explainers.shared.explained_output import ExplainedOutput

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


def test_a_long_explanation_says_so(monkeypatch):
    monkeypatch.setattr(module, "SOON", 0.0)
    monkeypatch.setattr(module, "LONG", 0.0)
    message = r"RISE takes about .* \(1500 rows\)\. To reduce it: n_masks below 500, fewer images than 3"
    with pytest.warns(UserWarning, match=message):
        xb.explain("rise", network(), IMAGES, TARGETS, n_masks=500, batch_size=50, device="cpu")


def test_it_is_quiet_where_asked(monkeypatch, capsys):
    for name in ("SOON", "LONG", "FIRST_LINE"):
        monkeypatch.setattr(module, name, 0.0)
    xb.explain("rise", network(), IMAGES, TARGETS, n_masks=50, device="cpu", progress=False)
    assert capsys.readouterr().err == ""


def test_evaluating_says_how_far_it_has_come(monkeypatch, capsys):
    for name in ("SOON", "FIRST_LINE", "LINES"):
        monkeypatch.setattr(module, name, 0.0)
    data = xb.load("xai-tris/lin-white-8x8", n_samples=100)
    xb.evaluate("input", data, metrics=["iou", "f1"], controls=["sobel"], samples=4, batch_size=2)
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("evaluate:")]
    assert said[0].startswith("evaluate: 2 of 16 scores, about ")
    assert said[-1].startswith("evaluate: 16 scores in")
    xb.evaluate("input", data, metrics="iou", controls=False, samples=2, progress=False)
    assert capsys.readouterr().err == ""
