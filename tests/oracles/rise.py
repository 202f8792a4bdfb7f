"""RISE and Occlusion written again, slowly, one mask at a time."""

import math

import numpy as np
import torch
from scipy.ndimage import zoom


def masks(numbers, size, s, p):
    """Masks as the released code of RISE makes them, from s² + 2 uniform numbers each.

    ``skimage.transform.resize(grid, up, order=1, mode="reflect")`` is ``scipy.ndimage.zoom`` with ``mode="mirror"``.
    """
    cell = [math.ceil(side / s) for side in size]
    result = []
    for row in numbers:
        grid = (row[: s * s] < p).reshape(s, s).astype(float)
        factors = [(s + 1) * c / s for c in cell]
        large = zoom(grid, factors, order=1, mode="mirror", grid_mode=True)
        top, left = int(row[-2] * cell[0]), int(row[-1] * cell[1])
        result.append(large[top : top + size[0], left : left + size[1]])
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
    height, width = image.shape[1:]

    def value(picture):
        with torch.no_grad():
            return model(picture[None])[0, target].item()

    total, times = torch.zeros(height, width, dtype=image.dtype), torch.zeros(height, width, dtype=image.dtype)
    top = 0
    while True:
        left = 0
        while True:
            covered = image.clone()
            covered[:, top : top + window, left : left + window] = baseline
            total[top : top + window, left : left + window] += value(image) - value(covered)
            times[top : top + window, left : left + window] += 1
            if left + window >= width:
                break
            left += stride
        if top + window >= height:
            break
        top += stride
    return total / times
