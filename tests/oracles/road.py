"""ROAD (Rong et al. 2022), section 4.3: the removed pixels solve a dense linear system, one equation for each."""

import numpy as np


def imputed(image, removed):
    """``image`` [C, H, W] with the ``removed`` [H, W] pixels at the weighted mean of their neighbors."""
    channels, height, width = image.shape
    unknown = [(i, j) for i in range(height) for j in range(width) if removed[i, j]]
    matrix, right = np.zeros((len(unknown), len(unknown))), np.zeros((len(unknown), channels))
    for row, (i, j) in enumerate(unknown):
        neighbors = [
            (i + di, j + dj, 1 / 6 if di == 0 or dj == 0 else 1 / 12)
            for di in (-1, 0, 1)
            for dj in (-1, 0, 1)
            if (di, dj) != (0, 0) and 0 <= i + di < height and 0 <= j + dj < width
        ]
        total = sum(weight for _, _, weight in neighbors)
        matrix[row, row] = 1
        for a, b, weight in neighbors:
            if removed[a, b]:
                matrix[row, unknown.index((a, b))] -= weight / total
            else:
                right[row] += weight / total * image[:, a, b]
    filled = image.copy()
    for (i, j), value in zip(unknown, np.linalg.solve(matrix, right), strict=True):
        filled[:, i, j] = value
    return filled
