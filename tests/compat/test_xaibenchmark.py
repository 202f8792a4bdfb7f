"""The published calls of xaibenchmark: its example's numbers, its names of sets, its two functions."""

import math

import numpy as np
import pytest

import xaibench as xb
import xaibench.compat.xaibenchmark as xaibenchmark
from xaibench.data import DATASETS
from xaibench.models import build
from xaibench.registry.table import UnknownNameError


def test_the_published_example_gives_the_published_kind_of_numbers():
    rng = np.random.default_rng(0)
    maps, gts = rng.random((16, 224, 224)), rng.integers(0, 2, (16, 224, 224))

    # maps > 0 for IoU and precision, > 0.5 for recall: half of the pixels are marked
    assert xaibenchmark.iou(maps, gts) == pytest.approx(0.5, abs=0.005)
    assert xaibenchmark.precision(maps, gts) == pytest.approx(0.5, abs=0.005)
    assert xaibenchmark.recall(maps, gts) == pytest.approx(0.5, abs=0.005)
    assert xaibenchmark.hit(maps, gts) in np.arange(17) / 16


def test_every_published_set_has_its_counterpart_here():
    assert set(xaibenchmark.DATASETS.values()) <= set(DATASETS)
    with pytest.raises((FileNotFoundError, ValueError), match=r"(?i)coco"):
        xaibenchmark.load_dataset("gender-xai", root="nowhere")
    with pytest.raises(UnknownNameError):
        xaibenchmark.load_dataset("Genders-XAI")


@pytest.fixture(scope="module")
def data():
    return xaibenchmark.load_dataset("xai-tris/lin-white-8x8", n_samples=200)


@pytest.fixture(scope="module")
def network():
    return build("cnn", (1, 8, 8), 2, seed=0)


@pytest.mark.parametrize("method", ["GradCAM", "Integrated Gradients", "grad-cam"])
def test_a_method_is_scored_as_the_functions_score_its_maps(data, network, method):
    scores = xaibenchmark.evaluate_method(method=method, dataset=data, model=network, scored="all", progress=False)

    images, masks, targets = data.test[:]
    maps = xb.explain(method.replace(" ", "_"), network, images, targets).float()  # as they are kept
    assert list(scores) == ["iou", "precision", "recall", "hit"]
    for name, score in scores.items():
        expected = getattr(xaibenchmark, name)(maps, masks)
        assert score == pytest.approx(expected, nan_ok=True), name
        assert not math.isnan(score)


def test_without_a_model_a_pretrained_network_gets_a_head_for_the_set(data, network, monkeypatch):
    asked = []
    monkeypatch.setattr("xaibench.models.build", lambda *args, **kwargs: asked.append((args, kwargs)) or network)
    monkeypatch.setattr("xaibench.models.fit_head", lambda *args, **kwargs: asked.append((args[1:], kwargs)))

    xaibenchmark.evaluate_method("Saliency", data, seed=3, scored="all", progress=False)

    assert asked == [(("resnet18", (1, 8, 8), 2), {"seed": 3}), ((data.train, data.val), {"seed": 3})]
