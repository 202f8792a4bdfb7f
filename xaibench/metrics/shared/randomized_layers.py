"""Reset of layers to random parameters, for randomization tests."""

from __future__ import annotations

import torch
from torch import nn

from xaibench.compute.random_numbers import isolated_rng
from xaibench.metrics.shared.model_inputs import random_generator


def check_module(model: nn.Module) -> None:
    """Raise a TypeError if the model is not a module."""
    if not isinstance(model, nn.Module):
        raise TypeError(
            f"model must be a torch.nn.Module, whose parameters can be randomized, got {type(model).__name__}."
        )


def layers_with_parameters(model: nn.Module) -> list[nn.Module]:
    """Return the modules with parameters of their own, in the order of registration.

    Raises:
        ValueError: If there are none.
    """
    layers = [module for module in model.modules() if any(True for _ in module.parameters(recurse=False))]
    if not layers:
        raise ValueError(f"{type(model).__name__} has no parameters to randomize.")
    return layers


def reinitialize(layer: nn.Module, seed: int, index: int) -> None:
    """Draw new parameters for this module only; the global random states are restored.

    Parameters are drawn on the CPU, so that they do not depend on the device.
    """
    home = next(layer.parameters(recurse=False)).device
    reset = getattr(layer, "reset_parameters", None) or getattr(layer, "_reset_parameters", None)
    with torch.inference_mode(False), torch.no_grad(), isolated_rng(int(random_generator(seed, index).integers(2**63))):
        layer.cpu()
        if callable(reset):
            reset()
        else:
            for parameter in layer.parameters(recurse=False):
                parameter.normal_(float(parameter.mean()), float(parameter.std(correction=0)))
        layer.to(home)
