"""The interface of explainers, the reduction of channels, batches of forward passes, and errors of torch."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol, TypeAlias, Union, get_args, get_origin

import torch
from torch import Tensor, nn

from xaibench.core.checks import check_choice, check_count
from xaibench.explainers.registered import gradient_free_advice
from xaibench.network.explained_output import UnsupportedModelError
from xaibench.network.outputs import check_exported_batch
from xaibench.registry.parameters import Frozen, annotations_of
from xaibench.tensors.batching import default_batch_size

#: Convolutions of images and of volumes.
CONVOLUTIONS = (nn.Conv2d, nn.Conv3d)

#: How the attributions of the channels become one map (see :func:`reduce_channels`).
Channels: TypeAlias = Literal["sum", "abs_sum", "max_abs"]


class Explainer(Protocol):
    """Anything that can be called as ``explainer(model, images, targets) -> maps``.

    ``model`` maps images ``[N, C, H, W]`` to ``[N, K]``; column ``targets[i]`` is explained for sample ``i``. Maps are
    ``[N, H, W]`` and signed; a larger magnitude means more important. :func:`xaibench.explain` does the rest: it
    selects the explained output, the device and the precision, and restores the state of the model afterwards.

    An explainer that must be fitted first has a method ``fit(model, loader)``, which returns the fitted explainer, and
    an attribute ``fitted``. Without ``fitted``, an object counts as not fitted.
    """

    def __call__(self, model: nn.Module, images: Tensor, targets: Tensor, /) -> Tensor:
        """Explain the output of the model for each image.

        Args:
            model: Maps images ``[N, C, H, W]`` to ``[N, K]``, of which one column is explained.
            images: ``[N, C, H, W]``, on the device and in the precision of the model.
            targets: ``[N]`` int64, the explained column of each sample.

        Returns:
            Maps ``[N, H, W]``, signed; a larger magnitude means more important.
        """
        ...


@functools.cache
def _checked_fields(owner: type) -> dict[str, tuple[bool, Any]]:
    """Return whether None is accepted by each choice and each count of a class, and the choices; None for a count."""
    found = {}
    for name, annotation in annotations_of(owner).items():
        kinds = get_args(annotation) if get_origin(annotation) in (Union, types.UnionType) else (annotation,)
        others = [kind for kind in kinds if kind is not type(None)]
        if len(others) == 1 and name != "seed" and (others[0] is int or get_origin(others[0]) is Literal):
            found[name] = len(kinds) > 1, None if others[0] is int else get_args(others[0])
    return found


class CheckedParameters:
    """Base class of explainers that checks their choices and counts when they are made.

    A field of a ``Literal`` type must be one of its values. An ``int`` other than ``seed`` must be at least 1, or what
    ``least`` states for it. None is accepted where the type has it.
    """

    #: The smallest value of counts for which it is not 1.
    least: ClassVar[Frozen] = Frozen()

    def __post_init__(self) -> None:
        for name, (is_optional, choices) in _checked_fields(type(self)).items():  # type: ignore[arg-type]  # a class is hashable
            value, owner = getattr(self, name), type(self).__name__
            if value is None and is_optional:
                continue
            if choices:
                check_choice(name, value, choices, owner=owner)
            else:
                check_count(name, value, self.least.get(name, 1), owner=owner)


@dataclass(frozen=True, kw_only=True)
class Attribution(CheckedParameters):
    """Base class with the parameters of every explainer that reduces channels.

    Attributes:
        channels: How the attributions of the channels become one map, see :func:`reduce_channels`.
        batch_size: Rows per forward pass; ``None``: chosen by the size of the images. It bounds the memory and changes
            the maps by rounding only.
    """

    channels: Channels = "sum"
    batch_size: int | None = None

    def rows(self, images: Tensor) -> int:
        """Return the number of rows per forward pass.

        Args:
            images: ``[N, C, H, W]``; their size and device matter.

        Returns:
            ``batch_size``, or a default for these images; at least 1.
        """
        return self.batch_size or default_batch_size(images, least=1)

    def by_chunk(
        self, attribute: Callable[[Tensor, Tensor], Tensor], images: Tensor, targets: Tensor, rows_per_image: int = 1
    ) -> Tensor:
        """Compute attributions for a chunk of images at a time and reduce their channels.

        Args:
            attribute: Maps images ``[n, C, H, W]`` and targets ``[n]`` to attributions ``[n, C, H, W]``.
            images: ``[N, C, H, W]``.
            targets: ``[N]``.
            rows_per_image: Rows per image that ``attribute`` needs in one pass.

        Returns:
            Maps ``[N, H, W]``.
        """
        chunk = max(1, self.rows(images) // rows_per_image)
        maps = []
        for start in range(0, len(images), chunk):
            rows = slice(start, start + chunk)
            maps.append(attribute(images[rows], targets[rows]))
        return reduce_channels(torch.cat(maps), self.channels)


def reduce_channels(attributions: Tensor, how: Channels) -> Tensor:
    """Reduce the attributions of the channels to one map.

    Args:
        attributions: ``[N, C, H, W]``.
        how: ``"sum"``: the signed sum (the meaning of an additive attribution for the pixel). ``"abs_sum"``: the sum of
            the magnitudes. ``"max_abs"``: the value of largest magnitude, with its sign (Simonyan et al. 2014 take its
            magnitude). A single channel is returned unchanged, regardless of ``how``.

    Returns:
        ``[N, H, W]``.

    Raises:
        ValueError: If ``how`` is not one of these.

    Example:
        >>> import torch
        >>> attributions = torch.tensor([1.0, -3.0, 1.0]).reshape(1, 3, 1, 1)
        >>> [reduce_channels(attributions, how).item() for how in ("sum", "abs_sum", "max_abs")]
        [-1.0, 5.0, -3.0]
    """
    if attributions.shape[1] == 1:
        return attributions.squeeze(1)
    if how == "sum":
        return attributions.sum(1)
    if how == "abs_sum":
        return attributions.abs().sum(1)
    if how == "max_abs":
        return attributions.gather(1, attributions.abs().argmax(1, keepdim=True)).squeeze(1)
    raise ValueError(f"channels={how!r}: expected one of {', '.join(map(repr, get_args(Channels)))}.")


def spatial_axes(images: Tensor) -> tuple[int, ...]:
    """Return the axes after the channel of images or feature maps.

    Example:
        >>> spatial_axes(torch.empty(1, 3, 8, 8)), spatial_axes(torch.empty(1, 3, 4, 8, 8))
        ((2, 3), (2, 3, 4))
    """
    return tuple(range(2, images.ndim))


def append_axes(values: Tensor, like: Tensor) -> Tensor:
    """Append axes of length one to values ``[N, ...]``, so that they broadcast with ``like`` ``[N, ...]``.

    Example:
        >>> append_axes(torch.ones(5), torch.empty(5, 3, 8, 8)).shape
        torch.Size([5, 1, 1, 1])
    """
    return values.reshape(*values.shape, *[1] * (like.ndim - values.ndim))


def blocks(samples: int, steps: int, rows: int, *, across: bool = False) -> Iterator[tuple[slice, slice]]:
    """Cut a grid of ``samples`` times ``steps`` forward rows into blocks of at most ``rows``.

    By default, a block holds all steps of as many samples as fit, so that sums over the steps are computed at once.
    With ``across``, a block holds as many samples as possible. That suits a GPU: the random numbers of the samples are
    then drawn in parallel, which would otherwise take longer than the forward pass.

    Example:
        >>> [(s.start, s.stop, k.start, k.stop) for s, k in blocks(samples=2, steps=3, rows=2)]
        [(0, 1, 0, 2), (0, 1, 2, 3), (1, 2, 0, 2), (1, 2, 2, 3)]
        >>> [(s.start, s.stop, k.start, k.stop) for s, k in blocks(samples=2, steps=3, rows=2, across=True)]
        [(0, 2, 0, 1), (0, 2, 1, 2), (0, 2, 2, 3)]
    """
    per_block = max(1, min(samples, rows) if across else rows // max(1, steps))
    per_step = max(1, rows // per_block) if across else rows
    for first in range(0, samples, per_block):
        for step in range(0, steps, per_step):
            yield slice(first, min(first + per_block, samples)), slice(step, min(step + per_step, steps))


def chunks(size: int, *tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Split tensors of equal length into views of at most ``size`` rows, in parallel."""
    for start in range(0, len(tensors[0]), size):
        yield tuple(tensor[start : start + size] for tensor in tensors)


def target_gradient(model: nn.Module, images: Tensor, targets: Tensor) -> Tensor:
    """Return the gradient ``[N, C, H, W]`` of each sample's target output with respect to its image.

    Raises:
        UnsupportedModelError: If the output does not depend on the images through differentiable operations.
    """
    with torch.enable_grad():
        images = images.detach().requires_grad_()
        outputs = model(images).gather(1, targets[:, None])
        check_has_gradient(outputs)
        return torch.autograd.grad(outputs.sum(), images)[0]


def check_has_gradient(outputs: Tensor) -> None:
    """Raise an UnsupportedModelError if outputs do not depend on the images through differentiable operations."""
    if not outputs.requires_grad:
        raise UnsupportedModelError(
            f"The output of the model has no gradient with respect to the images. {gradient_free_advice()}"
        )


def target_output(model: nn.Module, images: Tensor, targets: Tensor) -> Tensor:
    """Return each sample's target output ``[N]``, without gradients."""
    with torch.no_grad():
        return torch.as_tensor(model(images)).gather(1, targets[:, None]).squeeze(1)


def prepare_baselines(baselines: Tensor | None, images: Tensor) -> Tensor:
    """Return baselines ``[B, C, H, W]`` with dtype and device of the images; zeros if there are none."""
    if baselines is None:
        return torch.zeros_like(images[:1])
    if baselines.shape[1:] != images.shape[1:] or len(baselines) == 0:
        size = ", ".join(map(str, images.shape[1:]))
        raise ValueError(f"baselines: got {list(baselines.shape)}, expected [B, {size}] with B >= 1.")
    return baselines.to(images)


def explainer_name(part: Any) -> str:
    """Return the name of an explainer: that of its class or function."""
    while isinstance(part, functools.partial):
        part = part.func
    return str(getattr(part, "__name__", type(part).__name__))


#: Why torch has no gradient, and parts of its messages.
_REASONS = {
    "blocks it by an operation such as detach, no_grad, numpy, rounding or quantization; remove that operation": (
        "does not require grad",
        "doesn't require gradient",
        "not have been used in the graph",
        "Inference tensors",
        "argument to `grad()` cannot be empty",
    ),
    "overwrites a tensor of which torch needs the value before; let it write into a clone": (
        "modified by an inplace operation",
        "is being modified inplace",
        "used in an in-place operation",
    ),
    "writes a result into out=..., which torch does not differentiate; assign the result": (
        "don't support automatic differentiation",
    ),
    "has an operation whose gradient torch does not differentiate once more": ("_backward is not implemented",),
}


#: Why layers cannot be observed, and parts of the messages of torch and Captum.
_NO_LAYERS = {
    "which a scripted network hides. Pass the network that it was made from, or use saliency, integrated_gradients or "
    "occlusion.": ("not supported on ScriptModules",),
    "which torch.vmap hides. Let the network process a batch without it, or use saliency, integrated_gradients or "
    "occlusion.": ("being vmapped", "maybe_level.has_value()"),
    "whose outputs are of another type than the weights, since the network computes under autocast. Leave autocast to "
    "precision='bfloat16', or use saliency, integrated_gradients or occlusion.": ("to have the same dtype",),
    "which the network calls several times per pass. Let it process a batch in one call, or pass batch_size=1.": (
        "used more than once in the network",
    ),
}


@contextmanager
def unsupported_by_torch(owner: str, network: nn.Module) -> Iterator[None]:
    """Turn torch's errors about what the network does into errors of the explainer; others pass.

    Raises:
        UnsupportedModelError: If torch cannot differentiate or observe the network; the message names explainer,
            network and remedy.
        ValueError: If an exported network does not accept the number of images.
    """
    try:
        yield
    except (RuntimeError, AssertionError) as error:
        check_exported_batch(error)
        for reason, signs in _NO_LAYERS.items():
            if any(sign in str(error) for sign in signs):
                raise UnsupportedModelError(f"{owner} needs layers, {reason}") from error
        for reason, signs in _REASONS.items():
            if any(sign in str(error) for sign in signs):
                raise UnsupportedModelError(
                    f"{owner} needs the gradient of the output with respect to the images, but "
                    f"{type(network).__name__} {reason}. {gradient_free_advice()}"
                ) from error
        raise
