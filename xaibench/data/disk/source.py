"""What an annotated set is on disk: which samples there are, and how one of them is read."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from PIL import Image


class Source(ABC):
    """The samples of a set as they lie on disk, numbered from 0. Opening one reads lists and indices, no pixels.

    A set of a million images must open in seconds and a few hundred megabytes, so what is known of all samples stands
    in arrays, and what is known of one is made when it is asked for.

    Attributes:
        classes: Class names in the order of their index.
        targets: ``[N]`` int64 class indices.
        annotated: ``[N]`` bool: whether what is important in the image is known. A true negative is annotated: its mask
            is known to be empty.
        groups: ``[N]`` int64: samples of one group (a patient, an image that shows two classes) never go to two splits.
            None = every sample is its own.
        missing: ``[N]`` bool: which samples the set's lists name while their image is not on disk; they are counted and
            left out. None = none.
        official: The split that the publishers made, ``{"train": indices, "val": ..., "test": ...}``; what they have
            not named is missing. None = they made none.
    """

    classes: tuple[str, ...]
    targets: NDArray[np.int64]
    annotated: NDArray[np.bool_]
    groups: NDArray[np.int64] | None = None
    missing: NDArray[np.bool_] | None = None
    official: Mapping[str, NDArray[np.int64]] | None = None

    def __len__(self) -> int:
        return len(self.targets)

    @abstractmethod
    def image(self, index: int, size: int) -> Image.Image:
        """The image, in mode ``RGB``, ``L`` (8 bit) or ``F`` (grey in [0, 1]).

        It need not be larger than ``size`` on its shorter side: a JPEG may be decoded at a fraction of its size
        (:func:`~xaibench.data.disk.file_readers.open_image`).

        Args:
            index: Number of the sample.
            size: Side in pixels to which it will be scaled.

        Returns:
            The image, at full size or at a fraction of it.
        """

    @abstractmethod
    def mask(self, index: int) -> NDArray[np.bool_] | None:
        """What is important in the image.

        Args:
            index: Number of the sample.

        Returns:
            ``[h, w]`` at full size, True = important; None = nothing is (a true negative, or not annotated).
        """

    @abstractmethod
    def meta(self, index: int) -> dict[str, object]:
        """What is known of the sample.

        Args:
            index: Number of the sample.

        Returns:
            ``id`` (a string of its own, stable over runs) and ``file`` at least.
        """
