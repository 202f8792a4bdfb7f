"""Reliance: against brute force, closed forms, and what it promises."""

from functools import partial

import numpy as np
import pytest
import torch
from oracles.redrawing import conditional_draws, marginal_draws, reliance
from part_cases import ExplainerCase
from torch import nn

from xaibench.benchmarks import blind
from xaibench.benchmarks.xai_tris.pattern_mixture import PatternMixture
from xaibench.data import load
from xaibench.explainers import ExplainedOutput, build, explain
from xaibench.explainers.perturbation.reliance import Reliance, _latin_hypercube
from xaibench.kernels.pixel_updates import incremental_passes

WHITE = PatternMixture(np.zeros((1, 8, 8)), np.full((1, 8, 8), 0.5), np.eye(8), np.ones(1))
CASES = {"reliance": ExplainerCase(parameters={"distribution": WHITE, "n_samples": 4})}


def small_mixture():
    """Two patterns on correlated noise, 3×3; with what the oracle takes."""
    rng = np.random.default_rng(0)
    smoothing = np.array([[0.8, 0.3, 0.1], [0.3, 0.6, 0.3], [0.1, 0.3, 0.8]])
    means, shares = rng.normal(size=(2, 3, 3)), np.array([0.6, 0.4])
    noise = np.kron(smoothing @ smoothing.T, smoothing @ smoothing.T)
    written = {"means": means.reshape(2, 9), "covariances": np.stack([noise] * 2), "shares": shares}
    return PatternMixture(means, np.ones((2, 3, 3)), smoothing, shares), written


def network(side=3, seed=0):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(nn.Flatten(), nn.Linear(side * side, 8), nn.ReLU(), nn.Linear(8, 2)).double()


@pytest.mark.parametrize("redraw", ["marginal", "conditional"])
@pytest.mark.parametrize("block", [1, 2])
def test_reliance_is_that_of_brute_force(redraw, block):
    known, written = small_mixture()
    model = network()
    images = torch.randn(2, 1, 3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))

    def margin(rows):
        with torch.no_grad():
            logits = model(torch.from_numpy(rows).reshape(-1, 1, 3, 3))
        return (logits[:, 1] - logits[:, 0]).numpy()

    part = Reliance(distribution=known, redraw=redraw, block_size=block, n_samples=1000)
    asked = ExplainedOutput(model, "margin")
    found, error = part.values(asked, images, torch.ones(2, dtype=torch.int64))
    draw = partial(conditional_draws if redraw == "conditional" else marginal_draws, **written)
    for n, image in enumerate(images.reshape(2, 9).numpy()):
        for number, places in enumerate(part.blocks((3, 3))):
            rng = np.random.default_rng([n, number])
            expected, spread = reliance(margin, image, places, draw, 1000, rng)
            assert abs(found[n, number].item() - expected) < 4.5 * np.hypot(spread, error[n, number].item())


def test_of_a_linear_network_it_is_the_weight_times_the_way_the_pixel_moves():
    """E|w (x' - x)| of a normal x' in closed form (a folded normal distribution)."""
    from scipy.stats import norm

    weights = torch.randn(64, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    images = 0.5 * torch.randn(3, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 2, bias=False)).double()
    model[1].weight.data = torch.stack([weights, torch.zeros_like(weights)])
    targets = torch.zeros(3, dtype=torch.int64)
    maps = explain("reliance", model, images, targets, distribution=WHITE, n_samples=500, output="logit")
    z = images[:, 0].double().numpy() / 0.5
    moved = 0.5 * (z * (2 * norm.cdf(z) - 1) + 2 * norm.pdf(z))
    expected = weights.abs().reshape(8, 8).numpy() * moved
    assert np.allclose(maps.numpy(), expected, rtol=5e-3)  # stratified: far nearer than 500 independent draws


@pytest.mark.parametrize("name", ["mlp", "cnn"])
def test_a_pixel_that_the_network_cannot_read_has_nothing(name):
    seen = torch.zeros(8, 8, dtype=torch.bool)
    seen[2:5, 1:7] = True
    data = load("xai-tris/lin-corr-8x8", n_samples=200)
    images, _, targets = data.test[:4]
    model = blind(build_model(name), seen)
    how = {"distribution": data.distribution(), "n_samples": 4}
    for redraw in ("marginal", "conditional"):
        maps = explain("reliance", model, images, targets, redraw=redraw, **how)
        rounding = 1e-15 * explain("reliance", model, images, targets, **how).max()
        assert (maps[:, ~seen] <= rounding).all()
        assert (maps[:, seen] > rounding).any()


def build_model(name):
    from xaibench.models import build

    return build(name, (1, 8, 8), 2, seed=0)


@pytest.mark.parametrize("name", ["mlp", "cnn"])
def test_carried_passes_and_whole_ones_say_the_same(name, monkeypatch):
    model, images = build_model(name), torch.randn(3, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    targets = torch.tensor([0, 1, 0])
    maps = []
    for most in (9, 0):  # always, never
        monkeypatch.setattr(incremental_passes, "MAX_RELATIVE_COST", most)
        maps.append(explain("reliance", model, images, targets, distribution=WHITE, n_samples=5, block_size=2))
    torch.testing.assert_close(*maps, rtol=1e-8, atol=1e-12)


def test_a_block_at_the_border_is_cut_off_and_a_pixel_has_its_share():
    part = build("reliance", block_size=3)
    assert [len(block) for block in part.blocks((4, 5))] == [9, 6, 3, 2]
    maps = part.spread(torch.tensor([[9.0, 6.0, 3.0, 4.0]]), torch.zeros(1, 1, 4, 5))
    assert maps[0, :, [0, 4]].tolist() == [[1.0, 1.0], [1.0, 1.0], [1.0, 1.0], [1.0, 2.0]]
    assert maps.sum() == 22


def test_draws_lie_in_equal_slices():
    numbers = list(_latin_hypercube([np.random.default_rng(0)], [np.array([0]), np.array([1, 2])], 7))
    assert [each.shape for each in numbers] == [(1, 7, 2), (1, 7, 3)]
    for each in numbers:
        slices = np.sort((each[0] * 7).astype(int), axis=0)
        assert np.array_equal(slices, np.repeat(np.arange(7)[:, None], each.shape[2], 1))


def test_the_stated_error_is_no_smaller_than_the_error():
    model, images = build_model("mlp"), torch.randn(1, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    targets = torch.tensor([0])

    def values(seed):
        part = Reliance(distribution=WHITE, n_samples=8, seed=seed)
        return part.values(model, images, targets)

    found, errors = map(torch.stack, zip(*(values(seed) for seed in range(40)), strict=True))
    assert (found.std(0).square().mean() <= 1.1 * errors.square().mean()).item()
