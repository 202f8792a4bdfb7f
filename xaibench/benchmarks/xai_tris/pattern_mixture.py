"""Exact distribution of the pixels of a generated data set, from which pixels can be redrawn.

A sample of XAI-TRIS is one of ``K`` patterns (:mod:`.patterns`) combined with Gaussian noise. Given the pattern, the
pixels are Gaussian, for white and for correlated noise. If there are several patterns, the distribution is a mixture:

    x | k  ~  N(m_k, S_k C S_k),   k with probability p_k,   C = (G Gᵀ) ⊗ (G Gᵀ) + ε² I

with one factor ``G Gᵀ`` per axis. ``G`` is the smoothing matrix of the noise (the identity for white noise). For the
sum (LIN, RIGID, XOR), the noise has one scale; for the product (MULT), the scale depends on the pattern:

    m_k = α A_k / (‖A‖ c),  S_k = (1 − α) / (‖E‖ c) I        and        m_k = 0,  S_k = diag(1 − α a_k) / c

``c`` is the largest absolute value, by which the data set is divided at the end.

* From its **marginal** distribution, a block ``B`` of pixels is drawn as ``k ~ p``, then ``x_B ~ N(m_k, S_k C S_k)_B``,
  that is, as in another sample and independent of the rest of the image.
* From its **conditional** distribution given all other pixels ``R``: with ``Λ = C⁻¹``, ``z_k = S_k⁻¹ (x − m_k)`` and
  ``y_k = Λ z_k``, the pattern is drawn from its posterior, ``k ~ p(k | x_R) ∝ p_k N(x_R; m_k, (S_k C S_k)_RR)``, and
  then

      z_B  =  z_kB − Λ_BB⁻¹ y_kB + Λ_BB^(−1/2) η,   η ~ N(0, I),
      log N(x_R; m_k, ·)  =  −½ (z_kᵀ y_k − y_kBᵀ Λ_BB⁻¹ y_kB) − Σ_R log S_k + const

  If the other pixels determine the pattern (correlated noise), this is the conditional given the pattern.

Departures: ‖E‖ and ``c`` are computed from the whole data set, of which each sample is one of thousands. Given them, a
sample is Gaussian up to an error of that order, and a redrawn pixel may be slightly above 1. ``ε`` is the rounding of
float32, 2^-24.4 of the noise: with smoothing over most of the image, the other pixels determine a pixel up to this
error, and without it C would not be invertible. A test checks that the variance of the images agrees along every
direction.

Source: the mixture follows from the definition of the data sets; Rasmussen and Williams, Gaussian Processes for Machine
Learning (2006), equations A.6 and A.11 for the conditional.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from xaibench.benchmarks.xai_tris.patterns import transform_axis

_Floats = NDArray[np.float64]
_Indices = NDArray[np.int64]

#: Relative error of a pixel by three roundings to float32. One has a standard deviation of a unit in the last place
#: divided by √12. The mean square of that unit is 3 / (4 ln 4) · 2^-46 of the square of a number whose logarithm is
#: uniform.
ROUNDING = 2.0**-23 * math.sqrt(3 * 3 / (4 * math.log(4)) / 12)


@dataclass(frozen=True, eq=False)
class PatternMixture:
    """The distribution of one image of a generated data set.

    Args:
        means: ``[K, H, W]`` noise-free image of each pattern, or ``[K, D, H, W]`` of volumes.
        scales: Factor of the noise of each pixel for each pattern, in the same shape.
        smoothing: ``[H, H]`` smoothing matrix ``G`` of images with equal sides; it smooths the noise along each axis.
        shares: ``[K]`` probabilities of the patterns.

    Example:
        >>> white = PatternMixture(np.zeros((1, 2, 2)), np.ones((1, 2, 2)), np.eye(2), np.ones(1))
        >>> image, middle = np.full((1, 1, 2, 2), 9.0), np.full((1, 3, 2), 0.5)
        >>> (redrawn,) = white.redrawn(image, [np.array([3])], [middle], given_others=True)
        >>> redrawn.shape, abs(round(float(redrawn[0, 0, 0]), 9))  # independent of the other pixels
        ((1, 3, 1), 0.0)
    """

    means: _Floats
    scales: _Floats
    smoothing: _Floats
    shares: _Floats

    @property
    def image_shape(self) -> tuple[int, ...]:
        """``(1, H, W)`` of the images, or ``(1, D, H, W)`` of volumes."""
        return 1, *self._sides

    @property
    def _sides(self) -> tuple[int, ...]:
        return self.means.shape[1:]

    def redrawn(
        self,
        images: NDArray[np.floating[Any]],
        blocks: Sequence[_Indices],
        uniform: Iterable[_Floats],
        *,
        given_others: bool,
    ) -> Iterator[_Floats]:
        """Redraw blocks of pixels, each block on its own with all other pixels unchanged.

        Args:
            images: ``[N, 1, H, W]``.
            blocks: Pixels ``[b]`` of each block, as indices into the flattened image.
            uniform: Uniform random numbers in (0, 1) for each block, ``[N, M, 1 + b]`` for M draws per image. The first
                number selects the pattern, the others are transformed to normal ones.
            given_others: Draw from the conditional distribution given all other pixels of the image instead of from the
                marginal one.

        Yields:
            ``[N, M, b]`` values for each block.
        """
        means, scales = (table.reshape(len(table), -1) for table in (self.means, self.scales))
        observed = self._observe(np.asarray(images, np.float64)) if given_others else None
        for places, numbers in zip(blocks, uniform, strict=True):
            normal = ndtri(numbers[..., 1:])
            if observed is None or len(places) == means.shape[1]:
                kinds = np.searchsorted(np.cumsum(self.shares)[:-1], numbers[..., 0], side="right")
                noise = normal @ _matrix_root(self._covariance(places)).T
            else:
                odds, centers, root = self._condition(observed, places)
                kinds = _draw_kinds(odds, numbers[..., 0])
                noise = np.take_along_axis(centers, kinds[..., None], axis=1) + normal @ root.T
            yield means[:, places][kinds] + scales[:, places][kinds] * noise

    @cached_property
    def _spectrum(self) -> tuple[_Floats, _Floats, float]:
        """Eigenvectors ``[H, H]`` and eigenvalues ``[H]`` of ``G Gᵀ``, and ``ε²``."""
        vectors, values, _ = np.linalg.svd(np.asarray(self.smoothing, np.float64))
        variances = (vectors**2 @ values**2).mean() ** len(self._sides)  # mean variance of a pixel
        return vectors, values**2, ROUNDING**2 * float(variances)

    @cached_property
    def _wave_variances(self) -> _Floats:
        """Variances of the products of eigenvectors, one per axis, in the shape of an image."""
        _, values, _ = self._spectrum
        return functools.reduce(np.multiply.outer, [values] * len(self._sides))

    @cached_property
    def _scales(self) -> _Floats:
        """The scales as divisors, bounded below: a pattern may set the noise of a pixel to 0."""
        divisors: _Floats = np.maximum(self.scales, ROUNDING * self.scales.max())
        return divisors

    def _covariance(self, places: _Indices) -> _Floats:
        """Return the covariance of the noise at some pixels, ``[b, b]``."""
        vectors, values, rounding = self._spectrum
        along = (vectors * values) @ vectors.T
        factors = (along[np.ix_(index, index)] for index in np.unravel_index(places, self._sides))
        return functools.reduce(np.multiply, factors) + rounding * np.eye(len(places))

    def _precision(self, places: _Indices) -> _Floats:
        """Return the rows and columns of some pixels of the inverse covariance, ``[b, b]``."""
        vectors, _, rounding = self._spectrum
        waves = np.ones((len(places), 1))
        for index in np.unravel_index(places, self._sides):
            waves = (waves[:, :, None] * vectors[index][:, None, :]).reshape(len(places), -1)
        found: _Floats = (waves / (self._wave_variances + rounding).ravel()) @ waves.T
        return found

    def _observe(self, images: _Floats) -> _Observed:
        """Return the quantities of the images that are the same for all blocks."""
        vectors, _, rounding = self._spectrum
        scaled = (images - self.means) / self._scales  # [N, K, *sides]
        waves = scaled
        for axis in range(2, scaled.ndim):
            waves = transform_axis(waves, vectors.T, axis)
        weighted = waves / (self._wave_variances + rounding)
        for axis in range(2, scaled.ndim):
            weighted = transform_axis(weighted, vectors, axis)
        return _Observed(*(each.reshape(*scaled.shape[:2], -1) for each in (scaled, weighted)))

    def _condition(self, observed: _Observed, places: _Indices) -> tuple[_Floats, _Floats, _Floats]:
        """Return pattern probabilities ``[N, K]``, means ``[N, K, b]`` and root covariance ``[b, b]`` of a block."""
        values, vectors = np.linalg.eigh(self._precision(places))
        weighted = observed.weighted[..., places] @ (vectors / np.sqrt(values))  # Λ_BB^(-1/2) y_B
        logs = np.log(self._scales).reshape(len(self.shares), -1)
        outside = logs.sum(axis=1) - logs[:, places].sum(axis=1)
        odds = np.log(self.shares) - outside - (observed.square - (weighted**2).sum(axis=-1)) / 2
        odds = np.exp(odds - odds.max(axis=1, keepdims=True))
        root = vectors / np.sqrt(values)
        return odds / odds.sum(axis=1, keepdims=True), observed.scaled[..., places] - weighted @ root.T, root


class _Observed:
    """The noise ``z`` of each image for each pattern ``[N, K, D]``, ``y = Λ z`` (``weighted``), and ``zᵀ y``."""

    def __init__(self, scaled: _Floats, weighted: _Floats) -> None:
        self.scaled, self.weighted = scaled, weighted
        self.square = (scaled * weighted).sum(axis=-1)


def _draw_kinds(odds: _Floats, numbers: _Floats) -> _Indices:
    """Return the pattern selected by each uniform number ``[N, M]``, for pattern probabilities ``[N, K]``."""
    ends = np.cumsum(odds, axis=1)
    chosen = [np.searchsorted(ends[n, :-1], numbers[n], side="right") for n in range(len(numbers))]
    return np.array(chosen, dtype=np.int64).reshape(numbers.shape)


def _matrix_root(covariance: _Floats) -> _Floats:
    """Return ``R`` with ``R Rᵀ`` equal to the covariance; negative eigenvalues from rounding are set to 0."""
    values, vectors = np.linalg.eigh(covariance)
    root: _Floats = vectors * np.sqrt(np.maximum(values, 0))
    return root
