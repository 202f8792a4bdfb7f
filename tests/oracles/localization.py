"""The localization scores, pixel by pixel from their definitions."""

import itertools
import math


def _pixels(values, mask):
    height, width = mask.shape
    return [(abs(float(values[y, x])), bool(mask[y, x])) for y in range(height) for x in range(width)]


def topk_precision(values, mask):
    """Precision of the k first pixels, averaged over every order of the pixels that a sort by magnitude may leave.

    Every permutation of the image is sorted (stably), so equal pixels come in every order; for up to 8 pixels.
    """
    pixels = _pixels(values, mask)
    k = sum(inside for _, inside in pixels)
    if k == 0 or all(magnitude == 0 for magnitude, _ in pixels):
        return math.nan
    precisions = []
    for order in itertools.permutations(pixels):
        ranked = sorted(order, key=lambda pixel: -pixel[0])
        precisions.append(sum(inside for _, inside in ranked[:k]) / k)
    return sum(precisions) / len(precisions)


def relative_importance(values, mask):
    """The mean magnitude inside, over the mean magnitude of all pixels."""
    pixels = _pixels(values, mask)
    within = [magnitude for magnitude, inside in pixels if inside]
    mean = math.fsum(magnitude for magnitude, _ in pixels) / len(pixels)
    return math.fsum(within) / len(within) / mean if within and mean else math.nan


def mass_accuracy(values, mask):
    """The mass inside over all mass."""
    pixels = _pixels(values, mask)
    whole = math.fsum(magnitude for magnitude, _ in pixels)
    if whole == 0 or not any(inside for _, inside in pixels):
        return math.nan
    return math.fsum(magnitude for magnitude, inside in pixels if inside) / whole
