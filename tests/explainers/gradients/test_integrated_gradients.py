import captum.attr
import numpy as np
import pytest
import torch
from oracles import explainers as oracle

from xaibench.compute.sample_random import sample_generators
from xaibench.explainers import ExplainedOutput, explain


@pytest.fixture(params=["cnn", "mlp"])
def double(request):
    """Each network as the explainers see it: float64, evaluation mode, ending in the probability."""
    model = request.getfixturevalue(request.param).double().eval()
    return model, ExplainedOutput(model)


def test_saliency_is_the_signed_gradient(double, images, targets):
    model, explained = double
    maps = explain("saliency", model, images, targets)
    expected = [oracle.gradient(explained, x, y)[0] for x, y in zip(images.double(), targets, strict=True)]
    torch.testing.assert_close(maps, torch.stack(expected), rtol=1e-12, atol=1e-16)
    theirs = captum.attr.Saliency(explained).attribute(images.double().requires_grad_(), target=targets, abs=False)
    torch.testing.assert_close(maps, theirs[:, 0], rtol=1e-12, atol=1e-16)
    assert (maps < 0).any()


@pytest.mark.parametrize("baseline", [0.0, 0.3])
def test_integrated_gradients_node_by_node_and_captum(double, images, targets, baseline):
    model, explained = double
    x = images.double()
    maps = explain("ig", model, images, targets, baseline=baseline)
    expected = [oracle.integrated_gradients(explained, i, y, 50, baseline)[0] for i, y in zip(x, targets, strict=True)]
    torch.testing.assert_close(maps, torch.stack(expected), rtol=1e-10, atol=1e-15)
    theirs = captum.attr.IntegratedGradients(explained).attribute(x, baseline, target=targets)
    # Captum rounds the weights of the quadrature to float32.
    torch.testing.assert_close(maps, theirs[:, 0], rtol=1e-6, atol=1e-9)


def test_integrated_gradients_sum_to_the_difference_from_the_baseline(mlp, images, targets):
    explained = ExplainedOutput(mlp.double().eval())
    maps = explain("ig", mlp, images, targets, n_steps=500)
    at_images = explained(images.double())[range(7), targets]
    at_baseline = explained(torch.zeros(1, 1, 8, 8, dtype=torch.float64))[0, targets]
    torch.testing.assert_close(maps.sum((1, 2)), at_images - at_baseline, rtol=1e-3, atol=1e-4)


def test_of_a_linear_network_all_are_known(linear):
    model = linear([1.0, -2.0, 3.0, 0.5], [0.0, 1.0, 0.0, -1.0])
    x = torch.tensor([[2.0, 1.0, -1.0, 4.0]], dtype=torch.float64).reshape(1, 1, 2, 2)
    for target, weight in enumerate(model[1].weight.detach()):
        y = torch.tensor([target])
        product = (weight * x.flatten()).reshape(1, 2, 2)
        torch.testing.assert_close(explain("saliency", model, x, y, output="logit"), weight.reshape(1, 2, 2))
        torch.testing.assert_close(explain("ig", model, x, y, output="logit"), product)
        torch.testing.assert_close(explain("gradient_shap", model, x, y, output="logit"), product)
    margin = explain("saliency", model, x, torch.tensor([0]), output="margin")
    torch.testing.assert_close(margin.flatten(), model[1].weight[0].detach() - model[1].weight[1].detach())


def test_integrated_gradients_of_a_square_by_hand():
    class Square(torch.nn.Module):
        def forward(self, x):
            total = (x.flatten(1) * x.new_tensor([1.0, 2.0])).sum(1) ** 2
            return torch.stack([total, -total], 1)

    x = torch.tensor([3.0, 1.0]).reshape(1, 1, 1, 2)
    maps = explain("ig", Square(), x, torch.tensor([0]), output="logit", n_steps=3)
    # f = (x1 + 2 x2)²; the gradient at t x is 2 t (3 + 2) (1, 2), its integral 5 (1, 2).
    torch.testing.assert_close(maps.flatten(), torch.tensor([15.0, 10.0]))


@pytest.mark.parametrize("stdev", [0.0, 0.2])
def test_gradient_shap_agrees_with_captum_given_the_same_draws(double, images, targets, monkeypatch, stdev):
    model, explained = double
    baselines = torch.randn(3, 1, 8, 8, generator=torch.Generator().manual_seed(5))
    maps = explain("gradient_shap", model, images, targets, baselines=baselines, stdev=stdev, seed=7)
    drawn = [
        (rng.random(5), rng.integers(3, size=5), rng.standard_normal((5, 1, 8, 8)))
        for rng in sample_generators(7, images)
    ]
    along, start, noise = (np.stack(kind) for kind in zip(*drawn, strict=True))
    noise = torch.tensor(stdev * noise).flatten(0, 1)
    monkeypatch.setattr(np.random, "uniform", lambda *_: along.reshape(-1))
    monkeypatch.setattr(np.random, "choice", lambda *_: start.reshape(-1))
    monkeypatch.setattr(torch, "normal", lambda *_: noise)
    theirs = captum.attr.GradientShap(explained).attribute(
        images.double(), baselines.double(), target=targets, stdevs=stdev
    )
    torch.testing.assert_close(maps, theirs[:, 0], rtol=1e-10, atol=1e-15)


def test_gradient_shap_with_many_points_nears_integrated_gradients(mlp, images, targets):
    expected = explain("ig", mlp, images, targets)
    few, many = (explain("gradient_shap", mlp, images, targets, n_samples=n) for n in (2, 3000))
    assert (many - expected).abs().mean() < 0.1 * (few - expected).abs().mean()


def test_bad_baselines_are_refused(mlp, images, targets):
    with pytest.raises(ValueError, match=r"baselines: got \[3, 1, 4, 4\], expected \[B, 1, 8, 8\] with B >= 1"):
        explain("gradient_shap", mlp, images, targets, baselines=torch.zeros(3, 1, 4, 4))


def test_a_saturated_network_still_has_a_gradient(mlp, images, targets):
    with torch.no_grad():
        mlp.layers[-1].weight.mul_(9000)
    explained = ExplainedOutput(mlp.double().eval())
    margin = explained.network(images.double()).diff(dim=1).abs()
    assert (margin > 40).all()
    assert (margin < 700).all()
    maps = explain("saliency", mlp, images, targets)
    assert (maps.flatten(1).abs().sum(1) > 0).all()
    # The margin's gradient is the probability's up to a factor a sample.
    class_margins = explain("saliency", mlp, images, targets, output="margin")
    for one, other in zip(maps.flatten(1), class_margins.flatten(1), strict=True):
        torch.testing.assert_close(one / one.abs().max(), other / other.abs().max(), rtol=1e-9, atol=1e-12)


def test_a_model_without_a_gradient_is_named():
    class Table(torch.nn.Module):
        def forward(self, x):
            return x.new_zeros(len(x), 2)

    with pytest.raises(ValueError, match="The output of the model has no gradient with respect to the images"):
        explain("saliency", Table(), torch.zeros(2, 1, 2, 2), torch.tensor([0, 1]), output="logit")
