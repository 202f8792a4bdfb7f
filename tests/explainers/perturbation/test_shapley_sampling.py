import captum.attr
import torch
from oracles import explainers as oracle
from oracles.layered import Called
from part_cases import ExplainerCase

from xaibench.explainers import explain

CASES = {"shapley_sampling": ExplainerCase(few={"n_samples": 2})}


def test_shapley_sampling_draws_and_scores_as_captum(double, images, targets, captum_draws):
    model, explained = double
    maps = explain("shapley_sampling", model, images, targets, n_samples=3, baseline=0.2, seed=5)
    captum_draws(5)
    theirs = captum.attr.ShapleyValueSampling(explained).attribute(
        images.double(), 0.2, target=targets, n_samples=3, perturbations_per_eval=8
    )
    # Captum adds up in float32.
    torch.testing.assert_close(maps, theirs[:, 0].double(), rtol=1e-5, atol=1e-7)


def test_shapley_sampling_nears_the_sum_over_all_coalitions(curved):
    model, x, y = curved
    expected = torch.stack([oracle.shapley_values(model, i, t)[0] for i, t in zip(x, y, strict=True)])
    sampled = explain("shapley_sampling", model, x, y, n_samples=4000, output="logit")
    torch.testing.assert_close(sampled, expected, rtol=0, atol=0.08)
    few = explain("shapley_sampling", model, x, y, n_samples=2, output="logit")
    assert (few - expected).abs().max() > 0.2


def test_shapley_sampling_sums_to_the_rise_from_the_baseline(double, images, targets):
    model, explained = double
    maps = explain("shapley", model, images, targets, n_samples=2, baseline=-0.5)
    rise = explained(images.double()) - explained(torch.full((1, 1, 8, 8), -0.5, dtype=torch.float64))
    torch.testing.assert_close(maps.sum((1, 2)), rise[range(7), targets].detach(), rtol=0, atol=1e-13)


def test_of_a_linear_network_shapley_values_are_exact(linear):
    model = linear([1.0, -2.0, 3.0, 0.5], [0.0, 1.0, 0.0, -1.0])
    x = torch.tensor([2.0, 1.0, -1.0, 4.0], dtype=torch.float64).reshape(1, 1, 2, 2)
    expected = torch.tensor([[[2.0, -2.0], [-3.0, 2.0]]], dtype=torch.float64)
    y = torch.tensor([0])
    torch.testing.assert_close(explain("shapley_sampling", model, x, y, n_samples=1, output="logit"), expected)
    torch.testing.assert_close(explain("kernel_shap", model, x, y, n_samples=50, output="logit"), expected)
    sane = explain("lime", model, x, y, n_samples=500, alpha=1e-6, output="logit")
    torch.testing.assert_close(sane, expected, rtol=0, atol=1e-4)


def test_an_output_that_does_not_vary_gives_a_map_of_zeros(images, targets):
    constant = Called(lambda x: x.new_tensor([[800.0, 0.0]]).repeat(len(x), 1))
    for name in ("pfi", "shapley_sampling", "kernel_shap", "lime"):
        assert explain(name, constant, images, targets).abs().max() == 0
