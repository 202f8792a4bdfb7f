"""A network that returns probabilities where logits are expected: seen, said, and where it can be, put right."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from xaibench.core.messages import warn_caller
from xaibench.core.vocabulary import Output
from xaibench.explainers.shared.layer_runs import run_layers

#: How far the sum of probabilities may be from 1, in half and in other precision.
_TOLERANCE = {torch.float16: 1e-2, torch.bfloat16: 5e-2}


def take_logits(network: nn.Module, images: Tensor, outputs: Tensor, explained: Output) -> None:
    """Let a network that ends in ``nn.Softmax`` end before it; warn of one that returns probabilities otherwise.

    A softmax of a softmax is flat: the maps of Integrated Gradients shrink to a quarter, those of others change.

    Args:
        network: Is changed; to be lent by :func:`xaibench.core.compute.modes.unharmed`, which puts it right.
        images: ``[n, C, H, W]``, of which the first is run.
        outputs: ``[n, K]``, what the network returns for them.
        explained: What of the outputs is explained. ``"logit"`` takes what is no logit as it is, without a warning.
    """
    if not look_like_probabilities(outputs):
        return
    name = _last_softmax(network, images)
    if name:
        parent, _, own = name.rpartition(".")
        setattr(network.get_submodule(parent), own, nn.Identity())
        warn_caller(
            f"The network ends in a softmax ({name!r}), where logits are expected: what goes into it is taken for the "
            "logits. Give the network without it to be rid of this warning."
        )
    elif explained != "logit":
        warn_caller(
            f"The model returns what look like probabilities, and output={explained!r} takes them for logits. Return "
            "the logits, or pass output='logit' to explain what it returns as it is."
        )


def look_like_probabilities(outputs: Tensor) -> bool:
    """Whether outputs ``[n, K]`` of two classes and more are positive, and sum to 1.

    Example:
        >>> look_like_probabilities(torch.tensor([[0.2, 0.8]])), look_like_probabilities(torch.tensor([[0.0, 1.0]]))
        (True, False)
    """
    tolerance = _TOLERANCE.get(outputs.dtype, 1e-4)
    away = (outputs.double().sum(1) - 1).abs().max().item()
    return outputs.shape[1] > 1 and away < tolerance and outputs.min().item() >= 0 and outputs.max().item() < 1


def _last_softmax(network: nn.Module, images: Tensor) -> str:
    """The name of the softmax whose result the network returns, and which runs nowhere else; empty: there is none."""
    runs = run_layers(network, images.clone())
    found = [run for run in runs if isinstance(run.module, nn.Softmax)]
    if not found or found[-1].output is not runs[-1].output:
        return ""
    last = found[-1]
    return last.name if sum(run.module is last.module for run in found) == 1 else ""
