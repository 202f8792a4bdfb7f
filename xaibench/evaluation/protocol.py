"""Protocols that scale maps and set the threshold for metrics that binarize maps, the same for every method."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from xaibench.core.part_info import MetricInfo

#: For the metrics that binarize maps (``info.thresholded``: IoU, precision, recall, F1). ``"scaled"``: the map's
#: magnitude is rescaled to [0, 1], and the threshold is 0.5. ``"published"``: the map is unchanged, and the thresholds
#: are the metrics' defaults (0, 0, 0.5, 0), which reproduce the published example.
Protocol: TypeAlias = Literal["scaled", "published"]

PROTOCOLS: tuple[Protocol, ...] = get_args(Protocol)

#: Default protocols. Maps scored by :func:`xaibench.evaluate` or ``xaibench score`` may have any scale, so a threshold
#: of 0 would be meaningless. Suites reproduce published numbers by default.
DEFAULT: Protocol = "scaled"
SUITE_DEFAULT: Protocol = "published"

#: The threshold of ``"scaled"``.
THRESHOLD = 0.5

#: Increased whenever the protocol or the rule for ties (:mod:`xaibench.metrics.shared.ties`) changes, so that stored
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
    smallest = magnitude.min(axis=(1, 2), keepdims=True)
    width = magnitude.max(axis=(1, 2), keepdims=True) - smallest
    shares: NDArray[np.floating[Any]] = np.zeros_like(magnitude)
    np.divide(magnitude - smallest, width, out=shares, where=width > 0)
    return shares


def apply_protocol(
    info: MetricInfo, maps: NDArray[np.floating[Any]], parameters: Mapping[str, Any], protocol: Protocol
) -> tuple[NDArray[np.floating[Any]], dict[str, Any]]:
    """Apply the protocol: rescale the maps and set the threshold. An explicit ``threshold`` parameter is kept."""
    if not info.thresholded or protocol == "published":
        return maps, dict(parameters)
    return scaled(maps), {"threshold": THRESHOLD} | dict(parameters)


def chance_parameters(info: MetricInfo, parameters: Mapping[str, Any], protocol: Protocol) -> dict[str, Any]:
    """Return the parameters of a metric's chance level, so that noise is binarized in the same way as the maps."""
    if not info.thresholded or protocol == "published":
        return dict(parameters)
    return {"threshold": THRESHOLD, "scaled": True} | dict(parameters)


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
