"""RISE and Occlusion written again, slowly, one mask at a time."""

import itertools
import math

import numpy as np
import torch
from scipy.ndimage import zoom


def masks(numbers, size, s, p):
    """Masks as the released code of RISE makes them, from s² + 2 uniform numbers each (s³ + 3 for volumes).

    ``skimage.transform.resize(grid, up, order=1, mode="reflect")`` is ``scipy.ndimage.zoom`` with ``mode="mirror"``.
    """
    cell = [math.ceil(side / s) for side in size]
    result = []
    for row in numbers:
        grid = (row[: -len(size)] < p).reshape([s] * len(size)).astype(float)
        factors = [(s + 1) * c / s for c in cell]
        large = zoom(grid, factors, order=1, mode="mirror", grid_mode=True)
        first = [int(number * side) for number, side in zip(row[-len(size) :], cell, strict=True)]
        result.append(large[tuple(slice(at, at + side) for at, side in zip(first, size, strict=True))])
    return np.stack(result)


def rise(model, image, target, all_masks, p):
    """Petsiuk et al. 2018, equation 6: the sum of f(I ⊙ M) M over N masks, by N p."""
    total = torch.zeros(image.shape[1:], dtype=torch.float64)
    for mask in torch.from_numpy(all_masks):
        with torch.no_grad():
            score = model((image * mask.to(image))[None])[0, target].item()
        total += score * mask
    return total / (len(all_masks) * p)


def occlusion(model, image, target, window, stride, baseline):
    """The mean fall of the output over the windows that cover each pixel."""
    sides = image.shape[1:]

    def value(picture):
        with torch.no_grad():
            return model(picture[None])[0, target].item()

    total, times = torch.zeros(sides, dtype=image.dtype), torch.zeros(sides, dtype=image.dtype)
    for corner in itertools.product(*(starts(side, window, stride) for side in sides)):
        place = tuple(slice(at, at + window) for at in corner)
        covered = image.clone()
        covered[:, *place] = baseline
        total[place] += value(image) - value(covered)
        times[place] += 1
    return total / times


def starts(side, window, stride):
    """Where windows begin along a side, up to the first that reaches its end."""
    found = [0]
    while found[-1] + window < side:
        found.append(found[-1] + stride)
    return found
