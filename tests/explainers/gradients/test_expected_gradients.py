import torch
from generators.gradient_networks import batch, bending, outputs
from oracles import gradients as oracle
from part_cases import ExplainerCase

from xaibench.explainers.gradients.expected_gradients import ExpectedGradients
from xaibench.tensors.random_numbers import sample_generators

CASES = {"expected_gradients": ExplainerCase(parameters={"n_samples": 5})}


def test_oracle():
    model, (images, targets), (training, _) = bending(), batch(), batch(8)
    part = ExpectedGradients(n_samples=6, seed=3).fit(model, [training[:5], (training[5:], None)])
    maps = part(model, images, targets)
    for found, image, target, rng in zip(maps, images, targets, sample_generators(3, images), strict=True):
        alphas, numbers = rng.random(6), rng.integers(8, size=6)
        draws = list(zip(numbers, alphas, strict=True))
        torch.testing.assert_close(found, oracle.expected_gradients(model, image, target, training, draws).sum(0))


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


def test_which_are_kept_does_not_depend_on_the_batches():
    training = torch.arange(9.0).reshape(9, 1, 1, 1)
    one, other = (ExpectedGradients(n_baselines=3).fit(None, training.split(k)).baselines for k in (9, 2))
    assert one.equal(other)
