import pytest
import torch
from generators.xplique_networks import as_xplique_calls_it, small_network
from oracles import sensitivity as oracle
from oracles.layered import Called
from part_cases import ExplainerCase

from xaibench.explainers.perturbation.grid_designs import HSIC, Sobol


@pytest.fixture
def model():
    return small_network(36)


def batch(n=3):
    images = torch.randn(n, 2, 6, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return images, torch.arange(n) % 2


@pytest.mark.parametrize("batch_size", [None, 7])
def test_oracle(model, batch_size):
    images, targets = batch()
    part = Sobol(grid_size=3, n_designs=8, seed=2, resize="nearest", batch_size=batch_size)
    maps = part(model, images, targets)
    for found, image, target in zip(maps, images, targets, strict=True):
        expected = oracle.sobol(model, image, target, part.points(8, 18), 3)
        torch.testing.assert_close(found[::2, ::2], expected)
        assert found.equal(found[::2, ::2].repeat_interleave(2, 0).repeat_interleave(2, 1))


def test_parity_with_the_authors_package(model):
    package = pytest.importorskip("xplique.attributions")
    images, targets = batch()
    part = Sobol(grid_size=6, n_designs=8, seed=2)
    points = part.points(8, 72).float()
    first, second = points[:, :36], points[:, 36:]
    mixed = torch.where(torch.eye(36, dtype=torch.bool)[:, None], second, first).flatten(0, 1)
    theirs = package.SobolAttributionMethod(as_xplique_calls_it(model), grid_size=6, nb_design=8)
    theirs.masks = torch.cat([first, second, mixed]).reshape(-1, 6, 6, 1).numpy()  # ours, in their order
    expected = theirs(images.permute(0, 2, 3, 1).float().numpy(), torch.eye(2)[targets].numpy())
    found = part(model, images, targets)
    torch.testing.assert_close(found, torch.from_numpy(expected.numpy())[..., 0].double(), rtol=0, atol=1e-5)


def test_of_a_sum_they_are_the_shares_of_the_variance():
    image = torch.tensor([[1.0, 2.0], [-3.0, 0.0]]).double().reshape(1, 1, 2, 2)
    found = Sobol(n_designs=4096)(Called(lambda x: x.flatten(1).sum(1, keepdim=True)), image, torch.tensor([0]))[0]
    torch.testing.assert_close(found, image[0, 0] ** 2 / 14, rtol=0.02, atol=1e-9)


def test_of_a_product_they_count_the_interaction_for_both():
    # Var = 1/9 - 1/16 = 7/144 of the product of two uniform numbers; the other's share is E[m²] Var(m) = 1/36.
    product = Called(lambda x: x.flatten(1).prod(1, keepdim=True))
    found = Sobol(n_designs=4096)(product, torch.ones(1, 1, 1, 2).double(), torch.tensor([0]))[0]
    torch.testing.assert_close(found, torch.full((1, 2), 4 / 7).double(), rtol=0.02, atol=0)


def test_an_output_that_does_not_vary_gives_nothing(model):
    images, targets = batch(2)
    maps = Sobol(n_designs=4)(model, torch.zeros_like(images), targets)
    assert maps.abs().max() == 0


@pytest.mark.parametrize(("n_samples", "batch_size"), [(20, None), (21, 6)])
def test_hsic_oracle(n_samples, batch_size):
    model, (images, targets) = small_network(36), batch()
    part = HSIC(grid_size=3, n_samples=n_samples, seed=2, resize="nearest", batch_size=batch_size)
    maps = part(model, images, targets)
    for found, image, target in zip(maps, images, targets, strict=True):
        expected = oracle.hsic(model, image, target, part.points(n_samples, 9).round(), 3)
        torch.testing.assert_close(found[::2, ::2], expected, rtol=1e-5, atol=1e-8)


def test_hsic_parity_with_the_authors_package():
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


CASES = {
    "sobol": ExplainerCase(parameters={"n_designs": 2}),
    "hsic": ExplainerCase(parameters={"n_samples": 40}),
}
