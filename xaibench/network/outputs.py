"""Call a network on a few images, and check what it returns.

A network may return logits ``[N, K]``, one output per image ``[N]``, or a structure that contains them: an object with
an attribute ``logits`` (Hugging Face transformers, torchvision's Inception), a dictionary or a tuple.

Two tensors ``[N, K]`` are ambiguous: the second may be features, or the logits of another head. Only if one is the
softmax of the other, it is clear which are the logits.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from xaibench.core.messages import first_line, kind_of, listed
from xaibench.network.lending import evaluation_mode, remember_writer
from xaibench.tensors.batching import is_out_of_memory

#: Operations that only rearrange values or change their data type, by the names of their autograd nodes.
REARRANGING_NODES = (
    *("Squeeze", "Unsqueeze", "View", "UnsafeView", "ReshapeAlias", "ToCopy", "Alias", "Clone", "Select", "Slice"),
    *("Transpose", "T", "Permute"),
)

#: Remedy for a model that takes more than images.
_FURTHER_INPUTS = (
    ". A model with further inputs must be wrapped in a module that takes only the images: "
    "xaibench.models.Wrapped(model, lambda model, images: model(images, meta)); a bare function is not accepted where "
    "layers are explained."
)


#: Remedy for a network that returns more than one table.
_SEVERAL_TABLES = (
    " Of several tensors [N, K], choose the logits: xaibench.models.Wrapped(model, lambda model, images: "
    "model(images)[1])."
)


def find_logits(result: object) -> object:
    """Return the logits in the output of a network.

    Args:
        result: A tensor; an object with an attribute ``logits``; a dictionary with the entry ``"logits"``; or a
            dictionary, a tuple or a list in which one floating-point tensor has the shape ``[N, K]``, or two have it
            and one of them is the softmax of the other.

    Returns:
        The tensor, with one output per image ``[N]`` as ``[N, 1]``; anything else unchanged. Of two tensors, one of
        which is the softmax of the other, it is the other one, regardless of the names.

    Example:
        >>> import torch
        >>> find_logits({"features": torch.zeros(2, 8, 4, 4), "scores": torch.zeros(2, 3)}).shape
        torch.Size([2, 3])
        >>> logits = torch.tensor([[2.0, 0.0]])
        >>> find_logits((logits.softmax(1), logits))
        tensor([[2., 0.]])
    """
    tables, named = _find_tables(result)
    if named is not None:
        before_softmax = [table for table in tables if _is_softmax(named, table)]
        result = before_softmax[0] if len(before_softmax) == 1 else named
    else:
        if len(tables) == 2:
            tables = [table for table, other in (tables, tables[::-1]) if _is_softmax(other, table)]
        result = tables[0] if len(tables) == 1 else result
    if isinstance(result, Tensor) and result.ndim == 1 and result.is_floating_point():
        return result[:, None]
    return result


def check_logits(result: object, count: int, name: str = "The model") -> Tensor:
    """Return the logits ``[count, K]`` in the output of a model for ``count`` images (see :func:`find_logits`).

    Raises:
        ValueError: If there are none, or they are not floating-point numbers in a dense tensor; the message describes
            the output and names the remedy.

    Example:
        >>> import torch
        >>> check_logits((torch.zeros(2, 8, 4, 4), torch.zeros(2, 3)), 2).shape
        torch.Size([2, 3])
    """
    logits = result if isinstance(result, Tensor) and result.ndim == 2 else find_logits(result)
    if isinstance(logits, Tensor) and logits.ndim == 2 and len(logits) == count and logits.shape[1] > 0:
        check_dense_floats(logits, name)
        return logits
    raise ValueError(
        f"{name} returns {describe(result)} for {count} image{'s' if count != 1 else ''}, expected logits "
        f"[{count}, K]. Taken as they are: a tensor [N, K], .logits, a dictionary with the entry 'logits', and a "
        "dictionary or tuple with one tensor [N, K], or with logits and their softmax. For any other network pass "
        "output=, a function of its outputs that returns one number per image [N], such as output=lambda outputs: "
        f"outputs['masks'].mean((1, 2, 3)).{_SEVERAL_TABLES if len(_find_tables(result)[0]) > 1 else ''}"
    )


def check_dense_floats(output: Tensor, name: str) -> None:
    """Check that an output holds floating-point numbers in memory.

    Args:
        output: The logits, or the value of a function of the outputs.
        name: What returned it, for the error.

    Raises:
        ValueError: If it has integers or complex numbers, is sparse, or is on the device ``meta``.
    """
    if output.is_floating_point() and output.layout == torch.strided and not output.is_meta:
        return
    kind = f"{output.dtype} on {output.device}".replace("torch.", "")
    layout = "" if output.layout == torch.strided else f" with the layout {output.layout}"
    raise ValueError(
        f"{name} returns {list(output.shape)} {kind}{layout}, expected floating-point numbers in a dense tensor with "
        "values. Convert them in the forward of the network (.float(), .to_dense()); load weights that are on meta."
    )


def check_plain_logits(result: object, count: int, name: str = "The model") -> Tensor:
    """Check that a model returned nothing but logits ``[count, K]``, as training and runs need, and return them.

    Raises:
        ValueError: If it did not.
    """
    if not isinstance(result, Tensor) or result.ndim != 2:
        check_logits(result, count, name)
        raise ValueError(
            f"{name} returns {describe(result)}, expected a tensor of logits [{count}, K] in trainings and runs. Wrap "
            "it: xaibench.models.Wrapped(model, lambda model, images: model(images).logits)."
        )
    return check_logits(result, count, name)


def check_scalars(result: object, count: int) -> Tensor:
    """Check that a callable ``output`` returned one number per image, and return them ``[count]``.

    Raises:
        ValueError: If it did not.
    """
    if isinstance(result, Tensor) and result.shape == (count,) and result.is_floating_point():
        check_dense_floats(result, "output: the function")
        return result
    raise ValueError(
        f"output: the function returned {describe(result)} for {count} image{'s' if count != 1 else ''}, expected one "
        f"floating-point number per image, [{count}]. Reduce the other dimensions, as in lambda outputs: outputs[:, 3]."
    )


def describe(result: object) -> str:
    """Describe the output of a network, for messages: its shape, or its type with the shapes inside.

    Example:
        >>> import torch
        >>> describe([{"boxes": torch.zeros(5, 4)}]), describe(torch.zeros(2, 3, 3))
        ("list of 1 ({'boxes': [5, 4]})", '[2, 3, 3]')
    """
    if isinstance(result, Tensor):
        return str(list(result.shape))
    if isinstance(result, Mapping):
        name = "" if type(result) is dict else f"{type(result).__name__} "
        return f"{name}{{{', '.join(f'{key!r}: {describe(value)}' for key, value in list(result.items())[:5])}}}"
    if isinstance(result, tuple | list):
        inside = ", ".join(map(describe, result[:3]))
        return f"{type(result).__name__} of {len(result)} ({inside})" if result else f"an empty {type(result).__name__}"
    return kind_of(result)


def map_tensors(change: Callable[[Tensor], Tensor], result: Any) -> Any:
    """Return a copy of the output of a network with every tensor changed.

    Args:
        change: Called with each tensor.
        result: A tensor, a mapping, a tuple, a list, or an object with tensors as attributes, nested to any depth.

    Returns:
        The same structure; values of other types are the same objects.

    Example:
        >>> import torch
        >>> map_tensors(lambda x: x + 1, {"a": torch.zeros(2), "b": [torch.ones(1), "text"]})
        {'a': tensor([1., 1.]), 'b': [tensor([2.]), 'text']}
    """
    if isinstance(result, Tensor):
        return change(result)
    if isinstance(result, Mapping):
        changed = copy.copy(result)
        for key, value in result.items():
            changed[key] = map_tensors(change, value)  # type: ignore[index]
        return changed
    if isinstance(result, tuple | list):
        inside = [map_tensors(change, value) for value in result]
        return type(result)(*inside) if hasattr(result, "_fields") else type(result)(inside)
    if any(isinstance(value, Tensor) for value in getattr(result, "__dict__", {}).values()):
        changed = copy.copy(result)
        vars(changed).update({name: map_tensors(change, value) for name, value in vars(result).items()})
        return changed
    return result


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
            recorded (:func:`.lending.remember_writer`).
        name: Name of the model in errors.
        what: Name of the images in errors.
        classes: Expected number of classes, or their names; None = any number.
        finite: Whether NaN and infinity are refused.
        select: Returns the logits in the return value for a number of images; called with the model's name, too.

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
            result = model(images)
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
    for tensor in tree_leaves(result):
        if isinstance(tensor, Tensor) and tensor.is_meta:
            check_dense_floats(tensor, name)
    logits = select(result, len(images), name)
    if classes is not None:
        _check_class_count(logits.shape[1], classes, name)
    if finite and not logits.isfinite().all():
        raise ValueError(
            f"{name} returns NaN or infinite logits; check its weights, and that {what} are scaled as it expects."
        )
    return logits


def check_exported_batch(error: Exception) -> None:
    """Raise a clear error if a graph of ``torch.export`` does not accept the number of images; otherwise do nothing.

    Args:
        error: The error of a call of the network.

    Raises:
        ValueError: If its guards failed; the message names the remedy.
    """
    if any(sign in str(error) for sign in ("Guard failed", "Expected input at")):
        raise ValueError(
            f"The network was exported for another number of images ({first_line(error)}). Pass batch_size=, the rows "
            "of a pass that it accepts, or export it again with a dynamic batch: "
            "dynamic_shapes=({0: torch.export.Dim('batch', max=1024)},)."
        ) from error


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


def _check_class_count(outputs: int, classes: int | Sequence[str], name: str) -> None:
    count = classes if isinstance(classes, int) else len(classes)
    if outputs != count:
        named = "" if isinstance(classes, int) else f" ({listed(classes, most=5)})"
        raise ValueError(
            f"{name} returns {outputs} logits for {count} classes{named}. Build it with {count} outputs, replace its "
            "last layer and train it (xaibench.models.fit_head), or put its classes together (xaibench.models.Folded)."
        )


def _find_tables(result: object) -> tuple[list[Tensor], Tensor | None]:
    """Return the floating-point tensors ``[N, K]`` in a structure, and the tensor that is called ``logits``."""
    if isinstance(result, Tensor):
        return [], None
    if isinstance(result, Mapping):
        entries, named = list(result.values()), result.get("logits")
    else:
        named = getattr(result, "logits", None)
        entries = list(result if isinstance(result, tuple | list) else getattr(result, "__dict__", {}).values())
        if not isinstance(result, tuple | list) and not isinstance(named, Tensor):
            return [], None
    tables = [x for x in entries if isinstance(x, Tensor) and x.ndim == 2 and x.is_floating_point()]
    return tables, named if isinstance(named, Tensor) else None


def _is_softmax(probabilities: Tensor, logits: Tensor) -> bool:
    """Return whether a tensor is the softmax of another one."""
    if probabilities.shape != logits.shape or probabilities.ndim != 2 or probabilities is logits:
        return False
    tolerance = 1e-4 if max(torch.finfo(x.dtype).eps for x in (probabilities, logits)) < 1e-4 else 1e-2
    with torch.no_grad():
        expected = logits.detach().double().softmax(1)
        return torch.allclose(probabilities.detach().double(), expected, rtol=0.0, atol=tolerance, equal_nan=True)
