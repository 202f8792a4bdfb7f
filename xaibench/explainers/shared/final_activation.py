"""Detect networks that return probabilities instead of logits, and remove a final softmax or sigmoid layer."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from xaibench.compute.explained_output import ExplainedOutput
from xaibench.compute.model_probe import ends_in_sigmoid
from xaibench.compute.network_outputs import SIGMOID_ADVICE, find_logits, look_like_labels
from xaibench.core.messages import warn_caller
from xaibench.explainers.base import UnsupportedModelError
from xaibench.explainers.shared.layer_calls import run_layers

#: Tolerance for the sum of the probabilities in half precision.
_TOLERANCE = {torch.float16: 1e-2, torch.bfloat16: 5e-2}


def remove_final_activation(explained: ExplainedOutput, images: Tensor, outputs: Tensor) -> None:
    """Remove a final ``nn.Softmax`` or ``nn.Sigmoid``, so that no activation is applied twice.

    The softmax of a softmax is flat: the maps of Integrated Gradients, for example, shrink to a quarter.

    Args:
        explained: The network with its explained output. The network is modified in place, inside
            :func:`xaibench.compute.model_state.restore_model_state`, which restores it.
        images: ``[n, C, H, W]``; the network is called with the first.
        outputs: ``[n, K]``, the outputs of the network for them.

    Raises:
        ValueError: If the network ends in a sigmoid, and an output other than ``"sigmoid"`` and ``"logit"`` was
            requested, or none.
        UnsupportedModelError: If the explainer needs logits, and the network computes its sigmoid by a function.

    Warns:
        UserWarning: If a layer is removed that the requested output does not expect, or the outputs look like
            probabilities and are taken for logits.
    """
    low, high, away = _describe_outputs(outputs)
    if low < 0 or high > 1:
        return
    # The sigmoid first: probabilities of two independent labels may sum to 1 by chance.
    name = _last_layer(explained.network, images, nn.Sigmoid)
    if name or ends_in_sigmoid(explained.network, images):
        _remove_sigmoid(explained, images, name)
    elif _are_probabilities(outputs, low, high, away):
        _remove_softmax(explained, images)
    elif explained.output != "logit" and look_like_labels(outputs):
        warn_caller(
            f"The outputs of the model look like probabilities of independent labels, and "
            f"output={explained.output!r} takes them for logits. Return the logits, or pass output='logit' to explain "
            "the outputs unchanged."
        )


def _remove_softmax(explained: ExplainedOutput, images: Tensor) -> None:
    name = skip_last_layer(explained.network, images, nn.Softmax)
    if name:
        warn_caller(
            f"The network ends in a softmax ({name!r}), where logits are expected; its inputs are taken as the "
            "logits. Pass the network without the softmax to avoid this warning."
        )
    elif explained.output != "logit":
        warn_caller(
            f"The outputs of the model look like probabilities, and output={explained.output!r} takes them for logits. "
            "Return the logits, or pass output='logit' to explain the outputs unchanged."
        )


def _remove_sigmoid(explained: ExplainedOutput, images: Tensor, name: str) -> None:
    if explained.requested not in ("sigmoid", "logit"):
        raise ValueError(
            f"The network ends in a sigmoid{f' ({name!r})' if name else ''}, got output={explained.requested!r}. "
            f"{SIGMOID_ADVICE}"
        )
    if name:
        skip_last_layer(explained.network, images, nn.Sigmoid)
        if explained.output == "logit":
            warn_caller(
                f"The network ends in a sigmoid ({name!r}); its inputs are taken as the logits. Pass output='sigmoid' "
                "to explain the probability of a label, or the network without the sigmoid to avoid this warning."
            )
    elif explained.from_logits:
        raise UnsupportedModelError(
            "The network ends in a sigmoid that is called as a function, and the explainer begins at the logits. "
            "Return the logits, or make the sigmoid the last layer, torch.nn.Sigmoid()."
        )
    else:
        explained.outputs_are_probabilities = True


def skip_last_layer(network: nn.Module, images: Tensor, *kinds: type[nn.Module]) -> str:
    """Replace the layer that computes the output by the identity if it is of one of some kinds and is called once.

    Args:
        network: Modified in place, inside :func:`xaibench.compute.model_state.restore_model_state`.
        images: ``[n, C, H, W]``; the network is called with the first.
        *kinds: Classes of layers.

    Returns:
        The name of the layer; empty if there is none.
    """
    name = _last_layer(network, images, *kinds)
    if name:
        parent, _, own = name.rpartition(".")
        setattr(network.get_submodule(parent), own, nn.Identity())
    return name


def look_like_probabilities(outputs: Tensor) -> bool:
    """Return whether outputs ``[n, K]`` of two or more classes are nonnegative, below 1 and sum to 1.

    Example:
        >>> look_like_probabilities(torch.tensor([[0.2, 0.8]])), look_like_probabilities(torch.tensor([[0.0, 1.0]]))
        (True, False)
    """
    return _are_probabilities(outputs, *_describe_outputs(outputs))


def _are_probabilities(outputs: Tensor, low: float, high: float, away: float) -> bool:
    return outputs.shape[1] > 1 and away < _TOLERANCE.get(outputs.dtype, 1e-4) and low >= 0 and high < 1


def _describe_outputs(outputs: Tensor) -> tuple[float, float, float]:
    """Return the smallest and largest output, and how far a row is from summing to 1."""
    values = outputs.double()
    # One synchronization with a GPU instead of three.
    low, high, away = torch.stack([values.min(), values.max(), (values.sum(1) - 1).abs().max()]).tolist()
    return low, high, away


def _last_layer(network: nn.Module, images: Tensor, *kinds: type[nn.Module]) -> str:
    runs = run_layers(network, images.clone())
    found = [run for run in runs if isinstance(run.module, kinds)]
    if not found or found[-1].output is not find_logits(runs[-1].output):
        return ""
    last = found[-1]
    return last.name if sum(run.module is last.module for run in found) == 1 else ""
