"""Find the layer in which a network stops being a deterministic function of one image, for error messages."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from xaibench.network.calls import CallObserver, LayerRun, describe_layer, observe_calls

#: Functions whose gradient is zero, by name.
_ROUNDING = frozenset(
    f"{name}{end}"
    for name in ("round", "floor", "ceil", "trunc", "fix", "sign", "sgn", "heaviside")
    for end in ("", "_")
)


class _Watch(CallObserver):
    """Record what the functions of torch do while a network runs in this thread.

    Attributes:
        drawing: Functions that draw from a global generator, with their layers.
        losing: Functions that get a tensor with a gradient and return one without, with their layers.
        hidden: Whether each of the latter runs inside an own function, which has a backward of its own.
        rounding: Functions whose gradient is zero, with their layers.
    """

    def __init__(self, network: object, call: Callable[[], object]) -> None:
        super().__init__()
        self.drawing: list[str] = []
        self.losing: list[str] = []
        self.hidden: list[bool] = []
        self.rounding: list[str] = []
        self._network = network
        self._entered: list[tuple[bool, Any]] = [(True, _host_states())]
        with self.observing(network, scripted=False):
            call()
        self._note_host_draws(self._entered[0][1])

    def enter(self, name: str, module: nn.Module, inputs: tuple[Any, ...]) -> None:
        super().enter(name, module, inputs)
        self._entered.append((torch.is_grad_enabled(), _host_states()))

    def leave(self, name: str, module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        self._note_host_draws(self._entered[-1][1])
        self._entered.pop()
        super().leave(name, module, inputs, output)

    def where(self) -> str:
        """Return the current layer; where the network turns gradients off, the outermost layer without them."""
        if not self.running:
            return type(self._network).__name__
        enabled = [is_enabled for is_enabled, _ in self._entered[1:]]
        turned_off = enabled[0] and not all(enabled) and not torch.is_grad_enabled()
        return describe_layer(*self.running[enabled.index(False) if turned_off else -1])

    def _note_host_draws(self, before: Any) -> None:
        # A layer around the layer that draws has other states as well.
        if before != _host_states() and not any(event.startswith("numpy or random") for event in self.drawing):
            self.drawing.append(f"numpy or random in {self.where()}")

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        before = _torch_states()
        result = func(*args, **(kwargs or {}))
        name = getattr(func, "__name__", "")
        name = getattr(getattr(func, "__self__", None), "__name__", name) if name == "__get__" else name
        if _torch_states() != before:
            self.drawing.append(f"{name} in {self.where()}")
        has_gradient = any(isinstance(x, Tensor) and x.requires_grad for x in tree_leaves((args, kwargs)))
        if has_gradient and isinstance(result, Tensor) and result.is_floating_point():
            if not result.requires_grad:
                is_enabled = torch.is_grad_enabled()
                self.losing.append(f"{name} in {self.where()}{'' if is_enabled else ', under torch.no_grad()'}")
                self.hidden.append(not is_enabled and all(enabled for enabled, _ in self._entered))
            elif name in _ROUNDING:
                self.rounding.append(f"{name} in {self.where()}")
        return result


def _torch_states() -> list[bytes]:
    states = [torch.get_rng_state()]
    if torch.cuda.is_available():
        states += torch.cuda.get_rng_state_all()
    return [state.numpy().tobytes() for state in states]


def _host_states() -> tuple[Any, Any]:
    state = np.random.get_state()
    return (state[1].tobytes(), *state[2:]) if isinstance(state, tuple) else state, random.getstate()


def find_draws(network: object, call: Callable[[], object], moved: list[str]) -> str:
    """Return the function and the layer that draw random numbers from global generators; empty if there is none.

    Args:
        network: The network.
        call: Calls it. What another thread draws meanwhile does not show in each of several calls in the same place.
        moved: Names of the global generators that a call has changed.
    """
    first, *others = (_Watch(network, call).drawing for _ in range(4 if {"numpy", "random"} & set(moved) else 2))
    return next((event for event in first if all(event in other for other in others)), "")


def first_difference(network: object, first: Callable[[], object], second: Callable[[], object]) -> str:
    """Return the innermost layer that first has other outputs for equal inputs in the second of two calls.

    Args:
        network: The network.
        first: Calls it; for two images if the calls differ in their images.
        second: Calls it again, for the second image alone or twice.
    """
    for one, other in zip(_copied_runs(network, first), _copied_runs(network, second), strict=False):
        if one.name != other.name:
            break
        if _rows_are_equal(one.inputs, other.inputs) and not _rows_are_equal(one.output, other.output):
            return describe_layer(one.name, one.module)
    return type(network).__name__


def _copied_runs(network: object, call: Callable[[], object]) -> list[LayerRun]:
    """Return the calls of modules with copies of their inputs and outputs, which later layers may overwrite."""
    runs: list[LayerRun] = []
    entered: list[Any] = []
    with observe_calls(
        network.named_modules() if isinstance(network, nn.Module) else (),
        before=lambda name, module, inputs: entered.append(_copies(inputs)),
        after=lambda name, module, _, output: runs.append(LayerRun(name, module, entered.pop(), _copies(output))),
        scripted=False,
    ):
        call()
    return runs


def _copies(values: object) -> tuple[Tensor, ...]:
    return tuple(x.detach().clone() for x in tree_leaves(values) if isinstance(x, Tensor) and x.is_floating_point())


def _rows_are_equal(first: Any, second: Any) -> bool:
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


def find_lost_gradient(network: object, call: Callable[[Tensor], Tensor], images: Tensor) -> str:
    """Return the operation that loses the gradient with respect to the images, and its layer; empty if unknown.

    Args:
        network: The network, or a copy that may be changed.
        call: Calls it with images.
        images: ``[n, C, H, W]``.
    """
    outputs: list[Tensor] = []
    with torch.enable_grad():
        x = images.clone().requires_grad_()
        watch = _Watch(network, lambda: outputs.append(call(x)))
    own = _own_functions(outputs[0])
    if watch.losing and not (own and watch.hidden[0]):
        return watch.losing[0]
    if own:
        return f"the backward of {own[0]} (torch.autograd.Function)"
    if watch.rounding:
        return watch.rounding[0]
    modules = network.named_modules() if isinstance(network, nn.Module) else ()
    hooked = [describe_layer(*named) for named in modules if named[1]._backward_hooks or named[1]._backward_pre_hooks]
    return f"a backward hook of {hooked[0]}" if hooked else ""


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
