import captum.attr
import numpy as np
import pytest
import torch
from captum._utils.models.linear_model import SkLearnLasso
from oracles import explainers as oracle
from part_cases import ExplainerCase

from xaibench.core.compute.sample_draws import sample_generators
from xaibench.explainers import ExplainedOutput, build, explain
from xaibench.explainers.forward.linear_surrogates import weighted_least_squares

#: The paper's penalty leaves nothing of the small outputs of an untrained network.
CASES = {"lime": ExplainerCase(parameters={"alpha": 1e-4})}


def test_kernel_shap_nears_the_sum_over_all_coalitions(curved):
    model, x, y = curved
    expected = torch.stack([oracle.shapley_values(model, i, t)[0] for i, t in zip(x, y, strict=True)])
    sampled = explain("kernel_shap", model, x, y, n_samples=20_000, output="logit")
    torch.testing.assert_close(sampled, expected, rtol=0, atol=0.08)


def recorded_masks(explainer, images, features):
    """The coalitions that our explainer draws, image by image."""
    generators = sample_generators(explainer.seed, images)
    return [explainer._coalitions(rng, explainer.n_samples, features) for rng in generators]


def generator_of(masks):
    """A Captum ``perturb_func`` that hands out given coalitions: all of one sample, then all of the next."""
    rows = iter([torch.from_numpy(row[None]).long() for sample in masks for row in sample])
    return lambda *_, **__: next(rows)


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
    with pytest.warns(UserWarning, match="multiple inputs for Lime"):
        theirs = method.attribute(images.double(), target=targets)
    # Captum solves in float32, with weights of 1e6.
    torch.testing.assert_close(maps, theirs[:, 0].double(), rtol=0, atol=5e-3 * maps.abs().max().item())


@pytest.mark.parametrize("samples", [10, 40])
def test_the_regression_is_scikit_learns(samples):
    from sklearn.linear_model import LinearRegression

    rng = np.random.default_rng(0)
    x, y, weights = rng.random((2, samples, 20)), rng.random((2, samples)), rng.random((2, samples)) + 0.1
    ours = weighted_least_squares(*map(torch.from_numpy, (x, y, weights)))
    for i in range(2):
        theirs = LinearRegression().fit(x[i], y[i], sample_weight=weights[i]).coef_
        np.testing.assert_allclose(ours[i], theirs, rtol=1e-8, atol=1e-10)
