"""SmoothGrad, and the two that take another moment of the same noisy gradients."""

import sys

import captum.attr
import numpy as np
import pytest
import torch
from generators.gradient_networks import batch, bending, outputs, suppressing
from oracles import gradients as oracle
from oracles.layered import Called
from part_cases import ExplainerCase
from torch import nn

from xaibench.explainers import explain
from xaibench.explainers.gradients.smoothgrad import GradientPattern, SmoothGrad, SmoothGradSquared, VarGrad
from xaibench.tensors.random_numbers import sample_generators

MOMENTS = {
    SmoothGrad: lambda gradients: gradients.mean(0),
    SmoothGradSquared: lambda gradients: gradients.square().mean(0),
    VarGrad: lambda gradients: gradients.var(0, correction=0),
}


@pytest.mark.parametrize("batch_size", [None, 2])
@pytest.mark.parametrize("method", MOMENTS)
def test_oracle(method, batch_size):
    model, (images, targets) = bending(), batch()
    maps = method(n_samples=7, noise=0.2, seed=5, channels="sum", batch_size=batch_size)(model, images, targets)
    for found, image, target, rng in zip(maps, images, targets, sample_generators(5, images), strict=True):
        noise = [torch.from_numpy(rng.standard_normal(image.shape)) for _ in range(7)]
        each = [oracle.gradient(model, image + 0.2 * (image.max() - image.min()) * n, target) for n in noise]
        torch.testing.assert_close(found, MOMENTS[method](torch.stack(each)).sum(0))


def test_parity_with_captum_on_the_same_noise(monkeypatch):
    model, (images, targets) = bending(), batch()
    low, high = images.flatten(1).aminmax(dim=1)
    spread = (high - low).reshape(-1, 1, 1, 1)
    drawn = torch.stack([torch.from_numpy(np.stack([r.standard_normal((3, 6, 7)) for _ in range(5)]))
                         for r in sample_generators(0, images)])  # fmt: skip
    monkeypatch.setattr(torch, "normal", lambda *args, **kwargs: (0.15 * spread[:, None] * drawn).flatten(0, 1))
    tunnel = captum.attr.NoiseTunnel(captum.attr.Saliency(model))
    for method, kind in ((SmoothGradSquared, "smoothgrad_sq"), (VarGrad, "vargrad")):
        theirs = tunnel.attribute(images, nt_type=kind, nt_samples=5, target=targets, abs=False)
        ours = method(n_samples=5, channels="sum")(model, images, targets)
        torch.testing.assert_close(ours, theirs.sum(1), rtol=1e-9, atol=1e-12)


def test_without_noise_it_is_the_gradient():
    model, (images, targets) = bending(), batch()
    x = images.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(model(x).gather(1, targets[:, None]).sum(), x)
    largest = gradient.gather(1, gradient.abs().argmax(1, keepdim=True))[:, 0]
    torch.testing.assert_close(SmoothGrad(noise=0.0, n_samples=3)(model, images, targets), largest)


def test_noise_smooths_a_kink():
    # the gradient of |x - 0.1| at 0 is -1; over wide noise its mean is near 0, for an image with a range of 2
    kink, targets = Called(lambda x: (x - 0.1).abs().flatten(1)[:, :2]), torch.tensor([0])
    images = torch.tensor([0.0, 1.0, -1.0, 0.0]).reshape(1, 1, 2, 2)
    assert SmoothGrad(noise=0.0)(kink, images, targets)[0, 0, 0] == -1
    assert abs(SmoothGrad(noise=1.0, n_samples=2000)(kink, images, targets)[0, 0, 0]) < 0.1


def test_of_a_linear_network_nothing_varies():
    model = nn.Sequential(nn.Flatten(), nn.Linear(126, 2)).double()
    assert VarGrad(n_samples=6)(model, *batch()).abs().max() == 0


def test_small_differences_do_not_drown_in_a_large_gradient():
    functions = (lambda x: x.flatten(1)[:, :2] ** 2, lambda x: (1e8 * x + x**2).flatten(1)[:, :2])
    plain, steep = (VarGrad(channels="sum")(Called(function), *batch()) for function in functions)
    torch.testing.assert_close(steep, plain, rtol=1e-6, atol=1e-9)


def fitted(count=30, **parameters):
    training = batch(count)[0].flip(0)
    return GradientPattern(n_samples=3, **parameters).fit(None, [training[:7], (training[7:], None)]), training


def surrogates(part, model, images, targets):
    """The weights ``[N, F]`` and the outputs ``[N]``."""
    total = torch.zeros_like(images)
    for samples, _, gradients in part.noisy_gradients(model, images, targets):
        total[samples] += gradients.sum(1)
    return total.flatten(1) / part.n_samples, outputs(model, images, targets)


@pytest.mark.parametrize(("projected", "batch_size"), [(True, None), (True, 2), (False, None)])
def test_gradient_pattern_oracle(projected, batch_size):
    model, (images, targets) = bending(), batch()
    part, training = fitted(neighbor_fraction=0.3, project_to_boundary=projected, batch_size=batch_size)
    maps = part(model, images, targets)
    for found, image, w, value in zip(maps, images, *surrogates(part, model, images, targets), strict=True):
        expected = oracle.pattern_local(training.flatten(1), image.flatten(), w, value, 0.3, projected=projected)
        torch.testing.assert_close(found, expected.reshape(image.shape).sum(0))


@pytest.mark.skipif(sys.version_info < (3, 12), reason="patternlocal is written in the syntax of Python 3.12")
@pytest.mark.parametrize("projected", [True, False])
def test_parity_with_the_authors_solver(projected):
    solvers = pytest.importorskip("patternlocal.solvers")
    model, (images, targets) = bending(), batch()
    part, training = fitted(neighbor_fraction=0.3, project_to_boundary=projected)
    maps = part(model, images, targets)
    solver = solvers.LocalCovarianceSolver({"k_ratio": 0.3, "use_projection": projected})
    for found, image, w, value in zip(maps, images, *surrogates(part, model, images, targets), strict=True):
        x = image.flatten()
        theirs = solver.solve(w.numpy(), (value - w @ x).item(), x.numpy(), training.flatten(1).numpy())
        torch.testing.assert_close(found, torch.from_numpy(theirs).reshape(image.shape).sum(0), rtol=0, atol=1e-8)


def test_a_suppressor_gets_far_less_where_the_gradient_gives_it_as_much():
    """The network takes the second pixel off the first, which has noise in common with it."""
    model, training = suppressing()
    part = GradientPattern(neighbor_fraction=1.0).fit(model, [training])
    images, targets = training[:5], torch.ones(5, dtype=torch.int64)
    shares = explain("saliency", model, images, targets, output="logit").abs()
    assert (shares[..., 0] == shares[..., 1]).all()
    found = explain(part, model, images, targets, device="cpu").abs()
    assert (found[..., 1] < 0.45 * found[..., 0]).all()
    # Of all training images alike, without the weights of distance, it gets nothing.
    pattern = oracle.pattern_local(training.flatten(1), images[0].flatten() + 1e6, torch.tensor([1.0, -1.0]).double(),
                                   torch.tensor(0.0), 1.0, projected=False).abs()  # fmt: skip
    assert pattern[1] < 0.05 * pattern[0]


CASES = {
    name: ExplainerCase(parameters={"n_samples": 4})
    for name in ("smoothgrad", "smoothgrad_squared", "vargrad", "gradient_pattern")
}
