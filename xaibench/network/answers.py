"""Answers of a network: logits, probabilities, assigned classes, and whether it ends in a softmax or a sigmoid."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor, nn

from xaibench.core.types import Output
from xaibench.network.calls import LayerRun, record_layer_runs
from xaibench.network.lending import evaluation_mode
from xaibench.network.outputs import (
    REARRANGING_NODES,
    check_classes,
    check_logits,
    check_scalars,
    find_logits,
    model_device_and_dtype,
    probe,
)
from xaibench.tensors.batching import is_out_of_memory

#: An output by name, or a function that computes one number per image ``[N]`` from whatever the network returns.
OutputOrFunction: TypeAlias = Output | Callable[[Any], Tensor]

#: An activation at the end of a network.
Activation: TypeAlias = Literal["softmax", "log_softmax", "sigmoid"]


class NetworkAnswers:
    """The logits of a network, and the classes that it assigns to images.

    Args:
        network: The network.
        output: The explained output; None for the defaults of methods and metrics, which all are for one class per
            image.
    """

    def __init__(self, network: nn.Module, output: OutputOrFunction | None) -> None:
        self.network, self.output = network, output
        self._returns_probabilities: bool | None = None if output == "sigmoid" else False

    def returns_probabilities(self, images: Tensor) -> bool:
        """Return whether the network itself applies the sigmoid of ``output="sigmoid"``; images ``[n, C, H, W]``."""
        if self._returns_probabilities is None:
            self._returns_probabilities = ends_in_sigmoid(self.network, images)
        return self._returns_probabilities

    def select(self, returned: object, count: int, name: str = "The model", *, exact: bool = False) -> Tensor:
        """Return the logits in what the network returned, after :meth:`returns_probabilities` was called.

        Args:
            returned: What the network returned.
            count: Number of images n.
            name: Name of the network in errors.
            exact: Whether to return float64 on the CPU.

        Returns:
            ``[n, K]``; for ``"sigmoid"``, the logits of both classes if there is one output. ``[n, 1]`` for a function.
        """
        if callable(self.output):
            values = check_scalars(self.output(returned), count)[:, None]
            return values.double().cpu() if exact else values
        logits = check_logits(returned, count, name)
        logits = logits.double().cpu() if exact else logits
        logits = logits.logit() if self._returns_probabilities else logits
        return two_sided(logits) if self.output == "sigmoid" else logits

    def logits(self, images: Tensor, classes: Sequence[str] | None = None, *, finite: bool = False) -> Tensor:
        """Call the network on images ``[n, C, H, W]`` in evaluation mode, and return the logits.

        Args:
            images: The images.
            classes: Expected classes, which do not matter to a function; None: any number.
            finite: Whether NaN and infinity are refused; the logits of probabilities may be infinite.

        Raises:
            ValueError: If the network does not return logits for the images, or not one per class.
        """
        finite = not self.returns_probabilities(images) and finite
        known = None if callable(self.output) else classes
        return probe(self.network, images, classes=known, finite=finite, select=self.select)

    def correct(self, images: Tensor, targets: Tensor) -> Tensor | None:
        """Return which images the network classifies correctly.

        Args:
            images: ``[n, C, H, W]``.
            targets: ``[n]``.

        Returns:
            ``[n]`` bool (:func:`assigned_classes`). None if the network has no classes: for a function of the outputs,
            or a single output that is no sigmoid.

        Raises:
            ValueError: If a target is not a class of the network.
        """
        logits = self.logits(images).cpu()
        if callable(self.output) or logits.shape[1] < 2:
            return None
        check_classes(targets, logits.shape[1])
        return assigned_classes(logits, self.output).gather(1, targets[:, None])[:, 0]


def assigned_classes(outputs: Tensor, output: OutputOrFunction | None, threshold: float = 0.0) -> Tensor:
    """Return which classes a network assigns to images.

    Args:
        outputs: ``[N, K]``, logits or the explained output.
        output: The explained output.
        threshold: Value above which a label of ``"sigmoid"`` is assigned: 0 for logits, 0.5 for probabilities.

    Returns:
        ``[N, K]`` bool: the largest output; every label above the threshold for ``"sigmoid"``; none for a function.
    """
    if callable(output) or output == "sigmoid":
        return (outputs > threshold) & (not callable(output))
    return torch.zeros_like(outputs, dtype=torch.bool).scatter_(1, outputs.argmax(1, keepdim=True), value=True)


def two_sided(logits: Tensor) -> Tensor:
    """Return the logits of both classes for a network with one output.

    Args:
        logits: ``[N, K]``.

    Returns:
        ``[-z, z]`` if K is 1, otherwise the logits.

    Example:
        >>> two_sided(torch.tensor([[3.0]]))
        tensor([[-3.,  3.]])
    """
    return torch.cat([-logits, logits], 1) if logits.shape[1] == 1 else logits


def skip_last_layer(network: nn.Module, images: Tensor, *activations: Activation) -> str:
    """Replace the layer that computes the output by the identity if it is an activation and is called once.

    A layer is recognized by its values, regardless of its class: files of other frameworks have classes of their own.

    Args:
        network: Modified in place, inside :func:`xaibench.network.lending.restore_model_state`.
        images: ``[n, C, H, W]``; the network is called with the first.
        *activations: ``"softmax"`` and ``"log_softmax"`` over dimension 1, ``"sigmoid"``.

    Returns:
        The name of the layer; empty if there is none.
    """
    try:
        with record_layer_runs(network.named_modules()) as runs, torch.no_grad():
            network(images[:1].clone())
    except (RuntimeError, AssertionError) as error:  # a graph that was exported for more images
        if is_out_of_memory(error):
            raise
        return ""
    logits = find_logits(runs[-1].output) if runs else None
    last = next((run for run in runs if run.output is logits), None)
    if last is None or not last.name or sum(run.module is last.module for run in runs) > 1:
        return ""
    if not any(_computes(last, activation) for activation in activations):
        return ""
    parent, _, name = last.name.rpartition(".")
    setattr(network.get_submodule(parent), name, nn.Identity())
    return last.name


def _computes(run: LayerRun, activation: Activation) -> bool:
    """Return whether a layer computes an activation of ``[n, K]``: values of one image could be equal by chance."""
    x, output = run.inputs[0] if len(run.inputs) == 1 else None, run.output
    if not isinstance(x, Tensor) or not isinstance(output, Tensor) or x.ndim != 2 or x.shape != output.shape:
        return False
    points = torch.linspace(-3, 2, x.numel(), dtype=x.dtype, device=x.device).reshape(x.shape)
    expected = points.sigmoid() if activation == "sigmoid" else getattr(torch, activation)(points, 1)
    try:
        with torch.no_grad():
            values = run.module(points.clone()).to(x.dtype)
    except Exception:  # a layer of a user may refuse other values than its own
        return False
    return torch.allclose(values, expected, rtol=max(1e-4, 8 * torch.finfo(x.dtype).eps), atol=0.0)


def ends_in_sigmoid(model: Callable[[Tensor], object], images: Tensor) -> bool:
    """Return whether a sigmoid computes the outputs of a model, as far as their autograd graph shows.

    True if the last operation is a sigmoid, apart from operations that only rearrange values. False for outputs without
    a gradient, whose origin is unknown.

    Args:
        model: A module, whose training mode is restored, or any function that returns logits.
        images: ``[n, C, H, W]``; the model is called with the first, in evaluation mode.

    Example:
        >>> images = torch.rand(1, 1, 2, 2)
        >>> ends_in_sigmoid(lambda images: images.flatten(1).sigmoid(), images)
        True
        >>> ends_in_sigmoid(lambda images: images.flatten(1).sigmoid() * 1.0, images)
        False
    """
    with torch.inference_mode(False), torch.enable_grad(), evaluation_mode(model):
        image = images[:1].to(*model_device_and_dtype(model, images)).clone().requires_grad_()
        try:
            node: Any = check_logits(model(image.clone()), 1).grad_fn
        except RuntimeError as error:
            if is_out_of_memory(error):
                raise
            return False  # the network runs without gradients only
    while node is not None and node.name().partition("Backward")[0] in REARRANGING_NODES:
        node = node.next_functions[0][0]
    return node is not None and node.name().startswith("SigmoidBackward")
