"""Protocols that set the threshold of metrics that binarize maps, and scale maps for it, the same for every method."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from xaibench.registry.info import MetricInfo

#: For the metrics that binarize maps (``info.thresholded``: IoU, precision, recall, F1). ``"area"``: the k largest
#: pixels are marked, where k is the number of pixels of the sample's mask. ``"scaled"``: the map's magnitude is
#: rescaled to [0, 1], and the threshold is 0.5. ``"published"``: the map is unchanged, and the thresholds are the
#: metrics' defaults (0, 0, 0.5, 0), which reproduce the published example.
Protocol: TypeAlias = Literal["area", "scaled", "published"]

PROTOCOLS: tuple[Protocol, ...] = get_args(Protocol)

#: The default protocol. The number of pixels above a fixed threshold says little about a map: of one with a few high
#: values, next to nothing is above half of the maximum.
DEFAULT: Protocol = "area"

#: For metrics with a ground truth: whether maps are compared by ``"magnitude"`` or ``"signed"``, so that all of them
#: rank one map in one way. ``"magnitude"`` passes the absolute value. ``"signed"`` passes the map as it is to metrics
#: that rank or binarize by value, and its positive part to metrics that drop the sign. Functions that are called
#: directly follow their own definitions. The chance level of the earth mover's distance is that of noise without zeros
#: under both: the positive part of noise is some 1 to 2 % farther away.
Sign: TypeAlias = Literal["magnitude", "signed"]

SIGNS: tuple[Sign, ...] = get_args(Sign)

#: XAI-TRIS scores magnitudes.
DEFAULT_SIGN: Sign = "magnitude"

#: The threshold of ``"scaled"``.
THRESHOLD = 0.5

#: Increased whenever the protocol or the rule for ties (:mod:`xaibench.metrics.shared.ranks`) changes, so that stored
#: scores of the old one are not reused.
REVISION = 2


#: Increased whenever the score of constant maps changes (:func:`scores_constant_maps`), so that stored scores of the
#: old one are not reused.
CONSTANT_MAP_REVISION = 1


def scaled(maps: NDArray[np.floating[Any]]) -> NDArray[np.floating[Any]]:
    """Rescale the magnitudes of each map ``[N, H, W]`` to [0, 1] by their range; a constant map becomes 0.

    The sign is dropped first. Otherwise the zeros of a signed map would move to about 0.5, and a single extreme pixel
    would decide whether half of the image is above the threshold.

    Example:
        >>> scaled(np.array([[[0.0, -4.0], [1.0, 0.0]]])).tolist()
        [[[0.0, 1.0], [0.25, 0.0]]]
        >>> scaled(np.array([[[0.8, 0.9], [1.0, 0.8]]])).round(6).tolist()  # such as RISE, whose values all are large
        [[[0.0, 0.5], [1.0, 0.0]]]
    """
    magnitude = np.abs(maps)
    axes = tuple(range(1, maps.ndim))
    smallest = magnitude.min(axis=axes, keepdims=True)
    width = magnitude.max(axis=axes, keepdims=True) - smallest
    shares: NDArray[np.floating[Any]] = np.zeros_like(magnitude)
    np.divide(magnitude - smallest, width, out=shares, where=width > 0)
    return shares


def resolve_protocol(
    info: MetricInfo | None, parameters: Mapping[str, Any], protocol: Protocol
) -> tuple[Protocol, dict[str, Any]]:
    """Return the protocol that decides the scores of a metric, and the parameters of the metric under it.

    An explicit ``threshold`` is kept: ``"area"`` under every protocol, and a number as a value of the scaled map under
    ``"scaled"``, otherwise of the map as it is. A metric that does not binarize maps has the same scores under every
    protocol; for it, this is ``"published"``, which changes nothing.

    Example:
        >>> from xaibench.metrics import iou, roc_auc
        >>> resolve_protocol(iou.info, {}, "area"), resolve_protocol(roc_auc.info, {}, "area")
        (('area', {'threshold': 'area'}), ('published', {}))
        >>> resolve_protocol(iou.info, {"threshold": 0.2}, "area")
        ('published', {'threshold': 0.2})
    """
    if info is None or not info.thresholded:
        return "published", dict(parameters)
    threshold = parameters.get("threshold")
    if threshold == "area" or (threshold is None and protocol == "area"):
        return "area", {**parameters, "threshold": "area"}
    if protocol == "scaled":
        return "scaled", {"threshold": THRESHOLD, **parameters}
    return "published", dict(parameters)


def resolve_sign(
    info: MetricInfo | None, protocol: Protocol, sign: Sign | None
) -> Literal["magnitude", "positive"] | None:
    """Return the part of the map that a metric gets instead of the map; None if it makes no difference to the metric.

    Args:
        info: Metadata of the metric; None for a metric without metadata, which gets maps as they are.
        protocol: Its resolved protocol (:func:`resolve_protocol`). ``"scaled"`` drops the sign.
        sign: The choice of the evaluation; None passes maps as they are.

    Example:
        >>> from xaibench.metrics import emd, hit
        >>> [resolve_sign(metric.info, "published", sign) for metric in (hit, emd) for sign in SIGNS]
        ['magnitude', None, None, 'positive']
    """
    if sign is None or info is None or info.kind != "ground-truth" or info.map_sign == "own" or info.skill_of:
        return None
    drops_sign = protocol == "scaled" or info.map_sign == "magnitude"
    if sign == "magnitude":
        return None if drops_sign else "magnitude"
    return "positive" if drops_sign else None


def apply_sign(
    maps: NDArray[np.floating[Any]], part: Literal["magnitude", "positive"] | None
) -> NDArray[np.floating[Any]]:
    """Return the absolute value or the positive part of maps; None: the maps as they are."""
    if part is None:
        return maps
    changed: NDArray[np.floating[Any]] = np.abs(maps) if part == "magnitude" else np.maximum(maps, 0)
    return changed


def scores_constant_maps(info: MetricInfo | None) -> bool:
    """Return whether a map that the metric cannot score is scored as chance.

    This holds for metrics with a ground truth and a known chance level. Otherwise a method would gain by an empty map
    wherever it is unsure, because an undefined score does not enter its mean.

    Example:
        >>> from xaibench.metrics import METRICS
        >>> [scores_constant_maps(METRICS.resolve(name).info) for name in ("emd_perf", "insertion")]
        [True, False]
    """
    return info is not None and info.kind == "ground-truth" and info.chance_level is not None
