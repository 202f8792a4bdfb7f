"""Observe the calls of the modules and functions of a network."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from torch import nn
from torch.overrides import TorchFunctionMode


def describe_layer(name: str, module: nn.Module) -> str:
    """Return how errors name a module of a network.

    Args:
        name: Its name in ``network.named_modules()``; empty for the network itself.
        module: The module.

    Example:
        >>> describe_layer("head.0", nn.ReLU()), describe_layer("", nn.ReLU())
        ("layer 'head.0' (ReLU)", 'ReLU')
    """
    return f"layer {name!r} ({type(module).__name__})" if name else type(module).__name__


@contextmanager
def observe_calls(
    modules: Iterable[tuple[str, nn.Module]],
    *,
    before: Callable[[str, nn.Module, tuple[Any, ...]], None] | None = None,
    after: Callable[[str, nn.Module, tuple[Any, ...], Any], Any] | None = None,
    scripted: bool = True,
) -> Iterator[None]:
    """Call functions before and after every call of some modules inside the block.

    Args:
        modules: Names and modules, such as ``network.named_modules()``.
        before: Called with name, module and positional arguments.
        after: Called with name, module, positional arguments and output. If it returns something other than None, the
            network continues with that instead of the output.
        scripted: Whether a scripted module, which may refuse hooks, is an error; otherwise it is left out.

    Raises:
        RuntimeError: If a scripted module refuses a hook.
    """
    handles = []
    try:
        for name, module in modules:
            try:
                if before is not None:
                    handles.append(module.register_forward_pre_hook(lambda m, x, name=name: before(name, m, x)))
                if after is not None:
                    handles.append(module.register_forward_hook(lambda m, x, y, name=name: after(name, m, x, y)))
            except RuntimeError:
                if scripted:
                    raise
        yield
    finally:
        for handle in handles:
            handle.remove()


@dataclass(frozen=True)
class LayerRun:
    """One call of a layer in a forward pass.

    Attributes:
        name: Its name in ``network.named_modules()``.
        module: The layer.
        inputs: Its positional arguments.
        output: Its output.
    """

    name: str
    module: nn.Module
    inputs: tuple[object, ...]
    output: object


@contextmanager
def record_layer_runs(modules: Iterable[tuple[str, nn.Module]]) -> Iterator[list[LayerRun]]:
    """Record every call of some modules in the block, in the order in which the calls finish."""
    runs: list[LayerRun] = []
    with observe_calls(modules, after=lambda *call: runs.append(LayerRun(*call))):
        yield runs


class CallObserver(TorchFunctionMode):
    """Base class of modes that observe functions of torch and need to know in which layer they are called.

    Attributes:
        running: Names and modules whose ``forward`` is being computed, the innermost last.
    """

    def __init__(self) -> None:
        super().__init__()
        self.running: list[tuple[str, nn.Module]] = []

    def enter(self, name: str, module: nn.Module, inputs: tuple[Any, ...]) -> None:
        """Note that the forward pass of a module begins."""
        self.running.append((name, module))

    def leave(self, name: str, module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        """Note that the forward pass of a module has ended."""
        self.running.pop()

    @contextmanager
    def observing(self, network: object, scripted: bool = True) -> Iterator[None]:
        """Observe the calls of the modules of a network and the functions of torch inside the block."""
        modules = network.named_modules() if isinstance(network, nn.Module) else ()
        with observe_calls(modules, before=self.enter, after=self.leave, scripted=scripted), self:
            yield

    def where(self) -> str:
        """Return the name of the current layer, for error messages."""
        return describe_layer(*self.running[-1])
