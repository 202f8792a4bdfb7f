"""Explainers ``(model, images, targets) -> maps`` of a few lines, for tests of what asks an explainer."""

import torch

from xaibench.explainers import UnsupportedModelError


def saliency(model, images, targets):
    images = images.detach().requires_grad_()
    outputs = model(images).softmax(1).gather(1, targets[:, None])
    return torch.autograd.grad(outputs.sum(), images)[0].sum(1)


def constant(model, images, targets):
    """A control: knows neither model nor image."""
    return torch.arange(images.shape[-2] * images.shape[-1]).reshape(1, *images.shape[-2:]).expand(len(images), -1, -1)


def nothing(model, images, targets):
    return torch.zeros(len(images), *images.shape[-2:])


def convolutions_only(model, images, targets):
    """Says itself which networks it cannot treat."""
    if not any(isinstance(module, torch.nn.Conv2d) for module in model.modules()):
        raise UnsupportedModelError("convolutions_only needs a convolution, and the network has none.")
    return images[:, 0]
