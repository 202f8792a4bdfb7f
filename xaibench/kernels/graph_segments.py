"""Felzenszwalb's graph-based segmentation of an image at several scales.

Neighboring pixels are connected by edges, whose cost is the distance of their colors. Edges are visited from cheap to
costly. An edge joins the segments at its ends if its cost is below ``largest + scale / size`` of both, ``largest``
being the largest cost within a segment. A second pass joins segments that are too small to a neighbor.

scikit-image has the same algorithm for one scale. Here all scales share the blurred image and the sorted edges. Edges
of equal cost keep their order; in scikit-image it depends on the processor, as that of NumPy's default sort does.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from xaibench.kernels.compilation import kernel, subroutine


def graph_segments(
    image: NDArray[np.float64], scales: Sequence[float], sigma: float, min_size: int
) -> NDArray[np.int64]:
    """Return labels ``[S, H, W]``, from 0 in the order of each segment's first pixel, for each of S scales.

    Args:
        image: ``[H, W, C]``.
        scales: The larger, the larger the segments; in units of 1/255, as in scikit-image.
        sigma: Standard deviation of the blur, in pixels.
        min_size: Minimum number of pixels of a segment.

    Source:
        Felzenszwalb, Huttenlocher: Efficient Graph-Based Image Segmentation. IJCV 2004.
    """
    height, width, _ = image.shape
    blurred = ndimage.gaussian_filter(image, (sigma, sigma, 0), mode="reflect")
    number = np.arange(height * width).reshape(height, width)
    every, before, after = slice(None), slice(None, -1), slice(1, None)
    pairs = [
        ((every, after), (every, before)),
        ((after, every), (before, every)),
        ((after, after), (before, before)),
        ((before, after), (after, before)),
    ]
    costs = np.concatenate([np.sqrt(((blurred[a] - blurred[b]) ** 2).sum(-1)).ravel() for a, b in pairs])
    order = _stable_order(costs)
    costs = costs[order]
    ends = np.stack([np.concatenate([number[pair[end]].ravel() for pair in pairs])[order] for end in (0, 1)])
    found = [_joined(ends, costs, height * width, scale / 255.0, min_size) for scale in scales]
    return np.stack(found).reshape(len(scales), height, width)


def _stable_order(values: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return ``values.argsort(kind="stable")``, which takes seven times as long as to sort the ties of another sort."""
    order = values.argsort()
    tied = np.zeros(len(values), dtype=np.bool_)
    tied[1:] = np.diff(values[order]) == 0
    tied[:-1] |= tied[1:]
    among = order[tied]
    order[tied] = among[np.lexsort((among, values[among]))]
    return order


@kernel
def _joined(
    ends: NDArray[np.int64], costs: NDArray[np.float64], n_pixels: int, scale: float, min_size: int
) -> NDArray[np.int64]:
    """Return the label of each pixel at one scale; ``ends`` ``[2, E]`` of the edges are sorted by ``costs``."""
    parents = np.arange(n_pixels)  # the root of a segment is its first pixel
    sizes, largest = np.ones(n_pixels, np.int64), np.zeros(n_pixels)
    for edge in range(len(costs)):
        one, other = _root(parents, ends[0, edge]), _root(parents, ends[1, edge])
        if one != other and costs[edge] < min(largest[one] + scale / sizes[one], largest[other] + scale / sizes[other]):
            first, second = min(one, other), max(one, other)
            parents[second] = first
            sizes[first] += sizes[second]
            largest[first] = costs[edge]
    for edge in range(len(costs)):
        one, other = _root(parents, ends[0, edge]), _root(parents, ends[1, edge])
        if one != other and (sizes[one] < min_size or sizes[other] < min_size):
            first, second = min(one, other), max(one, other)
            parents[second] = first
            sizes[first] += sizes[second]
    labels, count = np.empty(n_pixels, np.int64), 0
    for pixel in range(n_pixels):
        root = _root(parents, pixel)
        if root == pixel:
            labels[pixel] = count
            count += 1
        else:
            labels[pixel] = labels[root]
    return labels


@partial(subroutine, inline=True)
def _root(parents: NDArray[np.int64], pixel: int) -> int:
    """Return the root of a pixel, and shorten the way to it."""
    while parents[pixel] != pixel:
        parents[pixel] = parents[parents[pixel]]
        pixel = parents[pixel]
    return pixel
