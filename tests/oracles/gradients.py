"""Explainers made of gradients written again, slowly, one sample at a time, straight from the papers."""

import torch
from torch import nn


def gradient(model, image, target):
    """Of the target's output by one image ``[C, H, W]``."""
    image = image.detach().clone().requires_grad_()
    (found,) = torch.autograd.grad(model(image[None])[0, target], image)
    return found


def full_gradients(model, image, target):
    """Srinivas and Fleuret 2019: input times gradient, every bias times its gradient, of a ``Sequential``."""
    x = image[None].detach().clone().requires_grad_()
    value, biases = x, []
    for layer in model:
        if isinstance(layer, nn.BatchNorm2d):
            scale = layer.weight / torch.sqrt(layer.running_var + layer.eps)
            value, bias = scale[:, None, None] * value, (layer.bias - scale * layer.running_mean)[:, None, None]
        elif isinstance(layer, nn.Conv2d):
            value = nn.functional.conv2d(value, layer.weight, stride=layer.stride)
            bias = None if layer.bias is None else layer.bias[:, None, None]
        elif isinstance(layer, nn.Linear):
            value, bias = value @ layer.weight.T, layer.bias
        else:
            value, bias = value.clamp(min=0) if isinstance(layer, nn.ReLU) else layer(value), None
        if bias is not None:
            # A bias of its own at each place.
            biases.append(bias.detach().expand(value.shape[1:]).clone().requires_grad_())
            value = value + biases[-1]
    leaves = [x, *biases]
    return [(leaf * g).detach() for leaf, g in zip(leaves, torch.autograd.grad(value[0, target], leaves), strict=True)]


def fullgrad(model, image, target, rescale):
    """The same paper's map: magnitude, scaled to [0, 1], enlarged, summed."""
    first, *rest = full_gradients(model, image, target)
    total = torch.zeros_like(image[0])
    for shares in (first[0], *(share for share in rest if share.ndim == 3)):
        for k, share in enumerate(shares.abs()):
            among = shares.abs() if rescale == "layer" else shares[k].abs()
            share = (share - among.min()) / (among.max() - among.min())
            total += nn.functional.interpolate(share[None, None], image.shape[1:], mode="bilinear")[0, 0]
    return total
