"""Features of an image (values, cells of a grid, superpixels, own regions), and the base class of what perturbs them.

As in Captum, every channel of every pixel is a feature unless a ``feature_mask`` is given.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from xaibench.explainers.base import Attribution, chunks, target_output
from xaibench.tensors.segments import grid_cells, superpixels

#: Choice of the features; see :func:`find_features`.
FeatureMask: TypeAlias = Literal["auto", "values", "grid", "slic"] | Tensor | None

#: Largest number of values (32×32 with one channel) for which ``"auto"`` takes single values as features: up to this
#: size, twice as many perturbations as unknowns are affordable.
MAX_VALUES = 1024


@dataclass(frozen=True)
class Features:
    """The assignment of the values of each image to features.

    Attributes:
        index: ``[N, V]``, or ``[1, V]`` if all images share it: the feature of each of the V = C·H·W values, int64.
        counts: Number of features per image, ``[N]`` or ``[1]``. The features of image i are numbered from 0 to
            ``counts[i]``
            - 1.
        shape: ``(C, H, W)`` or ``(C, D, H, W)`` of an image.
        whole_pixels: Whether all channels of a pixel always belong to the same feature.
        single: Whether feature v consists of value v only.
    """

    index: Tensor
    counts: tuple[int, ...]
    shape: tuple[int, ...]
    whole_pixels: bool
    single: bool

    @property
    def most(self) -> int:
        """The largest number of features of an image."""
        return max(self.counts)

    def alike(self, samples: int) -> Iterator[tuple[list[int], Features]]:
        """Group the images by their number of features, so that the random draws of one do not depend on the others.

        Args:
            samples: Total number of images.

        Yields:
            The indices of the images, and their features.
        """
        if len(self.index) == 1:
            yield list(range(samples)), self
            return
        for count in sorted(set(self.counts)):
            which = [image for image, own in enumerate(self.counts) if own == count]
            yield which, replace(self, index=self.index[which], counts=(count,) * len(which))

    def of(self, samples: slice) -> Tensor:
        """Return the index of some images: ``[n, V]``, or ``[1, V]`` if it is shared."""
        return self.index if len(self.index) == 1 else self.index[samples]

    def spread(self, values: Tensor, samples: slice) -> Tensor:
        """Expand one number per feature, ``[n, s, F]``, to one per value of the image, ``[n, s, V]``."""
        if self.single:
            return values
        index = self.of(samples)
        if len(index) == 1:
            return values[..., index[0]]
        return values.gather(2, index[:, None].expand(-1, values.shape[1], -1))

    def attributions(self, values: Tensor) -> Tensor:
        """Return ``[N, C, H, W]`` from ``[N, F]``; ``[N, 1, H, W]`` if features consist of whole pixels."""
        found = self.spread(values[:, None], slice(0, len(values))).reshape(len(values), *self.shape)
        return found[:, :1] if self.whole_pixels else found


def find_features(feature_mask: FeatureMask, images: Tensor, cell_size: int, n_segments: int) -> Features:
    """Return the features of images ``[N, C, H, W]``.

    Args:
        feature_mask: ``"values"`` or ``None``: every value of every channel. ``"grid"``: square cells. ``"slic"``:
            superpixels of each image (Achanta et al. 2012, from scikit-image, computed on the image scaled to [0, 1]).
            Volumes have cubic cells and supervoxels.
            ``"auto"``: values for an image of up to 1024 values, otherwise superpixels. An integer tensor: ``[H, W]``,
            ``[N, H, W]``, ``[1, C, H, W]`` or ``[N, C, H, W]``, in which equal numbers form a feature. Except for
            values and masks with C > 1, a feature covers all channels of its pixels.
        images: ``[N, C, H, W]``.
        cell_size: Side of a grid cell in pixels; the cells at the right and lower edge may be smaller.
        n_segments: Approximate number of superpixels per image.

    Raises:
        TypeError: If the mask is neither a name nor an integer tensor.
        ValueError: If its shape does not fit the images.
    """
    shape = tuple(images.shape[1:])
    if isinstance(feature_mask, str) and feature_mask == "auto":
        feature_mask = "values" if images[0].numel() <= MAX_VALUES else "slic"
    if feature_mask is None or (isinstance(feature_mask, str) and feature_mask == "values"):
        index = torch.arange(images[0].numel(), device=images.device)[None]
        return Features(index, (index.shape[1],), shape, whole_pixels=False, single=True)
    if isinstance(feature_mask, str):
        labels = grid_cells(shape[1:], cell_size)[None] if feature_mask == "grid" else superpixels(images, n_segments)
        labels = labels[:, None]
    else:
        labels = _labels_from_mask(feature_mask, images)
    counted = [np.unique(label, return_inverse=True) for label in labels.numpy()]
    index = torch.from_numpy(np.stack([inverse.reshape(labels.shape[1:]) for _, inverse in counted]))
    whole = labels.shape[1] == 1
    index = index.expand(-1, *shape).flatten(1).to(images.device)
    return Features(index, tuple(len(names) for names, _ in counted), shape, whole_pixels=whole, single=False)


def check_feature_mask(owner: str, feature_mask: object) -> None:
    """Raise an error if a feature mask is invalid, as far as that can be seen without images."""
    if isinstance(feature_mask, Tensor):
        if feature_mask.is_floating_point() or feature_mask.is_complex() or feature_mask.dtype == torch.bool:
            raise TypeError(f"{owner}(feature_mask=...): got {feature_mask.dtype}, expected integers.")
    elif feature_mask is not None and feature_mask not in ("auto", "values", "grid", "slic"):
        raise ValueError(
            f"{owner}(feature_mask={feature_mask!r}): expected 'auto', 'values', 'grid', 'slic' or an integer tensor "
            "[H, W], [N, H, W] or [1, C, H, W]."
        )


def _labels_from_mask(feature_mask: Tensor, images: Tensor) -> Tensor:
    """Return the labels ``[N or 1, C or 1, H, W]`` on the CPU."""
    mask = feature_mask.cpu()
    axes = images.ndim - 2
    labels = mask[None, None] if mask.ndim == axes else mask[:, None] if mask.ndim == axes + 1 else mask
    fits = labels.ndim == images.ndim and labels.shape[2:] == images.shape[2:]
    if not fits or labels.shape[0] not in (1, len(images)) or labels.shape[1] not in (1, images.shape[1]):
        (n, c), size = images.shape[:2], ", ".join(map(str, images.shape[2:]))
        raise ValueError(
            f"feature_mask: got {list(mask.shape)} for images {list(images.shape)}, expected [{size}], "
            f"[{n}, {size}], [1, {c}, {size}] or [{n}, {c}, {size}]."
        )
    return labels


@dataclass(frozen=True, kw_only=True)
class FeatureAttribution(Attribution):
    """Base class with the parameters of explainers that perturb features.

    Every pixel of a feature gets the full attribution of the feature, as in Captum.

    Attributes:
        feature_mask: ``"values"`` or ``None``: every value of every channel is a feature. ``"grid"``: square cells.
            ``"slic"``: superpixels of each image. ``"auto"``: values for an image of up to 1024 values (32×32 with one
            channel), otherwise superpixels. An integer tensor ``[H, W]``, ``[N, H, W]``, ``[1, C, H, W]`` or ``[N, C,
            H, W]``, in which equal numbers form a feature. Except for values and masks with C > 1, a feature covers all
            channels of its pixels, and ``channels`` has no effect.
        cell_size: Side of a grid cell in pixels.
        n_segments: Approximate number of superpixels per image.
    """

    feature_mask: FeatureMask = field(default=None, repr=False, compare=False)
    cell_size: int = 16
    n_segments: int = 100

    def __post_init__(self) -> None:
        super().__post_init__()
        check_feature_mask(type(self).__name__, self.feature_mask)

    def rows_of(self, model: nn.Module, images: Tensor) -> int:
        """Return the number of rows per forward pass of the model.

        A linear layer on the whole image is fastest with many rows, since its weights are read once per pass. A
        convolution is fastest with few, since its intermediate results are larger than the image and would not fit into
        the CPU cache.
        """
        rows, size = self.rows(images), images[0].numel()
        flat = any(isinstance(layer, nn.Linear) and layer.in_features == size for layer in model.modules())
        return max(rows, min(128, 2**19 // size)) if flat and not self.batch_size else rows

    def passes(self, images: Tensor) -> int:
        """Return the number of passes: one per feature, for explainers that draw no samples.

        Args:
            images: ``[N, C, H, W]``.

        Returns:
            The number of passes; approximate if each image has its own superpixels.
        """
        return len(images) * (1 + self.feature_count(images))

    def cheaper(self) -> str:
        """Return advice on reducing the number of passes, for error messages.

        Returns:
            The change in words.
        """
        return "feature_mask='slic' or 'grid'"

    def features(self, images: Tensor) -> Features:
        """Return the features of images ``[N, C, H, W]``."""
        return find_features(self.feature_mask, images, self.cell_size, self.n_segments)

    def feature_count(self, images: Tensor) -> int:
        """Return the number of features per image, taken from the first image if segmentation is needed.

        Args:
            images: ``[N, C, H, W]``; a user-defined mask applies to all of them.

        Returns:
            The number of features.
        """
        given = isinstance(self.feature_mask, Tensor)
        return self.features(images if given else images[:1]).most


def plain_outputs(model: nn.Module, images: Tensor, targets: Tensor, rows: int) -> Tensor:
    """Return target outputs ``[n]``, with at most ``rows`` rows per pass."""
    return torch.cat([target_output(model, x, y) for x, y in chunks(rows, images, targets)])


def row_outputs(model: nn.Module, rows: Tensor, images: Tensor, targets: Tensor) -> Tensor:
    """Return target outputs ``[n, s]`` of the rows ``[n, s, features]`` of n samples."""
    shaped = rows.reshape(-1, *images.shape[1:])
    return target_output(model, shaped, targets.repeat_interleave(rows.shape[1])).reshape(rows.shape[:2])
