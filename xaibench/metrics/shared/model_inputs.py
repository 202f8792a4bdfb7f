"""Checks of the inputs of metrics that call the model: images, targets and maps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from xaibench.compute.network_outputs import model_device_and_dtype
from xaibench.compute.targets import Targets, as_targets
from xaibench.core.checks import check_count, plain_array
from xaibench.core.types import Array, Reduction
from xaibench.metrics.shared.inputs import Scores, check_reduction, reduce_scores

#: Images ``[n, C, H, W]``, or volumes ``[n, C, D, H, W]``, to outputs ``[n, K]``.
Model: TypeAlias = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class LabeledImages:
    """Images and their classes, on the device of the model and in its precision.

    Attributes:
        images: ``[N, C, H, W]``, or volumes ``[N, C, D, H, W]``; an image is repeated for each of its labels if the
            targets are multi-hot.
        targets: ``[N]`` int64.
        labels: The targets as they were given.
    """

    images: Tensor
    targets: Tensor
    labels: Targets

    def __len__(self) -> int:
        return len(self.images)

    @property
    def pixels(self) -> int:
        """Number of pixels (voxels) per image."""
        return self.images.shape[2:].numel()


def as_samples(model: Model, images: Array, targets: Any, output: object = "probability") -> LabeledImages:
    """Return images and targets as tensors on the model's device; one image ``[C, H, W]`` becomes a batch of one.

    Args:
        model: Decides device and precision.
        images: ``[N, C, H, W]``, or volumes ``[N, C, D, H, W]``.
        targets: As :func:`xaibench.compute.targets.as_targets` accepts them. Multi-hot targets give one sample per set
            label. Ignored if they are None and ``output`` is a callable.
        output: The score of the metric; multi-hot targets need ``"sigmoid"``, ``"logit"`` or a callable.

    Raises:
        ValueError: If the shapes do not match, images are empty, or values are not finite.
        TypeError: If images are not floating point, or targets are not integers.
    """
    x = _tensor(images, "images")
    if x.ndim == 3:
        x = x[None]
    if x.ndim not in (4, 5) or x.numel() == 0:
        raise ValueError(
            f"images must be [N, C, H, W] (volumes: [N, C, D, H, W]) with at least one image, got {list(x.shape)}."
        )
    if not x.is_floating_point():
        raise TypeError(f"images must be floating, scaled as the model expects them, got {x.dtype}.")
    y = as_targets(0 if targets is None and callable(output) else targets, len(x))
    if y.rows is not None and output in ("probability", "margin"):
        raise ValueError(
            f"targets: got multi-hot rows and output={output!r}, which is for one class per image. Pass "
            "output='sigmoid' to score the probability of each set label, or output='logit'."
        )
    check_finite(x, "images")
    device, dtype = model_device_and_dtype(model, x)
    with torch.inference_mode(False):
        return LabeledImages(y.expand(x.to(device, dtype)), y.classes.to(device), y)


def as_map_tensor(maps: Array, samples: LabeledImages) -> Tensor:
    """Return maps, with the shape of the images without channels, as a tensor on their device in its own precision.

    Raises:
        ValueError: If the shape does not match the images (the message contains both), or values are not finite.
        TypeError: If the values are not real numbers.
    """
    s = _tensor(maps, "maps")
    if s.dtype == torch.bool:
        s = s.to(torch.uint8)
    shape = list(samples.images.shape)
    if s.ndim == 2:
        s = s[None]
    if list(s.shape) != [shape[0], *shape[2:]]:
        hint = " Reduce the channels of the maps first." if s.ndim == len(shape) else ""
        axes = "[N, H, W] for images [N, C, H, W]" if len(shape) == 4 else "[N, D, H, W] for volumes [N, C, D, H, W]"
        raise ValueError(f"maps must be {axes}, got maps {list(s.shape)} and images {shape}.{hint}")
    check_finite(s, "maps")
    return s.to(samples.images.device)


def checked_inputs(
    model: Model,
    images: Array,
    maps: Array,
    targets: Any,
    output: object,
    batch_size: int | None,
    reduction: Reduction,
    seed: int = 0,
) -> tuple[LabeledImages, Tensor]:
    """Check what every metric that calls the model takes; return the samples and the maps as tensors."""
    check_common(batch_size, reduction, seed)
    samples = as_samples(model, images, targets, output)
    return samples, as_map_tensor(maps, samples)


def check_finite(values: Tensor, name: str) -> None:
    """Raise a ValueError that names the samples with NaN or infinity."""
    finite = values.isfinite().flatten(1).all(1)
    if not finite.all():
        raise ValueError(
            f"{name} must be finite, got NaN or infinity in {int((~finite).sum())} of {len(finite)} samples (the "
            f"first is sample {int(finite.int().argmin())}). Leave these out, or check where the values come from."
        )


def check_fraction(name: str, value: float) -> None:
    """Raise a ValueError unless ``value`` is a share of the pixels: above 0, at most 1."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value <= 1:
        raise ValueError(f"{name} must be a share of the pixels, above 0 and at most 1, got {value!r}.")


def check_fractions(fraction: float | Sequence[float], name: str = "fraction") -> list[float]:
    """Return one or several shares of the pixels as a list.

    Raises:
        ValueError: If there is none, or one is not above 0 and at most 1.
    """
    shares = list(fraction) if isinstance(fraction, Sequence) else [fraction]
    if not shares:
        raise ValueError(f"{name} must be a share of the pixels or a sequence of shares, got an empty sequence.")
    for share in shares:
        check_fraction(name, share)
    return shares


def check_common(batch_size: int | None, reduction: Reduction, seed: int = 0) -> None:
    """Raise an error for an invalid ``batch_size``, ``reduction`` or ``seed``."""
    check_count("batch_size", batch_size, none="for what suits the images")
    check_count("seed", seed, least=0)
    check_reduction(reduction)


def count_of_share(fraction: float, pixels: int) -> int:
    """Return the number of pixels that is closest to a share of them, at least one."""
    return max(1, round(fraction * pixels))


def reduce_tensor(scores: Tensor, reduction: Reduction, like: Array) -> Scores:
    """Reduce scores ``[N]``: their mean, or all of them in the type of ``like``."""
    return reduce_scores(scores.double().cpu().numpy(), reduction, like)


def random_generator(seed: int, index: int) -> np.random.Generator:
    """Return the random generator of draw number ``index``.

    It depends only on the seed and the index and is the same for all samples. A score does not depend on the position
    of its sample in the batch, on the other samples, or on the number of draws.
    """
    return np.random.default_rng([seed, index])


def _tensor(array: object, name: str) -> Tensor:
    if isinstance(array, Tensor):
        # Tensors created in inference mode cannot require gradients, which attacks and explainers need.
        with torch.inference_mode(False):
            return array.clone() if array.is_inference() else array.detach()
    if isinstance(array, np.ndarray | np.generic | int):
        found: np.ndarray[Any, Any] = plain_array(np.asanyarray(array), name)
        if found.dtype.kind in "fiub":
            # Torch supports neither negative strides, nor read-only memory, nor foreign byte order.
            return torch.from_numpy(np.array(found, dtype=found.dtype.newbyteorder("="), order="C"))
        raise TypeError(f"{name} must hold real numbers, got {found.dtype}.")
    raise TypeError(f"{name} must be a numpy array or a torch tensor, got {type(array).__name__}.")
