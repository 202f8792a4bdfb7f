"""The main entry point: :func:`explain`."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from xaibench.compute.device import current_precision, precision_context, resolve_device, resolve_dtype
from xaibench.compute.lending import protect_input, remove_compilation, restore_model_state
from xaibench.compute.network_outputs import check_module, probe
from xaibench.compute.output import (
    ExplainedOutput,
    OutputOrFunction,
    UnsupportedModelError,
    network_of,
)
from xaibench.compute.random_numbers import seeded_by
from xaibench.compute.targets import Targets, as_targets
from xaibench.core.checks import check_count
from xaibench.core.progress import ProgressBar
from xaibench.core.types import Output, Precision
from xaibench.explainers.base import Channels, Explainer
from xaibench.explainers.building import build, configured, explainer_name, part_output
from xaibench.explainers.checks import check_images, check_returned_maps
from xaibench.explainers.shared.fitting import NotFittedError
from xaibench.explainers.shared.layers import with_layer_name
from xaibench.explainers.shared.memory_retry import retry_with_smaller_batches
from xaibench.explainers.shared.passes import Countable, assign_budget, explain_within_budget
from xaibench.explainers.table import gradient_free_advice

_Images = TypeVar("_Images", Tensor, NDArray[np.floating[Any]])


def explain(
    explainer: str | Explainer | type,
    model: nn.Module | None,
    images: _Images,
    targets: Tensor | NDArray[Any] | Sequence[Any] | int | None = None,
    *,
    output: OutputOrFunction | None = None,
    dtype: torch.dtype | Literal["auto"] = "auto",
    device: torch.device | str = "auto",
    precision: Precision | None = None,
    batch_size: int | None = None,
    budget: int | None = None,
    seed: int | None = None,
    channels: Channels | None = None,
    progress: bool = True,
    **parameters: Any,
) -> _Images:
    """Compute saliency maps of a classifier.

    The model is explained in evaluation mode. Its state is restored afterwards: training mode of every submodule,
    hooks, gradients, precision and device. The global random generators are neither used nor changed.

    Args:
        explainer: A registered name (``xaibench.explainers.EXPLAINERS``), ``"package.module:name"``, an instance or
            class, any callable ``(model, images, targets) -> maps``, or a Captum ``Attribution``. A Captum class
            (``captum.attr.Saliency``, ``"captum.attr:Saliency"``) is built on the explained model. A Captum object
            (``captum.attr.Saliency(f)``) explains the output of its own ``f``, regardless of ``model``. The parameters
            are then Captum's, with its defaults. Layer and neuron attributions are not supported, since they are not
            maps of the image.
        model: Returns logits ``[N, K]`` for images ``[N, C, H, W]``, or something that contains them: an object with
            ``.logits`` (transformers), a dictionary with the entry ``"logits"`` or with one tensor ``[N, K]``, or a
            tuple, of which the first tensor ``[N, K]`` is taken. With a function as ``output``, any network. If its
            last layer is an ``nn.Softmax``, the inputs of that layer are taken as the logits, with a warning. A model
            compiled by ``torch.compile`` is explained without the compilation. ``None`` is allowed for the controls,
            which use no model. The model that an explainer is called with, an
            :class:`xaibench.explainers.ExplainedOutput`, means its network and the output requested there.
        images: ``[N, C, H, W]``, floating-point.
        targets: The explained class of each image ``[N]`` (a tensor, an array or a list), or one class for all. For
            independent labels, multi-hot rows ``[N, K]`` of bools, 0 and 1: every set label is explained, M in all, row
            by row (:func:`xaibench.explainers.label_pairs` returns image and label of each map). Not needed, and
            ignored, with a function as ``output``.
        output: The explained output, computed from the logits: the softmax ``"probability"``, ``"sigmoid"`` (the
            probability of an independent label; for one output z, class 1 has sigmoid(z) and class 0 sigmoid(-z)), the
            ``"logit"`` (for a model that returns something else: its output unchanged), or the ``"margin"`` (see
            :class:`xaibench.explainers.ExplainedOutput`). Or a function that gets what the network returned and
            computes one number per image ``[N]``, such as ``lambda outputs: outputs["scores"][:, 3]``. Explainers that
            propagate from the logit (``explains_only``) begin at the logit under ``"sigmoid"`` too, and at the value of
            the function. ``None``: the output that the paper of the explainer explains, ``explainer.explains`` if it is
            defined (CAM family, propagation and patterns: the logit), otherwise the probability.
        dtype: Data type of the images, the weights and the maps. ``"auto"``: the one that ``precision`` implies;
            without ``precision``, ``model.explain_dtype`` if the model has it (float64 for the small networks of
            xaibench, whose softmax saturates in float32), otherwise that of the model's parameters.
        device: ``"auto"``: the GPU if there is one. A model on another device or of another dtype is copied.
        precision: Precision of float32 multiplications. ``"float32"``: full precision, also on a GPU, which would use
            TF32 by default. ``"tf32"``: TF32 where the hardware supports it. ``"bfloat16"``: ``torch.autocast`` runs
            the network in bfloat16 where it considers that safe. The last two are faster and less exact: maps of
            regions hardly change, gradients do (``docs/speed.md``). ``"float64"``: everything in float64.
            ``None``: full float32 precision, and the dtype unchanged.
        batch_size: Rows per forward pass; ``None``: chosen by the size of the images. It changes the maps by rounding
            only. If the GPU runs out of memory, it is halved and a line is logged. A callable that is not an explainer
            of xaibench gets all images at once.
        budget: Maximum number of passes per image, where a pass is one row that goes forward, or backward for a
            gradient. This compares methods at equal cost: the explainer gets the largest count that the budget allows,
            which replaces its own (``docs/explainers.md``). An explainer without such a parameter runs unchanged if the
            budget suffices. ``None``: no limit.
        seed: Seed of explainers that draw random numbers; others ignore it. ``None``: the explainer's default, 0. The
            draws depend on the seed and the image only, not on the position in the batch, the device or the precision.
        channels: How the channels become one map (see :func:`xaibench.explainers.reduce_channels`); ``None``: the
            explainer's own default. A single channel is only squeezed.
        progress: Show a progress bar in terminals and notebooks if explaining takes longer than half a second
            (``TQDM_DISABLE=1`` turns off all bars). A warning estimates the time if it exceeds five minutes.
        **parameters: The explainer's own parameters, such as ``n_samples`` for LIME.

    Returns:
        Maps ``[N, H, W]``, signed, in ``dtype``: a tensor on the CPU, or an array if ``images`` is an array. For
        multi-hot targets ``[M, H, W]``, one map per set label. A map can be zero everywhere (LIME with a strong
        penalty). Maps are neither scaled nor clipped. Explainers of feature maps with ``resize=None`` return
        ``[N, h, w]``, the size of the layer's output.

    Raises:
        UnknownNameError: If no explainer has that name; similar names are suggested.
        UnsupportedModelError: If the explainer does not support a layer of the model; the message names it.
        TypeError: If the images are not floating-point, the targets are not integers, or a parameter is unknown.
        ValueError: If shapes do not fit, a target is not a class of the model, values are not finite, the device is not
            available, or the budget is below the minimum number of passes of the explainer. If the network ends in a
            sigmoid or the targets are multi-hot, and ``output`` is neither ``"sigmoid"``, ``"logit"`` nor a function.
        NotFittedError: If the explainer has a method ``fit``, and is a class or has an attribute ``fitted`` that is not
            true.

    Warns:
        UserWarning: If the outputs look like probabilities where logits are expected, or if it will take minutes.

    Example:
        >>> import torch
        >>> model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(4, 2, bias=False))
        >>> _ = model[1].weight.data.copy_(torch.tensor([[1.0, 2.0, 0.0, -1.0], [0.0, 0.0, 0.0, 0.0]]))
        >>> images, targets = torch.ones(1, 1, 2, 2), torch.tensor([0])
        >>> explain("saliency", model, images, targets, output="logit")
        tensor([[[ 1.,  2.],
                 [ 0., -1.]]])
        >>> explain("lime", model, images, targets, n_samples=200, output="logit").shape
        torch.Size([1, 2, 2])
    """
    check_count("seed", seed, least=0, none="for the explainer's own")
    check_count("budget", budget, least=0, none="for what the explainer's parameters say")
    part = configured(build(explainer, **parameters), batch_size=batch_size, seed=seed, channels=channels)
    _check_fitted(explainer, part)
    outer = model if isinstance(model, ExplainedOutput) else None
    if outer is not None:
        model, output = outer.network, part_output(part, output or outer.requested)
    x = check_images(images)
    chosen, labels = _output(part, output), _targets(targets, output, len(x))
    x, y = labels.expand(x), labels.classes
    if model is not None:
        check_module(model)
        model = network_of(model)
        part = with_layer_name(part, explainer_name(part), model)
    place = resolve_device(device)
    kept = resolve_dtype(model, x, dtype, precision, place)
    exactly: Precision = "float64" if kept == torch.float64 else "float32"
    # Tensors created in inference mode cannot require a gradient, so they are copied outside of it.
    with torch.inference_mode(False):
        x, y = (t.clone() if t.is_inference() else t for t in (x, y))
        with (
            precision_context(precision or current_precision() or exactly, place),
            seeded_by(x),
            _progress(part, x, budget, progress and outer is None) as bar,
        ):
            x_there, y_there = x.to(place, kept), y.to(place)
            request = _Request(chosen, output, labels)
            on_rows = bar.advance if outer is None else outer.on_rows
            explanation = _Explanation(model, x_there, y_there, request, budget, on_rows)
            maps = retry_with_smaller_batches(part, x_there, explanation, lambda: explanation.largest_pass)
            maps = maps.to(kept) if current_precision() == "bfloat16" else maps
        # With resize=None, the maps have the size of the layer's output.
        own_size = getattr(part, "resize", "") is None
        checked = check_returned_maps(maps, x, channels, explainer_name(part), own_size=own_size)
    return checked if isinstance(images, Tensor) else checked.numpy()


def _check_fitted(given: Any, part: Any) -> None:
    """Raise an error for a user's own class that must be fitted, or an object of it that says that it is not.

    The library's explainers have errors of their own.
    """
    is_fitted = not inspect.isclass(given) and getattr(part, "fitted", True)
    if callable(getattr(part, "fit", None)) and not getattr(part, "info", None) and not is_fitted:
        kind = type(part).__name__
        raise NotFittedError(
            f"{kind} has a method fit and is not fitted. Fit it first, fitted = {kind}(...).fit(model, loader), and "
            "use the result, whose attribute `fitted` must be true."
        )


@dataclass(frozen=True)
class _Request:
    """The explained output, what the user requested as such, and the targets."""

    output: OutputOrFunction
    requested: OutputOrFunction | None
    targets: Targets


class _Explanation:
    """An explanation that can be repeated with smaller batches; ``largest_pass`` is its largest number of rows."""

    def __init__(
        self,
        model: nn.Module | None,
        images: Tensor,
        targets: Tensor,
        request: _Request,
        budget: int | None,
        on_rows: Callable[[int], None],
    ) -> None:
        self._model, self._samples, self._request, self._on_rows = model, (images, targets), request, on_rows
        self._budget = budget
        self.largest_pass = len(images)

    def __call__(self, part: Explainer) -> Tensor:
        images, targets = self._samples
        if self._model is None:
            if not getattr(getattr(part, "info", None), "control", False):
                raise TypeError(
                    f"{explainer_name(part)}: got no model, expected a torch.nn.Module; only controls (sobel, laplace, "
                    "uniform, input, center_prior, prior) work without one."
                )
            return part(cast(nn.Module, None), images, targets)
        with restore_model_state(_to_device(self._model, images.device, images.dtype)) as lent:
            remove_compilation(lent)
            request = self._request
            explained = ExplainedOutput(
                lent, request.output, requested=request.requested, from_logits=getattr(part, "explains_only", False)
            ).eval()
            _check_model(explained, images, targets, request.targets)
            explained.on_rows = self._on_rows
            try:
                with protect_input(lent):
                    if self._budget is None:
                        return part(explained, images, targets)
                    return explain_within_budget(part, self._budget, explained, images, targets)
            except RuntimeError as error:
                if not _is_missing_gradient(error):
                    raise
                raise UnsupportedModelError(
                    f"{explainer_name(part)} needs the gradient of the output with respect to the images, but an "
                    "operation of the network blocks it (such as detach, numpy, rounding or quantization). "
                    f"{gradient_free_advice()} Or remove that operation."
                ) from error
            finally:
                self.largest_pass = max(self.largest_pass, explained.largest_pass)


def _progress(part: Explainer, images: Tensor, budget: int | None, shown: bool) -> ProgressBar:
    """In rows that go through the network; how many come, the explainers know that ask it often."""
    if not isinstance(part, Countable):
        return ProgressBar(explainer_name(part), None, "row", shown=shown)
    advice = f"Fewer rows: {part.cheaper()}, fewer images than {len(images)}; or a GPU."

    def passes() -> int:
        if budget is None:
            return part.passes(images)
        own = [(some, images[which]) for which, some in assign_budget(part, budget, images)]
        return sum(some.passes(x) for some, x in own if isinstance(some, Countable))

    return ProgressBar(explainer_name(part), passes, "row", shown=shown, advice=advice)


def _is_missing_gradient(error: RuntimeError) -> bool:
    """Return whether torch found no path from the output back to the images."""
    message = str(error)
    return "does not require grad" in message or "not have been used in the graph" in message


def _output(part: Explainer, output: OutputOrFunction | None) -> OutputOrFunction:
    """Return the explained output: the requested one, otherwise the default of the explainer."""
    own: Output | None = getattr(part, "explains", None)
    if own and output and getattr(part, "explains_only", False):
        if getattr(part, "has_own_function", False) and callable(output):
            raise ValueError(f"{explainer_name(part)} explains its own function, got output={output!r}; omit output.")
        if output in ("probability", "margin"):
            raise ValueError(
                f"{explainer_name(part)} is defined for the {own} only, got output={output!r}; omit output."
            )
    return output or own or "probability"


def _targets(targets: Any, output: OutputOrFunction | None, samples: int) -> Targets:
    if callable(output):
        return Targets(torch.zeros(samples, dtype=torch.int64))
    if targets is None:
        raise TypeError("targets: got None, expected the class of each image; only a function as output needs none.")
    found = as_targets(targets, samples)
    if found.rows is not None and output not in ("sigmoid", "logit"):
        raise ValueError(
            f"targets: got multi-hot rows and output={output!r}, which is for one class per image. Pass "
            "output='sigmoid' to explain the probability of each set label, or output='logit'."
        )
    return found


def _to_device(model: nn.Module, device: torch.device, dtype: torch.dtype) -> nn.Module:
    """Return the model if device and dtype fit, otherwise a copy with the right ones."""
    tensors = [*model.parameters(), *model.buffers()]
    if all(t.device == device and (t.dtype == dtype or not t.is_floating_point()) for t in tensors):
        return model
    return copy.deepcopy(model).to(device, dtype)


def _check_model(explained: ExplainedOutput, images: Tensor, targets: Tensor, labels: Targets) -> None:
    outputs = probe(explained.network, images[:2], select=explained.select)
    explained.check_activation(images[:1], outputs)
    explained.check_targets(outputs, targets, labels)
