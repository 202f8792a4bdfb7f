"""Does the map's largest pixel lie in the ground truth? Nothing is done to the map before: no magnitude is taken."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from xaibench.core.part_info import MetricInfo, described
from xaibench.core.vocabulary import Reduction
from xaibench.metrics.shared.map_inputs import Scores, check_finite_number, flat, score_pairs, share
from xaibench.metrics.truth.chance_levels import marked_share

if TYPE_CHECKING:
    from xaibench.core.vocabulary import Array

_POINTING = (
    "Zhang, Bargal, Lin, Brandt, Shen, Sclaroff: Top-down neural attention by excitation backprop, IJCV 126, 2018"
)


def _expected_hit(masks: NDArray[np.bool_], *, tolerance: float = 0) -> NDArray[np.float64]:
    """What noise scores: ``[N]``."""
    grown = _dilated(masks, tolerance) if tolerance else masks
    return np.where(masks.any(axis=(1, 2)), marked_share(grown), np.nan)


@described(
    MetricInfo(
        "Pointing game",
        "ground-truth",
        higher_is_better=True,
        range=(0.0, 1.0),
        meaning="Pointing game: whether the largest pixel of the map lies in the ground truth; ties share.",
        pitfalls="One pixel decides, and of a signed map the largest, not the one of largest magnitude. Photographers "
        "put things in the middle: the `center_prior` control hits often. Papers take a tolerance of 15 pixels, or "
        "none: say which.",
        chance="The share of the image that the ground truth covers, dilated by the tolerance.",
        chance_level=_expected_hit,
        picture="largest pixel",
        citation=_POINTING,
    )
)
def hit(maps: Array, masks: Array, *, tolerance: float = 0, reduction: Reduction = "mean") -> Scores:
    r"""Pointing game: 1 when the largest pixel of the map lies in the ground truth, 0 when it does not.

    .. math:: |\{s = \max s\} \cap F^+_r| \,/\, |\{s = \max s\}|

    Zhang et al. (2018). In [0, 1], higher is better. Where several pixels share the maximum, the score is the share of
    them that lies inside, the expected hit of one drawn among them; a constant map thus scores the share of the image
    that the ground truth takes. The mean is the accuracy that papers report as hits / (hits + misses).

    Departures: the published function (``xaibenchmark``) and Quantus (``PointingGame``) count a hit when *any* of the
    tied maxima lies inside, so that a constant map always hits (Quantus refuses a batch of nothing but one constant).
    Quantus also stores the ``nan`` of an empty mask as a truth value, which is a hit. TorchRay (``PointingGame``) takes
    one point that the caller draws, has a tolerance of 15, and asks for a distance below the tolerance, so that at 0
    nothing hits; here a distance equal to it counts.

    Args:
        maps: ``[N, H, W]`` or ``[H, W]``; signed, the largest value wins, not the largest magnitude.
        masks: Of the same shape, binary, ``True`` = important.
        tolerance: Radius in pixels :math:`r`, at least 0. The ground truth is dilated by a Euclidean disc: pixels whose
            centre is at most this far from the centre of a pixel of the mask are inside as well.
        reduction: ``"mean"`` over the defined scores, or ``"none"`` for all ``[N]``.

    Returns:
        The score; ``nan`` for an empty mask and for a map that is all zero (it points nowhere).

    Raises:
        ValueError: For shapes that differ, maps that are not finite, masks that are not binary, a negative or infinite
            tolerance.
        TypeError: For anything but numpy arrays and torch tensors of real numbers.

    Example:
        >>> import numpy as np
        >>> maps, masks = np.array([[0.1, 0.2, 0.2, 0.9]]), np.array([[1, 1, 0, 0]])
        >>> hit(maps, masks), hit(maps, masks, tolerance=2)
        (0.0, 1.0)
        >>> hit(np.minimum(maps, 0.2), masks)  # one of the three largest pixels lies inside
        0.3333333333333333
    """
    check_finite_number(tolerance, "tolerance", least=0)

    def kernel(maps: NDArray[np.float64], masks: NDArray[np.bool_]) -> NDArray[np.float64]:
        values, inside = flat(maps), flat(_dilated(masks, tolerance) if tolerance else masks)
        top = values == values.max(axis=1, keepdims=True)
        defined = np.asarray(flat(masks).any(axis=1) & values.any(axis=1))
        return share((top & inside).sum(axis=1), top.sum(axis=1), defined)

    return score_pairs(kernel, maps, masks, reduction)


def _dilated(masks: NDArray[np.bool_], radius: float) -> NDArray[np.bool_]:
    """Masks ``[N, H, W]`` and all pixels within ``radius`` of them; an empty mask may become anything."""
    from scipy.ndimage import distance_transform_edt  # imported here: few ask for a tolerance

    grown: NDArray[np.bool_] = np.stack([distance_transform_edt(~mask) <= radius for mask in masks])
    return grown
