"""Intercept every operation of a network's forward pass, called by a module or as a function."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from xaibench.compute.lending import restore_model_state
from xaibench.compute.output import UnsupportedModelError, network_of
from xaibench.explainers.propagation.layer_operations import (
    Operation,
    is_rectifier,
    is_smooth_rectifier,
    operation_kind,
    out_of_place,
    tensors_in,
)
from xaibench.explainers.shared.tokens import unfused


class OperationInterceptor(TorchFunctionMode):
    """Pass every operation on tensors that depend on the image to :meth:`handle`, which returns the result.

    Create it with :func:`intercept_operations`, which removes the hooks afterwards and freezes the parameters, so that
    only tensors that depend on the image require a gradient. Fused attention is split into matrix products and a
    softmax. Operations outside the network, such as the head that computes the explained output, are not intercepted.
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network
        self.seen = False
        self.running: list[tuple[str, nn.Module]] = []
        for name, module in network.named_modules():
            module.register_forward_pre_hook(self._enter(name))
            module.register_forward_hook(self._leave)

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
            UnsupportedModelError: If the operations of the network cannot be observed.
        """
        with self:
            outputs = model(images)
        if not self.seen:
            raise UnsupportedModelError(
                f"{type(self.network).__name__}: no operation on the images can be observed. A compiled, scripted "
                "or traced network hides its layers: pass the network it was made from."
            )
        return outputs

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

    def where(self) -> str:
        """Describe the current layer, for messages."""
        name, module = self.running[-1]
        return f"layer {name!r} ({type(module).__name__})" if name else type(module).__name__

    def _enter(self, name: str) -> Callable[[nn.Module, Any], None]:
        return lambda module, _: self.running.append((name, module))

    def _leave(self, *_: Any) -> None:
        self.running.pop()

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        carriers = tuple(x for x in tensors_in((args, kwargs)) if x.requires_grad)
        if not self.running or not carriers:
            return func(*args, **kwargs)
        self.seen = True
        plain = unfused(func)
        if plain is not None:
            with self:
                return plain(*args, **kwargs)
        return self.handle(func, getattr(func, "__name__", str(func)), args, kwargs, carriers)


_W = TypeVar("_W", bound=OperationInterceptor)


@contextmanager
def intercept_operations(model: nn.Module, make: Callable[[nn.Module], _W]) -> Iterator[_W]:
    """Yield the interceptor that ``make`` creates; differentiate its outputs inside the block."""
    with restore_model_state(network_of(model)) as network:
        yield make(network)
