"""The networks: layers, sizes, initial weights, and outputs that can be computed by hand."""

from __future__ import annotations

import math

import pytest
import torch
from part_cases import ModelCase
from refusals import refused
from torch import nn

from xaibench.benchmarks import CNN, LLR, MLP
from xaibench.models import build

NAMES = ["llr", "mlp", "cnn"]
CASES = {name: ModelCase(shapes=((1, 8, 8), (1, 64, 64))) for name in ("llr", "mlp", "cnn")}


@pytest.mark.parametrize("side", [8, 64])
@pytest.mark.parametrize("name", NAMES)
def test_images_become_logits(name, side):
    model = build(name, (1, side, side), num_classes=3)
    assert model(torch.zeros(5, 1, side, side)).shape == (5, 3)


@pytest.mark.parametrize(
    ("network", "side", "count"),
    [
        (LLR, 8, 64 * 2),
        (MLP, 8, 64 * 32 + 32 + 32 * 16 + 16 + 16 * 8 + 8 + 8 * 2 + 2),
        (CNN, 8, (4 * 4 + 4) + 3 * (4 * 4 * 4 + 4) + 4 * 2 + 2),
        (LLR, 64, 4096 * 2),
        (MLP, 64, 4096 * 256 + 256 * 256 + 256 * 64 + 64 * 2),
        (CNN, 64, 16 * (1 * 4 + 4 * 8 + 8 * 16 + 16 * 32) + 4 + 8 + 16 + 32 + 288 * 2),
    ],
)
def test_weights_are_as_many_as_the_paper_has(network, side, count):
    assert sum(weight.numel() for weight in network((1, side, side)).parameters()) == count


def test_the_big_perceptron_drops_out_and_the_small_does_not():
    assert [layer.p for layer in MLP((1, 64, 64)) if isinstance(layer, nn.Dropout)] == [0.3, 0.3, 0.3]
    assert not [layer for layer in MLP((1, 8, 8)) if isinstance(layer, nn.Dropout)]


def test_no_module_is_used_twice_and_none_flattens():
    # Captum puts its hooks on modules, and has no rule for Flatten.
    for name in NAMES:
        for side in (8, 64):
            calls: list[nn.Module] = []
            model = build(name, (1, side, side), 2)
            for layer in model.children():
                layer.register_forward_hook(lambda module, args, out, calls=calls: calls.append(module))
            model(torch.zeros(2, 1, side, side))
            assert calls == list(model.children())
            assert not any(isinstance(layer, nn.Flatten) for layer in calls)


def test_llr_adds_up_weighted_pixels():
    model = LLR((1, 8, 8))
    with torch.no_grad():
        model[0].weight.zero_()
        model[0].weight[0, 9] = 2.0  # row 1, column 1
        model[0].weight[1, 63] = -1.0
    image = torch.zeros(1, 1, 8, 8)
    image[0, 0, 1, 1], image[0, 0, 7, 7] = 0.5, 3.0
    assert model(image).tolist() == [[1.0, -3.0]]


def test_mlp_passes_what_is_positive():
    model = MLP((1, 8, 8))
    with torch.no_grad():
        for weight in model.parameters():
            weight.zero_()
        for layer in model:
            if isinstance(layer, nn.Linear):
                layer.weight[0, 0] = 1.0
        model[0].bias[0] = -1.0
        model[-1].bias[1] = 7.0
    images = torch.zeros(2, 1, 8, 8)
    images[:, 0, 0, 0] = torch.tensor([4.0, 0.5])
    assert model(images).tolist() == [[3.0, 7.0], [0.0, 7.0]]


def test_cnn_finds_the_largest_pixel():
    # Every convolution passes its upper left pixel on, so four poolings leave the largest of the image.
    model = CNN((1, 8, 8))
    with torch.no_grad():
        for weight in model.parameters():
            weight.zero_()
        for layer in model:
            if isinstance(layer, nn.Conv2d):
                layer.weight[0, 0, 1, 1] = 1.0
        model[-1].weight[1, 0] = 1.0
    image = torch.rand(3, 1, 8, 8)
    assert torch.equal(model(image), torch.stack([torch.zeros(3), image.flatten(1).amax(1)], 1))


def test_initial_weights_are_he_normal_and_biases_uniform():
    model = build("mlp", (1, 64, 64), 2, seed=3)
    assert model[0].weight.std().item() == pytest.approx(math.sqrt(2 / 4096), rel=0.01)
    small = torch.cat([build("cnn", (1, 8, 8), 2, seed=seed)[3].weight.flatten() for seed in range(100)])
    assert small.std().item() == pytest.approx(math.sqrt(2 / 16), rel=0.05)
    assert small.mean().item() == pytest.approx(0.0, abs=0.02)
    biases = torch.cat([build("cnn", (1, 8, 8), 2, seed=seed)[3].bias for seed in range(100)])
    assert biases.abs().max().item() <= 1 / math.sqrt(16)
    assert biases.std().item() == pytest.approx(1 / math.sqrt(16) / math.sqrt(3), rel=0.1)


@pytest.mark.parametrize("in_shape", [(1, 28, 28), (3, 64, 64), (1, 8, 64)])
def test_other_images_and_one_class_are_refused(in_shape):
    refused(ValueError, "CNN:", lambda: build("cnn", in_shape, 2))
    refused(ValueError, "at least 2", lambda: build("llr", (1, 8, 8), 1))
