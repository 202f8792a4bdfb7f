"""The model comes back as it was given."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn


@contextmanager
def unharmed(model: nn.Module) -> Iterator[nn.Module]:
    """Lend a model to an explainer in evaluation mode, its parameters frozen, and undo what that leaves behind.

    Restored even when the explainer raises midway: the training mode of every submodule, its hooks and other attributes
    (Captum leaves some of both), ``requires_grad`` and ``grad`` of the parameters, and the buffers. Nothing but the
    buffers is copied. Gradients are enabled inside, whatever the caller's mode.

    Example:
        >>> import torch
        >>> model = torch.nn.Linear(2, 2)
        >>> with unharmed(model) as lent:
        ...     print(lent.training, lent.weight.requires_grad)
        False False
        >>> model.training, model.weight.requires_grad
        (True, True)
    """
    attributes = [(module, dict(module.__dict__)) for module in model.modules()]
    # Hooks, parameters, buffers and submodules stand in dicts to which others hold references (hook handles, the
    # optimiser), so their content is restored in place.
    contents = [(value, dict(value)) for _, saved in attributes for value in saved.values() if isinstance(value, dict)]
    parameters = [(parameter, parameter.requires_grad, parameter.grad) for parameter in model.parameters()]
    buffers = [(buffer, buffer.detach().clone()) for buffer in model.buffers()]
    try:
        model.eval()
        for parameter, _, _ in parameters:
            parameter.requires_grad_(False)
        with torch.inference_mode(False), torch.enable_grad():
            yield model
    finally:
        for module, saved in attributes:
            module.__dict__.clear()
            module.__dict__.update(saved)
        for container, content in contents:
            container.clear()
            container.update(content)
        for parameter, requires_grad, grad in parameters:
            parameter.requires_grad_(requires_grad)
            parameter.grad = grad
        with torch.no_grad():
            for buffer, value in buffers:
                buffer.copy_(value)
