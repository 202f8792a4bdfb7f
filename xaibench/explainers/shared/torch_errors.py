"""Errors of torch that mean that an explainer does not support a network."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn

from xaibench.explainers.registered import gradient_free_advice
from xaibench.network.explained_output import UnsupportedModelError
from xaibench.network.outputs import check_exported_batch

#: Why torch has no gradient, and parts of its messages.
_REASONS = {
    "blocks it by an operation such as detach, no_grad, numpy, rounding or quantization; remove that operation": (
        "does not require grad",
        "doesn't require gradient",
        "not have been used in the graph",
        "Inference tensors",
        "argument to `grad()` cannot be empty",
    ),
    "overwrites a tensor of which torch needs the value before; let it write into a clone": (
        "modified by an inplace operation",
        "is being modified inplace",
        "used in an in-place operation",
    ),
    "writes a result into out=..., which torch does not differentiate; assign the result": (
        "don't support automatic differentiation",
    ),
    "has an operation whose gradient torch does not differentiate once more": ("_backward is not implemented",),
}


#: Why layers cannot be observed, and parts of the messages of torch and Captum.
_NO_LAYERS = {
    "which a scripted network hides. Pass the network that it was made from, or use saliency, integrated_gradients or "
    "occlusion.": ("not supported on ScriptModules",),
    "which torch.vmap hides. Let the network process a batch without it, or use saliency, integrated_gradients or "
    "occlusion.": ("being vmapped", "maybe_level.has_value()"),
    "whose outputs are of another type than the weights, since the network computes under autocast. Leave autocast to "
    "precision='bfloat16', or use saliency, integrated_gradients or occlusion.": ("to have the same dtype",),
    "which the network calls several times per pass. Let it process a batch in one call, or pass batch_size=1.": (
        "used more than once in the network",
    ),
}


@contextmanager
def unsupported_by_torch(owner: str, network: nn.Module) -> Iterator[None]:
    """Turn torch's errors about what the network does into errors of the explainer; others pass.

    Raises:
        UnsupportedModelError: If torch cannot differentiate or observe the network; the message names explainer,
            network and remedy.
        ValueError: If an exported network does not accept the number of images.
    """
    try:
        yield
    except (RuntimeError, AssertionError) as error:
        check_exported_batch(error)
        for reason, signs in _NO_LAYERS.items():
            if any(sign in str(error) for sign in signs):
                raise UnsupportedModelError(f"{owner} needs layers, {reason}") from error
        for reason, signs in _REASONS.items():
            if any(sign in str(error) for sign in signs):
                raise UnsupportedModelError(
                    f"{owner} needs the gradient of the output with respect to the images, but "
                    f"{type(network).__name__} {reason}. {gradient_free_advice()}"
                ) from error
        raise
