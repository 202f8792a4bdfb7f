"""Images and targets as users give them, checked and converted to tensors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from xaibench.core.checks import check_finite, check_values, plain_array
from xaibench.core.messages import kind_of, listed

#: The accepted types of targets, for errors.
_TARGETS = "one class, or a list, array or tensor of class indices [N] or rows [N, K]"


@dataclass(frozen=True)
class Targets:
    """The explained classes of some images.

    Attributes:
        classes: ``[M]`` int64.
        rows: ``[M]`` int64, the image of each class if the targets are multi-hot; None for one class per image.
        labels: Number of labels of multi-hot targets; None for one class per image.
    """

    classes: Tensor
    rows: Tensor | None = None
    labels: int | None = None


def as_targets(targets: Any, samples: int) -> Targets:
    """Convert targets to class indices.

    Args:
        targets: One class for all images; a list, array or tensor ``[N]`` of classes; or multi-hot rows ``[N, K]`` of
            bools, 0 and 1.
        samples: Number of images N.

    Returns:
        The classes. Multi-hot rows give one class per set label, row by row (see :func:`label_pairs`).

    Raises:
        ValueError: If the shape is wrong, a row contains other numbers than 0 and 1, or no label is set.
        TypeError: If the targets are not integers.

    Example:
        >>> as_targets(1, 3).classes.tolist(), as_targets([[0, 1], [1, 1]], 2).classes.tolist()
        ([1, 1, 1], [1, 0, 1])
    """
    y = as_tensor(targets, "targets", _TARGETS, lists=True)
    if y.ndim == 2:
        if len(y) != samples:
            raise ValueError(f"targets: got {list(y.shape)}, expected [{samples}, K], one multi-hot row per image.")
        rows, classes = label_pairs(y)
        if not len(rows):
            raise ValueError("targets: no label is set in any row, so there is nothing to explain; leave such out.")
        return Targets(classes, rows, y.shape[1])
    if y.is_floating_point() or y.is_complex() or y.dtype is torch.bool:
        raise TypeError(
            f"targets: got {y.dtype}, expected integers, the class index of each sample (or multi-hot rows [N, K])."
        )
    if y.ndim == 0:
        y = y.expand(samples)
    if y.shape != (samples,):
        raise ValueError(f"targets: got {list(y.shape)}, expected [{samples}], one class index per image.")
    return Targets(y.long())


def label_pairs(targets: Any) -> tuple[Tensor, Tensor]:
    """Return the image and the label of every set label of multi-hot targets, row by row.

    Explanations of multi-hot targets have this order: map ``m`` of ``explain(..., targets, output="sigmoid")`` explains
    label ``labels[m]`` of image ``rows[m]``.

    Args:
        targets: ``[N, K]`` of bools, 0 and 1: a tensor, an array or nested lists.

    Returns:
        ``rows [M]`` and ``labels [M]``, int64. A single column (K = 1) is the positive class of a network with one
        output, which is class 1.

    Raises:
        ValueError: If the shape is wrong, or there are other numbers than 0 and 1.

    Example:
        >>> rows, labels = label_pairs([[1, 0, 1], [0, 0, 0], [0, 1, 0]])
        >>> rows.tolist(), labels.tolist()
        ([0, 0, 2], [0, 2, 1])
    """
    y = as_tensor(targets, "targets", _TARGETS, lists=True)
    if y.ndim != 2 or y.is_complex():
        raise ValueError(f"targets: got {list(y.shape)} {y.dtype}, expected multi-hot rows [N, K] of 0 and 1.")
    wrong = ((y != 0) & (y != 1)).any(1)
    if wrong.any():
        raise ValueError(
            f"targets: numbers other than 0 and 1 in rows {listed(wrong.nonzero().flatten().tolist(), most=5)}; "
            "expected class indices [N] or multi-hot rows [N, K]."
        )
    rows, labels = y.nonzero(as_tuple=True)
    return rows, labels + 1 if y.shape[1] == 1 else labels


def as_images(images: Any, name: str = "images") -> Tensor:
    """Return images as a tensor ``[N, C, H, W]``, or ``[N, C, D, H, W]`` for volumes.

    Args:
        images: A tensor or an array.
        name: Name of the argument, for errors.

    Raises:
        ValueError: If the shape is wrong, the batch is empty, or a value is not finite.
        TypeError: If they are not a floating-point tensor or array.
    """
    x = as_tensor(images, name)
    if x.ndim not in (4, 5) or x.numel() == 0:
        raise ValueError(
            f"{name} must be [N, C, H, W] (volumes: [N, C, D, H, W]) with at least one image, got {list(x.shape)}."
        )
    if not x.is_floating_point():
        raise TypeError(f"{name} must be floating-point, scaled as the model expects them, got {x.dtype}.")
    check_finite(x, name)
    return x


def as_tensor(
    values: Any, name: str, expected: str = "a torch tensor or a numpy array", *, lists: bool = False
) -> Tensor:
    """Return real numbers as a tensor without gradient, outside of inference mode.

    Args:
        values: A tensor, or an array, whose values are copied.
        name: Name of the argument, for errors.
        expected: Accepted types, for errors.
        lists: Whether a number and nested lists are accepted, too.

    Raises:
        TypeError: If it is something else, or does not hold real numbers in memory.
        ValueError: For numbers beyond the range of float64.
    """
    if isinstance(values, Tensor):
        check_values(values, name)
        # Tensors created in inference mode cannot require gradients, which attacks and explainers need.
        with torch.inference_mode(False):
            return values.clone() if values.is_inference() else values.detach()
    if lists and isinstance(values, int | list | tuple):
        try:
            values = np.asanyarray(values)
        except ValueError as error:
            raise ValueError(f"{name}: rows of different lengths; expected [N] or [N, K] ({error}).") from error
    if not isinstance(values, np.ndarray | np.generic):
        raise TypeError(f"{name}: got {kind_of(values)}, expected {expected}.")
    array: np.ndarray[Any, Any] = plain_array(np.asanyarray(values), name)
    if array.dtype.kind not in "fiub":
        raise TypeError(f"{name}: got {array.dtype}, expected real numbers.")
    # Torch supports neither negative strides, nor read-only memory, nor foreign byte order.
    with torch.inference_mode(False):
        return torch.from_numpy(np.array(array, dtype=array.dtype.newbyteorder("="), order="C"))
