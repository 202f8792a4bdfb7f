"""Checks of a model on a few images before anything is computed with it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from xaibench.compute.batching import is_out_of_memory
from xaibench.compute.input_copies import remember_writer
from xaibench.compute.model_state import evaluation_mode
from xaibench.compute.network_outputs import check_logits, is_sigmoid
from xaibench.core.messages import kind_of, listed

#: Remedy for a model that takes more than images.
_FURTHER_INPUTS = (
    ". A model with further inputs must be wrapped in a module that takes only the images: "
    "xaibench.models.Wrapped(model, lambda model, images: model(images, meta)); a bare function is not accepted where "
    "layers are explained."
)


def check_module(model: object) -> None:
    """Check that ``model`` is a ``torch.nn.Module``.

    Raises:
        TypeError: If it is not; the message names its type.
    """
    if not isinstance(model, nn.Module):
        hint = (
            " Wrap a function in a module, so that its layers are known: "
            "xaibench.models.Wrapped(network, lambda network, images: network(images, meta))."
        )
        raise TypeError(
            f"model: got {kind_of(model)}, expected a torch.nn.Module that returns logits [N, K]."
            f"{hint if callable(model) else ''}"
        )


class ImageShapeError(ValueError):
    """Raised if a model does not accept images of a shape."""


def check_plane(name: str, in_shape: tuple[int, ...]) -> None:
    """Raise an error if a shape is not ``(C, H, W)``, for a network that has no form for volumes ``(C, D, H, W)``."""
    if len(in_shape) != 3:
        raise ImageShapeError(
            f"{name}: in_shape is {tuple(in_shape)}, expected (C, H, W): the network is for images, not for volumes. "
            "For volumes, 'cnn' takes (1, 16, 16, 16); give another network as 'package.module:name'."
        )


def probe(
    model: Callable[[Tensor], object],
    images: Tensor,
    *,
    name: str = "The model",
    what: str = "images",
    classes: int | Sequence[str] | None = None,
    finite: bool = True,
    select: Callable[[object, int, str], Tensor] = check_logits,
) -> Tensor:
    """Call a model on a few images, in evaluation mode and without gradients, and check its output.

    Args:
        model: A module, whose training mode is restored, or any function.
        images: ``[n, C, H, W]``, one or two. The model gets a copy, on its own device; whether it modifies the copy is
            recorded (:mod:`.input_copies`).
        name: Name of the model in errors.
        what: Name of the images in errors.
        classes: Expected number of classes, or their names; None = any number.
        finite: Whether NaN and infinity are refused.
        select: Returns the logits in what the model returned for so many images; called with the model's name, too.

    Returns:
        Logits ``[n, K]``.

    Raises:
        ImageShapeError: If the model does not accept the images.
        ValueError: If it does not return finite logits ``[n, K]``.
        torch.cuda.OutOfMemoryError: If memory runs out. This is never reported as a wrong shape.

    Example:
        >>> probe(lambda images: images.sum(1), torch.rand(2, 1, 3, 3))
        Traceback (most recent call last):
            ...
        ValueError: The model returns [2, 3, 3] for 2 images, expected logits [2, K]. Taken as they are: a tensor ...
    """
    # A copy, since the model may modify it. A modification shows in its version; tensors of inference mode have none.
    with torch.inference_mode(False):
        images = images.to(*model_device_and_dtype(model, images)).clone()
    before = images._version
    try:
        with torch.no_grad(), evaluation_mode(model):
            found = model(images)
    except (RuntimeError, ValueError, TypeError, IndexError, AssertionError) as error:  # timm asserts the size
        if is_out_of_memory(error):
            raise
        kind = str(images.dtype).removeprefix("torch.")
        hint = _FURTHER_INPUTS if isinstance(error, TypeError) and "missing" in str(error) else ""
        raise ImageShapeError(
            f"{name} cannot take {what} of shape {list(images.shape)}, {kind}, on {images.device}: {error}{hint}"
        ) from error
    if images._version != before:
        remember_writer(model)
    logits = select(found, len(images), name)
    if classes is not None:
        _check_class_count(logits.shape[1], classes, name)
    if finite and not logits.isfinite().all():
        raise ValueError(
            f"{name} returns NaN or infinite logits; check its weights, and that {what} are scaled as it expects."
        )
    return logits


def ends_in_sigmoid(model: Callable[[Tensor], object], images: Tensor) -> bool:
    """Return whether a sigmoid computes the outputs of a model, as far as their gradient shows.

    Args:
        model: A module, whose training mode is restored, or any function that returns logits.
        images: ``[n, C, H, W]``; the model is called with the first, in evaluation mode.

    Example:
        >>> ends_in_sigmoid(lambda images: images.flatten(1).sigmoid(), torch.rand(1, 1, 2, 2))
        True
    """
    with torch.inference_mode(False), torch.enable_grad(), evaluation_mode(model):
        image = images[:1].to(*model_device_and_dtype(model, images)).clone().requires_grad_()
        return is_sigmoid(check_logits(model(image.clone()), 1))


def check_classes(targets: Tensor, classes: int, what: str = "targets") -> None:
    """Check that all targets are classes of the model.

    Args:
        targets: ``[N]``, integers.
        classes: Number of classes of the model.
        what: Name of the targets in the error.

    Raises:
        ValueError: If a target is not a class; the message names class and samples.

    Example:
        >>> check_classes(torch.tensor([0, 2, 1, 2]), 2)
        Traceback (most recent call last):
            ...
        ValueError: targets: class 2 in samples 1, 3; the model has classes 0 to 1. Number the classes from 0, or ...
    """
    wrong = (targets < 0) | (targets >= classes)
    if wrong.any():
        samples = listed(wrong.nonzero().flatten().tolist(), most=5)
        raise ValueError(
            f"{what}: class {int(targets[wrong][0])} in samples {samples}; the model has classes 0 to {classes - 1}. "
            "Number the classes from 0, or build the model with more outputs."
        )


def model_device_and_dtype(model: object, images: Tensor) -> tuple[torch.device, torch.dtype]:
    """Return device and dtype of a model's first floating-point parameter.

    Args:
        model: A module or any function.
        images: Their device and dtype are returned if the model has no such parameter.
    """
    if isinstance(model, nn.Module):
        for parameter in model.parameters():
            if parameter.is_floating_point():
                return parameter.device, parameter.dtype
    return images.device, images.dtype


def _check_class_count(found: int, classes: int | Sequence[str], name: str) -> None:
    count = classes if isinstance(classes, int) else len(classes)
    if found != count:
        named = "" if isinstance(classes, int) else f" ({listed(classes, most=5)})"
        raise ValueError(
            f"{name} returns {found} logits for {count} classes{named}. Build it with {count} outputs, replace its "
            "last layer and train it (xaibench.models.fit_head), or put its classes together (xaibench.models.Folded)."
        )
