"""Comparison of maps with the exact Shapley values of a network, where these are known.

The values are numbers, not a mask: these two functions take them in place of masks, and are called from Python. The
values are ``data.test.shapley`` of ``xb.load("certified:and")``, or the result of ``shapley_values(images, targets)``
of such a network.
"""

from __future__ import annotations

import numpy as np

from xaibench.core.types import Array, Floats, Reduction
from xaibench.metrics.shared.inputs import Scores, check_reduction, checked_maps, flat, reduce_scores, share


def shapley_error(maps: Array, values: Array, *, reduction: Reduction = "mean") -> Scores:
    r"""Distance of a map from the exact Shapley values, relative to their size.

    .. math:: \sum |s - \phi| \,/\, \sum |\phi|

    At least 0, lower is better: 0 for the Shapley values themselves, 1 for a map of zeros. Scale and explained output
    matter: the values explain the target's logit (``output="logit"``), with 0 as the baseline of each pixel.

    Args:
        maps: ``[N, H, W]`` or ``[H, W]``, signed.
        values: Same shape, the exact Shapley values.
        reduction: ``"mean"`` of the defined scores, or ``"none"`` for all scores ``[N]``.

    Returns:
        The score; ``nan`` where all values are zero.

    Raises:
        ValueError: If shapes differ or values are not finite.
        TypeError: If an input is not a numpy array or torch tensor of real numbers.

    Example:
        >>> import numpy as np
        >>> shapley_error(np.array([[1.0, -1.0, 0.5]]), np.array([[1.0, -0.5, 0.0]]))  # (0 + 0.5 + 0.5) / 1.5
        0.6666666666666666
    """
    attributions, exact = _check_values(maps, values, reduction)
    # Divide by the largest value, so that sums do not overflow.
    largest = np.maximum(np.abs(attributions), np.abs(exact)).max(axis=1, keepdims=True)
    unit = np.where(largest > 0, largest, 1.0)
    size = (np.abs(exact) / unit).sum(axis=1)
    scores = share(np.abs(attributions / unit - exact / unit).sum(axis=1), size, size > 0)
    return reduce_scores(scores, reduction, like=maps)


def sign_agreement(maps: Array, values: Array, *, reduction: Reduction = "mean") -> Scores:
    r"""Share of the pixels with a nonzero Shapley value whose sign the map agrees with.

    .. math:: |\{\phi \ne 0,\ \mathrm{sign}\, s = \mathrm{sign}\, \phi\}| \,/\, |\{\phi \ne 0\}|

    In [0, 1], higher is better: whether the map distinguishes evidence for the class from evidence against it. A random
    map scores one half. A map of magnitudes misses all negative values, and zeros never agree.

    Args:
        maps: ``[N, H, W]`` or ``[H, W]``, signed.
        values: Same shape, the exact Shapley values.
        reduction: ``"mean"`` of the defined scores, or ``"none"`` for all scores ``[N]``.

    Returns:
        The score; ``nan`` where all values are zero.

    Raises:
        ValueError: If shapes differ or values are not finite.
        TypeError: If an input is not a numpy array or torch tensor of real numbers.

    Example:
        >>> import numpy as np
        >>> sign_agreement(np.array([[3.0, 0.1, -2.0]]), np.array([[1.0, -0.5, 0.0]]))
        0.5
    """
    attributions, exact = _check_values(maps, values, reduction)
    valued = exact != 0
    agree = (np.sign(attributions) == np.sign(exact)) & valued
    scores = share(agree.sum(axis=1), valued.sum(axis=1), valued.any(axis=1))
    return reduce_scores(scores, reduction, like=maps)


def _check_values(maps: Array, values: Array, reduction: Reduction) -> tuple[Floats, Floats]:
    """Check both and return them as ``[N, H·W]``."""
    check_reduction(reduction)
    attributions, exact = checked_maps(maps), checked_maps(values, "values")
    if attributions.shape != exact.shape:
        raise ValueError(
            f"maps and values must have the same shape [N, H, W] or [H, W], got maps "
            f"{list(attributions.shape)} and values {list(exact.shape)}."
        )
    return flat(attributions), flat(exact)
