"""Tests of faithfulness that hold, one image, one pixel and one pair at a time, written from the papers."""

import math

import numpy as np
import torch
from oracles.perturbation import area, pixel_order, probability, segment_curve, segments
from scipy.stats import pearsonr, spearmanr


def flipped(model, image, order, target, steps):
    """Pixel flipping: the pixels of ``order`` become zero in equal steps. The shares and the probabilities there."""
    current, shares, scores, done = image.clone(), [0.0], [probability(model, image, target)], 0
    for step in range(1, steps + 1):
        until = round(step * len(order) / steps)
        for i, j in order[done:until]:
            current[:, i, j] = 0
        done = until
        shares.append(done / len(order))
        scores.append(probability(model, current, target))
    return shares, scores


def srg(model, image, saliency, target, steps):
    """Blücher et al. (2024): least influential first minus most influential first."""
    order = pixel_order(saliency)
    most = area(*flipped(model, image, order, target, steps))
    least = area(*flipped(model, image, order[::-1], target, steps))
    return least - most


def segment_srg(model, image, saliency, target, segmentation, n_segments, steps):
    """As :func:`srg`, but whole segments become zero, when all of one fits."""
    black, curves = torch.zeros_like(image), []
    for order in (saliency, -saliency):
        parts = segments(image, segmentation, n_segments)
        curves.append(area(*segment_curve(model, order, parts, target, image, black, steps)))
    most, least = curves
    return least - most


def without(image, pixels, color):
    """The image with some pixels at a color ``[C]``."""
    copy = image.clone()
    for i, j in pixels:
        copy[:, i, j] = color
    return copy


def logit(model, image, target):
    with torch.no_grad():
        return float(model(image[None])[0, target])


def idsds(model, image, saliency, target, grid=4):
    """Hesse et al. (2024): Spearman's correlation of patch sums with the falls of the logit; SciPy's."""
    _, height, width = image.shape
    sums, falls = [], []
    for row in range(grid):
        for column in range(grid):
            patch = [
                (i, j)
                for i in range(height)
                for j in range(width)
                if (i * grid // height, j * grid // width) == (row, column)
            ]
            sums.append(sum(float(saliency[pixel]) for pixel in patch))
            falls.append(logit(model, image, target) - logit(model, without(image, patch, 0.0), target))
    return spearmanr(sums, falls).statistic


def sensitivity_n(model, image, saliency, target, subsets):
    """Ancona et al. (2018): Pearson's correlation of sums with the falls of the logit, for subsets of one size."""
    whole = logit(model, image, target)
    sums = [sum(float(saliency[pixel]) for pixel in subset) for subset in subsets]
    falls = [whole - logit(model, without(image, subset, 0.0), target) for subset in subsets]
    return pearsonr(sums, falls).statistic


def monotonicity_correlation(model, image, saliency, target, grid, sources):
    """Nguyen and Martínez (2020): magnitudes of patches against mean squared changes of the probability."""
    _, height, width = image.shape
    whole, magnitudes, effects = probability(model, image, target), [], []
    for row in range(grid):
        for column in range(grid):
            magnitude, changes = 0.0, [image.clone() for _ in sources]
            for i in range(height):
                for j in range(width):
                    if (i * grid // height, j * grid // width) == (row, column):
                        magnitude += float(saliency[i, j])
                        for changed, source in zip(changes, sources, strict=True):
                            changed[:, i, j] = image.flatten(1)[:, source[i * width + j]]
            magnitudes.append(abs(magnitude))
            effects.append(sum((whole - probability(model, changed, target)) ** 2 for changed in changes))
    return spearmanr(magnitudes, effects).statistic


def part_rank(model, image, saliency, target, parts, behind, importance):
    """Hesse et al. (2023), single deletion: SciPy's correlation of sums of parts with the falls of the logit."""
    values, falls = [], []
    for part in range(1, int(parts.max()) + 1):
        pixels = [(i, j) for i in range(image.shape[1]) for j in range(image.shape[2]) if parts[i, j] == part]
        if not pixels:
            continue
        removed = image.clone()
        for i, j in pixels:
            removed[:, i, j] = behind[:, i, j]
        total = sum(float(saliency[pixel]) for pixel in pixels)
        values.append(total / len(pixels) if importance == "mean" else total)
        falls.append(logit(model, image, target) - logit(model, removed, target))
    return spearmanr(values, falls).statistic


def saco(model, image, saliency, target, groups):
    """Wu et al. (2024), Algorithm 1, for as many groups as divide the pixels."""
    order, mean = pixel_order(saliency), image.mean((1, 2))
    size = len(order) // groups
    parts = [order[k * size : (k + 1) * size] for k in range(groups)]
    salience = [sum(float(saliency[pixel]) for pixel in part) for part in parts]
    whole = probability(model, image, target)
    fall = [whole - probability(model, without(image, part, mean), target) for part in parts]
    coefficient = total = 0.0
    for i in range(groups - 1):
        for j in range(i + 1, groups):
            weight = salience[i] - salience[j]
            if fall[i] < fall[j]:
                weight = -weight
            coefficient += weight
            total += abs(weight)
    return coefficient / total


def f_fidelity(model, image, saliency, target, sizes, alpha, beta, fields):
    """Zheng et al. (2024): both fidelities, of pixels drawn by ``fields`` of numbers in [0, 1]."""
    order, whole = pixel_order(saliency), probability(model, image, target)
    plus, minus = [], []
    for size in sizes:
        count = max(1, round(size * len(order)))
        for among, falls in ((order[:count], plus), (order[count:], minus)):
            share = min(alpha, beta * len(order) / max(1, len(among)))
            for field in fields:
                gone = [pixel for pixel in among if field[pixel] < share]
                falls.append(whole - probability(model, without(image, gone, 0.0), target))
    return sum(plus) / len(plus), sum(minus) / len(minus)


def unordered(trial):
    """A map of which no patch has more than another, or a model that sees none go: of either there is no order."""
    grid = trial.parameters.get("grid_size", 4)
    found = []
    for one, score in zip(trial.maps.astype(np.float64), trial.scores, strict=True):
        peak = np.abs(one).max() or 1.0
        rows, columns = (np.arange(size) * min(grid, size) // size for size in one.shape)
        sums = np.zeros((rows.max() + 1, columns.max() + 1))
        np.add.at(sums, (rows[:, None], columns[None]), one / peak)
        flat = (sums == sums.flat[0]).all() or (one == one.flat[0]).all()
        found.append(bool(flat or math.isnan(score)))
    return found
