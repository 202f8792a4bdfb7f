"""Intercept every operation of a network's forward pass, called by a module or as a function.

The traced network must be the network. Three things see to that:

- An operation that overwrites a tensor (``relu_``, ``x += y``, ``inplace=True``) is computed on a copy, which is then
  written into that tensor, so its other holders and its views get the new values. What the backward pass needs of the
  old values is copied just before (:class:`_SavedTensors`).
- Every node of the autograd graph between output and image must come from an intercepted operation. Calls of own
  functions, ``Name.apply(x)``, are intercepted. Scripted and compiled code is not, so its nodes raise an error.
- The outputs are compared with those of a plain forward pass.
"""

from __future__ import annotations

import re
import threading
import weakref
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.modules._functions import BackwardHookFunction
from torch.overrides import handle_torch_function, has_torch_function

from xaibench.explainers.propagation.layer_operations import (
    Operation,
    as_linear,
    dense_product,
    function_name,
    is_rectifier,
    is_smooth_rectifier,
    operation_kind,
    out_of_place,
    overwritten_tensor,
    recognize_activation,
    tensor_version,
    tensors_in,
)
from xaibench.explainers.registered import gradient_free_advice
from xaibench.explainers.shared.tokens import unfused
from xaibench.network.calls import CallObserver
from xaibench.network.explained_output import UnsupportedModelError, network_of
from xaibench.network.lending import restore_model_state
from xaibench.network.outputs import REARRANGING_NODES

#: Largest difference between traced and plain values, relative to the largest magnitude. Rounding is far below it.
TOLERANCE = {torch.float64: 1e-6, torch.float32: 1e-3, torch.float16: 0.05, torch.bfloat16: 0.1}

#: Nodes that autograd makes when a tensor is overwritten, of backward hooks, and those at which the graph begins.
_BOOKKEEPING = (
    *(*REARRANGING_NODES, "CopySlices", "Copy", "AsStrided", BackwardHookFunction.__name__),
    "torch::autograd::AccumulateGrad",
)


class OperationInterceptor(CallObserver):
    """Pass every operation on tensors that depend on the image to :meth:`handle`, which returns the result.

    Create it with :func:`intercept_operations`, which removes the hooks afterwards and freezes the parameters, so that
    only tensors that depend on the image require a gradient. Fused attention is split into matrix products and a
    softmax, and a product with a constant matrix is a linear layer. Operations outside the network, such as the head
    that computes the explained output, are not intercepted.
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network
        self.seen = False
        #: What the network returned.
        self.returned: Any = None
        self._saved = _SavedTensors()
        #: Autograd nodes that intercepted operations have made; emptied after the pass, since a node holds its rule.
        self._known: set[Any] = set()
        #: Name, layer and result of each operation, recorded only to locate a difference.
        self._record: list[_Recorded] | None = None
        self._treats = True

    def handle(
        self,
        func: Callable[..., Any],
        called: str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        carriers: tuple[Tensor, ...],
    ) -> Any:
        """Return the result of ``func(*args, **kwargs)``.

        ``called`` is the name of the function, ``carriers`` are the arguments that depend on the image.
        """
        raise NotImplementedError

    def run(self, model: nn.Module, images: Tensor) -> Any:
        """Return the outputs of images that require a gradient.

        Raises:
            UnsupportedModelError: If operations of the network cannot be observed, or the traced outputs differ from
                those of the network; the message names the first operation.
        """
        expected = self.plain_outputs(images)
        state = vars(self).copy()
        with torch.autograd.graph.saved_tensors_hooks(self._saved.pack, self._saved.unpack), _own_functions_observed():
            with self.observing(self.network):
                outputs = model(images)
            if not self.seen:
                raise UnsupportedModelError(
                    f"{type(self.network).__name__}: no operation on the images can be observed. A compiled, scripted "
                    "or traced network hides its layers: pass the network it was made from."
                )
            if any(map(_differs, tensors_in(expected), tensors_in(self.returned))):
                vars(self).update(state)
                raise UnsupportedModelError(
                    f"{self._first_difference(images)} under the rules of the explainer, so its map would be that of "
                    "another network. saliency and integrated_gradients explain the network as it is."
                )
            if not any(x.requires_grad for x in tensors_in(self.returned)):
                raise UnsupportedModelError(
                    f"The output of {type(self.network).__name__} has no gradient with respect to the images. "
                    f"{gradient_free_advice()}"
                )
            self._known.clear()
        return outputs

    def plain_outputs(self, images: Tensor) -> Any:
        """Return the outputs of the network without the treatment."""
        with torch.no_grad():
            return self.network(images.detach().clone())

    def operation(
        self,
        func: Callable[..., Any],
        called: str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        kind: Any = None,
    ) -> Operation | None:
        """Return the call as an operation on the tensors that depend on the image; ``None`` if its kind is unknown."""
        kind = kind or operation_kind(called, args, kwargs)
        if kind is None:
            return None
        function, rectifies = out_of_place(func, args, kwargs), is_rectifier(called, args, kwargs)
        smooth = is_smooth_rectifier(called)
        return Operation(kind, self.name(called), function, called, self.where(), rectifies=rectifies, smooth=smooth)

    def name(self, called: str) -> str:
        """Return the name of the current layer, with the name of the function unless it is a linear layer."""
        name, module = self.running[-1]
        own = isinstance(module, nn.Linear | nn.Conv1d | nn.Conv2d | nn.Conv3d | nn.BatchNorm2d | nn.BatchNorm3d)
        return name if own and name else f"{name}.{called}".lstrip(".")

    def enter(self, name: str, module: nn.Module, inputs: tuple[Any, ...]) -> None:
        """Note that a layer begins, and check the graph of its inputs."""
        with torch._C.DisableTorchFunction():
            if not self.running:  # how the images were made is not the network's
                self._known.update(x.grad_fn for x in tensors_in(inputs))
            self._check_graph(tensors_in(inputs))
        super().enter(name, module, inputs)

    def leave(self, name: str, module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        """Note that a layer is done, and check the graph of its output."""
        with torch._C.DisableTorchFunction():
            self._check_graph(tensors_in(output))
        super().leave(name, module, inputs, output)
        if not self.running:
            self.returned = output

    def _check_graph(self, tensors: Iterable[Tensor]) -> None:
        """Check that intercepted operations have made all nodes from which the tensors were computed."""
        nodes = _nodes_behind(tensors, self._known) if self._treats else set()
        for node in nodes:
            if re.sub(r"Backwards?\d*$", "", node.name()) not in _BOOKKEEPING:
                raise _hidden_operation(self.where(), node.name())
        self._known |= nodes

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        called = function_name(func)
        target = overwritten_tensor(func, args, kwargs)
        if target is not None:
            self._saved.copy_before_overwriting(target)
        carriers = tuple(x for x in tensors_in((args, kwargs)) if x.requires_grad)
        if not self.running or not carriers:
            return func(*args, **kwargs)
        self.seen = True
        if kwargs.get("out") is not None:
            raise UnsupportedModelError(
                f"{self.where()} calls {called}(..., out=...), which torch does not differentiate. Assign its result."
            )
        self._check_graph(carriers)
        # Operations inside, such as those of fused attention, are not recorded.
        record, self._record = self._record, None
        result = self._treated(func, called, args, kwargs, carriers) if self._treats else func(*args, **kwargs)
        if target is not None and isinstance(result, Tensor) and result is not target:
            self._saved.copy_before_overwriting(target)  # the treatment has saved it, too
            result = target.copy_(result)
        self._known |= _nodes_behind(tensors_in((result, args, kwargs)), self._known)
        if record is not None:
            record.append((called, self.where(), [x.detach().clone() for x in tensors_in(result)]))
            self._record = record
        return result

    def _treated(
        self,
        func: Callable[..., Any],
        called: str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        carriers: tuple[Tensor, ...],
    ) -> Any:
        if plain := unfused(func):
            with self:
                return plain(*args, **kwargs)
        if isinstance(func, _OwnFunction | torch._ops.OpOverload | torch._ops.OpOverloadPacket):
            known = recognize_activation(func, args, kwargs)
            if known is None:
                raise _hidden_operation(self.where(), called)
            func, called = known, known.__name__
        if dense := as_linear(called, args, kwargs):
            inputs, result = dense
            return result(self.handle(dense_product, "linear", inputs, {}, inputs[:1]))
        return self.handle(func, called, args, kwargs, carriers)

    def _first_difference(self, images: Tensor) -> str:
        """Run the network without and with the treatment, and describe the first operation whose value differs."""
        records: tuple[list[_Recorded], list[_Recorded]] = [], []
        for self._treats, self._record in zip((False, True), records, strict=True):
            with self.observing(self.network):
                self.network(images.clone())
        for (called, where, plain), (_, _, traced) in zip(*records, strict=False):
            if len(plain) != len(traced) or any(map(_differs, plain, traced)):
                return f"{where}: {called} gives other values"
        return f"{type(self.network).__name__}: no single operation gives other values"


_Recorded: TypeAlias = tuple[str, str, list[Tensor]]


def _hidden_operation(where: str, called: str) -> UnsupportedModelError:
    return UnsupportedModelError(
        f"{where} computes {called}, which no rule covers: an own autograd.Function or operator, or scripted or "
        "compiled code. Write it with functions of torch. An own function of one tensor that equals a known activation "
        "is recognized if it is called as Name.apply(x). saliency and integrated_gradients need only its gradient."
    )


def _nodes_behind(tensors: Iterable[Tensor], known: set[Any]) -> set[Any]:
    """Return the autograd nodes from which the tensors were computed, back to known ones."""
    nodes: set[Any] = set()
    todo: list[Any] = []
    for x in tensors:
        todo += (x.grad_fn, None if x._base is None else x._base.grad_fn)
    while todo:
        node = todo.pop()
        if node is not None and node not in nodes and node not in known:
            nodes.add(node)
            todo += [following for following, _ in node.next_functions]
    return nodes


def _differs(plain: Tensor, traced: Tensor) -> bool:
    if plain.shape != traced.shape or not plain.is_floating_point() or not plain.numel():
        return plain.shape != traced.shape
    reduced = torch.is_autocast_enabled(plain.device.type)
    dtype = torch.get_autocast_dtype(plain.device.type) if reduced else plain.dtype
    # Under autocast, the rules may return another type than the plain operations.
    plain, traced = plain.detach().to(traced.dtype), traced.detach()
    close = (traced - plain).abs() <= TOLERANCE[dtype] * plain.abs().max()
    return not bool((close | (traced == plain) | (traced.isnan() & plain.isnan())).all())  # one look at the device


class _SavedTensors:
    """A tensor that autograd saves for the backward pass, copied only if the network overwrites it."""

    def __init__(self) -> None:
        self._by_storage: defaultdict[int, weakref.WeakSet[_Saved]] = defaultdict(weakref.WeakSet)

    def pack(self, x: Tensor) -> _Saved:
        with torch._C.DisableTorchFunction():
            saved = _Saved(x.detach())  # x itself would be a reference cycle if it is the node's output
            self._by_storage[x.untyped_storage()._cdata].add(saved)
            return saved

    def unpack(self, saved: _Saved) -> Tensor:
        if tensor_version(saved.value) != saved.version:
            raise UnsupportedModelError(
                "The network overwrites a tensor that the gradient needs, by an operation that is hidden from torch "
                "functions. Let it write into a clone."
            )
        return saved.value

    def copy_before_overwriting(self, x: Tensor) -> None:
        for saved in self._by_storage.pop(x.untyped_storage()._cdata, ()):
            saved.value = saved.value.clone()
            saved.version = tensor_version(saved.value)


class _Saved:
    def __init__(self, value: Tensor) -> None:
        self.value, self.version = value, tensor_version(value)


class _OwnFunction:
    """A call of an ``autograd.Function``, as a function that torch function modes observe."""

    def __init__(self, function: type[torch.autograd.Function]) -> None:
        self.__name__, self.function = function.__name__, function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return _APPLY.__get__(None, self.function)(*args, **kwargs)


_APPLY: Any = vars(torch.autograd.Function)["apply"]
_observers, _observers_lock = 0, threading.Lock()


def _observed_apply(cls: type[torch.autograd.Function], *args: Any, **kwargs: Any) -> Any:
    call = _OwnFunction(cls)
    if cls is BackwardHookFunction:  # returns its arguments
        return call(*args, **kwargs)
    return handle_torch_function(call, args, *args, **kwargs) if has_torch_function(args) else call(*args, **kwargs)


@contextmanager
def _own_functions_observed() -> Iterator[None]:
    """Show calls of own functions to the torch function modes of their thread, which torch itself does not."""
    global _observers
    with _observers_lock:
        _observers += 1
        torch.autograd.Function.apply = classmethod(_observed_apply)
    try:
        yield
    finally:
        with _observers_lock:
            _observers -= 1
            if not _observers:
                torch.autograd.Function.apply = _APPLY


_W = TypeVar("_W", bound=OperationInterceptor)


@contextmanager
def intercept_operations(model: nn.Module, make: Callable[[nn.Module], _W]) -> Iterator[_W]:
    """Yield the interceptor that ``make`` creates; differentiate its outputs inside the block."""
    with restore_model_state(network_of(model)) as network:
        yield make(network)
