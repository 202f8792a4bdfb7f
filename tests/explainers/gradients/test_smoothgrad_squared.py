import captum.attr
import numpy as np
import torch
from generators.gradient_networks import batch, bending
from oracles import gradients as oracle
from part_cases import ExplainerCase

from xaibench.compute.random_numbers import sample_generators
from xaibench.explainers.gradients.smoothgrad import SmoothGrad
from xaibench.explainers.gradients.smoothgrad_squared import SmoothGradSquared
from xaibench.explainers.gradients.vargrad import VarGrad

CASES = {"smoothgrad_squared": ExplainerCase(parameters={"n_samples": 4})}


def test_oracle():
    model, (images, targets) = bending(), batch()
    maps = SmoothGradSquared(n_samples=7, noise=0.2, seed=5, channels="sum")(model, images, targets)
    for found, image, target, rng in zip(maps, images, targets, sample_generators(5, images), strict=True):
        noise = [torch.from_numpy(rng.standard_normal(image.shape)) for _ in range(7)]
        squares = [oracle.gradient(model, image + 0.2 * (image.max() - image.min()) * n, target) ** 2 for n in noise]
        torch.testing.assert_close(found, torch.stack(squares).mean(0).sum(0))


def test_it_is_smoothgrad_squared_plus_vargrad():
    model, (images, targets) = bending(), batch(channels=3)
    images, gray = images[:, :1], torch.nn.Sequential(Repeated(), model)
    squared, mean, variance = (part()(gray, images, targets) for part in (SmoothGradSquared, SmoothGrad, VarGrad))
    torch.testing.assert_close(squared, mean**2 + variance)


class Repeated(torch.nn.Module):
    def forward(self, x):
        return x.repeat(1, 3, 1, 1)


def test_parity_with_captum_on_the_same_noise(monkeypatch):
    model, (images, targets) = bending(), batch()
    low, high = images.flatten(1).aminmax(dim=1)
    spread = (high - low).reshape(-1, 1, 1, 1)
    drawn = torch.stack([torch.from_numpy(np.stack([r.standard_normal((3, 6, 7)) for _ in range(5)]))
                         for r in sample_generators(0, images)])  # fmt: skip
    monkeypatch.setattr(torch, "normal", lambda *args, **kwargs: (0.15 * spread[:, None] * drawn).flatten(0, 1))
    tunnel = captum.attr.NoiseTunnel(captum.attr.Saliency(model))
    for part, kind in ((SmoothGradSquared, "smoothgrad_sq"), (VarGrad, "vargrad")):
        theirs = tunnel.attribute(images, nt_type=kind, nt_samples=5, target=targets, abs=False)
        ours = part(n_samples=5, channels="sum")(model, images, targets)
        torch.testing.assert_close(ours, theirs.sum(1), rtol=1e-9, atol=1e-12)
