import pytest
import torch
from generators.xplique_networks import as_xplique_calls_it, small_network
from oracles import sensitivity as oracle
from oracles.layered import Called
from part_cases import ExplainerCase

from xaibench.explainers.perturbation.hsic import HSIC

CASES = {"hsic": ExplainerCase(parameters={"n_samples": 40})}


def batch(n=3):
    images = torch.randn(n, 2, 6, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return images, torch.arange(n) % 2


@pytest.mark.parametrize(("n_samples", "batch_size"), [(20, None), (21, 6)])
def test_oracle(n_samples, batch_size):
    model, (images, targets) = small_network(36), batch()
    part = HSIC(grid_size=3, n_samples=n_samples, seed=2, resize="nearest", batch_size=batch_size)
    maps = part(model, images, targets)
    for found, image, target in zip(maps, images, targets, strict=True):
        expected = oracle.hsic(model, image, target, part.points(n_samples, 9).round(), 3)
        torch.testing.assert_close(found[::2, ::2], expected, rtol=1e-5, atol=1e-8)


def test_parity_with_the_authors_package():
    package = pytest.importorskip("xplique.attributions")
    model, (images, targets) = small_network(36), batch()
    part = HSIC(grid_size=6, n_samples=50, seed=2)
    theirs = package.HsicAttributionMethod(as_xplique_calls_it(model), grid_size=6, nb_design=50)
    theirs.masks = part.points(50, 36).round().reshape(-1, 6, 6, 1).float().numpy()
    expected = theirs(images.permute(0, 2, 3, 1).float().numpy(), torch.eye(2)[targets].numpy())
    expected = torch.from_numpy(expected.numpy())[..., 0].double() / 50  # theirs is divided by n once
    found = part(model, images, targets)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5 * expected.max().item())


ONE_PIXEL = Called(lambda x: 1 + x[:, 0, 1, 1:2] ** 2)


def test_it_is_found_on_what_the_output_depends_and_nowhere_else():
    found = HSIC(grid_size=3, n_samples=1024)(ONE_PIXEL, torch.ones(1, 1, 3, 3), torch.tensor([0]))[0]
    others = found.flatten()[[0, 1, 2, 3, 5, 6, 7, 8]]
    assert found[1, 1] > 0.01
    assert others.max() < 1e-3 * found[1, 1]


def test_a_median_of_zero_leaves_numbers():
    less = Called(lambda x: ONE_PIXEL(x) - 1)
    found = HSIC(grid_size=3, n_samples=65)(less, torch.ones(1, 1, 3, 3), torch.tensor([0]))[0]
    assert found.isfinite().all()
    assert found.argmax() == 4
