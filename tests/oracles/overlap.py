"""The overlap scores and the pointing game, from sets of pixels."""

import itertools
import math


def _pixels(mask):
    height, width = mask.shape
    return {(y, x) for y in range(height) for x in range(width) if mask[y, x]}


def _sets(values, mask, threshold):
    return _pixels(values > threshold), _pixels(mask)


def iou(values, mask, threshold):
    marked, truth = _sets(values, mask, threshold)
    return len(marked & truth) / len(marked | truth) if truth else math.nan


def precision(values, mask, threshold):
    marked, truth = _sets(values, mask, threshold)
    return len(marked & truth) / len(marked) if truth and marked else math.nan


def recall(values, mask, threshold):
    marked, truth = _sets(values, mask, threshold)
    return len(marked & truth) / len(truth) if truth else math.nan


def f1(values, mask, threshold):
    """The harmonic mean; 0 where precision or recall is."""
    if not _pixels(mask):
        return math.nan
    p, r = precision(values, mask, threshold), recall(values, mask, threshold)
    return 2 * p * r / (p + r) if r > 0 else 0.0


def at_area(score, values, mask):
    """The score of the k largest pixels, where k is the size of the mask, averaged over all choices among ties."""
    k = len(_pixels(mask))
    if not k or not values.any():
        return math.nan
    ranked = sorted(_pixels(mask | True), key=lambda pixel: -values[pixel])
    cut = values[ranked[k - 1]]
    above = [pixel for pixel in ranked if values[pixel] > cut]
    tied = [pixel for pixel in ranked if values[pixel] == cut]
    scores = []
    for chosen in itertools.combinations(tied, k - len(above)):
        marked = mask & False
        for pixel in (*above, *chosen):
            marked[pixel] = True
        scores.append(score(marked, mask, 0))
    return math.fsum(scores) / len(scores)


def hit(values, mask, tolerance):
    """The hit of one of the largest pixels, averaged over which one it is; distances from pixel to pixel."""
    truth = _pixels(mask)
    if not truth or not values.any():
        return math.nan
    largest = _pixels(values == max(values.ravel()))
    near = [any((y - v) ** 2 + (x - u) ** 2 <= tolerance**2 for v, u in truth) for y, x in largest]
    return sum(near) / len(near)
