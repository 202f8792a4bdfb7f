"""Explainers made of gradients written again, slowly, one sample at a time, straight from the papers."""

import numpy as np
import torch
from scipy import ndimage
from sklearn.linear_model import Ridge
from sklearn.preprocessing import StandardScaler
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


def expected_gradients(model, image, target, baselines, draws):
    """Erion et al. 2021, equation 3: the mean of (x - x') times the gradient between, over draws of (x', alpha)."""
    total = torch.zeros_like(image)
    for number, alpha in draws:
        baseline = baselines[number]
        total += (image - baseline) * gradient(model, baseline + alpha * (image - baseline), target)
    return total / len(draws)


def guided_ig(model, image, target, steps, fraction, max_dist):
    """Kapishnikov et al. 2021, algorithm 1, from zeros: ``[F]`` values one by one, in lists."""
    end, x = image.flatten().tolist(), [0.0] * image.numel()
    total = [0.0] * len(end)
    for step in range(1, steps + 1):
        g = gradient(model, torch.tensor(x, dtype=image.dtype).reshape(image.shape), target).flatten().tolist()
        share = step / steps
        slow, fast = max(share - max_dist, 0), min(share + max_dist, 1)
        wanted = sum(map(abs, end)) * (1 - share)
        before = list(x)
        for i, goal in enumerate(end):  # whoever lags behind catches up
            if goal and x[i] / goal < slow:
                x[i] = goal * slow
        waiting = [i for i in range(len(end)) if x[i] != end[i] * fast]
        while (missing := sum(abs(e - v) for e, v in zip(end, x, strict=True)) - wanted) > 1e-9 and waiting:
            # The share of all values that moves; once fewer wait, all of them do.
            rank = int(fraction * (len(end) - 1))
            limit = sorted(abs(g[i]) for i in waiting)[min(rank, len(waiting) - 1)]
            chosen = [i for i in waiting if abs(g[i]) <= limit]
            possible = sum(abs(end[i] * fast - x[i]) for i in chosen)
            part = min(1.0, missing / possible)
            for i in chosen:
                x[i] = end[i] * fast if part == 1.0 else x[i] + part * (end[i] * fast - x[i])
            waiting = [i for i in waiting if i not in chosen]
            if part < 1.0:
                break
        for i in range(len(end)):
            total[i] += (x[i] - before[i]) * g[i]
    return torch.tensor(total, dtype=image.dtype).reshape(image.shape)


def blur_ig(model, image, target, steps, max_sigma, grad_step):
    """Xu et al. 2020: minus the Riemann sum over sigma of gradient times the blur's derivative, scipy's blur."""

    def blurred(sigma):
        kept = [ndimage.gaussian_filter(channel, sigma, mode="constant") for channel in image.numpy()]
        return torch.from_numpy(np.stack(kept)) if sigma else image

    total = torch.zeros_like(image)
    for step in range(steps):
        sigma = step * max_sigma / steps
        change = (blurred(sigma + grad_step) - blurred(sigma)) / grad_step
        total -= max_sigma / steps * change * gradient(model, blurred(sigma), target)
    return total


def pattern_local(training, x, w, value, share, *, projected):
    """Gjølbye et al. 2025: the covariance matrix of the weighted nearest neighbors, times the surrogate's weights."""
    point = x - value / (w @ w) * w if projected else x
    distances = [(row - point).norm().item() for row in training]
    nearest = sorted(range(len(training)), key=distances.__getitem__)[: int(share * len(training))]
    width = float(np.median([distances[i] for i in nearest]))
    kernel = torch.tensor([np.exp(-(distances[i] ** 2) / (2 * width**2)) for i in nearest], dtype=x.dtype)
    kernel = kernel / kernel.sum()
    mean = sum(k * training[i] for k, i in zip(kernel, nearest, strict=True))
    covariance = sum(
        k * torch.outer(training[i] - mean, training[i] - mean) for k, i in zip(kernel, nearest, strict=True)
    )
    return covariance @ w


def lime_surrogate(model, image, target, training, rng, n_samples):
    """Ribeiro et al. 2016 as in LimeTabularExplainer without discretization: weights ``[V]``, and the value at x."""
    scaler = StandardScaler().fit(training)
    offsets = np.stack([rng.standard_normal(image.numel()) for _ in range(n_samples)])
    offsets[0] = 0
    data = image.flatten().numpy() + offsets * scaler.scale_
    with torch.no_grad():
        labels = [model(torch.from_numpy(row).reshape(1, *image.shape))[0, target].item() for row in data]
    scaled = (data - scaler.mean_) / scaler.scale_
    distances = np.sqrt(((scaled - scaled[0]) ** 2).sum(1))
    width = 0.75 * np.sqrt(image.numel())
    regression = Ridge(alpha=1.0).fit(scaled, labels, sample_weight=np.sqrt(np.exp(-(distances**2) / width**2)))
    return torch.from_numpy(regression.coef_ / scaler.scale_), torch.tensor(regression.predict(scaled[:1])[0])


def shapley_surrogate(model, image, target, training, kept, alpha):
    """Kernel SHAP with means as the baseline and a penalty on the weights per standard deviation: ``[V]``, f(x).

    The Lagrangian of the constraint is solved as one linear system.
    """
    x, mean, scale = image.flatten(), training.mean(0), training.std(0, unbiased=False)
    scale[scale == 0] = 1.0
    outputs = []
    for row in kept:
        mixed = torch.tensor([x[i] if row[i] else mean[i] for i in range(len(x))], dtype=x.dtype)
        with torch.no_grad():
            outputs.append(model(mixed.reshape(1, *image.shape))[0, target].item())
    reach = ((x - mean) / scale).numpy()
    rows, values = np.array(kept[2:]) * reach, np.array(outputs[2:]) - outputs[1]
    system = np.zeros((len(x) + 1, len(x) + 1))
    system[:-1, :-1] = rows.T @ rows + alpha * np.eye(len(x))
    system[:-1, -1] = system[-1, :-1] = reach
    solved = np.linalg.solve(system, np.append(rows.T @ values, outputs[0] - outputs[1]))
    return torch.from_numpy(solved[:-1]) / scale, torch.tensor(outputs[0], dtype=x.dtype)


def xrai(segments, attribution, fewest):
    """Kapishnikov et al. 2019, algorithm 1, pixel by pixel."""
    sets = [{(i, j) for i, j in zip(*np.nonzero(segment), strict=True)} for segment in segments]
    free, found = set(np.ndindex(attribution.shape)), np.zeros_like(attribution)

    def mean(pixels):
        return sum(attribution[p] for p in pixels) / len(pixels)

    while sets := [segment & free for segment in sets if len(segment & free) >= fewest]:
        best = max(sets, key=mean)
        for p in best:
            found[p] = mean(best)
        free -= best
    for p in free:
        found[p] = mean(free)
    return found


def ig2(model, represent, image, target, reference, steps, length, low, high):
    """Zhuo and Ge 2024, equations 3 and 5, one point at a time: ``[C, H, W]`` and the end of the path."""
    aim, at, total = represent(reference[None]).detach(), image.clone(), torch.zeros_like(image)
    for _ in range(steps):
        point = at.clone().requires_grad_()
        (towards,) = torch.autograd.grad(((represent(point[None]) - aim) ** 2).sum(), point)
        (gradient,) = torch.autograd.grad(model(point[None])[0, target], point)
        to = at - length * towards / (towards**2).sum().sqrt()
        to = torch.minimum(torch.maximum(to, low), high)
        total += gradient * (at - to)
        at = to
    return total, at
