"""Find the layer in which a network stops being a deterministic function of one image, for error messages."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from xaibench.core.messages import listed

#: Functions whose gradient is zero, by name.
_ROUNDING = frozenset(
    f"{name}{end}"
    for name in ("round", "floor", "ceil", "trunc", "fix", "sign", "sgn", "heaviside")
    for end in ("", "_")
)

_WITHOUT_NO_GRAD = "Remove no_grad; requires_grad_(False) freezes weights and keeps the gradient of the images"


@dataclass
class _Run:
    """One call of a module: copies of its inputs and outputs."""

    name: str
    module: nn.Module
    inputs: list[Tensor]
    outputs: list[Tensor]


@contextmanager
def _hooked(network: object, before: Callable[..., Any], after: Callable[..., Any]) -> Iterator[None]:
    """Call functions with the name and the module before and after every call of a module."""
    handles = []
    for name, module in network.named_modules() if isinstance(network, nn.Module) else ():
        try:
            handles.append(module.register_forward_pre_hook(lambda m, inputs, name=name: before(name, m, inputs)))
            handles.append(module.register_forward_hook(lambda m, i, out, name=name: after(name, m, i, out)))
        except RuntimeError:  # scripted modules may refuse hooks
            continue
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@dataclass
class _Event:
    """A function that draws random numbers or loses the gradient, and the modules in whose forward it is called."""

    function: str
    modules: list[tuple[str, nn.Module, bool]]
    enabled: bool


@dataclass
class _Watch(TorchFunctionMode):
    """Record what the functions of torch do while a network runs in this thread.

    Attributes:
        drawing: Functions that draw from the global generator.
        losing: Functions that get a tensor with a gradient and return one without.
        rounding: Functions whose gradient is zero.
    """

    drawing: list[_Event] = field(default_factory=list)
    losing: list[_Event] = field(default_factory=list)
    rounding: list[_Event] = field(default_factory=list)
    modules: list[tuple[str, nn.Module, bool]] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def enter(self, name: str, module: nn.Module, inputs: object) -> None:
        self.modules.append((name, module, torch.is_grad_enabled()))

    def leave(self, name: str, module: nn.Module, inputs: object, output: object) -> None:
        self.modules.pop()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        before = _torch_states()
        result = func(*args, **(kwargs or {}))
        name = getattr(func, "__name__", "")
        name = getattr(getattr(func, "__self__", None), "__name__", name) if name == "__get__" else name
        event = _Event(name, list(self.modules), torch.is_grad_enabled())
        if _torch_states() != before:
            self.drawing.append(event)
        has_gradient = any(isinstance(x, Tensor) and x.requires_grad for x in tree_leaves((args, kwargs)))
        if has_gradient and isinstance(result, Tensor) and result.is_floating_point():
            if not result.requires_grad:
                self.losing.append(event)
            elif name in _ROUNDING:
                self.rounding.append(event)
        return result


def _torch_states() -> list[bytes]:
    states = [torch.get_rng_state()]
    if torch.cuda.is_available():
        states += torch.cuda.get_rng_state_all()
    return [state.numpy().tobytes() for state in states]


def _host_states() -> tuple[Any, Any]:
    state = np.random.get_state()
    return (state[1].tobytes(), *state[2:]) if isinstance(state, tuple) else state, random.getstate()


def _watch(network: object, call: Callable[[], object]) -> _Watch:
    watch = _Watch()
    with _hooked(network, watch.enter, watch.leave), watch:
        call()
    return watch


def _place(network: object, name: str, module: nn.Module) -> str:
    kind = type(module).__name__
    outside = ", outside of its layers" if next(module.children(), None) is not None else ""
    if not name:
        return f"in the forward of {kind}{outside}" if outside else f"in {kind}"
    return f"in {'the forward of ' if outside else 'layer '}{name!r} ({kind}){outside}"


def _place_of(network: object, event: _Event) -> str:
    if not event.modules:
        return f"in {type(network).__name__}"
    name, module, _ = event.modules[-1]
    return _place(network, name, module)


def describe_randomness(network: object, call: Callable[[], Tensor], moved: list[str]) -> str:
    """Describe where a network draws random numbers.

    Args:
        network: The network.
        call: Calls it.
        moved: Names of the global generators that a call has changed. If there are any, that is confirmed, since
            another thread may have drawn.

    Returns:
        What is wrong and what to do; empty if generators have moved, but not by the network.
    """
    # What another thread draws meanwhile does not show several times in the same place.
    again = {(event.function, _place_of(network, event)) for event in _watch(network, call).drawing}
    events = _watch(network, call).drawing
    drawing = [event for event in events if (event.function, _place_of(network, event)) in again]
    where = ""
    if drawing:
        event = drawing[0]
        where = f"{event.function} {_place_of(network, event)}"
    elif moved:
        places = {_find_host_draws(network, call) for _ in range(4 if {"numpy", "random"} & set(moved) else 0)}
        where = places.pop() if len(places) == 1 else ""
        if not where:
            return ""
    else:
        where = f"first {first_difference(network, call, call)}"
    return (
        f"The network draws random numbers in evaluation mode ({where}), so that equal calls have different results "
        "and global random generators change. Draw in training mode only: "
        "torch.nn.functional.dropout(x, p, training=self.training), or the module torch.nn.Dropout."
    )


def _find_host_draws(network: object, call: Callable[[], object]) -> str:
    """Return the innermost module that changes the generators of numpy or random; empty if a call does not."""
    entered: list[Any] = []
    found: list[str] = []

    def enter(name: str, module: nn.Module, inputs: object) -> None:
        entered.append(_host_states())

    def leave(name: str, module: nn.Module, inputs: object, output: object) -> None:
        if entered.pop() != _host_states() and not found:
            found.append(f"numpy or random {_place(network, name, module)}")

    before = _host_states()
    with _hooked(network, enter, leave):
        call()
    if found:
        return found[0]
    return "" if before == _host_states() else f"numpy or random in {type(network).__name__}"


def describe_batch_dependence(
    network: object, call: Callable[[Tensor], Tensor], together: Tensor, alone: Tensor
) -> str:
    """Describe where the output for an image depends on the other images of its batch.

    Args:
        network: The network.
        call: Calls it with images.
        together: ``[2, C, H, W]``.
        alone: ``[1, C, H, W]``, the second image; or twice that image.

    Returns:
        What is wrong and what to do.
    """
    runs = _first_different_run(network, lambda: call(together), lambda: call(alone))
    remedy = (
        "Compute every image on its own; if one sample has several images, such as the frames of a video, explain it "
        "as a volume."
    )
    if runs is not None and isinstance(runs.module, _BatchNorm):
        why = "has no running statistics" if runs.module.running_mean is None else "is in training mode"
        remedy = (
            f"The batch normalization {why}: estimate them with track_running_stats=True and evaluate with them, or "
            "use torch.nn.GroupNorm."
        )
    where = type(network).__name__ if runs is None else _place(network, runs.name, runs.module)
    return (
        f"The output for an image depends on the other images of its batch, first {where}. Maps and scores then depend "
        f"on batch_size and on the order of the images. {remedy}"
    )


def first_difference(network: object, first: Callable[[], object], second: Callable[[], object]) -> str:
    """Describe the innermost module that first has other outputs for equal inputs in the second of two calls."""
    run = _first_different_run(network, first, second)
    return f"in {type(network).__name__}" if run is None else _place(network, run.name, run.module)


def _first_different_run(network: object, first: Callable[[], object], second: Callable[[], object]) -> _Run | None:
    """Return the first innermost module with equal inputs and different outputs in two calls."""
    for one, other in zip(_record_runs(network, first), _record_runs(network, second), strict=False):
        if one.name != other.name:
            return None
        if _rows_are_equal(one.inputs, other.inputs) and not _rows_are_equal(one.outputs, other.outputs):
            return one
    return None


def _record_runs(network: object, call: Callable[[], object]) -> list[_Run]:
    runs: list[_Run] = []
    entered: list[list[Tensor]] = []

    def enter(name: str, module: nn.Module, inputs: object) -> None:
        entered.append(_copies(inputs))

    def leave(name: str, module: nn.Module, inputs: object, output: object) -> None:
        runs.append(_Run(name, module, entered.pop(), _copies(output)))

    with _hooked(network, enter, leave):
        call()
    return runs


def _copies(values: object) -> list[Tensor]:
    return [x.detach().clone() for x in tree_leaves(values) if isinstance(x, Tensor) and x.is_floating_point()]


def _rows_are_equal(first: list[Tensor], second: list[Tensor]) -> bool:
    """Return whether tensors for two images and for the second alone agree on it; True if they cannot be compared."""
    return all(map(_agrees, first, second)) if len(first) == len(second) else True


def _agrees(together: Tensor, alone: Tensor) -> bool:
    tolerance = 1e-5 * float(alone.abs().max()) if alone.numel() else 0.0

    def close(part: Tensor) -> bool:
        return torch.allclose(part, alone, rtol=0.0, atol=tolerance, equal_nan=True)

    if together.shape == alone.shape:
        # The second rows: with twice the same image as with another first one.
        return close(together) or (len(together) == 2 and torch.allclose(together[1], alone[1], atol=tolerance))
    if together.ndim != alone.ndim:
        return True
    differing = [axis for axis in range(alone.ndim) if together.shape[axis] != alone.shape[axis]]
    if len(differing) != 1 or together.shape[differing[0]] != 2 * alone.shape[differing[0]]:
        return True
    axis, size = differing[0], alone.shape[differing[0]]
    interleaved = together.index_select(axis, torch.arange(1, 2 * size, 2, device=together.device))
    return close(together.narrow(axis, size, size)) or close(interleaved)


def describe_lost_gradient(
    network: object, call: Callable[[Tensor], Tensor], images: Tensor, slope: float, gradient: float
) -> str:
    """Describe where a network loses the gradient with respect to the images.

    Args:
        network: The network, or a copy that may be changed.
        call: Calls it with images.
        images: ``[n, C, H, W]``.
        slope: Measured slope of the outputs along a line between images.
        gradient: The slope along that line according to autograd.

    Returns:
        What is wrong and what to do.
    """
    outputs: list[Tensor] = []
    with torch.enable_grad():
        x = images.clone().requires_grad_()
        watch = _watch(network, lambda: outputs.append(call(x)))
    where = "an operation of the network blocks it (such as detach, numpy, rounding or quantization)"
    remedy = "Remove that operation"
    modules = network.named_modules() if isinstance(network, nn.Module) else ()
    hooked = [repr(name) for name, module in modules if module._backward_hooks or module._backward_pre_hooks]
    lost = watch.losing[0] if watch.losing else None
    if lost is not None and lost.enabled:
        where = f"{lost.function} {_place_of(network, lost)} blocks it"
    elif lost is not None and (frozen := [entry for entry in lost.modules if not entry[2]]):
        where = f"{frozen[0][0]!r} ({type(frozen[0][1]).__name__}) runs under torch.no_grad()"
        remedy = _WITHOUT_NO_GRAD
    elif functions := _own_functions(outputs[0]):
        where = f"the backward of {listed(functions, most=3)} (torch.autograd.Function) is not that of its forward"
        remedy = "Correct it"
    elif lost is not None:
        where = f"{lost.function} {_place_of(network, lost)} runs under torch.no_grad()"
        remedy = _WITHOUT_NO_GRAD
    elif watch.rounding:
        where = f"{watch.rounding[0].function} {_place_of(network, watch.rounding[0])} has a gradient of zero"
    elif hooked:
        where, remedy = f"backward hooks of {listed(hooked, most=3)} change it", "Remove the hooks"
    return (
        f"The gradient of the network is not the slope of its outputs: {gradient:.3g} instead of {slope:.3g} along a "
        f"line between two images, since {where}. {remedy}, or use an explainer that needs no gradient "
        "(xaibench.explainers.gradient_free())."
    )


def _own_functions(output: Tensor) -> list[str]:
    """Return the names of the functions with an own backward in the graph of an output."""
    names: dict[str, None] = {}
    seen, nodes = set(), [output.grad_fn]
    while nodes:
        node = nodes.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if isinstance(node, torch.autograd.function.BackwardCFunction):
            names[node.name().removesuffix("Backward")] = None
        nodes += [following for following, _ in node.next_functions]
    return list(names)
