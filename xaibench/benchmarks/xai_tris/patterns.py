"""The signal of XAI-TRIS: shapes (:mod:`.shapes`) at their positions, smoothing, and ground-truth masks.

The *kind* of a sample is the index of its pattern among all patterns of its scenario. Of tetracubes, read tripod for T
and screw for L.

==============  =======================================================  ====================
scenario        kinds                                                    class of kind ``k``
==============  =======================================================  ====================
lin, mult       T, L                                                     ``k``
xor             (T, L) signs (+,+), (−,−), (+,−), (−,+)                  ``k // 2``
rigid           T at each placement, then L at each placement            ``k // placements``
==============  =======================================================  ====================

Source: Clark, Wilming and Haufe (2023), section 2; the 8×8 sets of its appendix do not smooth the pattern, nor do the
16×16×16 sets, which the paper does not have.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from xaibench.benchmarks.xai_tris.shapes import (
    SHAPE_NAMES,
    SHAPES,
    Placement,
    fixed_placements,
    rotated,
    rotation_count,
)

Scenario: TypeAlias = Literal["lin", "mult", "rigid", "xor"]
#: Pixels along each axis.
Size: TypeAlias = Literal[8, 16, 64]

SCENARIOS: tuple[Scenario, ...] = get_args(Scenario)
SIZES: tuple[Size, ...] = get_args(Size)

#: Class names, in the order of their index.
XOR_CLASSES = ("same sign", "opposite sign")
#: Signs of the two shapes in the four kinds of XOR.
SIGNS = ((1, 1), (-1, -1), (1, -1), (-1, 1))
#: The support of a pattern are the pixels above this fraction of its largest absolute value.
SUPPORT_CUT = 0.05
#: Weights of the Gaussian filters are multiples of this.
WEIGHT_STEP = 2.0**-22


def image_sides(size: Size) -> tuple[int, ...]:
    """Return the pixels along each axis: images are 8×8 or 64×64, volumes 16×16×16.

    Example:
        >>> image_sides(8), image_sides(16)
        ((8, 8), (16, 16, 16))
    """
    return (size,) * (3 if size == 16 else 2)


@lru_cache
def smoothing_matrix(size: int, sigma: float) -> NDArray[np.float64]:
    """Return the matrix ``G`` for which ``G @ image @ G.T`` is ``scipy.ndimage.gaussian_filter(image, sigma)``.

    The filter is linear and separable, so it is determined by its response to the unit vectors, including the
    reflecting border. Smoothing is then two products of small matrices for any sigma. The weights are rounded to
    multiples of :data:`WEIGHT_STEP`, so that sums of products with them are exact.

    Example:
        >>> smoothing_matrix(8, 3.0).sum(axis=1)
        array([1., 1., 1., 1., 1., 1., 1., 1.])
    """
    weights = gaussian_weights(sigma)
    radius = len(weights) // 2
    matrix = np.zeros((size, size))
    for offset, weight in zip(range(-radius, radius + 1), weights, strict=True):
        reached = np.arange(offset, size + offset) % (2 * size)
        matrix[np.arange(size), np.minimum(reached, 2 * size - 1 - reached)] += weight
    matrix.setflags(write=False)
    return matrix


def transform_axis(values: NDArray[np.float64], matrix: NDArray[np.float64], axis: int) -> NDArray[np.float64]:
    """Return the products of a matrix with the vectors of ``values`` along an axis."""
    if axis == values.ndim - 1:
        return values @ matrix.T
    before, after = values.shape[: axis + 1], values.shape[axis + 1 :]
    return np.asarray((matrix @ values.reshape(*before, -1)).reshape(*before, *after))


def gaussian_weights(sigma: float) -> list[float]:
    """Return the weights of a Gaussian filter cut at 4 sigma, as multiples of :data:`WEIGHT_STEP` that sum to 1.

    A last-bit error of ``exp`` would have to be 2^28 times larger to change the rounding of a weight.
    """
    radius = int(4 * sigma + 0.5)
    exact = [math.exp(-0.5 * (offset / sigma) ** 2) for offset in range(-radius, radius + 1)]
    total = math.fsum(exact)
    units = [round(each / total / WEIGHT_STEP) for each in exact]
    units[radius] += round(1 / WEIGHT_STEP) - sum(units)
    return [unit * WEIGHT_STEP for unit in units]


@dataclass(frozen=True)
class Patterns:
    """All patterns of one scenario and image size.

    Args:
        scenario: ``"lin"``, ``"mult"``, ``"rigid"`` or ``"xor"``.
        size: 8, 64, or 16 for volumes of 16×16×16.
        layout: Number of the layout of LIN, MULT and XOR (:func:`.shapes.fixed_placements`); ignored for RIGID.

    Example:
        >>> table, where = Patterns("lin", 8).render(np.array([0, 0, 0]))
        >>> table[where].shape
        (3, 8, 8)
        >>> table[0, :5, :4].astype(int)
        array([[0, 0, 0, 0],
               [0, 1, 0, 0],
               [0, 1, 1, 0],
               [0, 1, 0, 0],
               [0, 0, 0, 0]])
    """

    scenario: Scenario
    size: Size
    layout: int = 0

    @property
    def sides(self) -> tuple[int, ...]:
        """Pixels along each axis."""
        return image_sides(self.size)

    @property
    def block(self) -> int:
        """Pixels along each axis of a cell."""
        if self.size == 64:
            return 4 if self.scenario == "rigid" else 8
        return self.size // 8

    @property
    def fixed(self) -> tuple[Placement, ...]:
        """Fixed placements of both shapes in LIN, MULT and XOR, in pixels."""
        placed = fixed_placements(self.layout, len(self.sides))
        return tuple(Placement(turns, tuple(self.block * cell for cell in corner)) for turns, corner in placed)

    @property
    def sigma(self) -> float | None:
        """Standard deviation of the Gaussian smoothing; None = not smoothed."""
        return 1.5 if self.size == 64 else None

    @cached_property
    def placements(self) -> tuple[Placement, ...]:
        """All placements in pixels for which the whole shape is inside the image."""
        return tuple(
            Placement(turns, corner)
            for turns in range(rotation_count(len(self.sides)))
            for corner in itertools.product(
                *(range(self.size - side + 1) for side in self._rotated_shapes[0, turns].shape)
            )
        )

    @property
    def cases(self) -> int:
        """Number of cases, which are equally frequent in every split: the classes, or for XOR the sign pairs."""
        return 4 if self.scenario == "xor" else 2

    @property
    def kinds(self) -> int:
        """Number of patterns, all equally frequent."""
        return self.cases * (len(self.placements) if self.scenario == "rigid" else 1)

    def draw(self, cases: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
        """Draw the kind of each sample, given its case. Random only for RIGID (uniform over placements)."""
        if self.scenario != "rigid":
            return cases
        return cases * len(self.placements) + rng.integers(len(self.placements), size=len(cases))

    @property
    def classes(self) -> tuple[str, ...]:
        """Class names in the order of their index."""
        return XOR_CLASSES if self.scenario == "xor" else SHAPE_NAMES[len(self.sides)]

    def targets(self, cases: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the class of each case."""
        return cases // 2 if self.scenario == "xor" else cases

    def render(self, kinds: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Return the patterns of ``[N]`` kinds, in [−1, 1], smoothed and set to 0 outside of their support.

        Most samples share a few patterns, so every pattern is computed once. The result is a table ``[P, *sides]`` and
        indices ``[N]`` into it; ``table[where]`` is ``[N, *sides]``.
        """
        unique, where = np.unique(kinds, return_inverse=True)
        patterns = np.stack([self._render_kind(int(kind)) for kind in unique])
        patterns[~support(patterns)] = 0
        return patterns, where

    def truth(self, table: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Return the ground-truth mask of each pattern of a rendered table, ``[P, *sides]``, True = important.

        For RIGID, the mask is the support of the sample's shape. Otherwise it is the union of the supports of both
        shapes in every sample, because the absence of a shape is as informative as its presence. The sign of a pattern
        does not matter.
        """
        if self.scenario == "rigid":
            return np.asarray(table != 0)
        return np.broadcast_to(_both_supports(self.size, self.layout), table.shape)

    @cached_property
    def _rotated_shapes(self) -> dict[tuple[int, int], NDArray[np.float64]]:
        """Both shapes in all rotations, in pixels: ``{(shape, turns): [h, w]}``."""
        axes = len(self.sides)
        cell = np.ones((self.block,) * axes)
        return {
            (shape, turns): np.kron(rotated(SHAPES[axes][shape], turns), cell).astype(np.float64)
            for shape in (0, 1)
            for turns in range(rotation_count(axes))
        }

    def _render_kind(self, kind: int) -> NDArray[np.float64]:
        """Return a smoothed pattern, before the cut to its support, by columns of the smoothing matrix."""
        smooth = np.eye(self.size) if self.sigma is None else smoothing_matrix(self.size, self.sigma)
        if self.scenario == "rigid":
            shape, placement = divmod(kind, len(self.placements))
            shown = [(shape, 1, self.placements[placement])]
        elif self.scenario == "xor":
            shown = [(shape, SIGNS[kind][shape], self.fixed[shape]) for shape in (0, 1)]
        else:
            shown = [(kind, 1, self.fixed[kind])]
        image = np.zeros(self.sides)
        for shape, sign, (turns, corner) in shown:
            smoothed = self._rotated_shapes[shape, turns]
            for start, side in zip(corner, smoothed.shape, strict=True):
                # The first axis becomes the last one, so that each is smoothed once and their order is restored.
                smoothed = np.tensordot(smoothed, smooth[:, start : start + side], axes=(0, 1))
            image += sign * smoothed
        return image


@lru_cache
def _both_supports(size: Size, layout: int) -> NDArray[np.bool_]:
    """Return the union of the supports of both shapes at their fixed placements."""
    table, _ = Patterns("lin", size, layout).render(np.array([0, 1]))
    return np.asarray((table != 0).any(axis=0))


def support(patterns: NDArray[np.floating]) -> NDArray[np.bool_]:
    """Return where ``|pattern|`` exceeds 5 % of its maximum, per pattern: ``[N, ...]`` to bool ``[N, ...]``.

    The paper truncates the infinite support of the smoothed pattern in this way. The absolute value keeps the negative
    patterns of XOR, which the released code loses.

    Example:
        >>> support(np.array([[[0.0, 0.04, -1.0]]]))
        array([[[False, False,  True]]])
    """
    magnitude = np.abs(patterns)
    return np.asarray(magnitude > SUPPORT_CUT * magnitude.max(axis=tuple(range(1, patterns.ndim)), keepdims=True))
