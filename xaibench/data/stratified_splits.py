"""Seeded, stratified splits."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def check_fractions(fractions: Sequence[float]) -> tuple[float, float, float]:
    """Return the fractions of train, validation and test as floats.

    Raises:
        ValueError: If they are not three positive numbers that sum to 1.
    """
    try:
        values = tuple(float(fraction) for fraction in fractions)
    except (TypeError, ValueError):
        values = ()
    if len(values) != 3 or not all(value > 0 for value in values) or abs(sum(values) - 1) > 1e-6:
        raise ValueError(
            f"split={fractions!r}: expected three positive fractions (train, val, test) that sum to 1, "
            "such as (0.8, 0.1, 0.1)."
        )
    return values[0], values[1], values[2]


def stratified_split(
    strata: NDArray[np.int64], fractions: Sequence[float], rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return the indices of train, validation and test, with every stratum divided in the same proportion.

    The sizes of the splits are exact (rounded once, over all samples). Within a split, every stratum is at most one
    sample off its share. Every split is in random order.

    Args:
        strata: ``[N]`` stratum of each sample.
        fractions: Fractions of train, validation and test; positive, with sum 1.
        rng: Random generator.

    Raises:
        ValueError: If the fractions are invalid, or a split would be empty.

    Example:
        >>> parts = stratified_split(np.arange(100) % 2, (0.8, 0.1, 0.1), np.random.default_rng(0))
        >>> [len(part) for part in parts], [int((part % 2).sum()) for part in parts]
        ([80, 10, 10], [40, 5, 5])
    """
    checked = check_fractions(fractions)
    count = len(strata)
    bounds = [0, *(round(float(bound) * count) for bound in np.cumsum(checked))]
    sizes = np.diff(bounds)
    if (sizes == 0).any():
        raise ValueError(
            f"{count} samples split {checked} leave an empty split (sizes {sizes.tolist()}); use more samples or other "
            "fractions."
        )
    shuffled = rng.permutation(count)
    left = shuffled[np.argsort(strata[shuffled], kind="stable")]
    parts: list[NDArray[np.int64]] = []
    for size in sizes[:0:-1]:
        # Take every (len/size)-th sample of the concatenated strata: `size` in all, with every stratum within one
        # sample of its share.
        taken = np.diff(np.arange(len(left) + 1) * size // len(left)) > 0
        parts.append(left[taken])
        left = left[~taken]
    test, val, train = (rng.permutation(part) for part in (*parts, left))
    return train, val, test
