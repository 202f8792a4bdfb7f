"""How much of a map lies where it cannot: on pixels that the network provably does not use.

The masks are of the *network*, not of the data: ``True`` = the pixel makes a difference to its output. They are those
of the networks in :mod:`xaibench.models.certified`, or of one cell of a mosaic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from xaibench.core.part_info import MetricInfo, described
from xaibench.core.vocabulary import Reduction
from xaibench.metrics.shared.map_inputs import Scores, flat, score_pairs, share
from xaibench.metrics.shared.undefined_scores import EMPTY_MASK, FULL_MASK, NOTHING_ABOVE, ZERO_MAP
from xaibench.metrics.truth.chance_levels import half, marked_share

if TYPE_CHECKING:
    from xaibench.core.vocabulary import Array


def _expected_mass_outside(masks: NDArray[np.bool_]) -> NDArray[np.float64]:
    """1, where there are pixels on either side: of noise each pixel has the same share."""
    return 2 * half(masks)


@described(
    MetricInfo(
        "Mass outside",
        "ground-truth",
        higher_is_better=False,
        range=(0.0, np.inf),
        meaning="Share of the map’s magnitude on pixels that cannot matter, over their share of the image. 0: none "
        "of it; 1: as much as by chance.",
        pitfalls="Of a network that provably uses some pixels only, and with those as the mask. Where the mask says "
        "what is important to people or by the data, a network may use other pixels, and a faithful map then leaks.",
        undefined=(EMPTY_MASK, FULL_MASK, ZERO_MAP),
        chance="1.",
        chance_level=_expected_mass_outside,
        citation="Zhou, Booth, Ribeiro, Shah: Do Feature Attribution Methods Correctly Attribute Features?, AAAI 2022, "
        "arXiv 2104.14403",
        truth="use",
    )
)
def mass_outside(maps: Array, masks: Array, *, reduction: Reduction = "mean") -> Scores:
    r"""Share of the map's mass on pixels that cannot matter, over their share of the image.

    .. math:: \frac{\sum_{U^-} |s|}{\sum |s|} \Big/ \frac{|U^-|}{|U^+| + |U^-|}

    with :math:`U^+` the pixels that the network uses and :math:`U^-` the others. At least 0, lower is better: 0 where
    all of the mass is on pixels that are used, 1 for a constant map and, in the mean, for random ones. Methods that
    promise zero where a pixel has no effect score exactly 0.

    Departures: Zhou et al. (2022) give the share of the mass inside; over the share of the area it compares between
    networks that use much and little of an image.

    Args:
        maps: ``[N, H, W]`` or ``[H, W]``; taken by magnitude.
        masks: Of the same shape, binary, ``True`` = the network uses the pixel.
        reduction: ``"mean"`` over the defined scores, or ``"none"`` for all ``[N]``.

    Returns:
        The score; ``nan`` for a map that is all zero, for an empty mask, and for one that covers the whole image (there
        is no pixel that cannot matter).

    Raises:
        ValueError: For shapes that differ, maps that are not finite, masks that are not binary.
        TypeError: For anything but numpy arrays and torch tensors of real numbers.

    Example:
        >>> import numpy as np
        >>> used = np.array([[1, 1, 0, 0]])
        >>> mass_outside(np.array([[3.0, -3.0, 0.0, 0.0]]), used), mass_outside(np.array([[1.0, -1.0, 1.0, 1.0]]), used)
        (0.0, 1.0)
    """
    return score_pairs(_mass_outside, maps, masks, reduction)


def _mass_outside(maps: NDArray[np.float64], masks: NDArray[np.bool_]) -> NDArray[np.float64]:
    magnitude, used = _scaled(np.abs(maps)), flat(masks)
    within = np.where(used, magnitude, 0.0).sum(axis=1)
    without = np.where(used, 0.0, magnitude).sum(axis=1)
    pixels, unused = used.shape[1], np.count_nonzero(~used, axis=1)
    defined = (unused > 0) & (unused < pixels) & magnitude.any(axis=1)
    return share(without * pixels, (within + without) * unused, defined)


@described(
    MetricInfo(
        "Grid pointing",
        "ground-truth",
        higher_is_better=True,
        range=(0.0, 1.0),
        meaning="Share of what the map counts for the class that lies in the right cell of a mosaic. 1: all of it; by "
        "chance the cell’s share of the image.",
        pitfalls="Only what is positive counts: maps without a sign count everything. A network may find its class in "
        "another cell, too, unless each cell goes through a network of its own.",
        undefined=(EMPTY_MASK, NOTHING_ABOVE),
        chance="The share of the mosaic that the cell covers.",
        chance_level=marked_share,
        citation="Rao, Böhle, Schiele: Towards Better Understanding Attribution Methods, CVPR 2022, arXiv 2205.10435",
        truth="use",
    )
)
def grid_pointing(maps: Array, masks: Array, *, reduction: Reduction = "mean") -> Scores:
    r"""Share of the map's positive values that lie in the cell of the explained class.

    .. math:: \sum_{C} s^+ \,/\, \sum s^+, \qquad s^+ = \max(s, 0)

    The *localisation* of the grid pointing game: images of different classes stand in a mosaic, and each class is
    explained once, with its own cell :math:`C` as the mask (Rao et al. 2022, Section 3.1; Böhle et al. 2021). In
    [0, 1], higher is better; a constant map scores the cell's share of the mosaic.

    Departures: none but for maps that are nowhere positive, which are undefined here.

    Args:
        maps: ``[N, H, W]`` or ``[H, W]``; signed, negative values count for nothing.
        masks: Of the same shape, binary, ``True`` = the cell of the explained class.
        reduction: ``"mean"`` over the defined scores, or ``"none"`` for all ``[N]``.

    Returns:
        The score; ``nan`` for an empty mask and for a map that is nowhere above 0.

    Raises:
        ValueError: For shapes that differ, maps that are not finite, masks that are not binary.
        TypeError: For anything but numpy arrays and torch tensors of real numbers.

    Example:
        >>> import numpy as np
        >>> grid_pointing(np.array([[3.0, -9.0, 1.0, 0.0]]), np.array([[1, 1, 0, 0]]))
        0.75
    """
    return score_pairs(_grid_pointing, maps, masks, reduction)


def _grid_pointing(maps: NDArray[np.float64], masks: NDArray[np.bool_]) -> NDArray[np.float64]:
    positive, cell = _scaled(np.maximum(maps, 0.0)), flat(masks)
    within = np.where(cell, positive, 0.0).sum(axis=1)
    without = np.where(cell, 0.0, positive).sum(axis=1)
    defined = np.asarray(positive.any(axis=1) & cell.any(axis=1))
    return share(within, within + without, defined)


def _scaled(maps: NDArray[np.float64]) -> NDArray[np.float64]:
    """``[N, H·W]``, the largest value 1: the sums of huge and of tiny maps neither over- nor underflow."""
    values = flat(maps)
    peak = values.max(axis=1, keepdims=True)
    scaled: NDArray[np.float64] = values / np.where(peak > 0, peak, 1.0)
    return scaled
