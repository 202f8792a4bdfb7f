"""Sobol' indices and HSIC written again, slowly, one point, cell and pair at a time."""

import math

import torch


def faded(image, point, s):
    """The image with each of s × s equal cells multiplied by its coordinate."""
    found = image.clone()
    height, width = image.shape[1] // s, image.shape[2] // s
    for i in range(s):
        for j in range(s):
            found[:, i * height : (i + 1) * height, j * width : (j + 1) * width] *= point[i * s + j]
    return found


def ask(model, image, point, s, target):
    return model(faded(image, point, s)[None])[0, target].item()


def sobol(model, image, target, points, s):
    """Jansen 1999 with the design of Fel et al. 2021: ``points [n, 2 s²]`` are A and B."""
    first, second = points[:, : s * s].tolist(), points[:, s * s :].tolist()
    outputs = [ask(model, image, a, s, target) for a in first]
    mean = sum(outputs) / len(outputs)
    variance = sum((y - mean) ** 2 for y in outputs) / (len(outputs) - 1)
    indices = []
    for i in range(s * s):
        total = 0.0
        for a, b, y in zip(first, second, outputs, strict=True):
            total += (y - ask(model, image, [*a[:i], b[i], *a[i + 1 :]], s, target)) ** 2
        indices.append(total / (2 * len(outputs) * variance))
    return torch.tensor(indices, dtype=torch.float64).reshape(s, s)


def hsic(model, image, target, masks, s):
    """Novello et al. 2022: trace(K H L H) / n², of matrices."""
    n = len(masks)
    outputs = [ask(model, image, mask, s, target) for mask in masks.tolist()]
    middle = sorted(outputs)
    width = (middle[(n - 1) // 2] + middle[n // 2]) / 2
    second = torch.tensor([[math.exp(-((y - z) ** 2) / (2 * width**2)) for z in outputs] for y in outputs]).double()
    centering = torch.eye(n, dtype=torch.float64) - 1 / n
    indices = []
    for i in range(s * s):
        column = masks[:, i].tolist()
        first = torch.tensor([[0.5 - (m - o) ** 2 for o in column] for m in column]).double()
        indices.append((first @ centering @ second @ centering).trace().item() / n**2)
    return torch.tensor(indices, dtype=torch.float64).reshape(s, s)
