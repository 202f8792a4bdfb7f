"""Explainers written again, slowly, one sample and one feature at a time, straight from their definitions."""

import itertools
import math

import numpy as np
import torch


def output(model, image, target):
    """The target's output for one image ``[C, H, W]``."""
    with torch.no_grad():
        return model(image[None])[0, target].item()


def gradient(model, image, target):
    """The gradient of the target's output for one image ``[C, H, W]``."""
    image = image.clone().requires_grad_()
    (result,) = torch.autograd.grad(model(image[None])[0, target], image)
    return result


def integrated_gradients(model, image, target, n_steps, baseline=0.0):
    """Sundararajan et al. 2017, equation 1, the integral summed node by node (Gauss-Legendre on [0, 1])."""
    total = torch.zeros_like(image)
    nodes, weights = np.polynomial.legendre.leggauss(n_steps)
    for node, weight in zip(nodes, weights, strict=True):
        alpha = (node + 1) / 2
        total += weight / 2 * gradient(model, baseline + alpha * (image - baseline), target)
    return (image - baseline) * total


def shapley_values(model, image, target, baseline=0.0):
    """Shapley 1953: the marginal contribution over every coalition, weighted by |S|! (F - |S| - 1)! / F!."""
    flat = image.flatten()
    features = range(len(flat))

    def value(coalition):
        masked = torch.tensor([flat[f].item() if f in coalition else baseline for f in features], dtype=flat.dtype)
        return output(model, masked.reshape(image.shape), target)

    values = []
    for feature in features:
        others = [f for f in features if f != feature]
        total = 0.0
        for size in range(len(others) + 1):
            weight = math.factorial(size) * math.factorial(len(flat) - size - 1) / math.factorial(len(flat))
            for coalition in itertools.combinations(others, size):
                total += weight * (value({*coalition, feature}) - value(set(coalition)))
        values.append(total)
    return torch.tensor(values, dtype=flat.dtype).reshape(image.shape)


def permutation_importance(model, images, targets, permutations):
    """f(x_i) - f(x_i with feature f of image permutations[f][i]), for each image and feature."""
    maps = torch.zeros_like(images)
    for i in range(len(images)):
        for f, permutation in enumerate(permutations):
            swapped = images[i].flatten().clone()
            swapped[f] = images[permutation[i]].flatten()[f]
            fall = output(model, images[i], targets[i]) - output(model, swapped.reshape(images[i].shape), targets[i])
            maps[i].view(-1)[f] = fall
    return maps


def correlate3x3(image, kernel):
    """Correlation of an image ``[H, W]`` with a 3x3 kernel; outside, the image is mirrored about its border."""
    height, width = image.shape
    result = np.zeros((height, width))
    for i in range(height):
        for j in range(width):
            for di in (-1, 0, 1):
                for dj in (-1, 0, 1):
                    # One pixel outside mirrors to the pixel at the border itself.
                    row, column = min(max(i + di, 0), height - 1), min(max(j + dj, 0), width - 1)
                    result[i, j] += kernel[di + 1][dj + 1] * image[row, column]
    return result


def softmax_gradient(logits, target):
    """Row ``target`` of the softmax's Jacobian, in extended precision and without cancellation."""
    z = np.asarray(logits, dtype=np.longdouble)
    p = np.exp(z - z.max())
    p = p / p.sum()
    others = sum(p[j] for j in range(len(p)) if j != target)
    return np.array([p[target] * others if i == target else -p[target] * p[i] for i in range(len(p))])


def lasso_violation(x, y, weights, coefficients, alpha):
    """How far coefficients are from the optimality conditions of the weighted lasso with intercept.

    Minimized: sum w (y - x b - c)² / (2 sum w) + alpha |b|_1. At the optimum the correlation of each column with the
    residual is alpha sign(b_j) where b_j is not 0, and at most alpha in magnitude elsewhere.
    """
    share = weights / weights.sum()
    residual = y - x @ coefficients
    residual = residual - (share * residual).sum()
    correlation = x.T @ (share * residual)
    active = coefficients != 0
    on = np.abs(correlation - alpha * np.sign(coefficients))[active]
    off = np.maximum(np.abs(correlation) - alpha, 0)[~active]
    return float(max([0.0, *on, *off]))
