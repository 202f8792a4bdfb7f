"""A small network with gradients that bend, and images for it."""

import torch
from torch import nn


def bending():
    """Of images ``[N, 3, 6, 7]``, smooth, in double precision."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Conv2d(3, 6, 3), nn.Tanh(), nn.Flatten(), nn.Linear(120, 2)).double().eval()


def batch(n=3, channels=3):
    rng = torch.Generator().manual_seed(1)
    return torch.randn(n, channels, 6, 7, generator=rng, dtype=torch.float64), torch.arange(n) % 2


def suppressing():
    """A network that takes the second pixel off the first, which has noise in common with it; images for training."""
    rng = torch.Generator().manual_seed(0)
    signal, noise = torch.randn(2, 4000, generator=rng).double()
    training = torch.stack([signal + noise, noise], 1).reshape(-1, 1, 1, 2)
    model = nn.Sequential(nn.Flatten(), nn.Linear(2, 2, bias=False)).double()
    with torch.no_grad():
        model[1].weight.copy_(torch.tensor([[0.0, 0.0], [1.0, -1.0]]))
    return model, training


def outputs(model, images, targets):
    return model(images).gather(1, targets[:, None])[:, 0].detach()


def ask(model, target):
    """The model as PAIR's ``saliency`` calls it: images ``[n, H, W, C]`` in, their gradients out."""

    def call(x, call_model_args=None, expected_keys=None):
        images = torch.as_tensor(x, dtype=torch.float64).permute(0, 3, 1, 2).clone().requires_grad_()
        (found,) = torch.autograd.grad(model(images)[:, target].sum(), images)
        return {expected_keys[0]: found.permute(0, 2, 3, 1).numpy()}

    return call
