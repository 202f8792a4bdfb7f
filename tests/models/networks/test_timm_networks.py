"""Networks of timm: made for the classes and the size of the images, with weights from a file; errors that help."""

from __future__ import annotations

import sys

import pytest
import torch
from refusals import refused

import xaibench as xb
from xaibench.models import WeightsNotFoundError, build

SHAPE = (3, 64, 64)


@pytest.fixture
def timm():
    return pytest.importorskip("timm")


def pictures():
    return torch.rand(2, 3, 64, 64, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("name", ["resnet10t", "vit_tiny_patch16_224", "test_efficientnet.r160_in1k"])
def test_any_network_by_its_name(timm, name):
    model = build(f"timm:{name}", SHAPE, 3, weights=None, seed=1)
    config = timm.get_pretrained_cfg(name)
    assert model.normalize.mean.flatten().tolist() == pytest.approx(config.mean)
    assert model.normalize.std.flatten().tolist() == pytest.approx(config.std)
    assert model(pictures()).shape == (2, 3)
    assert not model.training
    assert torch.equal(build(f"timm:{name}", SHAPE, 3, weights=None, seed=1)(pictures()), model(pictures()))


def test_gradcam_explains_it(timm):
    model = build("timm:resnet10t", SHAPE, 2, weights=None)
    assert xb.explain("gradcam", model, pictures(), torch.tensor([0, 1]), output="margin").abs().max() > 0


def test_weights_of_a_file(timm, tmp_path):
    source = timm.create_model("resnet10t", num_classes=7).eval()
    torch.save(source.state_dict(), tmp_path / "a.pth")
    kept = build("timm:resnet10t", SHAPE, 7, weights=tmp_path / "a.pth", head="pretrained")
    torch.testing.assert_close(kept(pictures()), source(kept.normalize(pictures())))
    new = build("timm:resnet10t", SHAPE, 2, weights=tmp_path / "a.pth")
    assert torch.equal(new.network.conv1[0].weight, source.conv1[0].weight)
    assert new(pictures()).shape == (2, 2)
    folded = build("timm:resnet10t", SHAPE, 2, weights=tmp_path / "a.pth", fold={"a": [0, 1], "b": [6]})
    assert folded.classes == ("a", "b")
    weights = {"weights": tmp_path / "a.pth", "head": "pretrained"}
    refused(ValueError, "head=", lambda: build("timm:resnet10t", SHAPE, 2, **weights))


def test_without_a_network_the_error_says_what_to_fetch(timm, monkeypatch):
    def refuse(name, pretrained=False, **parameters):
        raise ConnectionError("no network here")

    monkeypatch.setattr(timm, "create_model", refuse)
    for said in ("timm/resnet10t", "weights=None", "HF_HOME"):
        refused(WeightsNotFoundError, said, build, "timm:resnet10t", SHAPE, 2)


def test_without_weights_anywhere_the_error_says_so(timm, monkeypatch):
    def refuse(name, pretrained=False, **parameters):
        raise RuntimeError("no weights")

    monkeypatch.setattr(timm, "create_model", refuse)
    refused(WeightsNotFoundError, "weights=", lambda: build("timm:darknet17", SHAPE, 2))


def test_without_timm_the_command_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "timm", None)
    refused(ModuleNotFoundError, "xaibench[timm]", lambda: build("timm:resnet10t", SHAPE, 2))
