import captum.attr
import numpy as np
import pytest
import torch
from oracles import explainers as oracle
from oracles.coalitions import generator_of, recorded_masks
from part_cases import ExplainerCase

from xaibench.explainers import ExplainedOutput, build, explain
from xaibench.explainers.perturbation.kernel_shap import least_squares_of_sum

#: The regression is on the CPU: the outputs of the masked images come over once.
CASES = {"kernel_shap": ExplainerCase(parameters={"n_samples": 200}, few={"n_samples": 50}, waits=3)}


def test_kernel_shap_nears_the_sum_over_all_coalitions(curved):
    model, x, y = curved
    expected = torch.stack([oracle.shapley_values(model, i, t)[0] for i, t in zip(x, y, strict=True)])
    sampled = explain("kernel_shap", model, x, y, n_samples=20_000, output="logit")
    torch.testing.assert_close(sampled, expected, rtol=0, atol=0.08)


def test_kernel_shap_draws_from_the_shapley_kernel():
    (masks,) = recorded_masks(build("kernel_shap", n_samples=20_002), torch.zeros(1, 1, 2, 3), 6)
    assert masks[0].all()
    assert not masks[1].any()
    sizes = np.bincount(masks[2:].sum(1), minlength=7)[1:6] / 20_000
    kernel = np.array([1 / (k * (6 - k)) for k in range(1, 6)])
    np.testing.assert_allclose(sizes, kernel / kernel.sum(), atol=0.015)
    np.testing.assert_allclose(masks[2:].mean(0), 0.5, atol=0.015)


def test_kernel_shap_agrees_with_captum_given_the_same_coalitions(double, images, targets):
    model, explained = double
    masks = recorded_masks(build("kernel_shap", n_samples=25, seed=2), images, 64)
    maps = explain("kernel_shap", model, images, targets, n_samples=25, seed=2)
    method = captum.attr.KernelShap(explained)
    method.perturb_func = generator_of(masks)
    fit = method.interpretable_model.fit  # in float32 with weights of 1e6, which some versions solve badly
    method.interpretable_model.fit = lambda batches: fit([[each.double() for each in batch] for batch in batches])
    with pytest.warns(UserWarning, match="multiple inputs for Lime"):
        theirs = method.attribute(images.double(), target=targets)
    torch.testing.assert_close(maps, theirs[:, 0].double(), rtol=0, atol=1e-4 * maps.abs().max().item())


@pytest.mark.parametrize("samples", [3, 10, 40, 400])
def test_kernel_shap_sums_to_the_rise_at_any_number_of_samples(mlp, images, targets, samples):
    maps = explain("kernel_shap", mlp, images, targets, n_samples=samples)
    model = ExplainedOutput(mlp.double().eval())
    with torch.no_grad():
        rise = (model(images.double()) - model(torch.zeros(1, 1, 8, 8).double()))[range(7), targets]
    torch.testing.assert_close(maps.sum((1, 2)), rise, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("samples", [10, 40])
def test_the_regression_is_that_of_captums_weights(samples):
    """Two rows of very large weight, and an intercept, become a constraint."""
    from sklearn.linear_model import LinearRegression

    rng = np.random.default_rng(0)
    x, y = rng.random((samples, 20)) < 0.5, rng.random(samples)
    ours = least_squares_of_sum(
        torch.from_numpy(x).double(), torch.from_numpy(y), torch.tensor(0.7, dtype=torch.float64)
    )
    rows, outputs = np.vstack([np.ones(20), np.zeros(20), x]), np.array([0.7, 0, *y])
    weights = np.array([1e8, 1e8, *np.ones(samples)])
    theirs = LinearRegression().fit(rows, outputs, sample_weight=weights).coef_
    assert ours.sum().item() == pytest.approx(0.7, abs=1e-12)
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-5)
