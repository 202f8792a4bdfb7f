"""Base class of explainers that perturb features, and the outputs of perturbed images.

As in Captum, every channel of every pixel is a feature unless a ``feature_mask`` is given.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from xaibench.core.checks import check_count
from xaibench.explainers.base import (
    Attribution,
    chunks,
    target_output,
)
from xaibench.explainers.perturbation.pixel_features import FeatureMask, Features, check_feature_mask, find_features


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
        check_count("cell_size", self.cell_size, owner=type(self).__name__)
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
