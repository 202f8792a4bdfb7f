"""Layers that forget what they have learned, for the tests of what a map has from the parameters."""

from __future__ import annotations

import torch
from torch import nn

from xaibench.core.compute.random_state import isolated_rng
from xaibench.metrics.shared.model_inputs import draw


def check_module(model: nn.Module) -> None:
    """Refuse what has no parameters to forget."""
    if not isinstance(model, nn.Module):
        raise TypeError(
            f"model must be a torch.nn.Module, whose parameters are drawn anew, got {type(model).__name__}."
        )


def learned_layers(model: nn.Module) -> list[nn.Module]:
    """The modules with parameters of their own, in the order in which the network registers them.

    Raises:
        ValueError: If there is none.
    """
    layers = [module for module in model.modules() if any(True for _ in module.parameters(recurse=False))]
    if not layers:
        raise ValueError(f"{type(model).__name__} has no parameters to draw anew.")
    return layers


def reinitialize(layer: nn.Module, seed: int, index: int) -> None:
    """New parameters for this module alone; the state of the global generators is left as it was.

    They are drawn on the CPU, so that a network on a GPU forgets into the same one.
    """
    home = next(layer.parameters(recurse=False)).device
    reset = getattr(layer, "reset_parameters", None) or getattr(layer, "_reset_parameters", None)
    with torch.inference_mode(False), torch.no_grad(), isolated_rng(int(draw(seed, index).integers(2**63))):
        layer.cpu()
        if callable(reset):
            reset()
        else:
            for parameter in layer.parameters(recurse=False):
                parameter.normal_(float(parameter.mean()), float(parameter.std(correction=0)))
        layer.to(home)
