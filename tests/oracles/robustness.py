"""Infidelity (the authors' formula, loop by loop) and the metrics that ask the explainer."""

import numpy as np
from scipy.stats import spearmanr


def all_squares(height, width):
    """Indicators of every square of side 1 to 10/28 of the image, as in the authors' ``get_imageset``."""
    fields = []
    for side in range(1, max(1, round(10 / 28 * min(height, width))) + 1):
        for i in range(height - side + 1):
            for j in range(width - side + 1):
                field = np.zeros((height, width))
                field[i : i + side, j : j + side] = 1
                fields.append(field)
    return fields


def infidelity(dots, falls):
    """Yeh et al. 2019 with the authors' optimal scale, given I'Phi and f(x) - f(x - I) of each disturbance."""
    dots, falls = np.asarray(dots), np.asarray(falls)
    beta = np.mean(falls * dots) / np.mean(dots * dots)
    return np.mean(np.square(falls - beta * dots))


def mean_change(original, changed):
    """Data consistency of one image: mean over the masks of the mean absolute change of a pixel."""
    return np.mean([np.mean([abs(a - b) for a, b in zip(original.flat, m.flat, strict=True)]) for m in changed])


def largest_change(original, changed):
    """Sensitivity of one image."""
    return max(np.linalg.norm(m - original) / np.linalg.norm(original) for m in changed)


def mean_rank_correlation(original, changed):
    """Parameter randomization of one image."""
    return np.mean([spearmanr(original.ravel(), m.ravel()).statistic for m in changed])


def without_ranks(trial):
    """In which trials of a metric the map is constant: it has no ranks, and an entropy of 0."""
    maps = np.abs(trial.maps) if trial.parameters["magnitude"] else trial.maps
    return [bool((one == one.flat[0]).all()) for one in maps]
