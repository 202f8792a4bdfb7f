"""A network that was opened by a reference, with what is known of its inputs and classes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True, kw_only=True)
class Preprocessing:
    """What is done to an image before a network gets it; numbers only.

    Pixels in [0, 1] are resized and cropped by whoever reads the images. The module of an :class:`OpenedNetwork` then
    normalizes them itself.

    Attributes:
        size: Height and width that the network is called with; for volumes slices, rows and columns.
        resize: Length of the shorter side to which images are scaled before the center of ``size`` is cropped; None if
            they are scaled to ``size`` directly.
        interpolation: Interpolation of the scaling.
        mean: Subtracted from each channel of pixels in [0, 1]; None if not known, so that the network gets the pixels.
        std: Divides each channel afterwards; None with ``mean``.
    """

    size: tuple[int, ...]
    resize: int | None = None
    interpolation: str = "bilinear"
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None

    @property
    def input_range(self) -> tuple[float, float]:
        """Smallest and largest value that the network itself gets for pixels in [0, 1]."""
        if self.mean is None or self.std is None:
            return 0.0, 1.0
        ends = [(pixel - m) / s for pixel in (0.0, 1.0) for m, s in zip(self.mean, self.std, strict=True)]
        return min(ends), max(ends)


@dataclass(frozen=True, kw_only=True)
class OpenedNetwork:
    """A network that was opened by :func:`xaibench.models.open_network`.

    Attributes:
        reference: The reference, as given.
        name: A short name for tables.
        source: ``"python"``, ``"registered"``, ``"timm"``, ``"torchvision"``, ``"hf"``, ``"torchscript"`` or
            ``"onnx"``.
        module: The network on the CPU, in evaluation mode: images ``[N, C, H, W]`` in [0, 1] to logits ``[N, K]``, or
            to something that contains them (:func:`xaibench.explain`).
        num_classes: Number of outputs K.
        classes: Names of the classes; None if not known.
        in_shape: ``(C, H, W)`` of the images, or ``(C, D, H, W)`` of volumes.
        preprocessing: What is done to an image; ``size`` is that of ``in_shape``.
        sha256: Checksum of the weights, the same on all machines.
    """

    reference: str
    name: str
    source: str
    module: nn.Module = field(repr=False)
    num_classes: int
    classes: tuple[str, ...] | None = field(repr=False)
    in_shape: tuple[int, ...]
    preprocessing: Preprocessing
    sha256: str
