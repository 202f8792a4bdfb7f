"""How maps are made ready for metrics that cut them at a threshold: stated once, applied to every method alike."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

#: ``"scaled"``: iou, precision, recall and f1 see |map| / max |map| and cut it above 0.5. ``"published"``: they see the
#: map as it is and cut it by their own defaults (0, 0, 0.5, 0), with which the published example was made.
Protocol: TypeAlias = Literal["scaled", "published"]

PROTOCOLS: tuple[Protocol, ...] = get_args(Protocol)

#: The metrics that cut a map in two, and where ``"scaled"`` cuts.
THRESHOLDED = ("iou", "precision", "recall", "f1")
THRESHOLD = 0.5


def scaled(maps: NDArray[np.floating[Any]]) -> NDArray[np.floating[Any]]:
    """Magnitudes ``[N, H, W]`` in [0, 1], each map by its own largest; a map of zeros stays one.

    Not by minimum and maximum: that would lift the zeros of a signed map to some 0.5, and so decide by one extreme
    pixel whether half of the image is marked.

    Example:
        >>> scaled(np.array([[[0.0, -4.0], [1.0, 0.0]]])).tolist()
        [[[0.0, 1.0], [0.25, 0.0]]]
    """
    magnitude = np.abs(maps)
    largest = magnitude.max(axis=(1, 2), keepdims=True)
    shares: NDArray[np.floating[Any]] = np.zeros_like(magnitude)
    np.divide(magnitude, largest, out=shares, where=largest > 0)
    return shares


def prepared(
    metric: str, maps: NDArray[np.floating[Any]], parameters: Mapping[str, Any], protocol: Protocol
) -> tuple[NDArray[np.floating[Any]], dict[str, Any]]:
    """The maps that ``metric`` sees, and its parameters. A threshold that the caller states is the caller's."""
    given = dict(parameters)
    if metric not in THRESHOLDED or protocol == "published":
        return maps, given
    return scaled(maps), {"threshold": THRESHOLD} | given
