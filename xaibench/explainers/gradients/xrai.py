"""XRAI: rank segments of the image by their attribution."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import ndimage
from torch import Tensor, nn

from xaibench.explainers.base import Attribution, append_axes, reduce_channels
from xaibench.explainers.gradients.integrated_gradients import integrated_gradients
from xaibench.explainers.shared.passes import GRADIENT, Repeating
from xaibench.kernels.compilation import kernels_enabled
from xaibench.kernels.graph_segments import graph_segments
from xaibench.registry.info import ExplainerInfo
from xaibench.registry.parameters import Frozen
from xaibench.tensors.segments import superpixels

#: Parameters of Felzenszwalb's segmentation: scales from fine to coarse, and the blur before it.
_SCALES, _SIGMA = (50, 100, 150, 250, 500, 1200), 0.8
#: Approximate numbers of supervoxels of a volume, from fine to coarse.
_SUPERVOXELS = (200, 100, 50, 25, 12, 6)
#: Minimum number of pixels that a segment must add, for an image of ``segmentation_size``.
_MIN_NEW_PIXELS = 50
#: Largest number of pixels of an image whose segments are cached.
_CACHED_SIZE = 64 * 64


@ExplainerInfo(
    "XRAI",
    family="Gradients",
    revision=2,
    citation="Kapishnikov et al.: XRAI: Better Attributions Through Regions. ICCV 2019.",
    exact_zero=False,
)
@dataclass(frozen=True, kw_only=True)
class XRAI(Repeating, Attribution):
    """Segments of several sizes, added greedily: each time the one with the highest mean attribution.

    Algorithm 1 of the paper. A pixel gets the mean attribution of the pixels that its segment added; pixels outside of
    all segments get their own mean, so that the sum is unchanged. The attribution is the mean of Integrated Gradients
    from a black and a white image (the smallest and largest value). The segments are computed by Felzenszwalb at six
    scales, widened by ``dilation``, of the image resized to ``segmentation_size`` × ``segmentation_size`` pixels, as in
    the authors' package ``saliency`` (tested; edges of equal cost have a fixed order here).

    Departures: segments are widened before they are resized to the image, not after, and the minimum number of pixels
    that a segment must add scales with the image, so that small images have segments too. At 224×224 there is no
    difference. Channels are summed, where the package takes the largest.

    The segments of a volume are SLIC supervoxels of six sizes, computed at its own size, since scikit-image has
    Felzenszwalb's algorithm for images only. A single slice has the segments of an image.

    Attributes:
        n_steps: Points of the quadrature for each of the two baselines.
        segmentation_size: Side of the resized image that is segmented; for a volume, only the unit of ``dilation``.
        min_segment_size: Minimum number of pixels of a segment in it; not used for volumes.
        dilation: Number of pixels by which segments are widened in it, so that they include the surrounding edges.
    """

    #: Integrated Gradients with two baselines.
    each: ClassVar[int] = 2 * GRADIENT
    counted: ClassVar[str] = "n_steps"
    least: ClassVar = Frozen({"dilation": 0})

    n_steps: int = 50
    segmentation_size: int = 224
    min_segment_size: int = 150
    dilation: int = 5

    def __call__(self, model: nn.Module, images: Tensor, targets: Tensor) -> Tensor:
        """Return maps ``[N, H, W]`` with the same sum as the attributions."""
        total = torch.zeros_like(images)
        for end in images.flatten(1).aminmax(dim=1):
            baseline = append_axes(end, images).expand_as(images)
            total += integrated_gradients(model, images, targets, baseline, self.n_steps, self.rows(images)) / 2
        attributions = reduce_channels(total, self.channels).double().cpu().numpy()
        min_new_pixels = max(1, _MIN_NEW_PIXELS * attributions[0].size // self.segmentation_size**2)
        maps = [
            grow_regions(self.segments(picture), attribution, min_new_pixels)
            for picture, attribution in zip(images.detach().double().cpu().numpy(), attributions, strict=True)
        ]
        return torch.from_numpy(np.stack(maps)).to(images)

    def segments(self, picture: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Return the segments of an image.

        Args:
            picture: ``[C, H, W]``.

        Returns:
            Masks ``[M, H, W]`` of the segments of all scales, which overlap.
        """
        settings = self.segmentation_size, self.min_segment_size, self.dilation
        if picture[0].size > _CACHED_SIZE:
            return _segments(picture, *settings)
        packed, count = _cached_segments(picture.tobytes(), picture.shape, *settings)
        bits = np.unpackbits(np.frombuffer(packed, np.uint8), count=count * picture[0].size)
        return bits.astype(bool).reshape(count, *picture.shape[1:])


@functools.lru_cache(maxsize=512)
def _cached_segments(content: bytes, shape: tuple[int, ...], *settings: int) -> tuple[bytes, int]:
    """Return the segments of a small image as packed bits, and their number.

    Segmentation takes longer than the rest, and depends neither on the network nor on the class, so a suite reuses it.
    """
    found = _segments(np.frombuffer(content).reshape(shape), *settings)
    return np.packbits(found).tobytes(), len(found)


def _segments(picture: NDArray[np.float64], size: int, min_segment_size: int, dilation: int) -> NDArray[np.bool_]:
    if picture.ndim > 3:
        if picture.shape[1] == 1:
            return _segments(picture[:, 0], size, min_segment_size, dilation)[:, None]
        return _supervoxels(picture, size, dilation)
    from skimage import transform

    low, high = picture.min(), picture.max()
    scaled = 2 * (picture - low) / (high - low if high > low else 1.0) - 1
    resize: Any = transform.resize  # which has no types
    large = resize(scaled.transpose(1, 2, 0), (size, size), order=3, mode="constant", anti_aliasing=True)
    rows, columns = (((np.arange(n) + 0.5) * size / n).astype(int) for n in picture.shape[1:])
    found = []
    if kernels_enabled():
        scales = graph_segments(large, _SCALES, _SIGMA, min_segment_size)
    else:
        from skimage.segmentation import felzenszwalb

        scales = np.stack([felzenszwalb(large, scale, _SIGMA, min_segment_size) for scale in _SCALES])
    for labels in scales:
        found += [wide[np.ix_(rows, columns)] for wide in _widened_segments(labels, dilation, (1.0, 1.0))]
    return np.stack(found)


def _supervoxels(picture: NDArray[np.float64], size: int, dilation: int) -> NDArray[np.bool_]:
    """Return the widened supervoxels ``[M, D, H, W]`` of a volume; distances are in units of 1 / ``size`` of a side."""
    units = [size / side for side in picture.shape[1:]]
    found: list[NDArray[np.bool_]] = []
    for count in _SUPERVOXELS:
        found += _widened_segments(superpixels(torch.tensor(picture)[None], count)[0].numpy(), dilation, units)
    return np.stack(found)


def _widened_segments(
    labels: NDArray[np.integer[Any]], dilation: int, units: Sequence[float]
) -> Iterator[NDArray[np.bool_]]:
    """Return the mask of each label with everything up to ``dilation`` away; ``units`` are the sides of a pixel."""
    margins = [math.ceil(dilation / unit) for unit in units]
    for label, box in enumerate(ndimage.find_objects(labels + 1)):
        if box is None:
            continue
        # Only near the segment, since a distance transform of the whole image takes long.
        near = tuple(slice(max(0, s.start - m), s.stop + m) for s, m in zip(box, margins, strict=True))
        wide = np.zeros(labels.shape, dtype=np.bool_)
        wide[near] = ndimage.distance_transform_edt(labels[near] != label, sampling=units) <= dilation
        yield wide


def grow_regions(
    segments: NDArray[np.bool_], attribution: NDArray[np.float64], min_new_pixels: int
) -> NDArray[np.float64]:
    """Return the attribution of each pixel when segments are added greedily.

    Args:
        segments: ``[M, H, W]``.
        attribution: ``[H, W]``.
        min_new_pixels: Minimum number of pixels that a segment must add.

    Returns:
        ``[H, W]``.
    """
    masks, values = segments.reshape(len(segments), -1), attribution.ravel()
    counts, sums = masks.sum(1), np.array([values[mask].sum() for mask in masks])
    found, covered, waiting = np.zeros_like(values), np.zeros(values.size, bool), np.ones(len(masks), bool)
    while (waiting := waiting & (counts >= min_new_pixels)).any():
        best = int(np.where(waiting, sums / np.maximum(counts, 1), -np.inf).argmax())
        added = masks[best] & ~covered
        found[added] = values[added].mean()
        covered |= added
        waiting[best] = False
        # The other segments can no longer add the pixels of this one.
        counts = counts - masks[:, added].sum(1)
        sums = sums - masks[:, added] @ values[added]
    if not covered.all():
        found[~covered] = values[~covered].mean()
    return found.reshape(attribution.shape)
