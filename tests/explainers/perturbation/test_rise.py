import copy

import numpy as np
import pretend_device
import pytest
import torch
from oracles import rise as oracle
from oracles.layered import Called
from part_cases import ExplainerCase
from pretend_device import pretended
from torch import nn

import xaibench as xb
from xaibench.explainers import ExplainedOutput
from xaibench.explainers.perturbation.rise import RISE, random_masks

CASES = {"rise": ExplainerCase(parameters={"n_masks": 40})}


def batch(n=3, dtype=torch.float64, size=(11, 14)):
    rng = torch.Generator().manual_seed(1)
    return torch.randn(n, 3, *size, generator=rng, dtype=dtype), torch.arange(n) % 2


@pytest.fixture
def model(request):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        layers = (nn.Conv2d(3, 6, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(3), nn.Flatten(), nn.Linear(54, 2))
        return ExplainedOutput(nn.Sequential(*layers)).double().eval()


@pytest.mark.parametrize("size", [(11, 14), (21, 7), (8, 8), (3, 5), (6, 11, 9), (2, 5, 3)])
@pytest.mark.parametrize("s", [1, 2, 7])
def test_masks_are_those_of_the_released_code(size, s):
    found = random_masks(np.random.default_rng(5), 20, size, s, 0.4, like=torch.empty(0, dtype=torch.float64))
    expected = oracle.masks(np.random.default_rng(5).random((20, s ** len(size) + len(size))), size, s, 0.4)
    torch.testing.assert_close(found, torch.from_numpy(expected))


def test_masks_by_hand():
    # one row of two cells, enlarged to 3 cells of 2 pixels: centers at 1.5 and 4.5 of 6
    class Numbers:
        def random(self, shape):
            assert shape == (1, 6)
            return np.array([[0.1, 0.9, 0.1, 0.9, 0.0, 0.5]])

    mask = random_masks(Numbers(), 1, (4, 4), 2, 0.5)[0]
    enlarged = torch.tensor([1 - 1 / 3, 1.0, 2 / 3, 1 / 3, 0.0, 1 / 3])
    torch.testing.assert_close(mask, enlarged[1:5].expand(4, 4))


def test_masks_have_the_mean_p_and_stay_within_0_and_1():
    masks = random_masks(np.random.default_rng(0), 4000, (16, 16), 4, 0.3)
    assert masks.min() >= 0
    assert masks.max() <= 1
    assert abs(masks.mean() - 0.3) < 0.01
    assert (masks.mean(0) - 0.3).abs().max() < 0.05


def test_masks_do_not_depend_on_how_many_are_drawn_at_once():
    at_once = random_masks(np.random.default_rng(3), 10, (9, 9))
    rng = np.random.default_rng(3)
    assert torch.cat([random_masks(rng, n, (9, 9)) for n in (1, 2, 7)]).equal(at_once)


def test_oracle(model):
    images, targets = batch()
    maps = RISE(n_masks=50, grid_size=3, keep_probability=0.4, seed=9)(model, images, targets)
    masks = oracle.masks(np.random.default_rng(9).random((50, 11)), (11, 14), 3, 0.4)
    for found, image, target in zip(maps, images, targets, strict=True):
        torch.testing.assert_close(found, oracle.rise(model, image, target, masks, 0.4))


def test_a_constant_score_gives_the_mean_mask():
    images, targets = batch(2, torch.float32)
    masks = random_masks(np.random.default_rng(0), 30, (11, 14))
    maps = RISE(n_masks=30)(Called(lambda x: torch.tensor([[1.0, 3.0]]).expand(len(x), 2)), images, targets)
    torch.testing.assert_close(maps[0], masks.mean(0) / 0.5)
    torch.testing.assert_close(maps[1], 3 * masks.mean(0) / 0.5)


def test_a_network_that_needs_contiguous_images(model):
    class Views(nn.Module):
        def __init__(self, layers):
            super().__init__()
            self.layers = layers

        def forward(self, x):
            x = self.layers[:3](x)
            return self.layers[4](x.view(len(x), -1))

    images, targets = batch(dtype=torch.float32)
    layers = model.network.float()
    torch.testing.assert_close(
        RISE(n_masks=20)(Views(layers), images, targets),
        RISE(n_masks=20)(layers, images, targets),
        rtol=1e-5,
        atol=1e-6,
    )


@pytest.mark.skipif(not pretend_device.available(), reason="this torch has no devices written in Python")
def test_numbers_are_sent_to_an_accelerator_once_whatever_the_batches(model):
    images, targets = batch(1, torch.float32)
    sent = []
    for batch_size in (40, 8):
        with pretended() as seen:
            there = copy.deepcopy(model.network).float().to("pretend")
            xb.explain("rise", there, images, targets, device="pretend", n_masks=40, batch_size=batch_size)
            sent.append(sum(seen.sent.values()))
    assert sent[0] == sent[1]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_autocast_is_close_and_masks_are_the_same_on_a_gpu(model):
    images, targets = (tensor.cuda() for tensor in batch(dtype=torch.float32))
    model = model.float().cuda()
    exact = RISE(n_masks=100)(model, images, targets)
    with torch.autocast("cuda", torch.bfloat16):
        half = RISE(n_masks=100)(model, images, targets)
    torch.testing.assert_close(
        exact.cpu(), RISE(n_masks=100)(model.cpu(), images.cpu(), targets.cpu()), rtol=1e-4, atol=1e-5
    )
    torch.testing.assert_close(half, exact, rtol=0.02, atol=0.01)
