"""The logits in the output of a network, and networks that end in a sigmoid.

A network may return logits ``[N, K]``, one output per image ``[N]``, or a structure that contains them: an object with
an attribute ``logits`` (Hugging Face transformers, torchvision's Inception), a dictionary or a tuple.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from xaibench.core.messages import kind_of

#: Operations that only rearrange values or change their data type, by the names of their autograd nodes.
_REARRANGING = (
    *("Squeeze", "Unsqueeze", "View", "UnsafeView", "ReshapeAlias", "ToCopy", "Alias", "Clone", "Select", "Slice"),
    *("Transpose", "T", "Permute"),
)

#: Numbers in [0, 1] that are taken as evidence of probabilities. Fewer may be logits that are so by chance.
_EVIDENCE = 16

#: What to pass for a network that ends in a sigmoid.
SIGMOID_ADVICE = (
    "Its outputs are probabilities of independent labels, and a softmax of them would mean nothing. Pass "
    "output='sigmoid' to explain the probability of the target label, or output='logit' for its logit."
)


def find_logits(found: object) -> object:
    """Return the logits in the output of a network.

    Args:
        found: A tensor; an object with an attribute ``logits``; a dictionary with the entry ``"logits"``, or in which
            one floating-point tensor has the shape ``[N, K]``; or a tuple or list, of which the first such tensor is
            taken.

    Returns:
        The tensor, with one output per image ``[N]`` as ``[N, 1]``; anything else unchanged.

    Example:
        >>> import torch
        >>> find_logits({"features": torch.zeros(2, 8, 4, 4), "scores": torch.zeros(2, 3)}).shape
        torch.Size([2, 3])
    """
    if isinstance(found, Mapping):
        named = found.get("logits")
        inside = [named] if isinstance(named, Tensor) else list(filter(_is_table, found.values()))
        found = inside[0] if len(inside) == 1 else found
    elif isinstance(getattr(found, "logits", None), Tensor):
        found = found.logits  # type: ignore[attr-defined]
    elif isinstance(found, tuple | list):
        found = next(filter(_is_table, found), found)
    if isinstance(found, Tensor) and found.ndim == 1 and found.is_floating_point():
        return found[:, None]
    return found


def check_logits(found: object, count: int, name: str = "The model") -> Tensor:
    """Return the logits ``[count, K]`` in the output of a model for ``count`` images (see :func:`find_logits`).

    Raises:
        ValueError: If there are none; the message describes the output and names the remedy.

    Example:
        >>> import torch
        >>> check_logits((torch.zeros(2, 3), torch.zeros(2, 3)), 2).shape
        torch.Size([2, 3])
    """
    logits = find_logits(found)
    if isinstance(logits, Tensor) and logits.ndim == 2 and len(logits) == count:
        return logits
    raise ValueError(
        f"{name} returns {describe(found)} for {count} image{'s' if count != 1 else ''}, expected logits [{count}, K]. "
        "Taken as they are: a tensor [N, K], .logits, a dictionary with the entry 'logits' or with one tensor [N, K], "
        "and the first tensor [N, K] of a tuple. For any other network pass output=, a function of its outputs that "
        "returns one number per image [N], such as output=lambda outputs: outputs['masks'].mean((1, 2, 3))."
    )


def check_plain_logits(found: object, count: int, name: str = "The model") -> Tensor:
    """Check that a model returned nothing but logits ``[count, K]``, as training and runs need, and return them.

    Raises:
        ValueError: If it did not.
    """
    if not isinstance(found, Tensor) or found.ndim != 2:
        check_logits(found, count, name)
        raise ValueError(
            f"{name} returns {describe(found)}, expected a tensor of logits [{count}, K] in trainings and runs. Wrap "
            "it: xaibench.models.Wrapped(model, lambda model, images: model(images).logits)."
        )
    return check_logits(found, count, name)


def check_scalars(found: object, count: int) -> Tensor:
    """Check that a callable ``output`` returned one number per image, and return them ``[count]``.

    Raises:
        ValueError: If it did not.
    """
    if isinstance(found, Tensor) and found.shape == (count,) and found.is_floating_point():
        return found
    raise ValueError(
        f"output: the function returned {describe(found)} for {count} image{'s' if count != 1 else ''}, expected one "
        f"floating-point number per image, [{count}]. Reduce the other dimensions, as in lambda outputs: outputs[:, 3]."
    )


def describe(found: object) -> str:
    """Describe the output of a network, for messages: its shape, or its type with the shapes inside.

    Example:
        >>> import torch
        >>> describe([{"boxes": torch.zeros(5, 4)}]), describe(torch.zeros(2, 3, 3))
        ("list of 1 ({'boxes': [5, 4]})", '[2, 3, 3]')
    """
    if isinstance(found, Tensor):
        return str(list(found.shape))
    if isinstance(found, Mapping):
        name = "" if type(found) is dict else f"{type(found).__name__} "
        return f"{name}{{{', '.join(f'{key!r}: {describe(value)}' for key, value in list(found.items())[:5])}}}"
    if isinstance(found, tuple | list):
        inside = ", ".join(map(describe, found[:3]))
        return f"{type(found).__name__} of {len(found)} ({inside})" if found else f"an empty {type(found).__name__}"
    return kind_of(found)


def map_tensors(change: Callable[[Tensor], Tensor], found: Any) -> Any:
    """Return a copy of the output of a network with every tensor changed.

    Args:
        change: Called with each tensor.
        found: A tensor, a mapping, a tuple, a list, or an object with tensors as attributes, nested to any depth.

    Returns:
        The same structure; values of other types are the same objects.

    Example:
        >>> import torch
        >>> map_tensors(lambda x: x + 1, {"a": torch.zeros(2), "b": [torch.ones(1), "text"]})
        {'a': tensor([1., 1.]), 'b': [tensor([2.]), 'text']}
    """
    if isinstance(found, Tensor):
        return change(found)
    if isinstance(found, Mapping):
        changed = copy.copy(found)
        for key, value in found.items():
            changed[key] = map_tensors(change, value)  # type: ignore[index]
        return changed
    if isinstance(found, tuple | list):
        inside = [map_tensors(change, value) for value in found]
        return type(found)(*inside) if hasattr(found, "_fields") else type(found)(inside)
    if any(isinstance(value, Tensor) for value in getattr(found, "__dict__", {}).values()):
        changed = copy.copy(found)
        vars(changed).update({name: map_tensors(change, value) for name, value in vars(found).items()})
        return changed
    return found


def is_sigmoid(outputs: Tensor) -> bool:
    """Return whether a sigmoid computed the outputs, as their autograd graph shows.

    Args:
        outputs: Outputs of a network, computed with gradients.

    Returns:
        True if the last operation is a sigmoid, apart from operations that only rearrange values. False for outputs
        without a gradient, whose origin is unknown.

    Example:
        >>> import torch
        >>> z = torch.zeros(2, requires_grad=True)
        >>> is_sigmoid(z.sigmoid()[:, None].double()), is_sigmoid(z), is_sigmoid(z.sigmoid() * 1.0)
        (True, False, False)
    """
    node: Any = outputs.grad_fn
    while node is not None and node.name().partition("Backward")[0] in _REARRANGING:
        node = node.next_functions[0][0]
    return node is not None and node.name().startswith("SigmoidBackward")


def look_like_labels(outputs: Tensor) -> bool:
    """Return whether outputs ``[n, K]`` look like probabilities of independent labels.

    All of at least 16 numbers must be between 0 and 1, and the rows must not all sum to 1.

    Example:
        >>> import torch
        >>> look_like_labels(torch.full((2, 8), 0.5)), look_like_labels(torch.full((2, 8), 0.125))
        (True, False)
    """
    inside = outputs.numel() >= _EVIDENCE and outputs.min().item() > 0 and outputs.max().item() < 1
    return inside and bool(((outputs.double().sum(1) - 1).abs() > 1e-2).any())


def _is_table(value: object) -> bool:
    return isinstance(value, Tensor) and value.ndim == 2 and value.is_floating_point()
