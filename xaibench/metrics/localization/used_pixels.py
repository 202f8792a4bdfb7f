"""Metrics of masks of the *network* instead of the data: ``True`` = the pixel affects the output.

The masks come with the networks in :mod:`xaibench.models.certified`, or mark one cell of a mosaic. A used pixel may be
evidence for or against the class, so the ranking metrics use the magnitude of the map, where
:mod:`xaibench.metrics.localization.roc_auc` ranks by value.
"""

from __future__ import annotations

import numpy as np

from xaibench.core.types import Array, Bools, Floats, Reduction
from xaibench.metrics.localization.chance import expected_average_precision, half, marked_share
from xaibench.metrics.localization.roc_auc import area_under_roc, mean_precision
from xaibench.metrics.shared.inputs import (
    EMPTY_MASK,
    FULL_MASK,
    NOTHING_ABOVE,
    ZERO_MAP,
    Scores,
    flat,
    score_pairs,
    share,
)
from xaibench.registry.info import MetricInfo


def _expected_mass_outside(masks: Bools) -> Floats:
    """Return 1 for masks with used and unused pixels, otherwise NaN: noise has the same expected mass on each pixel."""
    return 2 * half(masks)


@MetricInfo(
    "Mass outside",
    higher_is_better=False,
    range=(0.0, np.inf),
    attains_ends=True,
    meaning="Share of the map’s magnitude on pixels that cannot matter, divided by their share of the image. 0: "
    "no mass there; 1: as much as by chance.",
    pitfalls="Only for a network that provably uses some pixels only, with those pixels as the mask. If the mask "
    "shows what is important to people or in the data, a network may use other pixels, and the score "
    "of a faithful map is not 0.",
    map_sign="own",
    undefined=(EMPTY_MASK, FULL_MASK, ZERO_MAP),
    chance="1.",
    chance_level=_expected_mass_outside,
    citation="Zhou, Booth, Ribeiro, Shah: Do Feature Attribution Methods Correctly Attribute Features?, AAAI 2022, "
    "arXiv 2104.14403",
    truth="use",
)
def mass_outside(maps: Array, masks: Array, *, reduction: Reduction = "mean") -> Scores:
    r"""Share of the map's mass on pixels that cannot matter, divided by their share of the image.

    .. math:: \frac{\sum_{U^-} |s|}{\sum |s|} \Big/ \frac{|U^-|}{|U^+| + |U^-|}

    with :math:`U^+` the pixels that the network uses and :math:`U^-` the others. At least 0, lower is better: 0 if all
    mass is on used pixels, 1 for a constant map and, on average, for random maps. Methods that guarantee zero for
    pixels without effect score exactly 0.

    Departures: Zhou et al. (2022) report the share of the mass inside. Dividing by the share of the area makes networks
    comparable that use large and small parts of an image.

    Args:
        maps: ``[N, H, W]`` or ``[H, W]``; their magnitude is used.
        masks: Same shape as the maps, binary; ``True`` = the network uses the pixel.
        reduction: ``"mean"`` of the defined scores, or ``"none"`` for all scores ``[N]``.

    Returns:
        The score; ``nan`` for a map that is all zero, for an empty mask, and for one that covers the whole image (all
        pixels matter).

    Raises:
        ValueError: If shapes differ, maps are not finite, or masks are not binary.
        TypeError: If an input is not a numpy array or torch tensor of real numbers.

    Example:
        >>> import numpy as np
        >>> used = np.array([[1, 1, 0, 0]])
        >>> mass_outside(np.array([[3.0, -3.0, 0.0, 0.0]]), used), mass_outside(np.array([[1.0, -1.0, 1.0, 1.0]]), used)
        (0.0, 1.0)
    """
    return score_pairs(_mass_outside, maps, masks, reduction)


def _mass_outside(maps: Floats, masks: Bools) -> Floats:
    magnitude, used = _scaled(np.abs(maps)), flat(masks)
    within = np.where(used, magnitude, 0.0).sum(axis=1)
    without = np.where(used, 0.0, magnitude).sum(axis=1)
    pixels, unused = used.shape[1], np.count_nonzero(~used, axis=1)
    defined = (unused > 0) & (unused < pixels) & magnitude.any(axis=1)
    return share(without * pixels, (within + without) * unused, defined)


@MetricInfo(
    "Grid pointing",
    higher_is_better=True,
    attains_ends=True,
    meaning="Share of the map’s positive values inside the right cell of a mosaic. 1: all of them; chance is "
    "the cell’s share of the image.",
    pitfalls="Only positive values count: in maps without a sign, everything counts. A network may also find its "
    "class in another cell, unless each cell has a network of its own.",
    map_sign="own",
    undefined=(EMPTY_MASK, NOTHING_ABOVE),
    chance="The share of the mosaic that the cell covers.",
    chance_level=marked_share,
    citation="Rao, Böhle, Schiele: Towards Better Understanding Attribution Methods, CVPR 2022, arXiv 2205.10435",
    truth="use",
)
def grid_pointing(maps: Array, masks: Array, *, reduction: Reduction = "mean") -> Scores:
    r"""Share of the map's positive values that is inside the cell of the explained class.

    .. math:: \sum_{C} s^+ \,/\, \sum s^+, \qquad s^+ = \max(s, 0)

    The *localization* score of the grid pointing game: images of different classes form a mosaic, and each class is
    explained once, with its own cell :math:`C` as the mask (Rao et al. 2022, Section 3.1; Böhle et al. 2021). In [0,
    1], higher is better; a constant map scores the cell's share of the mosaic.

    Departures: none, except that maps without positive values are undefined here.

    Args:
        maps: ``[N, H, W]`` or ``[H, W]``; signed, negative values are ignored.
        masks: Same shape as the maps, binary; ``True`` = the cell of the explained class.
        reduction: ``"mean"`` of the defined scores, or ``"none"`` for all scores ``[N]``.

    Returns:
        The score; ``nan`` for an empty mask and for a map without positive values.

    Raises:
        ValueError: If shapes differ, maps are not finite, or masks are not binary.
        TypeError: If an input is not a numpy array or torch tensor of real numbers.

    Example:
        >>> import numpy as np
        >>> grid_pointing(np.array([[3.0, -9.0, 1.0, 0.0]]), np.array([[1, 1, 0, 0]]))
        0.75
    """
    return score_pairs(_grid_pointing, maps, masks, reduction)


def _grid_pointing(maps: Floats, masks: Bools) -> Floats:
    positive, cell = _scaled(np.maximum(maps, 0.0)), flat(masks)
    within = np.where(cell, positive, 0.0).sum(axis=1)
    without = np.where(cell, 0.0, positive).sum(axis=1)
    defined = np.asarray(positive.any(axis=1) & cell.any(axis=1))
    return share(within, within + without, defined)


def _scaled(maps: Floats) -> Floats:
    """Return ``[N, H·W]``, scaled to a maximum of 1, which avoids overflow and underflow of sums."""
    values = flat(maps)
    peak = values.max(axis=1, keepdims=True)
    scaled: Floats = values / np.where(peak > 0, peak, 1.0)
    return scaled


_ZHOU = (
    "Zhou, Booth, Ribeiro, Shah: Do Feature Attribution Methods Correctly Attribute Features?, AAAI 2022, "
    "arXiv 2104.14403"
)


@MetricInfo(
    "Use AUC",
    higher_is_better=True,
    attains_ends=True,
    meaning="Probability that a pixel that the network uses has a larger magnitude than one that it does not "
    "use. 0.5: no better than noise.",
    pitfalls="A used pixel may have no effect in *this* image (with AND, if the other pixel is missing), and a "
    "map that correctly shows this loses here: use `shapley_error` where the values are known.",
    map_sign="own",
    undefined=(EMPTY_MASK, FULL_MASK, ZERO_MAP),
    chance="One half.",
    chance_level=half,
    class_name="UseAUC",
    citation=_ZHOU,
    truth="use",
)
def use_auc(maps: Array, masks: Array, *, reduction: Reduction = "mean") -> Scores:
    r"""Area under the ROC curve of used against unused pixels, by magnitude.

    .. math:: P(|s_i| > |s_j|) + \tfrac12 P(|s_i| = |s_j|), \qquad i \in U^+,\; j \in U^-

    over all pairs of a pixel that the network uses and one that it does not. In [0, 1], higher is better; 0.5 for a
    random map and for a constant one. :func:`xaibench.metrics.roc_auc` of the magnitude.

    Departures: Zhou et al. (2022) weight pixels by their value, like :func:`xaibench.metrics.mass_outside`; here only
    their order counts.

    Args:
        maps: ``[N, H, W]`` or ``[H, W]``; ranked by magnitude.
        masks: Same shape as the maps, binary; ``True`` = the network uses the pixel.
        reduction: ``"mean"`` of the defined scores, or ``"none"`` for all scores ``[N]``.

    Returns:
        The score; ``nan`` for an empty mask and for one that covers the whole image (pairs do not exist), and for a map
        that is all zero.

    Raises:
        ValueError: If shapes differ, maps are not finite, or masks are not binary.
        TypeError: If an input is not a numpy array or torch tensor of real numbers.

    Example:
        >>> import numpy as np
        >>> use_auc(np.array([[0.9, -0.4, 0.3, 0.0]]), np.array([[1, 1, 0, 0]]))
        1.0
    """
    return score_pairs(lambda maps, masks: area_under_roc(np.abs(maps), masks), maps, masks, reduction)


@MetricInfo(
    "Use AP",
    higher_is_better=True,
    attains_ends=True,
    meaning="Average precision in finding the pixels that the network uses. Chance is their share of the image.",
    pitfalls="The chance level is the used share of the image: networks that use shares of different size are "
    "not comparable. As with `use_auc`, a used pixel may have no effect in some images.",
    map_sign="own",
    undefined=(EMPTY_MASK, ZERO_MAP),
    chance="A little more than the share of the image that is used.",
    chance_level=expected_average_precision,
    class_name="UseAP",
    citation=_ZHOU,
    truth="use",
)
def use_ap(maps: Array, masks: Array, *, reduction: Reduction = "mean") -> Scores:
    r"""Average precision of used against unused pixels, by magnitude.

    .. math:: \sum_n (R_n - R_{n-1})\, P_n

    with precision and recall of the used pixels at the n-th of the map's different magnitudes, from the largest down.
    In [0, 1], higher is better; a constant map scores the share of the image that is used.
    :func:`xaibench.metrics.average_precision` of the magnitude.

    Departures: Zhou et al. (2022) weight pixels by their value, like :func:`xaibench.metrics.mass_outside`; here only
    their order counts.

    Args:
        maps: ``[N, H, W]`` or ``[H, W]``; ranked by magnitude.
        masks: Same shape as the maps, binary; ``True`` = the network uses the pixel.
        reduction: ``"mean"`` of the defined scores, or ``"none"`` for all scores ``[N]``.

    Returns:
        The score; ``nan`` for an empty mask and for a map that is all zero.

    Raises:
        ValueError: If shapes differ, maps are not finite, or masks are not binary.
        TypeError: If an input is not a numpy array or torch tensor of real numbers.

    Example:
        >>> import numpy as np
        >>> use_ap(np.array([[0.9, 0.2, -0.5, 0.1]]), np.array([[1, 1, 0, 0]]))  # (1/1 + 2/3) / 2
        0.8333333333333333
    """
    return score_pairs(lambda maps, masks: mean_precision(np.abs(maps), masks), maps, masks, reduction)
