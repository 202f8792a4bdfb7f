"""Calls to the explainer, for metrics that explain other images or a model with random layers.

Metrics of an explainer rather than of its maps are called with ``(explainer, model, images, targets)``. The explainer
is any callable ``explainer(model, images, targets) -> maps``, such as
``functools.partial(xaibench.explain, "saliency")``. It receives a private copy of the model in evaluation mode, so the
given model stays unchanged.

The parameter ``output`` of these metrics is passed to an explainer that has a parameter of this name, as
:func:`xaibench.explain` does. Without it, the explainer explains its own output.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TypeAlias, cast

import torch
from torch import Tensor, nn

from xaibench.core.checks import check_finite, check_map_shape
from xaibench.core.types import Array, Reduction
from xaibench.metrics.shared.model_scores import (
    LabeledImages,
    ModelOutput,
    ModelScorer,
    as_samples,
    check_common,
    random_generator,
)
from xaibench.network.lending import copy_network, set_evaluation
from xaibench.registry.parameters import named_parameters
from xaibench.tensors.device import precision_context
from xaibench.tensors.random_numbers import isolated_rng, seeded_by

#: Returns the maps ``[N, H, W]`` of a model for images ``[N, C, H, W]`` and targets ``[N]``.
ExplainerFunction: TypeAlias = "Callable[[nn.Module, Tensor, Tensor], Array]"


class ExplainerCaller:
    """The explainer, applied to a copy of the model.

    Attributes:
        model: The copy, in evaluation mode; changes to it are visible to the explainer.
        classes: Number of classes K; 0 if a function of the outputs is explained.

    Raises:
        ValueError: If the model does not return ``[N, K]``, a target is not a class, or the explainer has another
            output already.
        TypeError: If the explainer or the model is not callable.
    """

    def __init__(
        self,
        explainer: ExplainerFunction,
        model: nn.Module,
        samples: LabeledImages,
        batch_size: int | None,
        output: ModelOutput | None = None,
    ) -> None:
        if not callable(explainer):
            raise TypeError(
                f"explainer must be callable, (model, images, targets) -> maps, got {type(explainer).__name__}. "
                "For a name pass functools.partial(xaibench.explain, name)."
            )
        if not callable(model):
            raise TypeError(f"model must be callable, images [N, C, H, W] -> [N, K], got {type(model).__name__}.")
        # Parameters copied in inference mode could not require gradients.
        with torch.inference_mode(False), precision_context(device=samples.images.device, keeps_autocast=False):
            self.model = set_evaluation(copy_network(model)) if isinstance(model, nn.Module) else model
            scorer = ModelScorer(self.model, output or "probability", 1)
            scorer.probe_outputs(samples, finite=True)
            self.classes = scorer.classes
        self._explainer, self._samples = _with_output(explainer, output), samples
        self._batch_size = batch_size or len(samples)

    def __call__(self, images: Tensor, targets: Tensor | None = None) -> Tensor:
        """Return the checked maps ``[N, H, W]`` of the images, float64 on the CPU.

        Args:
            images: ``[N, C, H, W]``.
            targets: ``[N]``; None for the targets of the samples.
        """
        size, classes = self._batch_size, self._samples.targets if targets is None else targets
        parts = [slice(start, start + size) for start in range(0, len(images), size)]
        return torch.cat([self._maps(images[part], classes[part], part) for part in parts])

    def _maps(self, images: Tensor, targets: Tensor, part: slice) -> Tensor:
        # Tensors created in inference mode cannot require gradients, which explainers need.
        with (
            torch.inference_mode(False),
            torch.enable_grad(),
            precision_context(device=images.device, keeps_autocast=False),
        ):
            images, targets = (one.clone() if one.is_inference() else one for one in (images, targets))
            with seeded_by(self._samples.images[part]):  # the same random numbers as for the original images
                maps = torch.as_tensor(self._explainer(self.model, images, targets)).detach().double().cpu()
        check_map_shape(maps, (len(images), *images.shape[2:]), "maps of the explainer")
        check_finite(maps, "maps of the explainer")
        return maps


def _with_output(explainer: ExplainerFunction, output: ModelOutput | None) -> ExplainerFunction:
    """Pass the output to an explainer with a parameter ``output``; others are returned unchanged."""
    own = explainer.keywords.get("output") if isinstance(explainer, functools.partial) else None
    if output is not None and own is not None and own != output:
        raise ValueError(
            f"output: got {output!r}, but the explainer has output={own!r}. Pass one of them, or the same twice."
        )
    if output is None or "output" not in named_parameters(explainer):
        return explainer
    return functools.partial(cast("Callable[..., Array]", explainer), output=output)


def explainer_inputs(
    explainer: ExplainerFunction,
    model: nn.Module,
    images: Array,
    targets: Array,
    output: ModelOutput | None,
    batch_size: int | None,
    reduction: Reduction,
    seed: int,
) -> tuple[LabeledImages, ExplainerCaller]:
    """Check what every metric that calls the explainer takes; return the samples and the explainer of a copy."""
    check_common(batch_size, reduction, seed)
    samples = as_samples(model, images, targets, output or "probability")
    return samples, ExplainerCaller(explainer, model, samples, batch_size, output)


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
    weights = list(layer.parameters(recurse=False))
    home = weights[0].device
    reset = getattr(layer, "reset_parameters", None) or getattr(layer, "_reset_parameters", None)
    with torch.inference_mode(False), torch.no_grad(), isolated_rng(int(random_generator(seed, index).integers(2**63))):
        layer.cpu()
        before = [(weight._version, weight.clone()) for weight in weights]
        if callable(reset):
            reset()
        for weight, (version, value) in zip(weights, before, strict=True):
            # The method does not reach the parameters of the older weight_norm and spectral_norm.
            if weight._version == version and torch.equal(weight, value):
                numbers = torch.view_as_real(weight) if weight.is_complex() else weight
                numbers.normal_(float(numbers.mean()), float(numbers.std(correction=0)))
        layer.to(home)


def randomized_copy(model: nn.Module, seed: int) -> nn.Module:
    """Copy a network and initialize all its weights again; the network is not changed.

    Raises:
        ValueError: If there are no weights.
    """
    copied = copy_network(model)
    for index, layer in enumerate(layers_with_parameters(copied)):
        reinitialize(layer, seed, index)
    return copied
