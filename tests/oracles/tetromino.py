"""XAI-TRIS written again, slowly and literally: one sample after another, one formula after another.

It shares no code with the package. What is random is given to it: which shape lies where, and the white noise.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.ndimage import correlate1d

T = ["#.", "##", "#."]
L = ["#.", "#.", "##"]
SHAPES = {"T": T, "L": L}
FIXED = {8: {"T": (1, 1), "L": (4, 5)}, 64: {"T": (8, 8), "L": (32, 40)}}


@dataclass(frozen=True)
class Placed:
    """One tetromino: letter, sign, quarter turns against the clock, and its top-left corner."""

    letter: str
    sign: int
    turns: int
    row: int
    column: int


def cell_size(scenario: str, size: int) -> int:
    if size == 8:
        return 1
    return 4 if scenario == "rigid" else 8


def turn(rows: list[str]) -> list[str]:
    """A quarter turn against the clock: the last column becomes the first row."""
    return ["".join(row[column] for row in rows) for column in reversed(range(len(rows[0])))]


def draw(placed: Placed, cell: int, size: int) -> np.ndarray:
    rows = SHAPES[placed.letter]
    for _ in range(placed.turns):
        rows = turn(rows)
    image = np.zeros((size, size))
    for i, row in enumerate(rows):
        for j, symbol in enumerate(row):
            if symbol == "#":
                for y in range(cell):
                    for x in range(cell):
                        image[placed.row + i * cell + y, placed.column + j * cell + x] = placed.sign
    return image


def smooth(image: np.ndarray, sigma: float) -> np.ndarray:
    """A Gaussian filter, cut at 4 sigma, whose weights are multiples of 2^-22 that sum to 1."""
    radius = round(4 * sigma)
    weights = np.exp(-(np.arange(-radius, radius + 1) ** 2) / (2 * sigma**2))
    weights = np.round(weights / weights.sum() * 2**22)
    weights[radius] += 2**22 - weights.sum()
    along_rows = correlate1d(image, weights / 2**22, axis=0, mode="reflect")
    return correlate1d(along_rows, weights / 2**22, axis=1, mode="reflect")


def smooth_and_cut(image: np.ndarray, size: int) -> np.ndarray:
    if size == 64:
        image = smooth(image, 1.5)
    return np.where(np.abs(image) > 0.05 * np.abs(image).max(), image, 0.0)


def pattern(scenario: str, size: int, shapes: list[Placed]) -> np.ndarray:
    image = np.zeros((size, size))
    for placed in shapes:
        image = image + draw(placed, cell_size(scenario, size), size)
    return smooth_and_cut(image, size)


def fixed_shapes(size: int) -> list[Placed]:
    """T and L where the paper has them."""
    return [Placed(letter, 1, 0, *FIXED[size][letter]) for letter in "TL"]


def ground_truth(scenario: str, size: int, shapes: list[Placed], fixed: list[Placed] | None = None) -> np.ndarray:
    if scenario == "rigid":
        return pattern(scenario, size, shapes) != 0
    t, l = (  # noqa: E741
        smooth_and_cut(draw(placed, cell_size(scenario, size), size), size) for placed in fixed or fixed_shapes(size)
    )
    return (t != 0) | (l != 0)


def background(kind: str, size: int, white: np.ndarray) -> np.ndarray:
    if kind == "white":
        return white
    return smooth(white, {8: 3, 64: 10}[size])


def generate(
    scenario: str,
    kind: str,
    size: int,
    alpha: float,
    shapes: list[list[Placed]],
    white: np.ndarray,
    fixed: list[Placed] | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Images ``[N, size, size]`` float64 and ground truth bool; ``fixed`` are T and L of another layout."""
    a = [pattern(scenario, size, placed) for placed in shapes]
    e = [background(kind, size, noise) for noise in white.astype(np.float64)]
    masks = np.stack([ground_truth(scenario, size, placed, fixed) for placed in shapes])
    if scenario == "mult":
        x = [(1 - alpha * a_n) * e_n for a_n, e_n in zip(a, e, strict=True)]
    else:
        norm_a = sum((a_n**2).sum() for a_n in a) ** 0.5
        norm_e = sum((e_n**2).sum() for e_n in e) ** 0.5
        x = [alpha * a_n / norm_a + (1 - alpha) * e_n / norm_e for a_n, e_n in zip(a, e, strict=True)]
    images = np.stack(x)
    return images / np.abs(images).max(), masks
