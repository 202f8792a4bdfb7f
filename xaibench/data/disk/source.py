"""Interface of an annotated data set on disk: arrays over all samples, and methods that read one sample."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from PIL import Image


class SampleSource(ABC):
    """The samples of a data set on disk, numbered from 0. Opening a source reads lists and indices, but no pixels.

    A set of a million images must open in seconds and in a few hundred megabytes. Facts about all samples are therefore
    arrays, and the image, mask and metadata of a sample are read on access.

    Attributes:
        classes: Class names in the order of their index.
        targets: ``[N]`` int64 class indices.
        annotated: ``[N]`` bool: whether the sample has an annotation. A true negative is annotated: its mask is known
            to be empty.
        groups: ``[N]`` int64: samples of one group (a patient, an image that shows two classes) are never divided
            between splits. None = every sample is its own group.
        groups_by: What the groups are, such as ``"patients"``; empty if not known.
        missing: ``[N]`` bool: whether the image of a listed sample is not on disk. Such samples are reported and left
            out. None = all images are on disk.
        official: The split made by the publishers, ``{"train": indices, "val": ..., "test": ...}``, without the parts
            that they did not define. None = the set has no official split.
    """

    classes: tuple[str, ...]
    targets: NDArray[np.int64]
    annotated: NDArray[np.bool_]
    groups: NDArray[np.int64] | None = None
    groups_by: str = ""
    missing: NDArray[np.bool_] | None = None
    official: Mapping[str, NDArray[np.int64]] | None = None

    def __len__(self) -> int:
        return len(self.targets)

    @abstractmethod
    def mask(self, index: int) -> NDArray[np.bool_] | None:
        """Read the ground-truth mask.

        Args:
            index: Number of the sample.

        Returns:
            ``[h, w]`` at full size (``[d, h, w]`` for volumes), True = important. None = an empty mask (a true negative
            or a sample without an annotation).
        """

    @abstractmethod
    def meta(self, index: int) -> dict[str, object]:
        """Return the metadata of the sample.

        Args:
            index: Number of the sample.

        Returns:
            At least ``id`` (a unique string, the same in every run) and ``file``.
        """


class Source(SampleSource):
    """Samples whose images are pictures of any size."""

    @abstractmethod
    def image(self, index: int, size: int) -> Image.Image:
        """Read the image, in mode ``RGB``, ``L`` (8 bit) or ``F`` (gray in [0, 1]).

        Its shorter side need not be larger than ``size``: a JPEG may be decoded at a fraction of its size
        (:func:`~xaibench.data.disk.image_files.open_image`).

        Args:
            index: Number of the sample.
            size: Height and width in pixels to which the caller will resize the image.

        Returns:
            The image, at full size or at a fraction of it.
        """
