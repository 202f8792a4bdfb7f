"""Whitening: linear transforms of a data set after which its pixels are uncorrelated.

Correlated backgrounds produce suppressor variables: pixels without information about the class that a network uses to
subtract noise from others. Clark et al. (2026) ask whether explanations improve if a network is trained on whitened
images. With the covariance ``S`` of the training images and the diagonal ``D`` of their variances, an image ``x``, as a
vector without the mean of the training images, becomes

- ``"sphering"``: ``S^(-1/2) x``. The result is as close to the centered images as possible (ZCA).
- ``"cholesky"``: ``L^(-1) x`` with ``S = L L^T``; a pixel depends on those before it in reading order only.
- ``"symmetric"``: ``D^(1/2) (D^(1/2) S D^(1/2))^(-1/2) D^(1/2) x``, symmetric orthogonalization after Colclough et al.
  (2015), the first step of their algorithm, which they iterate: pixels become uncorrelated and keep their variances.
- ``"signal_preserving"``: ``R^(-1/2) D^(-1/2) x`` with the correlation ``R``. Each pixel is correlated with its
  original as much as possible (ZCA-cor).
- ``"partial_regression"``: each pixel minus its linear regression on all others, ``(S^(-1) x)_i / (S^(-1))_ii``. The
  residuals are not uncorrelated, so this is not a whitening in the strict sense.

Clark, Karastoyanov, Wilming, Haufe: The effect of whitening on explanation performance, 2026 (arXiv 2602.09278). Kessy,
Lewin, Strimmer: Optimal whitening and decorrelation, The American Statistician 2018. Colclough et al.: A symmetric
multivariate leakage correction for MEG connectomes, NeuroImage 2015.
"""

from __future__ import annotations

import dataclasses
from typing import Literal, TypeAlias, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from xaibench.core.checks import check_choice
from xaibench.data.base import Dataset

#: The transforms.
Whitening: TypeAlias = Literal["sphering", "cholesky", "symmetric", "signal_preserving", "partial_regression"]
#: Smaller eigenvalues of the covariance are raised to this share of the largest one, so that noise is not amplified
#: without bound. The correlated backgrounds of XAI-TRIS do not vary in some directions.
_SMALLEST = 1e-10

_Floats: TypeAlias = NDArray[np.float64]


def whiten(data: Dataset, kind: Whitening = "sphering") -> Dataset:
    """Whiten all images of a data set by the covariance of its training images.

    Args:
        data: A data set of small images: the covariance has ``(C H W)^2`` entries.
        kind: The transform (see the head of this module).

    Returns:
        The data set with other images ``[N, C, H, W]`` and the same masks, targets, ids and groups.

    Raises:
        ValueError: If ``kind`` is unknown, images have more than 4,096 values, or there are fewer than two training
            images.

    Example:
        >>> import xaibench as xb
        >>> data = xb.load("xai-tris/lin-corr-8x8", seed=0, n_samples=400)
        >>> whiten(data, "sphering").note
        'Whitened (sphering) by the covariance of the training images.'
    """
    check_choice("kind", kind, get_args(Whitening))
    values = data.train.images[:1].numel()
    if values > 4096:
        raise ValueError(
            f"whiten: images have {values:,} values, expected at most 4,096, such as one channel of 64×64."
        )
    if len(data.train) < 2:
        raise ValueError(f"whiten: got {len(data.train)} training images, expected two or more.")
    flat = data.train.images.flatten(1).double().numpy()
    mean, matrix = flat.mean(0), whitening_matrix(flat, kind)
    splits = []
    for split in (data.train, data.val, data.test):
        rows = split.images.flatten(1).double().numpy()
        splits.append(split.with_images(torch.from_numpy((rows - mean) @ matrix.T).float().view(split.images.shape)))
    train, val, test = splits
    note = f"{data.note} Whitened ({kind}) by the covariance of the training images.".strip()
    return dataclasses.replace(data, train=train, val=val, test=test, note=note, distribution=None)


def whitening_matrix(samples: _Floats, kind: Whitening) -> _Floats:
    """Compute the matrix that is multiplied with centered samples.

    Args:
        samples: ``[N, P]``, N at least 2; the covariance is divided by N.
        kind: The transform (see the head of this module).

    Returns:
        ``[P, P]``.

    Raises:
        ValueError: If ``kind`` is unknown.

    Example:
        >>> whitening_matrix(np.array([[2.0, 0.0], [-2.0, 0.0], [0.0, 1.0], [0.0, -1.0]]), "sphering").round(3)
        array([[0.707, 0.   ],
               [0.   , 1.414]])
    """
    check_choice("kind", kind, get_args(Whitening))
    covariance = np.cov(samples, rowvar=False, bias=True).reshape(samples.shape[1], samples.shape[1])
    deviations = np.sqrt(np.maximum(np.diag(covariance), _SMALLEST * np.diag(covariance).max()))
    if kind == "symmetric":
        both = deviations[:, None] * deviations
        symmetric: _Floats = both * _power(both * covariance, -0.5)
        return symmetric
    if kind == "signal_preserving":
        correlation = covariance / deviations[:, None] / deviations
        preserving: _Floats = _power(correlation, -0.5) / deviations
        return preserving
    if kind == "cholesky":
        return np.linalg.inv(np.linalg.cholesky(_power(covariance, 1.0)))
    if kind == "partial_regression":
        precision = _power(covariance, -1.0)
        residuals: _Floats = precision / np.diag(precision)[:, None]
        return residuals
    return _power(covariance, -0.5)


def _power(matrix: _Floats, exponent: float) -> _Floats:
    """Return a power of a symmetric matrix, whose eigenvalues are clamped to at least _SMALLEST times the largest."""
    values, vectors = np.linalg.eigh(matrix)
    found: _Floats = (vectors * np.maximum(values, _SMALLEST * values[-1]) ** exponent) @ vectors.T
    return found
