"""XRAI: segments of the image in the order of how much attribution they hold."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import ndimage
from torch import Tensor, nn

from xaibench.core.checks import check_count
from xaibench.core.part_info import ExplainerInfo, described
from xaibench.explainers.gradients.plain_gradients import integrated
from xaibench.explainers.shared.counted_passes import GRADIENT, Repeating
from xaibench.explainers.shared.interface import Attribution, reduce_channels

#: Of Felzenszwalb's segmentation: from fine to coarse, and the blur before it.
_SCALES, _SIGMA = (50, 100, 150, 250, 500, 1200), 0.8
#: Pixels that a segment must add, of an image as large as the segmentation sees it.
_FEWEST = 50
#: Pixels of an image whose segments are kept for the next time.
_SMALL = 64 * 64


@described(
    ExplainerInfo(
        "XRAI",
        family="Gradients",
        citation="Kapishnikov et al.: XRAI: Better Attributions Through Regions. ICCV 2019.",
    )
)
@dataclass(frozen=True, kw_only=True)
class XRAI(Repeating, Attribution):
    """Segments of several sizes, added one after another: each time the one with the highest mean attribution.

    Algorithm 1 of the paper. A pixel gets the mean over what its segment added; pixels of no segment get their own
    mean, so that the sum stays. The attribution is the mean of Integrated Gradients from a black and a white image (the
    smallest and largest value).
    Segments are Felzenszwalb's at six scales, widened by ``dilation``, of the image brought to ``segmentation_size`` times ``segmentation_size``
    pixels, as the authors' package ``saliency`` makes them (tested).

    Departures: segments are widened before they are brought back to the size of the image, not after, and the fewest
    pixels that one must add shrink with the image, so that small images have segments too; at 224×224 nothing differs.
    Channels are summed, where the package takes the largest.

    Attributes:
        n_steps: Points of the quadrature for each of the two baselines.
        segmentation_size: Of the image that is segmented.
        min_segment_size: Fewest pixels of a segment there.
        dilation: By how many pixels segments are widened there, so that they take in the edges around them.
    """

    #: Integrated Gradients from two images.
    each: ClassVar[int] = 2 * GRADIENT
    counted: ClassVar[str] = "n_steps"

    n_steps: int = 50
    segmentation_size: int = 224
    min_segment_size: int = 150
    dilation: int = 5

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("segmentation_size", "min_segment_size"):
            check_count(name, getattr(self, name), owner="XRAI")
        if not self.dilation >= 0:
            raise ValueError(f"XRAI(dilation={self.dilation!r}): expected a number of pixels, 0 or more.")

    def __call__(self, model: nn.Module, images: Tensor, targets: Tensor) -> Tensor:
        """Maps ``[N, H, W]``; they sum to what the attributions do."""
        total = torch.zeros_like(images)
        for end in images.flatten(1).aminmax(dim=1):
            baseline = end.reshape(-1, 1, 1, 1).expand_as(images)
            total += integrated(model, images, targets, baseline, self.n_steps, self.rows(images)) / 2
        attributions = reduce_channels(total, self.channels).double().cpu().numpy()
        fewest = max(1, _FEWEST * attributions[0].size // self.segmentation_size**2)
        maps = [
            grown(self.segments(picture), attribution, fewest)
            for picture, attribution in zip(images.detach().double().cpu().numpy(), attributions, strict=True)
        ]
        return torch.from_numpy(np.stack(maps)).to(images)

    def segments(self, picture: NDArray[np.float64]) -> NDArray[np.bool_]:
        """The segments of an image.

        Args:
            picture: ``[C, H, W]``.

        Returns:
            ``[M, H, W]``, those of all scales; they overlap.
        """
        settings = self.segmentation_size, self.min_segment_size, self.dilation
        if picture[0].size > _SMALL:
            return _segments(picture, *settings)
        packed, count = _kept(picture.tobytes(), picture.shape, *settings)
        bits = np.unpackbits(np.frombuffer(packed, np.uint8), count=count * picture[0].size)
        return bits.astype(bool).reshape(count, *picture.shape[1:])


@functools.lru_cache(maxsize=512)
def _kept(content: bytes, shape: tuple[int, ...], *settings: int) -> tuple[bytes, int]:
    """The segments of a small image, a bit a pixel, and how many.

    They take longer to find than all that is done with them, and depend neither on the network nor on the class, of
    which a suite has many for each image.
    """
    found = _segments(np.frombuffer(content).reshape(shape), *settings)
    return np.packbits(found).tobytes(), len(found)


def _segments(picture: NDArray[np.float64], size: int, min_segment_size: int, dilation: int) -> NDArray[np.bool_]:
    from skimage import transform
    from skimage.segmentation import felzenszwalb

    low, high = picture.min(), picture.max()
    scaled = 2 * (picture - low) / (high - low if high > low else 1.0) - 1
    resize: Any = transform.resize  # which has no types
    large = resize(scaled.transpose(1, 2, 0), (size, size), order=3, mode="constant", anti_aliasing=True)
    rows, columns = (((np.arange(n) + 0.5) * size / n).astype(int) for n in picture.shape[1:])
    found = []
    for scale in _SCALES:
        labels = felzenszwalb(large, scale=scale, sigma=_SIGMA, min_size=min_segment_size)
        for label in range(labels.max() + 1):
            wide = ndimage.distance_transform_edt(labels != label) <= dilation
            found.append(wide[np.ix_(rows, columns)])
    return np.stack(found)


def grown(segments: NDArray[np.bool_], attribution: NDArray[np.float64], fewest: int) -> NDArray[np.float64]:
    """The attribution of each pixel when segments are added greedily.

    Args:
        segments: ``[M, H, W]``.
        attribution: ``[H, W]``.
        fewest: Pixels that a segment must add.

    Returns:
        ``[H, W]``.
    """
    masks, values = segments.reshape(len(segments), -1), attribution.ravel()
    counts, sums = masks.sum(1), np.array([values[mask].sum() for mask in masks])
    found, covered, waiting = np.zeros_like(values), np.zeros(values.size, bool), np.ones(len(masks), bool)
    while (waiting := waiting & (counts >= fewest)).any():
        best = int(np.where(waiting, sums / np.maximum(counts, 1), -np.inf).argmax())
        added = masks[best] & ~covered
        found[added] = values[added].mean()
        covered |= added
        waiting[best] = False
        # What the segments have in common with it is no longer theirs to add.
        counts = counts - masks[:, added].sum(1)
        sums = sums - masks[:, added] @ values[added]
    if not covered.all():
        found[~covered] = values[~covered].mean()
    return found.reshape(attribution.shape)
