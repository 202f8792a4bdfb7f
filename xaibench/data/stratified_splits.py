"""Seeded, stratified splits."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def check_fractions(fractions: Sequence[float]) -> tuple[float, float, float]:
    """The fractions of train, validation and test as floats.

    Raises:
        ValueError: If they are not three positive numbers that add up to 1.
    """
    try:
        values = tuple(float(fraction) for fraction in fractions)
    except (TypeError, ValueError):
        values = ()
    if len(values) != 3 or not all(value > 0 for value in values) or abs(sum(values) - 1) > 1e-6:
        raise ValueError(
            f"split={fractions!r}: expected three positive fractions (train, val, test) that add up to 1, "
            "such as (0.8, 0.1, 0.1)."
        )
    return values[0], values[1], values[2]


def stratified_split(
    strata: NDArray[np.int64], fractions: Sequence[float], rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Indices of train, validation and test, each stratum shared out in the same proportion.

    The sizes of the parts are exact (rounded once, over all samples); within a part, each stratum is at most one
    sample off its share. Each part is in random order.

    Args:
        strata: ``[N]`` the stratum of each sample.
        fractions: Of train, validation and test; positive, adding up to 1.
        rng: Source of all randomness.

    Raises:
        ValueError: If the fractions are no fractions, or a part would be empty.

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
            f"{count} samples split {checked} leave an empty part (sizes {sizes.tolist()}); take more samples or other "
            "fractions."
        )
    shuffled = rng.permutation(count)
    left = shuffled[np.argsort(strata[shuffled], kind="stable")]
    parts: list[NDArray[np.int64]] = []
    for size in sizes[:0:-1]:
        # Every (len/size)-th sample of the strata laid end to end: `size` in all, each stratum within one of its share.
        taken = np.diff(np.arange(len(left) + 1) * size // len(left)) > 0
        parts.append(left[taken])
        left = left[~taken]
    test, val, train = (rng.permutation(part) for part in (*parts, left))
    return train, val, test
