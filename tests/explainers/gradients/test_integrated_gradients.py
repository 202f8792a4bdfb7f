import captum.attr
import numpy as np
import pytest
import torch
from generators.gradient_networks import batch, bending, outputs
from oracles import explainers as oracle
from oracles import gradients as gradient_oracle
from part_cases import ExplainerCase

from xaibench.explainers import ExplainedOutput, explain
from xaibench.explainers.gradients.integrated_gradients import ExpectedGradients, IntegratedGradients, RandomBaselineIG
from xaibench.tensors.random_numbers import sample_generators


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


def baselines(images, seed, count):
    """``[count, N, C, H, W]``, drawn once more."""
    drawn = [[rng.random(image.shape) for _ in range(count)]
             for image, rng in zip(images, sample_generators(seed, images), strict=True)]  # fmt: skip
    low, high = (end.reshape(-1, 1, 1, 1) for end in images.flatten(1).aminmax(dim=1))
    return torch.stack([low + (high - low) * torch.stack([torch.from_numpy(each[k]) for each in drawn])
                        for k in range(count)])  # fmt: skip


def test_random_baseline_ig_is_the_mean_of_captums_integrated_gradients_and_complete():
    model, (images, targets) = bending(), batch()
    maps = RandomBaselineIG(n_baselines=3, n_steps=20, seed=4)(model, images, targets)
    starts = baselines(images, 4, 3)
    theirs = [captum.attr.IntegratedGradients(model).attribute(images, start, target=targets, n_steps=20).sum(1)
              for start in starts]  # fmt: skip
    torch.testing.assert_close(maps, torch.stack(theirs).mean(0).double(), rtol=1e-5, atol=1e-7)
    gone = torch.stack([outputs(model, start, targets) for start in starts]).mean(0)
    torch.testing.assert_close(maps.sum((1, 2)), outputs(model, images, targets) - gone)


def test_a_black_pixel_gets_its_share():
    model, (images, targets) = bending(), batch()
    images[:, :, 2, 3] = 0
    assert IntegratedGradients()(model, images, targets)[:, 2, 3].abs().max() == 0
    assert RandomBaselineIG()(model, images, targets)[:, 2, 3].abs().min() > 0


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


def test_expected_gradients_oracle():
    model, (images, targets), (training, _) = bending(), batch(), batch(8)
    part = ExpectedGradients(n_samples=6, seed=3).fit(model, [training[:5], (training[5:], None)])
    maps = part(model, images, targets)
    for found, image, target, rng in zip(maps, images, targets, sample_generators(3, images), strict=True):
        alphas, numbers = rng.random(6), rng.integers(8, size=6)
        draws = list(zip(numbers, alphas, strict=True))
        torch.testing.assert_close(
            found, gradient_oracle.expected_gradients(model, image, target, training, draws).sum(0)
        )


def test_completeness_holds_in_expectation():
    model, (images, targets), (training, _) = bending(), batch(2), batch(8)
    training = training.flip(0)
    part = ExpectedGradients(n_samples=4000).fit(model, [training])
    expected = outputs(model, images, targets)
    every = torch.stack([outputs(model, training, targets[i].expand(8)).mean() for i in range(2)])
    found = part(model, images, targets).sum((1, 2))
    # The spread of one draw, over the root of 4,000: the sums lie within three times that.
    singles = torch.stack([ExpectedGradients(n_samples=1, seed=seed).fit(model, [training])(model, images, targets)
                           .sum((1, 2)) for seed in range(60)])  # fmt: skip
    assert ((found - (expected - every)).abs() < 3 * singles.std(0) / 4000**0.5).all()
    assert (singles.std(0) > 0.01).all()


def test_of_many_images_each_is_kept_as_often_as_the_other():
    training = torch.arange(6.0).reshape(6, 1, 1, 1)
    kept = torch.zeros(6)
    for seed in range(300):
        found = ExpectedGradients(n_baselines=2, seed=seed).fit(None, [training[:4], training[4:]]).baselines
        assert len(set(found.flatten().tolist())) == 2
        kept += (found.flatten()[:, None] == torch.arange(6.0)).sum(0)
    assert kept.min() > 70
    assert kept.max() < 130  # a hundred, give or take three times its standard error


def test_which_baselines_are_kept_does_not_depend_on_the_batches():
    training = torch.arange(9.0).reshape(9, 1, 1, 1)
    one, other = (ExpectedGradients(n_baselines=3).fit(None, training.split(k)).baselines for k in (9, 2))
    assert one.equal(other)


CASES = {
    "random_baseline_ig": ExplainerCase(parameters={"n_baselines": 2, "n_steps": 3}),
    "expected_gradients": ExplainerCase(parameters={"n_samples": 5}),
}
