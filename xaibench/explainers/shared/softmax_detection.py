"""Detect networks that return probabilities instead of logits, and remove a final softmax layer."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from xaibench.core.messages import warn_caller
from xaibench.core.vocabulary import Output
from xaibench.explainers.shared.layer_calls import run_layers

#: Tolerance for the sum of the probabilities in half precision.
_TOLERANCE = {torch.float16: 1e-2, torch.bfloat16: 5e-2}


def remove_final_softmax(network: nn.Module, images: Tensor, outputs: Tensor, explained: Output) -> None:
    """Remove a final ``nn.Softmax``; warn if the network returns probabilities in another way.

    The softmax of a softmax is flat: the maps of Integrated Gradients, for example, shrink to a quarter.

    Args:
        network: Modified in place, inside :func:`xaibench.compute.model_state.restore_model_state`, which restores it.
        images: ``[n, C, H, W]``; the network is called with the first.
        outputs: ``[n, K]``, the outputs of the network for them.
        explained: The explained output. ``"logit"`` accepts any output without a warning.
    """
    if not look_like_probabilities(outputs):
        return
    name = _last_softmax(network, images)
    if name:
        parent, _, own = name.rpartition(".")
        setattr(network.get_submodule(parent), own, nn.Identity())
        warn_caller(
            f"The network ends in a softmax ({name!r}), where logits are expected; its inputs are taken as the "
            "logits. Pass the network without the softmax to avoid this warning."
        )
    elif explained != "logit":
        warn_caller(
            f"The outputs of the model look like probabilities, and output={explained!r} takes them for logits. Return "
            "the logits, or pass output='logit' to explain the outputs unchanged."
        )


def look_like_probabilities(outputs: Tensor) -> bool:
    """Return whether outputs ``[n, K]`` of two or more classes are nonnegative, below 1 and sum to 1.

    Example:
        >>> look_like_probabilities(torch.tensor([[0.2, 0.8]])), look_like_probabilities(torch.tensor([[0.0, 1.0]]))
        (True, False)
    """
    tolerance = _TOLERANCE.get(outputs.dtype, 1e-4)
    away = (outputs.double().sum(1) - 1).abs().max().item()
    return outputs.shape[1] > 1 and away < tolerance and outputs.min().item() >= 0 and outputs.max().item() < 1


def _last_softmax(network: nn.Module, images: Tensor) -> str:
    """Return the name of the softmax layer that computes the output and is called only once; empty if there is none."""
    runs = run_layers(network, images.clone())
    found = [run for run in runs if isinstance(run.module, nn.Softmax)]
    if not found or found[-1].output is not runs[-1].output:
        return ""
    last = found[-1]
    return last.name if sum(run.module is last.module for run in found) == 1 else ""
