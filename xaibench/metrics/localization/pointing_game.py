"""Pointing game: is the map's largest pixel inside the ground truth? The map is used as it is, without magnitude."""

from __future__ import annotations

import functools

import numpy as np

from xaibench.core.types import Array, Bools, Floats, Reduction
from xaibench.metrics.localization.chance import marked_share
from xaibench.metrics.shared.inputs import Scores, Spacing, check_finite_number, flat, pixel_spacing, score_pairs, share
from xaibench.metrics.shared.ranks import tie_tolerance
from xaibench.registry.info import MetricInfo

#: Relative rounding error of a distance in units of the spacing: one that equals the tolerance counts.
_ROUNDING = 1e-15
_POINTING = (
    "Zhang, Bargal, Lin, Brandt, Shen, Sclaroff: Top-down neural attention by excitation backprop, IJCV 126, 2018"
)


def _expected_hit(masks: Bools, *, tolerance: float = 0, spacing: Spacing = None) -> Floats:
    """Return the expected score of noise, ``[N]``."""
    grown = _dilated(masks, tolerance, pixel_spacing(spacing, masks.shape))
    return np.where(flat(masks).any(axis=1), marked_share(grown), np.nan)


@MetricInfo(
    "Pointing game",
    higher_is_better=True,
    attains_ends=True,
    meaning="Pointing game: whether the largest pixel of the map is inside the ground truth; ties count by share.",
    pitfalls="A single pixel decides, and in a signed map it is the largest, not the one of largest magnitude. "
    "Photographs usually show their subject in the center: the `center_prior` control hits often. Papers use "
    "a tolerance of 15 pixels, or none: state which.",
    chance="The share of the image that the ground truth covers, dilated by the tolerance.",
    chance_level=_expected_hit,
    sample_inputs=("spacing",),
    picture="largest pixel",
    citation=_POINTING,
)
def hit(
    maps: Array, masks: Array, *, tolerance: float = 0, spacing: Spacing = None, reduction: Reduction = "mean"
) -> Scores:
    r"""Pointing game: 1 if the largest pixel of the map is inside the ground truth, otherwise 0.

    .. math:: |\{s = \max s\} \cap F^+_r| \,/\, |\{s = \max s\}|

    Zhang et al. (2018). In [0, 1], higher is better. If several pixels share the maximum (up to 1e-9 of the map's
    largest magnitude, so that rounding does not decide), the score is the share of them inside, that is, the expected
    hit of a random one among them. A constant map therefore scores the share of the
    image that the ground truth covers. The mean is the accuracy that papers report as hits / (hits + misses).

    Departures: the published function (``xaibenchmark``) and Quantus (``PointingGame``) count a hit if *any* of the
    tied maxima is inside, so that a constant map always hits (Quantus rejects a batch with a single constant value).
    Quantus also converts the NaN of an empty mask to a bool, which counts as a hit. TorchRay (``PointingGame``) takes
    one point from the caller, has a tolerance of 15, and requires a distance below the tolerance, so that at 0 nothing
    hits; here a distance equal to it counts.

    Args:
        maps: ``[N, H, W]`` or ``[H, W]``; signed; the largest value counts, not the largest magnitude.
        masks: Same shape as the maps, binary; ``True`` = important.
        tolerance: Radius :math:`r` in the unit of ``spacing`` (by default pixels), at least 0. The ground truth is
            dilated by a Euclidean disc, or ball: pixels whose center is at most this far from the center of a mask
            pixel are also inside.
        spacing: Distance between neighboring pixels or voxels: ``None`` (1 along every axis), one positive number per
            spatial axis, such as millimeters in the order D, H, W, or a row of them per sample, ``[N, axes]``.
        reduction: ``"mean"`` of the defined scores, or ``"none"`` for all scores ``[N]``.

    Returns:
        The score; ``nan`` for an empty mask and for a map that is all zero (it has no largest pixel).

    Raises:
        ValueError: If shapes differ, maps are not finite, masks are not binary, the tolerance is negative or
            infinite, or ``spacing`` is not positive or does not match the maps.
        TypeError: If an input is not a numpy array or torch tensor of real numbers.

    Example:
        >>> import numpy as np
        >>> maps, masks = np.array([[0.1, 0.2, 0.2, 0.9]]), np.array([[1, 1, 0, 0]])
        >>> hit(maps, masks), hit(maps, masks, tolerance=2)
        (0.0, 1.0)
        >>> hit(np.minimum(maps, 0.2), masks)  # one of the three largest pixels is inside
        0.3333333333333333
    """
    check_finite_number(tolerance, "tolerance", least=0)

    def kernel(maps: Floats, masks: Bools, lengths: Floats) -> Floats:
        values, inside = flat(maps), flat(_dilated(masks, tolerance, lengths))
        top = values >= values.max(axis=1, keepdims=True) - tie_tolerance(values)
        defined = np.asarray(flat(masks).any(axis=1) & values.any(axis=1))
        return share((top & inside).sum(axis=1), top.sum(axis=1), defined)

    return score_pairs(kernel, maps, masks, reduction, functools.partial(pixel_spacing, spacing))


def _dilated(masks: Bools, radius: float, spacing: Floats) -> Bools:
    """Return masks dilated by ``radius``, in units of the spacing ``[N, axes]``; arbitrary for an empty mask."""
    if radius == 0:
        return masks
    from scipy.ndimage import distance_transform_edt  # imported on use, because it is slow to load

    if (spacing % 1).any():  # squares of whole numbers are exact
        radius *= 1 + _ROUNDING
    pairs = zip(masks, spacing, strict=True)
    grown: Bools = np.stack([distance_transform_edt(~mask, lengths) <= radius for mask, lengths in pairs])
    return grown
