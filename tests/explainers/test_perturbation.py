import captum.attr
import numpy as np
import pytest
import torch
from captum._utils.models.linear_model import SkLearnLasso
from oracles import explainers as oracle

from xaibench.explainers import ExplainedOutput, build, explain
from xaibench.explainers.surrogate import weighted_least_squares


@pytest.fixture(params=["cnn", "mlp"])
def double(request):
    """Each network as the explainers see it: float64, evaluation mode, ending in the probability."""
    model = request.getfixturevalue(request.param).double().eval()
    return model, ExplainedOutput(model)


@pytest.fixture
def curved():
    """A network with interactions between its six pixels."""

    class Curved(torch.nn.Module):
        def forward(self, x):
            a, b, c, d, e, f = x.flatten(1).T
            return torch.stack([a * b + torch.relu(c - d) * e + f, a - b * c], 1)

    x = torch.tensor([[1.0, -2.0, 3.0, 0.5, 1.5, -1.0], [0.2, 0.4, -1.0, -3.0, 2.0, 0.3]], dtype=torch.float64)
    return Curved(), x.reshape(2, 1, 2, 3), torch.tensor([0, 1])


@pytest.fixture
def captum_draws():
    """Captum draws from the global generator: seed it like ours, and put it back."""
    with torch.random.fork_rng():
        yield torch.manual_seed


def test_pfi_draws_and_scores_as_captum(double, images, targets, captum_draws):
    model, explained = double
    maps = explain("pfi", model, images, targets, seed=3)
    captum_draws(3)
    theirs = captum.attr.FeaturePermutation(explained).attribute(images.double(), target=targets)
    torch.testing.assert_close(maps, theirs[:, 0].double(), rtol=1e-5, atol=1e-7)


def test_pfi_pixel_by_pixel_within_its_groups(mlp, images, targets):
    maps = explain("pfi", mlp, images, targets, group=4, seed=1)
    explained, rng = ExplainedOutput(mlp.double().eval()), torch.Generator().manual_seed(1)
    expected = []
    for group in (slice(0, 4), slice(4, 7)):
        x, y, n = images[group].double(), targets[group], len(targets[group])
        permutations = []
        while len(permutations) < 64:
            permutation = torch.randperm(n, generator=rng)
            if permutation.tolist() != list(range(n)):
                permutations.append(permutation)
        expected.append(oracle.permutation_importance(explained, x, y, permutations)[:, 0])
    torch.testing.assert_close(maps, torch.cat(expected), rtol=1e-12, atol=1e-15)


def test_a_last_image_alone_joins_the_group_before_it(mlp, images, targets):
    assert explain("pfi", mlp, images, targets, group=6).equal(explain("pfi", mlp, images, targets, group=7))
    with pytest.raises(ValueError, match="pfi: got 1 image; it swaps features between images"):
        explain("pfi", mlp, images[:1], targets[:1])


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


def test_kernel_shap_nears_the_sum_over_all_coalitions(curved):
    model, x, y = curved
    expected = torch.stack([oracle.shapley_values(model, i, t)[0] for i, t in zip(x, y, strict=True)])
    sampled = explain("kernel_shap", model, x, y, n_samples=20_000, output="logit")
    torch.testing.assert_close(sampled, expected, rtol=0, atol=0.08)


def recorded_masks(explainer, samples, features):
    """The coalitions that our explainer draws, sample by sample."""
    rng = np.random.default_rng(explainer.seed)
    return [explainer._coalitions(rng, explainer.n_samples, features) for _ in range(samples)]


def generator_of(masks):
    """A Captum ``perturb_func`` that hands out given coalitions: all of one sample, then all of the next."""
    rows = iter([torch.from_numpy(row[None]).long() for sample in masks for row in sample])
    return lambda *_, **__: next(rows)


def test_lime_agrees_with_captum_given_the_same_coalitions(double, images, targets):
    model, explained = double
    masks = recorded_masks(build("lime", n_samples=50, seed=2), len(images), 64)
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
    for i, masks in enumerate(recorded_masks(explainer, len(images), 64)):
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
    (masks,) = recorded_masks(build("lime", n_samples=4000), 1, 16)
    assert np.abs(masks.mean(0) - 0.5).max() < 0.04
    assert np.abs(masks.mean(1)).std() == pytest.approx(np.sqrt(0.25 / 16), rel=0.1)


def test_kernel_shap_draws_from_the_shapley_kernel():
    (masks,) = recorded_masks(build("kernel_shap", n_samples=20_002), 1, 6)
    assert masks[0].all()
    assert not masks[1].any()
    sizes = np.bincount(masks[2:].sum(1), minlength=7)[1:6] / 20_000
    kernel = np.array([1 / (k * (6 - k)) for k in range(1, 6)])
    np.testing.assert_allclose(sizes, kernel / kernel.sum(), atol=0.015)
    np.testing.assert_allclose(masks[2:].mean(0), 0.5, atol=0.015)


def test_kernel_shap_agrees_with_captum_given_the_same_coalitions(double, images, targets):
    model, explained = double
    masks = recorded_masks(build("kernel_shap", n_samples=25, seed=2), len(images), 64)
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


def test_an_output_that_does_not_vary_gives_a_map_of_zeros(images, targets):
    class Constant(torch.nn.Module):
        def forward(self, x):
            return torch.tensor([[800.0, 0.0]], dtype=x.dtype).repeat(len(x), 1)

    for name in ("pfi", "shapley_sampling", "kernel_shap", "lime"):
        assert explain(name, Constant(), images, targets).abs().max() == 0


def test_perturbations_need_no_gradient():
    class Rule(torch.nn.Module):
        """Whether the first pixel is bright: a model with neither gradient nor parameters."""

        def forward(self, x):
            bright = (x[:, 0, 0, 0] > 0.5).float()
            return torch.stack([1 - bright, bright], 1)

    images = torch.tensor([[1.0, 1.0, 1.0], [0.0, 1.0, 1.0]]).reshape(2, 1, 1, 3)
    maps = explain("shapley_sampling", Rule(), images, torch.tensor([1, 1]), output="logit")
    assert maps.flatten(1).tolist() == [[1, 0, 0], [0, 0, 0]]
