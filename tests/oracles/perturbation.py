"""Metrics that ask the model, one image and one pixel at a time, written from the papers."""

import numpy as np
import torch
from scipy.ndimage import gaussian_filter


def probability(model, image, target):
    """f_y(x) of one image ``[C, H, W]``."""
    with torch.no_grad():
        return float(torch.softmax(model(image[None]).double(), 1)[0, target])


def pixel_order(saliency):
    """Pixels (row, column), the most salient first; equal ones row by row."""
    height, width = saliency.shape
    pixels = [(i, j) for i in range(height) for j in range(width)]
    return sorted(pixels, key=lambda pixel: -float(saliency[pixel]))  # Python's sort is stable


def rise_blur(image):
    """The blur of RISE's released evaluation: the kernel is a filtered dirac, convolved with zero padding."""
    dirac = np.zeros((11, 11))
    dirac[5, 5] = 1
    kernel = gaussian_filter(dirac, 5)
    channels, height, width = image.shape
    padded = np.zeros((channels, height + 10, width + 10))
    padded[:, 5:-5, 5:-5] = image.numpy()
    blurred = np.empty(image.shape)
    for c in range(channels):
        for i in range(height):
            for j in range(width):
                blurred[c, i, j] = (padded[c, i : i + 11, j : j + 11] * kernel).sum()
    return torch.from_numpy(blurred).to(image)


def rise_curve(model, image, saliency, target, start, finish, steps):
    """RISE (Petsiuk 2018), step by step: ``start`` turns into ``finish``, the most salient pixels first.

    Returns the shares of the pixels that are changed, and the probability there.
    """
    order, current = pixel_order(saliency), start.clone()
    shares, scores, done = [0.0], [probability(model, current, target)], 0
    for step in range(1, steps + 1):
        until = round(step * len(order) / steps)
        for i, j in order[done:until]:
            current[:, i, j] = finish[:, i, j]
        done = until
        shares.append(done / len(order))
        scores.append(probability(model, current, target))
    return shares, scores


def area(shares, scores):
    """Trapezoids, one by one."""
    total = 0.0
    for i in range(1, len(shares)):
        total += (shares[i] - shares[i - 1]) * (scores[i] + scores[i - 1]) / 2
    return total


def deletion(model, image, saliency, target, steps):
    return area(*rise_curve(model, image, saliency, target, image, torch.zeros_like(image), steps))


def insertion(model, image, saliency, target, steps):
    return area(*rise_curve(model, image, saliency, target, rise_blur(image), image, steps))


def segments(image, segmentation, n_segments):
    """A list of lists of pixels (row, column), in the order of the segments' numbers."""
    from skimage.segmentation import slic

    channels, height, width = image.shape
    if segmentation == "slic":
        compactness = 10.0 if channels == 3 else 0.1
        labels = slic(image.double().numpy(), n_segments, compactness=compactness, channel_axis=0, start_label=0)
    else:
        side = 1
        while side * side * n_segments < height * width:
            side += 1
        across = -(-width // side)
        labels = np.array([[i // side * across + j // side for j in range(width)] for i in range(height)])
    pixels = [(i, j) for i in range(height) for j in range(width)]
    return [[pixel for pixel in pixels if labels[pixel] == number] for number in range(labels.max() + 1)]


def segment_curve(model, saliency, parts, target, start, finish, steps):
    """As :func:`rise_curve`, but whole segments change, those of the largest mean first, when all of one fits."""
    waiting = sorted(parts, key=lambda part: -sum(float(saliency[pixel]) for pixel in part) / len(part))
    total, current, changed = saliency.numel(), start.clone(), 0
    shares, scores = [0.0], [probability(model, current, target)]
    for step in range(1, steps + 1):
        until = round(step * total / steps)
        while waiting and changed + len(waiting[0]) <= until:
            for i, j in waiting[0]:
                current[:, i, j] = finish[:, i, j]
            changed += len(waiting.pop(0))
        shares.append(until / total)
        scores.append(probability(model, current, target))
    return shares, scores


def without_top(image, saliency, k):
    copy = image.clone()
    for i, j in pixel_order(saliency)[:k]:
        copy[:, i, j] = 0
    return copy


def only_top(image, saliency, k):
    copy = torch.zeros_like(image)
    for i, j in pixel_order(saliency)[:k]:
        copy[:, i, j] = image[:, i, j]
    return copy


def comprehensiveness(model, image, saliency, target, k):
    return probability(model, image, target) - probability(model, without_top(image, saliency, k), target)


def sufficiency(model, image, saliency, target, k):
    return probability(model, image, target) - probability(model, only_top(image, saliency, k), target)


def dimmed(image, saliency):
    low, high = float(saliency.min()), float(saliency.max())
    return image * ((saliency.double() - low) / (high - low)).to(image)


def average_drop(model, image, saliency, target):
    y, o = (probability(model, x, target) for x in (image, dimmed(image, saliency)))
    return 100 * max(0.0, y - o) / y


def increase_in_confidence(model, image, saliency, target):
    return float(probability(model, dimmed(image, saliency), target) > probability(model, image, target))


def adversarial(model, image, free, target, epsilon, alpha, steps):
    """Projected gradient descent on the probability itself; ``free`` [H, W] may change. In float64."""
    x, path = image.clone(), []
    for _ in range(steps):
        leaf = x[None].clone().requires_grad_()
        score = torch.softmax(model(leaf), 1)[0, target]
        path.append(score.item())
        (gradient,) = torch.autograd.grad(score, leaf)
        for c in range(image.shape[0]):
            for i, j in free.nonzero().tolist():
                moved = float(x[c, i, j] - alpha * torch.sign(gradient[0, c, i, j]))
                x[c, i, j] = min(max(moved, float(image[c, i, j]) - epsilon), float(image[c, i, j]) + epsilon)
    path.append(probability(model, x, target))
    return path[0] - min(path)
