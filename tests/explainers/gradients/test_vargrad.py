import torch
from generators.gradient_networks import batch, bending
from oracles import gradients as oracle
from part_cases import ExplainerCase
from torch import nn

from xaibench.compute.random_numbers import sample_generators
from xaibench.explainers.gradients.vargrad import VarGrad

CASES = {"vargrad": ExplainerCase(parameters={"n_samples": 4})}


def test_oracle():
    model, (images, targets) = bending(), batch()
    for size in (None, 2):
        maps = VarGrad(n_samples=7, noise=0.2, seed=5, channels="sum", batch_size=size)(model, images, targets)
        for found, image, target, rng in zip(maps, images, targets, sample_generators(5, images), strict=True):
            noise = [torch.from_numpy(rng.standard_normal(image.shape)) for _ in range(7)]
            each = [oracle.gradient(model, image + 0.2 * (image.max() - image.min()) * n, target) for n in noise]
            torch.testing.assert_close(found, torch.stack(each).var(0, correction=0).sum(0))


def test_of_a_linear_network_nothing_varies():
    model = nn.Sequential(nn.Flatten(), nn.Linear(126, 2)).double()
    images, targets = batch()
    assert VarGrad(n_samples=6)(model, images, targets).abs().max() == 0


def test_small_differences_do_not_drown_in_a_large_gradient():
    class Steep(nn.Module):
        def forward(self, x):
            return (1e8 * x + x**2).flatten(1)[:, :2]

    images, targets = batch()
    plain = VarGrad(channels="sum")(Slight(), images, targets)
    torch.testing.assert_close(VarGrad(channels="sum")(Steep(), images, targets), plain, rtol=1e-6, atol=1e-9)


class Slight(nn.Module):
    def forward(self, x):
        return (x**2).flatten(1)[:, :2]
