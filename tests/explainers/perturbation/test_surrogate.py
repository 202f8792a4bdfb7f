import warnings

import captum.attr
import numpy as np
import pytest
import torch
from captum._utils.models.linear_model import SkLearnLasso
from oracles import explainers as oracle
from oracles.coalitions import generator_of, recorded_masks
from part_cases import ExplainerCase

from xaibench.explainers import ExplainedOutput, build, explain
from xaibench.explainers.perturbation.feature_attribution import find_features
from xaibench.explainers.perturbation.surrogate import least_squares_of_sum


@pytest.mark.parametrize("name", ["lime", "kernel_shap"])
def test_fewer_perturbations_than_features_are_said(name, mlp, images, targets):
    with pytest.warns(UserWarning, match="63 perturbations do not determine the 64 features.*feature_mask='slic'"):
        explain(name, mlp, images, targets, n_samples=63)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        explain(name, mlp, images, targets, n_samples=64)


@pytest.mark.parametrize("name", ["lime", "kernel_shap"])
def test_photographs_are_taken_in_superpixels(name, images, targets):
    features = find_features("auto", images, cell_size=16, n_segments=100)
    assert features.single
    photo = torch.zeros(1, 3, 48, 48)
    photo[:, :, 10:30, 15:40] = 1
    assert not find_features("auto", photo, cell_size=16, n_segments=100).single
    model = torch.nn.Sequential(torch.nn.AvgPool2d(12), torch.nn.Flatten(), torch.nn.Linear(48, 2))
    settings = {"n_segments": 16, "output": "logit"}
    maps = explain(name, model, photo, targets[:1], **settings)
    assert maps.equal(explain(name, model, photo, targets[:1], feature_mask="slic", **settings))
    # Regions, which two seeds find alike.
    other = explain(name, model, photo, targets[:1], seed=1, **settings)
    assert np.corrcoef(maps.flatten(), other.flatten())[0, 1] > 0.99


@pytest.mark.parametrize("name", ["lime", "kernel_shap"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_that_of_the_network_alone(name, dtype, mlp, images, targets):
    exact = explain(name, mlp, images, targets, output="logit", dtype=torch.float64)
    half = explain(name, mlp, images, targets, output="logit", dtype=dtype).double()
    error = {torch.float16: 0.02, torch.bfloat16: 0.15}[dtype]
    torch.testing.assert_close(half, exact, rtol=0, atol=error * exact.abs().max().item())


#: The regression is on the CPU: the outputs of the masked images come over once.


def test_lime_agrees_with_captum_given_the_same_coalitions(double, images, targets):
    model, explained = double
    masks = recorded_masks(build("lime", n_samples=50, seed=2), images, 64)
    maps = explain("lime", model, images, targets, n_samples=50, seed=2, alpha=1e-4)
    method = captum.attr.Lime(explained, interpretable_model=SkLearnLasso(alpha=1e-4), perturb_func=generator_of(masks))
    with pytest.warns(UserWarning, match="multiple inputs for Lime"):
        theirs = method.attribute(images.double(), target=targets, n_samples=50)
    assert maps.abs().max() > 1e-3
    # Captum rounds the outputs to float32, and the lasso stops within 1e-4 of its optimum.
    torch.testing.assert_close(maps, theirs[:, 0].double(), rtol=0, atol=2e-2 * maps.abs().max().item())


def test_lime_solves_its_weighted_lasso(mlp, images, targets):
    explainer = build("lime", n_samples=50, seed=4, alpha=1e-3)
    mlp.double().eval()
    explained = ExplainedOutput(mlp, "margin")
    maps = explain(explainer, mlp, images, targets, output="margin")
    for i, masks in enumerate(recorded_masks(explainer, images, 64)):
        x, kept = images[i].double().flatten(), torch.from_numpy(masks)
        rows = kept * x
        with torch.no_grad():
            y = explained(rows.reshape(-1, 1, 8, 8))[:, targets[i]].numpy()
        cosine = (rows @ x) / (rows.norm(dim=1) * x.norm())
        weights = torch.exp(-((1 - cosine) ** 2) / 2).numpy()
        coefficients = maps[i].flatten().numpy()
        assert 0 < (coefficients != 0).sum() < 50
        scale = oracle.lasso_violation(masks, y, weights, 0 * coefficients, 1e-3)
        assert oracle.lasso_violation(masks.astype(float), y, weights, coefficients, 1e-3) < 0.02 * scale


def test_lime_draws_each_feature_with_probability_one_half():
    (masks,) = recorded_masks(build("lime", n_samples=4000), torch.zeros(1, 1, 4, 4), 16)
    assert np.abs(masks.mean(0) - 0.5).max() < 0.04
    assert np.abs(masks.mean(1)).std() == pytest.approx(np.sqrt(0.25 / 16), rel=0.1)


class Faint(torch.nn.Module):
    """A class of small probability, as most of a thousand are: two pixels move it by some 1e-6."""

    def forward(self, x):
        rise = x.flatten(1)[:, :2] @ x.new_tensor([2.0, -1.0])
        return torch.stack([rise - 14, torch.zeros_like(rise)], 1)


def test_by_default_lime_finds_what_moves_a_small_probability(images):
    y = torch.zeros(7, dtype=torch.int64)
    images = images.abs() + 0.1
    maps = explain("lime", Faint(), images, y, n_samples=300)
    assert maps.abs().max() < 1e-4
    assert (maps.flatten(1)[:, 2:].abs().amax(1) < 0.15 * maps.flatten(1)[:, :2].abs().amin(1)).all()
    assert (maps[:, 0, 0] > 0).all()
    assert (maps[:, 0, 1] < 0).all()
    scale = maps.abs().amax((1, 2), keepdim=True)
    for factor in (1e-3, 1e3):  # the units of the output are those of the map, and nothing else
        scaled = explain(
            "lime",
            lambda_of(lambda x, f=factor: f * ExplainedOutput(Faint())(x)),
            images,
            y,
            n_samples=300,
            output="logit",
        )
        torch.testing.assert_close(scaled / scale / factor, maps / scale, rtol=0, atol=1e-3)


def lambda_of(function):
    network = torch.nn.Module()
    network.forward = function
    return network


def test_a_map_that_is_zero_everywhere_is_said(images):
    y = torch.zeros(7, dtype=torch.int64)
    with pytest.warns(
        UserWarning, match=r"LIME: 7 of 7 maps are zero everywhere. alpha=0.001 exceeds the effect"
    ) as said:
        maps = explain("lime", Faint(), images, y, alpha=0.001)
    assert not maps.any()
    assert said[0].filename == __file__
    constant = lambda_of(lambda x: x.new_zeros(len(x), 2))
    for name in ("lime", "kernel_shap"):
        with pytest.warns(UserWarning, match="7 of 7 maps are zero everywhere. The output does not change"):
            explain(name, constant, images, y, dtype=torch.float32)


#: The regression is on the CPU: the outputs of the masked images come over once.


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


CASES = {
    "lime": ExplainerCase(parameters={"n_samples": 200}, few={"n_samples": 50, "alpha": 1e-4}, waits=3),
    "kernel_shap": ExplainerCase(parameters={"n_samples": 200}, few={"n_samples": 50}, waits=3),
}
