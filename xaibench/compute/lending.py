"""Lend a network to an explainer or a metric: it comes back as it was given.

A network that modifies its input in place, for example by ``x.sub_(0.5)``, gets copies. Otherwise the next pass, the
next explainer and the caller would silently continue with changed images.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor, nn

#: Networks that are known to modify their input.
_writers: weakref.WeakSet[Any] = weakref.WeakSet()


@contextmanager
def evaluation_mode(model: object) -> Iterator[None]:
    """Put a model into evaluation mode inside the block and restore the mode of every submodule after it.

    Args:
        model: A module. Other callables have no mode and are left alone.

    Example:
        >>> model = nn.Sequential(nn.Dropout(), nn.Dropout().eval())
        >>> with evaluation_mode(model):
        ...     print([module.training for module in model])
        [False, False]
        >>> [module.training for module in model]
        [True, False]
    """
    modules = list(model.modules()) if isinstance(model, nn.Module) else []
    modes = list(map(attrgetter("training"), modules))
    try:
        if isinstance(model, nn.Module):
            model.eval()
        yield
    finally:
        for module, training in zip(modules, modes, strict=True):
            module.training = training


@contextmanager
def restore_model_state(model: nn.Module) -> Iterator[nn.Module]:
    """Lend a model to an explainer, in evaluation mode and with frozen parameters, and restore its state afterwards.

    Compiled layers are replaced by the original ones inside, since compiled code hides its operations.

    Restored, even if the explainer raises: the training mode of every submodule, hooks and other attributes (Captum
    leaves some of both), ``requires_grad`` and ``grad`` of the parameters, and the buffers. Only the buffers are
    copied. Gradients are enabled inside, regardless of the caller's mode.

    Example:
        >>> import torch
        >>> model = torch.nn.Linear(2, 2)
        >>> with restore_model_state(model) as lent:
        ...     print(lent.training, lent.weight.requires_grad)
        False False
        >>> model.training, model.weight.requires_grad
        (True, True)
    """
    contents: list[tuple[dict[Any, Any], dict[Any, Any]]] = []
    parameters: list[tuple[nn.Parameter, bool, Tensor | None]] = []
    buffers: list[tuple[Tensor, Tensor]] = []
    # Hooks, parameters, buffers and submodules are in dicts that others hold references to (hook handles, optimizers),
    # so their content is restored in place.
    for module in model.modules():
        for value in (module.__dict__, *module.__dict__.values()):
            if isinstance(value, dict):
                contents.append((value, dict(value)))
    for parameter in model.parameters():
        parameters.append((parameter, parameter.requires_grad, parameter.grad))
    for buffer in model.buffers():
        buffers.append((buffer, buffer.detach().clone()))
    try:
        model.eval()
        for module in list(model.modules()):
            if getattr(module, "_compiled_call_impl", None) is not None:
                module._compiled_call_impl = None
            for name, child in module._modules.items():
                original = getattr(child, "_orig_mod", None)
                if isinstance(original, nn.Module):
                    module._modules[name] = original
        for parameter in model.parameters():
            parameter.requires_grad_(False)
        with torch.inference_mode(False), torch.enable_grad():
            yield model
    finally:
        for container, content in contents:
            container.clear()
            container.update(content)
        for parameter, requires_grad, grad in parameters:
            parameter.requires_grad_(requires_grad)
            parameter.grad = grad
        with torch.no_grad():
            for buffer, value in buffers:
                # By way of .data, which leaves the version as it is: an unchanged network is recognized by it.
                buffer.data.copy_(value)


def remember_writer(model: object) -> None:
    """Record that a model modifies its input; :func:`~.model_probe.probe` detects this."""
    _writers.add(model)


def writes_input(model: object) -> bool:
    """Return whether a model is known to modify its input."""
    return model in _writers


@contextmanager
def protect_input(model: nn.Module) -> Iterator[None]:
    """Give copies of the input to a model that is known to modify its input, inside the block.

    Gradients pass through the copy unchanged.

    Example:
        >>> import torch
        >>> from xaibench.compute.network_outputs import probe
        >>> class Centered(nn.Module):
        ...     def forward(self, images):
        ...         return images.sub_(0.5).flatten(1)
        >>> model, images = Centered(), torch.ones(1, 1, 1, 2)
        >>> _ = probe(model, images)
        >>> with protect_input(model):
        ...     _ = model(images)
        >>> images.flatten().tolist()
        [1.0, 1.0]
    """
    if model not in _writers:
        yield
        return
    handle = model.register_forward_pre_hook(_copy_inputs)
    try:
        yield
    finally:
        handle.remove()


def _copy_inputs(_: nn.Module, given: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(one.clone() if isinstance(one, Tensor) else one for one in given)
