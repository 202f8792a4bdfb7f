"""Checks of maps and masks, reduction of scores, and reasons why a score is undefined; loads no torch."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, TypeAlias, TypeVar, get_args

import numpy as np
from numpy.typing import NDArray

from xaibench.core.checks import check_finite, check_values, is_beyond_int64, plain_array
from xaibench.core.types import Array, Bools, Floats, Reduction

NOT_FINITE = "map is not finite"
EMPTY_MASK = "mask is empty"
FULL_MASK = "mask covers the whole image"
ZERO_MAP = "map is all zero"
CONSTANT_MAP = "map is constant"
NOTHING_ABOVE = "no pixel above the threshold"
PERFECT_CHANCE = "noise is perfect already"

#: Reasons caused by the map. A benchmark scores such a map as chance where it knows the chance level.
REASONS_OF_MAP = (ZERO_MAP, CONSTANT_MAP, NOTHING_ABOVE)


#: Result of a metric: a ``float`` for ``reduction="mean"``, otherwise ``[N]`` in the type of the maps. (``Any``,
#: because callers would have to narrow a union although they know the type.)
Scores: TypeAlias = float | Any

#: Threshold of a map: pixels with a larger value are marked. ``"area"`` marks the k largest pixels, where k is the
#: number of pixels of the sample's mask.
Threshold: TypeAlias = float | Literal["area"]

#: Computes the scores of samples from checked maps float64 and masks bool, both ``[n, H, W]``, or ``[n, D, H, W]`` for
#: volumes, and from further inputs of these samples.
Kernel: TypeAlias = Callable[..., Floats]

#: Returns a further input ``[N, ...]`` of all samples, given the shape of the maps.
SampleInput: TypeAlias = Callable[[Sequence[int]], Floats]

#: The same for a metric that uses only the map.
MapKernel: TypeAlias = Callable[[Floats], Floats]

#: Pixels per call of a kernel; bounds the memory (8 MB per temporary array) and does not affect scores.
_BLOCK_PIXELS = 2**20

#: The shapes that maps and masks can have, for error messages.
_SHAPES = "[N, H, W] or [H, W], or [N, D, H, W] for volumes"

_T = TypeVar("_T", bound=np.generic)


def score_pairs(kernel: Kernel, maps: Array, masks: Array, reduction: Reduction, *inputs: SampleInput) -> Scores:
    """Check maps and masks, score each sample with ``kernel``, and reduce the scores.

    Args:
        kernel: Scores each of the given samples independently.
        maps: ``[N, H, W]``, ``[N, D, H, W]`` or ``[H, W]``, real and finite.
        masks: Same shape, bool or only 0 and 1.
        reduction: ``"mean"`` or ``"none"``.
        *inputs: Further inputs of the kernel, of which it gets the rows of its samples.

    Raises:
        ValueError: If shapes differ or are invalid, a map contains NaN or infinity, a mask is not binary, or
            ``reduction`` is unknown.
        TypeError: If an input is not a numpy array or torch tensor of real numbers.
    """
    check_reduction(reduction)
    values, truth = check_pair(maps, masks)
    check_finite(values, "maps")
    rows = [each(values.shape) for each in inputs]
    scores = [
        kernel(_as_float64(values[block]), truth[block], *(each[block] for each in rows)) for block in _blocks(values)
    ]
    return reduce_scores(np.concatenate([np.empty(0), *scores]), reduction, like=maps)


def score_maps(kernel: MapKernel, maps: Array, reduction: Reduction) -> Scores:
    """Check maps, score each with ``kernel``, and reduce the scores; :func:`score_pairs` without masks."""
    check_reduction(reduction)
    values = _checked(maps, "maps")
    scores = [kernel(_as_float64(values[block])) for block in _blocks(values)]
    return reduce_scores(np.concatenate([np.empty(0), *scores]), reduction, like=maps)


def checked_maps(maps: Array, name: str = "maps") -> Floats:
    """Return maps as float64 ``[N, H, W]`` or ``[N, D, H, W]``, after checking shape and finiteness.

    Args:
        maps: ``[N, H, W]``, ``[N, D, H, W]`` or ``[H, W]``.
        name: Name of the argument in errors.

    Raises:
        ValueError: If the shape is different, or values are not finite.
        TypeError: If it is not a numpy array or torch tensor of real numbers.
    """
    return _as_float64(_checked(maps, name))


def _checked(maps: Array, name: str) -> NDArray[Any]:
    values = _as_numpy(maps, name)
    if not _has_map_shape(values):
        raise ValueError(f"{name} must have the shape {_SHAPES}, got {list(values.shape)}.")
    if values.ndim == 4 and values.shape[1] == 3:
        # Without masks and images, nothing else tells color channels from slices.
        raise ValueError(
            f"{name} are {list(values.shape)}: three color channels, or volumes of three slices? Reduce the channels "
            "of the maps first; for volumes, move the axis of three to the end, which does not change the score."
        )
    values = values if values.ndim > 2 else values[None]
    check_finite(values, name)
    return values


def reduce_scores(scores: Floats, reduction: Reduction, like: Array) -> Scores:
    """Return the mean of the defined scores, or all scores ``[N]`` in the type (and on the device) of ``like``."""
    if reduction == "mean":
        return mean_of_defined(scores)
    if _is_tensor(like):
        import torch

        return torch.from_numpy(scores).to(like.device)
    return scores


def mean_of_defined(scores: Floats) -> float:
    """Return the mean of the scores that are not NaN; NaN if there are none."""
    defined = scores[~np.isnan(scores)]
    # fsum is exactly rounded, so the mean does not depend on the order of the samples.
    try:
        return math.fsum(defined) / len(defined) if len(defined) else math.nan
    except OverflowError:  # the sum of huge scores overflows, their mean does not
        return math.fsum(defined / len(defined))


def check_reduction(reduction: str) -> None:
    """Raise a ValueError if ``reduction`` is unknown."""
    if reduction not in get_args(Reduction):
        raise ValueError(f"reduction must be 'mean' or 'none', got {reduction!r}.")


def check_finite_number(value: float, name: str, least: float = -math.inf) -> None:
    """Raise an error if a parameter is not a finite number of at least ``least``."""
    expected = "a finite number" if least == -math.inf else f"a finite number >= {least:g}"
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise TypeError(f"{name} must be {expected}, got {value!r}.")
    if is_beyond_int64(value) or not (math.isfinite(value) and value >= least):
        raise ValueError(f"{name} must be {expected}, got {value!r}.")


def check_threshold(threshold: Threshold) -> None:
    """Raise an error unless ``threshold`` is a finite number or ``"area"``."""
    if isinstance(threshold, str) and threshold != "area":
        raise ValueError(f"threshold must be a finite number or 'area', got {threshold!r}.")
    if not isinstance(threshold, str):
        check_finite_number(threshold, "threshold")


def check_pair(maps: Array, masks: Array) -> tuple[NDArray[Any], Bools]:
    """Return maps unchanged and masks as bool, both numpy ``[N, H, W]`` or ``[N, D, H, W]``; or raise an error."""
    values, truth = _as_numpy(maps, "maps"), _as_numpy(masks, "masks")
    if values.shape != truth.shape or not _has_map_shape(values):
        hint = " Reduce the channels of the maps first." if values.ndim == 4 and truth.ndim < 4 else ""
        raise ValueError(
            f"maps and masks must have the same shape {_SHAPES}, "
            f"got maps {list(values.shape)} and masks {list(truth.shape)}.{hint}"
        )
    if truth.dtype != np.bool_:
        stray = (truth != 0) & (truth != 1)
        if stray.any():
            raise ValueError(
                f"masks must be binary (bool, or only 0 and 1), got the value {truth[stray][0]!s}. "
                "Threshold them first, such as masks > 0."
            )
        truth = truth == 1
    if values.ndim == 2:
        values, truth = values[None], truth[None]
    return values, truth


def finite_samples(values: NDArray[Any]) -> Bools:
    """Return ``[N]`` bool: which of the maps contain neither NaN nor infinity."""
    return np.concatenate(
        [np.empty(0, np.bool_), *(flat(np.isfinite(values[block])).all(axis=1) for block in _blocks(values))]
    )


def flat(images: NDArray[_T]) -> NDArray[_T]:
    """Reshape ``[N, H, W]`` or ``[N, D, H, W]`` to one row of pixels per sample."""
    return images.reshape(len(images), math.prod(images.shape[1:]))


def share(amount: Floats | NDArray[np.int64], whole: Floats | NDArray[np.int64], defined: Bools) -> Floats:
    """Return ``amount / whole`` where ``defined``, and NaN elsewhere."""
    shares = np.full(len(amount), np.nan)
    np.divide(amount, whole, out=shares, where=defined)
    return shares


def _as_numpy(array: Array, name: str) -> NDArray[Any]:
    if _is_tensor(array):
        check_values(array, name)
        tensor: Any = array.detach().cpu()  # type: ignore[union-attr]
        # numpy has no bfloat16; every bfloat16 is a float32.
        values: NDArray[Any] = (tensor.float() if str(tensor.dtype) == "torch.bfloat16" else tensor).numpy()
    elif isinstance(array, np.ndarray):
        values = plain_array(array, name)
    else:
        raise TypeError(f"{name} must be a numpy array or a torch tensor, got {type(array).__name__}.")
    if values.dtype.kind not in "fiub":
        raise TypeError(f"{name} must hold real numbers, got {values.dtype}.")
    return values


def _as_float64(values: NDArray[Any]) -> Floats:
    return np.ascontiguousarray(values, dtype=np.float64)


def _is_tensor(array: object) -> bool:
    torch = sys.modules.get("torch")  # a tensor can only exist if torch is imported; numpy users need not load it
    return torch is not None and isinstance(array, torch.Tensor)


def _has_map_shape(values: NDArray[Any]) -> bool:
    return values.ndim in (2, 3, 4) and 0 not in values.shape[values.ndim > 2 :]


def _blocks(values: NDArray[Any]) -> Iterator[slice]:
    step = max(1, _BLOCK_PIXELS // math.prod(values.shape[1:]))
    return (slice(start, start + step) for start in range(0, len(values), step))


#: Distance between neighboring pixels, in any unit of length: None (1 along every axis), one positive number per
#: spatial axis in the order of the axes, such as ``(5.0, 0.7, 0.7)`` millimeters for D, H and W, or a row of them per
#: sample, ``[N, axes]``.
Spacing: TypeAlias = "Sequence[float] | Array | None"


def pixel_spacing(spacing: Spacing, shape: Sequence[int]) -> Floats:
    """Return the spacing along every axis for every sample, ``[N, axes]``.

    Args:
        spacing: As the caller of a metric gave it.
        shape: Shape of the maps: N and the spatial axes.

    Raises:
        ValueError: If the shape does not match the maps, or a number is not positive and finite.
        TypeError: If it does not hold real numbers.

    Example:
        >>> pixel_spacing((5.0, 0.5), (3, 8, 8)).tolist()
        [[5.0, 0.5], [5.0, 0.5], [5.0, 0.5]]
    """
    count, axes = shape[0], len(shape) - 1
    if spacing is None:
        return np.ones((count, axes))
    numbers = np.asarray(spacing)
    if numbers.dtype.kind not in "fiu":
        raise TypeError(f"spacing must hold real numbers, got {spacing!r}.")
    if numbers.shape not in ((axes,), (count, axes)):
        hint = " A single volume is [1, D, H, W]." if axes == 2 and numbers.shape == (3,) else ""
        raise ValueError(
            f"spacing must hold {axes} numbers, one per spatial axis, or a row of them per sample, [{count}, {axes}], "
            f"got the shape {list(numbers.shape)}.{hint}"
        )
    lengths = np.broadcast_to(numbers.astype(np.float64), (count, axes))
    if not (np.isfinite(lengths) & (lengths > 0)).all():
        raise ValueError(f"spacing must be positive and finite, got values from {lengths.min()} to {lengths.max()}.")
    return lengths


def without_unit_axes(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the spatial axes ``shape`` without axes of size one, as long as two are left.

    Metrics whose definition depends on the number of axes, such as that of the neighbors of a pixel, use it so that a
    volume of one slice is an image to them.

    Example:
        >>> without_unit_axes((1, 8, 9)), without_unit_axes((5, 8, 9)), without_unit_axes((1, 1, 9))
        ((8, 9), (5, 8, 9), (1, 9))
    """
    sides = list(shape)
    while len(sides) > 2 and 1 in sides:
        sides.remove(1)
    return tuple(sides)
