"""Seeing every operation of a network's forward pass, by a module or by a function, and the layer that asked for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from xaibench.core.compute.modes import unharmed
from xaibench.explainers.attention.attention_calls import unfused
from xaibench.explainers.backward.layer_operations import (
    Operation,
    is_rectifier,
    is_smooth_rectifier,
    kind_of,
    out_of_place,
    tensors_in,
)
from xaibench.explainers.shared.explained_output import network_of
from xaibench.explainers.shared.interface import UnsupportedModelError


class Watch(TorchFunctionMode):
    """Hands every operation on what depends on the image to :meth:`see`, which returns its result.

    To be made by :func:`watching`, which takes the hooks away again and freezes the parameters, so that what requires a
    gradient depends on the image. Fused attention comes as matrix products and a softmax. What is called outside of the
    network, such as the head that chooses the explained output, runs as it is.
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network
        self.seen = False
        self.running: list[tuple[str, nn.Module]] = []
        for name, module in network.named_modules():
            module.register_forward_pre_hook(self._enter(name))
            module.register_forward_hook(self._leave)

    def see(
        self,
        func: Callable[..., Any],
        called: str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        carriers: tuple[Tensor, ...],
    ) -> Any:
        """The result of ``func(*args, **kwargs)``, known as ``called``; carriers are the tensors that depend on it."""
        raise NotImplementedError

    def run(self, model: nn.Module, images: Tensor) -> Tensor:
        """The outputs ``[N, K]`` of images that require a gradient.

        Raises:
            UnsupportedModelError: If the network hides what it does.
        """
        with self:
            outputs: Tensor = model(images)
        if not self.seen:
            raise UnsupportedModelError(
                f"{type(self.network).__name__}: no operation on the images can be seen. A compiled, scripted or "
                "traced network hides its layers: give the one it was made from."
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
        """The call as an operation on the tensors that depend on the image; ``None`` where its kind is not known."""
        kind = kind or kind_of(called, args, kwargs)
        if kind is None:
            return None
        function, rectifies = out_of_place(func, args, kwargs), is_rectifier(called, args, kwargs)
        smooth = is_smooth_rectifier(called)
        return Operation(kind, self.name(called), function, called, self.where(), rectifies=rectifies, smooth=smooth)

    def name(self, called: str) -> str:
        """The layer that runs, with the name of the function unless it is a linear layer itself."""
        name, module = self.running[-1]
        own = isinstance(module, nn.Linear | nn.Conv1d | nn.Conv2d | nn.Conv3d | nn.BatchNorm2d)
        return name if own and name else f"{name}.{called}".lstrip(".")

    def where(self) -> str:
        """The layer that runs, for messages."""
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
        return self.see(func, getattr(func, "__name__", str(func)), args, kwargs, carriers)


_W = TypeVar("_W", bound=Watch)


@contextmanager
def watching(model: nn.Module, make: Callable[[nn.Module], _W]) -> Iterator[_W]:
    """The watch that ``make`` makes of the network; what it returned is to be differentiated before the end of this."""
    with unharmed(network_of(model)) as network:
        yield make(network)
