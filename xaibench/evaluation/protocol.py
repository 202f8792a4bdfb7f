"""How maps are made ready for metrics that cut them at a threshold: stated once, applied to every method alike."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from xaibench.core.part_info import MetricInfo

#: For the metrics that cut a map in two (``info.thresholded``: IoU, precision, recall, F1). ``"scaled"``: they see the
#: map's magnitude stretched to [0, 1] and cut it above 0.5. ``"published"``: they see the map as it is and cut it by
#: their own defaults (0, 0, 0.5, 0), with which the published example was made.
Protocol: TypeAlias = Literal["scaled", "published"]

PROTOCOLS: tuple[Protocol, ...] = get_args(Protocol)

#: What is done unless it is said. Whoever calls :func:`xaibench.evaluate` or ``xaibench score`` has maps of any scale
#: to compare, of which "above 0" says nothing; a suite that states nothing reproduces published numbers.
DEFAULT: Protocol = "scaled"
SUITE_DEFAULT: Protocol = "published"

#: Where ``"scaled"`` cuts.
THRESHOLD = 0.5

#: Bumped whenever the same map is cut otherwise, so that scores of the old way are not taken for new ones.
REVISION = 1


def scaled(maps: NDArray[np.floating[Any]]) -> NDArray[np.floating[Any]]:
    """Magnitudes ``[N, H, W]`` stretched to [0, 1], each map by its own smallest and largest; a constant one is 0.

    The sign is dropped first: stretching a signed map would lift its zeros to some 0.5, so that one extreme pixel
    decides whether half of the image is marked.

    Example:
        >>> scaled(np.array([[[0.0, -4.0], [1.0, 0.0]]])).tolist()
        [[[0.0, 1.0], [0.25, 0.0]]]
        >>> scaled(np.array([[[0.8, 0.9], [1.0, 0.8]]])).round(6).tolist()  # such as RISE, whose level is high
        [[[0.0, 0.5], [1.0, 0.0]]]
    """
    magnitude = np.abs(maps)
    smallest = magnitude.min(axis=(1, 2), keepdims=True)
    width = magnitude.max(axis=(1, 2), keepdims=True) - smallest
    shares: NDArray[np.floating[Any]] = np.zeros_like(magnitude)
    np.divide(magnitude - smallest, width, out=shares, where=width > 0)
    return shares


def prepared(
    info: MetricInfo, maps: NDArray[np.floating[Any]], parameters: Mapping[str, Any], protocol: Protocol
) -> tuple[NDArray[np.floating[Any]], dict[str, Any]]:
    """The maps that a metric sees, and its parameters. A threshold that the caller states is the caller's.

    Whether a metric is cut stands in its record, so its name decides nothing.
    """
    if not info.thresholded or protocol == "published":
        return maps, dict(parameters)
    return scaled(maps), {"threshold": THRESHOLD} | dict(parameters)


def of_noise(info: MetricInfo, parameters: Mapping[str, Any], protocol: Protocol) -> dict[str, Any]:
    """The parameters of a metric's chance level: noise is cut as the maps are that are compared with it."""
    if not info.thresholded or protocol == "published":
        return dict(parameters)
    return {"threshold": THRESHOLD, "scaled": True} | dict(parameters)
