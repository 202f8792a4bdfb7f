"""What the pixels of a generated set are drawn from, exactly: so that some of them can be drawn again.

A sample of XAI-TRIS is a pattern, of which its scenario knows ``K`` (:mod:`.patterns`), and Gaussian noise. Given the
pattern the pixels are Gaussian, on white noise and on correlated noise alike; where it varies they are a mixture:

    x | k  ~  N(m_k, S_k C S_k),   k with probability p_k,   C = (G Gᵀ) ⊗ (G Gᵀ) + ε² I

with ``G`` what smooths the noise (the identity for white noise), and of the sum (LIN, RIGID, XOR) and the product
(MULT), whose noise is scaled as a whole and where the pattern lies,

    m_k = α A_k / (‖A‖ c),  S_k = (1 − α) / (‖E‖ c) I        and        m_k = 0,  S_k = diag(1 − α a_k) / c

where ``c`` is the largest value that the set is divided by at the end.

* From its **marginal** a block ``B`` of pixels is drawn as ``k ~ p``, then ``x_B ~ N(m_k, S_k C S_k)_B``: as in another
  sample of the set, whatever the rest of this one shows.
* From its **conditional** distribution given all other pixels ``R``: with ``Λ = C⁻¹``, ``z_k = S_k⁻¹ (x − m_k)`` and
  ``y_k = Λ z_k``, the pattern is drawn from what the others say of it,
  ``k ~ p(k | x_R) ∝ p_k N(x_R; m_k, (S_k C S_k)_RR)``, and then

      z_B  =  z_kB − Λ_BB⁻¹ y_kB + Λ_BB^(−1/2) η,   η ~ N(0, I),
      log N(x_R; m_k, ·)  =  −½ (z_kᵀ y_k − y_kBᵀ Λ_BB⁻¹ y_kB) − Σ_R log S_k + const

  Where the others leave no doubt of the pattern (correlated noise), that is the conditional given the pattern.

Departures: ‖E‖ and ``c`` are those of the whole set, of which each sample is one of thousands; given them it is
Gaussian but for a share of that size, and a pixel that is drawn again can come out a little above 1. ``ε`` is the
rounding of float32, 2⁻²⁴ of the noise: smoothed over most of the image, a pixel is known from the others to that and no
better, and without it C could not be inverted. Along every direction the images of a set vary as this says (tested).

Source: the mixture follows from the definition of the sets; Rasmussen and Williams, Gaussian Processes for Machine
Learning (2006), equations A.6 and A.11 for the conditional.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

Floats = NDArray[np.float64]
Places = NDArray[np.int64]

#: What float32 rounds, as a share of the value.
ROUNDING = 2.0**-24


@dataclass(frozen=True, eq=False)
class PatternMixture:
    """The distribution of one image of a generated set.

    Args:
        means: ``[K, H, W]``: the image under each pattern without the noise.
        scales: ``[K, H, W]``: what the noise of a pixel is multiplied by under each pattern.
        smoothing: ``[H, H]`` ``G``, of square images; the noise is ``G @ white @ G.T``.
        shares: ``[K]`` how frequent each pattern is; they sum to 1.

    Example:
        >>> white = PatternMixture(np.zeros((1, 2, 2)), np.ones((1, 2, 2)), np.eye(2), np.ones(1))
        >>> image, middle = np.full((1, 1, 2, 2), 9.0), np.full((1, 3, 2), 0.5)
        >>> (redrawn,) = white.redrawn(image, [np.array([3])], [middle], given_others=True)
        >>> redrawn.shape, float(redrawn[0, 0, 0])  # of independent pixels the others say nothing
        ((1, 3, 1), 0.0)
    """

    means: Floats
    scales: Floats
    smoothing: Floats
    shares: Floats

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """``(1, H, W)`` of the images."""
        _, height, width = self.means.shape
        return 1, height, width

    def redrawn(
        self,
        images: NDArray[np.floating[Any]],
        blocks: Sequence[Places],
        uniform: Iterable[Floats],
        *,
        given_others: bool,
    ) -> Iterator[Floats]:
        """Values of blocks of pixels, each block drawn again by itself, all else as it was.

        Args:
            images: ``[N, 1, H, W]``.
            blocks: Of each block its pixels ``[b]``, as places in the flattened image.
            uniform: For each block ``[N, M, 1 + b]``, M draws for each image: numbers in (0, 1), of which the first
                chooses the pattern and the others become normal ones.
            given_others: Whether from the conditional distribution given all other pixels of the image, or from the
                marginal one.

        Yields:
            ``[N, M, b]`` for each block.
        """
        means, scales = (table.reshape(len(table), -1) for table in (self.means, self.scales))
        seen = self._seen(np.asarray(images, np.float64)) if given_others else None
        for places, numbers in zip(blocks, uniform, strict=True):
            normal = ndtri(numbers[..., 1:])
            if seen is None or len(places) == means.shape[1]:
                kinds = np.searchsorted(np.cumsum(self.shares)[:-1], numbers[..., 0], side="right")
                noise = normal @ _root(self._covariance(places)).T
            else:
                odds, centres, root = self._given(seen, places)
                kinds = _chosen(odds, numbers[..., 0])
                noise = np.take_along_axis(centres, kinds[..., None], axis=1) + normal @ root.T
            yield means[:, places][kinds] + scales[:, places][kinds] * noise

    @cached_property
    def _spectrum(self) -> tuple[Floats, Floats, float]:
        """Of ``G Gᵀ`` the eigenvectors ``[H, H]`` and eigenvalues ``[H]``, and ``ε²``."""
        vectors, values, _ = np.linalg.svd(np.asarray(self.smoothing, np.float64))
        variances = (vectors**2 @ values**2).mean() ** 2  # of a pixel, in the mean over all of them
        return vectors, values**2, ROUNDING**2 * float(variances)

    @cached_property
    def _scales(self) -> Floats:
        """The scales ``[K, H, W]`` to divide by: a pixel that a pattern blots out is known but for its rounding."""
        divisors: Floats = np.maximum(self.scales, ROUNDING * self.scales.max())
        return divisors

    def _covariance(self, places: Places) -> Floats:
        """``C_BB``."""
        vectors, values, rounding = self._spectrum
        along = (vectors * values) @ vectors.T
        row, column = np.divmod(places, len(along))
        found: Floats = along[np.ix_(row, row)] * along[np.ix_(column, column)] + rounding * np.eye(len(places))
        return found

    def _precision(self, places: Places) -> Floats:
        """``Λ_BB``."""
        vectors, values, rounding = self._spectrum
        row, column = np.divmod(places, len(vectors))
        waves = (vectors[row][:, :, None] * vectors[column][:, None, :]).reshape(len(places), -1)
        found: Floats = (waves / (np.outer(values, values) + rounding).ravel()) @ waves.T
        return found

    def _seen(self, images: Floats) -> _Seen:
        """What all blocks of some images share."""
        vectors, values, rounding = self._spectrum
        scaled = (images - self.means) / self._scales  # [N, K, H, W]
        waves = vectors.T @ scaled @ vectors / (np.outer(values, values) + rounding)
        weighed = vectors @ waves @ vectors.T
        return _Seen(*(each.reshape(*scaled.shape[:2], -1) for each in (scaled, weighed)))

    def _given(self, seen: _Seen, places: Places) -> tuple[Floats, Floats, Floats]:
        """Given all but a block: odds ``[N, K]`` of patterns, centres ``[N, K, b]`` root ``[b, b]`` of the noise."""
        values, vectors = np.linalg.eigh(self._precision(places))
        weighed = seen.weighed[..., places] @ (vectors / np.sqrt(values))  # Λ_BB^(-1/2) y_B
        logs = np.log(self._scales).reshape(len(self.shares), -1)
        outside = logs.sum(axis=1) - logs[:, places].sum(axis=1)
        odds = np.log(self.shares) - outside - (seen.square - (weighed**2).sum(axis=-1)) / 2
        odds = np.exp(odds - odds.max(axis=1, keepdims=True))
        root = vectors / np.sqrt(values)
        return odds / odds.sum(axis=1, keepdims=True), seen.scaled[..., places] - weighed @ root.T, root


class _Seen:
    """The noise ``z`` of each image under each pattern, ``[N, K, D]``, what the precision makes of it, and both."""

    def __init__(self, scaled: Floats, weighed: Floats) -> None:
        self.scaled, self.weighed = scaled, weighed
        self.square = (scaled * weighed).sum(axis=-1)


def _chosen(odds: Floats, numbers: Floats) -> Places:
    """Which pattern each number ``[N, M]`` in (0, 1) chooses, of odds ``[N, K]``."""
    ends = np.cumsum(odds, axis=1)
    found = [np.searchsorted(ends[n, :-1], numbers[n], side="right") for n in range(len(numbers))]
    return np.array(found, dtype=np.int64).reshape(numbers.shape)


def _root(covariance: Floats) -> Floats:
    """``R`` with ``R Rᵀ`` the covariance, whatever rounding has left of its smallest eigenvalues."""
    values, vectors = np.linalg.eigh(covariance)
    root: Floats = vectors * np.sqrt(np.maximum(values, 0))
    return root
