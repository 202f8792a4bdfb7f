"""Spearman's rank correlation of many pairs at once; ties get their mean rank."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from xaibench.metrics.shared.ties import merge_ties


def centered_ranks(values: Tensor) -> NDArray[np.float64]:
    """Return the centered ranks of ``[N, ...]`` as ``[N, P]``; all zero where all values are equal.

    Values that differ by rounding only are tied (:mod:`xaibench.metrics.shared.ties`).

    Example:
        >>> import torch
        >>> centered_ranks(torch.tensor([[5.0, 7.0, 7.0]])).tolist()
        [[-1.0, 0.5, 0.5]]
    """
    from scipy.stats import rankdata

    flat = merge_ties(values.flatten(1).cpu().numpy())
    ranks: NDArray[np.float64] = rankdata(flat, axis=1)
    ranks -= (flat.shape[1] + 1) / 2
    return ranks


def correlation(one: NDArray[np.float64], other: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return Spearman's correlation per sample from centered ranks ``[N, P]``; NaN if either is constant."""
    size = np.sqrt((one**2).sum(1)) * np.sqrt((other**2).sum(1))
    found = np.full(len(one), np.nan)
    np.divide((one * other).sum(1), size, out=found, where=size > 0)
    np.clip(found, -1.0, 1.0, out=found)  # rounding may exceed the range
    return found
