"""Check what explainers and metrics assume of a network: that it is a deterministic function of one image.

Four comparisons on two images, before a network is explained or scored for the first time:

1. The same image gives the same output again: the network draws no random numbers in evaluation mode.
2. An image alone and with another image gives the same output: nothing depends on the batch.
3. The calls change neither the global random generators nor the buffers of the network.
4. For methods that use gradients, the gradient equals the slope of the outputs along a line between the images: no part
   of the network is computed under ``torch.no_grad()``, detached or rounded, and the outputs are the same while
   gradients are recorded.

Rounding errors of float32 depend on the batch size, and outputs with many kinks are not linear between two points. A
difference is therefore a suspicion at first. It is an error only if a float64 copy of the network shows it as well.
"""

from __future__ import annotations

import random
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from xaibench.core.messages import listed, warn_caller
from xaibench.network.broken_layers import find_draws, find_lost_gradient, first_difference
from xaibench.network.explained_output import UnsupportedModelError
from xaibench.network.lending import copy_network, evaluation_mode, original_of
from xaibench.network.outputs import check_logits, model_device_and_dtype
from xaibench.tensors.batching import is_out_of_memory

#: Returns the logits in what a network returned for so many images; called with the name of the network, too.
Select: TypeAlias = Callable[[object, int, str], Tensor]

#: Relative differences of outputs that raise a suspicion, by the precision of the outputs.
_SUSPICIOUS = {torch.float64: 1e-7, torch.float32: 1e-4}
#: Relative differences of outputs that are an error, by the precision of the network that is called again. Dynamic
#: quantization depends on the batch by up to a hundredth.
_CERTAIN = {torch.float64: 1e-4, torch.float32: 0.05}
#: The same for networks of lower precision.
_HALF = 0.2
#: Relative differences between gradient and slope that raise a suspicion and that are an error.
_SUSPICIOUS_SLOPE, _CERTAIN_SLOPE = 0.1, 0.05
#: Half the length of the line along which the slope is measured, as a share of the distance between the images.
_STEP = 5e-4
#: Half lengths and numbers of parts for the second measurement. Outputs with many kinks need short parts. Short lines
#: alone would not show the jumps of rounded values. Only a long line shows the slope of values that are rounded with
#: the gradient of the unrounded ones.
_LINES = ((5e-4, 4), (1e-4, 4), (1e-4, 32), (0.25, 32))
_EPS32, _EPS64 = torch.finfo(torch.float32).eps, torch.finfo(torch.float64).eps
_UNCHECKED = "Pass check_network=False (around metrics: xaibench.unchecked_networks()) to continue with a warning."


class NetworkContractError(UnsupportedModelError):
    """The network is not what explainers and metrics assume; the message names the layer."""


@dataclass
class _Record:
    """Result of the check of a network: an empty message by image shape, precision and gradients if all is right."""

    tensors: tuple[tuple[int, int], ...]
    found: dict[tuple[Any, ...], str] = field(default_factory=dict)


_records: weakref.WeakKeyDictionary[Any, _Record] = weakref.WeakKeyDictionary()
#: Messages of the innermost :func:`unchecked_networks`; None outside of it.
_messages: ContextVar[list[str] | None] = ContextVar("messages", default=None)


@contextmanager
def unchecked_networks(unchecked: bool = True) -> Iterator[list[str]]:
    """Continue with a warning, inside the block, if a network is not a deterministic function of one image.

    Maps and scores are then not reproducible, or wrong. ``check_network=False`` does the same for
    :func:`xaibench.explain`, :func:`xaibench.evaluate` and :func:`xaibench.audit`.

    Args:
        unchecked: False changes nothing.

    Yields:
        What was found, one message per broken assumption.

    Example:
        >>> import warnings, xaibench as xb
        >>> noisy = lambda images: torch.nn.functional.dropout(images.flatten(1))
        >>> images, maps = torch.rand(1, 1, 2, 2), torch.rand(1, 2, 2)
        >>> with xb.unchecked_networks() as found, warnings.catch_warnings():
        ...     warnings.simplefilter("ignore")
        ...     _ = xb.deletion(noisy, images, maps, [0])
        >>> len(found)
        1
    """
    outer = _messages.get()
    if not unchecked:
        yield [] if outer is None else outer
        return
    messages: list[str] = [] if outer is None else outer
    token = _messages.set(messages)
    try:
        yield messages
    finally:
        _messages.reset(token)


def check_network(
    network: Callable[[Tensor], object],
    images: Tensor,
    outputs: Tensor,
    *,
    gradients: bool = False,
    select: Select = check_logits,
) -> None:
    """Check that a network is a deterministic function of one image, unless it was checked before.

    It takes at most four forward passes and one backward pass of two images. A network is checked once; it is checked
    again after its parameters or buffers have changed, and for images of another shape or precision. Its copies
    (:func:`xaibench.network.lending.copy_network`) are not checked again.

    Args:
        network: A module, or any function.
        images: ``[n, C, H, W]``; the first two are used. With a single image, another one is made from it.
        outputs: ``[m, K]``, as ``select`` returns them for the first one or two images, from a call without gradient.
        gradients: Whether the gradient with respect to the images is needed.
        select: Returns the logits in the return value of the network.

    Raises:
        NetworkContractError: If it is not. Inside of :func:`unchecked_networks`, this is a warning.
    """
    original = original_of(network) if isinstance(network, nn.Module) else network
    record = _record(original)
    key = (tuple(images.shape[1:]), images.dtype)
    if record.found.get((*key, True)) == "" or record.found.get((*key, gradients)) == "":
        return
    messages = _messages.get()
    fault = record.found.get((*key, gradients)) if messages is not None else None
    if fault is None:
        with torch.inference_mode(False):
            pair = images[:2].detach().to(*model_device_and_dtype(network, images)).clone()
            # Under autocast, rounding would hide differences.
            uses_autocast = outputs.dtype != pair.dtype
            exact = torch.autocast(pair.device.type, enabled=False) if uses_autocast else nullcontext()
            with evaluation_mode(network), exact:
                fault = _find_fault(network, pair, outputs[:2].detach(), select, gradients)
        # The calls may have filled a cache.
        record.tensors = _versions(original)
        record.found[(*key, gradients)] = fault
    if fault and messages is None:
        raise NetworkContractError(f"{fault} {_UNCHECKED}")
    if fault:
        assert messages is not None
        if fault not in messages:
            messages.append(fault)
        warn_caller(f"{fault} Maps and scores of this network may be wrong.")


@contextmanager
def weights_written_back(network: nn.Module) -> Iterator[None]:
    """Keep what is known of a network whose weights have the same values after the block, with other versions.

    Captum's LRP changes the weights and writes them back.

    Args:
        network: The network.
    """
    record = _record(original_of(network))
    yield
    record.tensors = _versions(original_of(network))


def _record(network: object) -> _Record:
    """Return the record of a network in its present state; not kept for functions without weak references."""
    versions = _versions(network)
    try:
        record = _records.get(network)
        if record is None or record.tensors != versions:
            record = _records[network] = _Record(versions)
    except TypeError:
        record = _Record(versions)
    return record


def _versions(network: object) -> tuple[tuple[int, int], ...]:
    """Identity and version of every tensor of a network; tensors of inference mode have no version."""
    if not isinstance(network, nn.Module):
        return ()
    tensors = (*network.parameters(), *network.buffers())
    return tuple((id(tensor), 0 if tensor.is_inference() else tensor._version) for tensor in tensors)


class _Calls:
    """Calls of a network, whose outputs are compared.

    Attributes:
        rows: Largest number of images per call; None for any number.
    """

    def __init__(self, network: Callable[[Tensor], object], select: Select) -> None:
        self.network, self.select = network, select
        self.rows: int | None = None

    def __call__(self, images: Tensor) -> Tensor:
        parts = torch.split(images, self.rows or len(images))
        # The network may modify its input.
        return torch.cat([self.select(self.network(part.clone()), len(part), "The model") for part in parts])

    def with_gradient(self, images: Tensor) -> Tensor:
        with torch.enable_grad():
            return self(images.clone().requires_grad_())

    def without_gradient(self, images: Tensor) -> Tensor:
        with torch.no_grad():
            return self(images)


def _find_fault(
    network: Callable[[Tensor], object], images: Tensor, outputs: Tensor, select: Select, gradients: bool
) -> str:
    """Describe a fault of a network and its remedy; empty if there is none."""
    calls = _Calls(network, select)
    generators, buffers = _generator_states(images.device), _versions(network)
    if outputs.dtype != images.dtype:  # of a call under autocast
        outputs = calls.without_gradient(images[: len(outputs)])
    is_usable = len(images) == 2 and not _are_alike(images)
    pair = images if is_usable else torch.cat([images[:1], _make_other(images[:1])])
    together = outputs if is_usable and len(outputs) == 2 else None
    alone = outputs[:1] if len(outputs) == 1 or not is_usable else None
    suspicious = _depends_on_batch(calls, pair, together, alone)
    if not suspicious and gradients:
        suspicious = _gradient_is_suspicious(calls, pair)
    moved = [name for name, state in _generator_states(images.device).items() if state != generators[name]]
    if not suspicious and not moved and _versions(network) == buffers:
        return ""
    return _diagnose(calls, pair, moved, gradients)


def _depends_on_batch(calls: _Calls, pair: Tensor, together: Tensor | None, alone: Tensor | None) -> bool:
    """Return whether images seem to have other outputs alone than in a pair, and find how many a network takes.

    Args:
        calls: Calls of the network; their number of rows is set if it takes a fixed number of images.
        pair: ``[2, C, H, W]``.
        together: ``[2, K]``, the outputs of the pair if they are known.
        alone: ``[1, K]``, the output of the first image alone if it is known.
    """
    try:
        together = calls.without_gradient(pair) if together is None else together
        remaining = pair if alone is None else pair[1:]
        outputs = [calls.without_gradient(image[None]) for image in remaining]
    except (RuntimeError, ValueError, TypeError, IndexError, AssertionError):
        if together is not None:  # two images per call
            calls.rows, outputs = 2, [calls.without_gradient(torch.stack([image, image]))[:1] for image in pair]
            alone = None
        else:  # one image per call
            calls.rows, outputs = 1, []
            together, alone = calls.without_gradient(pair[:1]), calls.without_gradient(pair[:1])
    separate = torch.cat(outputs if alone is None else [alone, *outputs])
    return _is_different(together, separate, _SUSPICIOUS.get(separate.dtype, _HALF))


def _are_alike(pair: Tensor) -> bool:
    """Return whether mean or contrast of two images are so close that a normalization over the batch may not show."""
    one, other = pair.double().flatten(1)
    contrasts, shift = torch.stack([one.std(correction=0), other.std(correction=0)]), (one.mean() - other.mean()).abs()
    difference = torch.maximum(contrasts.diff().abs()[0], shift)
    return bool(difference <= 0.02 * torch.maximum(contrasts.max(), shift))


def _make_other(image: Tensor) -> Tensor:
    """Return an image with other values in the same range, darker and of another contrast, ``[1, C, H, W]``."""
    low, high = image.min(), image.max()
    if low == high:
        return image + torch.linspace(0, 1, image.shape[-1], dtype=image.dtype, device=image.device)
    return low + ((image - low) / (high - low)).square().flip(-1) * (high - low)


def _is_different(first: Tensor, second: Tensor, tolerance: float) -> bool:
    if first.shape != second.shape:
        return True
    one, other = first.detach().cpu().double(), second.detach().cpu().double()
    scale = torch.stack([one, other]).nan_to_num(0.0, 0.0, 0.0).abs().max()
    return not torch.allclose(one, other, rtol=0.0, atol=float(tolerance * scale), equal_nan=True)


def _gradient_is_suspicious(calls: _Calls, pair: Tensor) -> bool:
    """Return whether the gradient differs from a central difference along the line between the images."""
    if pair.dtype not in _SUSPICIOUS:
        calls, pair = _in_precision(calls, pair, torch.float32)
    points, line = _between(pair)
    try:
        values, gradient = _derivative(calls, points, line)
        ends = calls.without_gradient(torch.cat([points + _STEP * line, points - _STEP * line]))
    except RuntimeError as error:
        if not is_out_of_memory(error) or calls.rows == 1:
            return False  # the method fails with its own message, or needs only a part of the gradient
        calls.rows = 1
        return _gradient_is_suspicious(calls, pair)
    upper, lower = (ends.cpu().double() @ _weights(ends.shape[1])).chunk(2)
    largest = float(torch.maximum(upper.abs(), lower.abs()).max())
    if ((values - (upper + lower) / 2).abs() > 0.01 * largest).any():
        return True  # other outputs with gradients than without
    noise = 4 * torch.finfo(ends.dtype).eps * largest / (2 * _STEP)
    return bool(_disagree((upper - lower) / (2 * _STEP), gradient, _SUSPICIOUS_SLOPE, noise).any())


def _between(pair: Tensor) -> tuple[Tensor, Tensor]:
    """Return a point near each of two images, on the line to the other one, and the direction of the line.

    Inside of the line, a network that clamps its input does not do so.
    """
    line = pair.flip(0) - pair
    # One of them becomes darker as well, since noise and texture have the same mean everywhere on the line.
    line[1] -= 0.5 * (pair.max() - pair.min())
    return pair + 0.3 * line, line


def _derivative(calls: _Calls, points: Tensor, line: Tensor) -> tuple[Tensor, Tensor]:
    """Return a weighted sum of the outputs and its derivative along the line, ``[n]`` float64 each.

    The derivative is zero if the outputs have no gradient.
    """
    values, derivatives = [], []
    for part, direction in zip(*(torch.split(x, calls.rows or len(x)) for x in (points, line)), strict=True):
        with torch.enable_grad():
            x = part.clone().requires_grad_()
            outputs = calls(x)
            weighted = outputs @ _weights(outputs.shape[1]).to(outputs)
            gradient = None
            if weighted.requires_grad:
                (gradient,) = torch.autograd.grad(weighted.sum(), x, allow_unused=True)
        along = torch.zeros(len(part)) if gradient is None else (gradient.double() * direction).flatten(1).sum(1)
        values.append(weighted.detach().cpu().double())
        derivatives.append(along.cpu().double())
    return torch.cat(values), torch.cat(derivatives)


def _weights(outputs: int) -> Tensor:
    """Weights of the outputs in the sum whose slope is measured, ``[K]`` float64; none is small."""
    return torch.from_numpy(np.random.default_rng(0).uniform(0.5, 1.5, outputs) * np.resize([1.0, -1.0], outputs))


def _disagree(slopes: Tensor, gradients: Tensor, tolerance: float, noise: Tensor | float) -> Tensor:
    """Return for which images ``[..., n]`` a slope is not the gradient, up to noise; never if one is not finite."""
    # One image may be at a place where the slope happens to be small.
    own = torch.maximum(slopes.abs(), gradients.abs())
    largest = torch.maximum(own, 0.2 * own.amax(-1, keepdim=True))
    return (slopes - gradients).abs() > tolerance * largest + noise


def _generator_states(device: torch.device) -> dict[str, Any]:
    """Return the states of the global random generators, by library."""
    state = np.random.get_state()
    states: dict[str, Any] = {
        "torch": torch.get_rng_state().numpy().tobytes(),
        "numpy": (state[1].tobytes(), *state[2:]) if isinstance(state, tuple) else state,
        "random": random.getstate(),
    }
    if device.type == "cuda":
        states["torch.cuda"] = torch.cuda.get_rng_state(device).numpy().tobytes()
    return states


def _diagnose(calls: _Calls, pair: Tensor, moved: list[str], gradients: bool) -> str:
    """Repeat the comparisons on a float64 copy, and return what is wrong for certain; empty if nothing is."""
    network = calls.network

    def call() -> Tensor:
        return calls.without_gradient(pair)

    if moved and (drawn := find_draws(network, call, moved)):
        return f"The network draws random numbers in evaluation mode: {drawn}."
    if isinstance(network, nn.Module) and (changed := _changed_buffers(network, call)):
        return f"The network changes its buffers in evaluation mode: {listed(changed, most=3)}."
    calls, pair = _in_precision(calls, pair, torch.float64)
    network, tolerance = calls.network, _CERTAIN.get(pair.dtype, _HALF)
    first, second = call(), call()
    if _is_different(first, second, tolerance):
        drawn = find_draws(network, call, []) or f"first in {first_difference(network, call, call)}"
        return f"The network draws random numbers in evaluation mode: {drawn}."
    for image in range(2 if calls.rows != 1 else 0):
        order = [1 - image, image]  # the compared image is the second one
        alone = pair[[image]] if calls.rows is None else pair[[image, image]]
        if _is_different(first[image : image + 1], calls.without_gradient(alone)[-1:], tolerance):
            layer = first_difference(
                network, partial(calls.without_gradient, pair[order]), partial(calls.without_gradient, alone)
            )
            return f"The output for an image depends on the other images of its batch, first in {layer}."
    if gradients and _is_different(first, calls.with_gradient(pair), tolerance):
        layer = first_difference(network, call, lambda: calls.with_gradient(pair))
        return f"The network computes other outputs while gradients are recorded, first in {layer}."
    if gradients and (slopes := _find_wrong_gradient(calls, pair)):
        lost = find_lost_gradient(network, calls, _between(pair)[0])
        return (
            f"The gradient of the network is {slopes[1]:.3g} along a line between two images, but the slope of its "
            f"outputs is {slopes[0]:.3g}{f': lost at {lost}' if lost else ''}. Explainers without gradients: "
            "xaibench.explainers.gradient_free()."
        )
    return ""


def _in_precision(calls: _Calls, pair: Tensor, dtype: torch.dtype) -> tuple[_Calls, Tensor]:
    """Copy the network to another precision, with the images; return both unchanged if that fails."""
    if pair.dtype == dtype:
        return calls, pair
    try:
        duplicate = calls.network
        if isinstance(duplicate, nn.Module):
            duplicate = copy_network(duplicate, dtype=dtype)
        precise = _Calls(duplicate, calls.select)
        precise.rows = calls.rows
        if precise.without_gradient(pair.to(dtype)).isfinite().all():
            return precise, pair.to(dtype)
    except Exception:  # a copy runs arbitrary code, and some networks are tied to their precision
        pass
    return calls, pair


def _changed_buffers(network: nn.Module, call: Callable[[], object]) -> list[str]:
    """Return the names of the buffers whose values a call changes; a cache is filled by the calls before."""
    before = {name: (buffer, buffer.detach().clone()) for name, buffer in network.named_buffers()}
    call()
    return [
        name
        for name, buffer in network.named_buffers()
        if name not in before or not torch.equal(buffer.nan_to_num(), before[name][1].nan_to_num())
    ]


def _find_wrong_gradient(calls: _Calls, pair: Tensor) -> tuple[float, float] | None:
    """Return a slope and the gradient, if the outputs do not change by the integral of the gradient along a line.

    They must disagree on most parts of a line with few parts, since one may contain a jump.
    """
    points, line = _between(pair)
    found: tuple[float, float] | None = None
    for step, parts in _LINES:
        offsets = torch.linspace(-step, step, parts + 1, dtype=torch.float64).tolist()
        ends = [_derivative(calls, points + offset * line, line) for offset in offsets]
        values, derivatives = (torch.stack(column) for column in zip(*ends, strict=True))
        means = (derivatives[1:] + derivatives[:-1]) / 2
        slopes = values.diff(dim=0) * parts / (2 * step)
        # Some networks compute a part in float32 whatever their precision: smooth values have no third differences.
        magnitude = float(values.abs().max())
        roughness = float(values.diff(3, dim=0).abs().median())
        rounding = min(max(roughness, _EPS64 * magnitude), _EPS32 * magnitude)
        # The mean of a gradient that jumps along the line is an estimate.
        jumps = derivatives.diff(2, dim=0).abs().mean(0)
        is_wrong = _disagree(slopes.mean(0), means.mean(0), _CERTAIN_SLOPE, 2 * rounding / step + jumps / parts**0.5)
        if parts == 4:
            noise = 2 * parts * rounding / step + jumps
            is_wrong &= _disagree(slopes, means, _CERTAIN_SLOPE, noise).sum(0) > parts / 2
        if not is_wrong.any():
            return None
        image = is_wrong.int().argmax()
        found = slopes[:, image].mean().item(), means[:, image].mean().item()
    return found
