"""Build an explainer from its name and parameters, and compute maps: :func:`explain`."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import math
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any, Literal, TypeVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from xaibench.core.checks import ParameterError, check_count, check_finite, check_map_shape, check_names
from xaibench.core.process_settings import equal_warnings_once
from xaibench.core.progress import ProgressBar
from xaibench.core.types import Output, Precision
from xaibench.explainers.base import Channels, Explainer, explainer_name, reduce_channels, unsupported_by_torch
from xaibench.explainers.exact_template import ExactMethod, is_exact
from xaibench.explainers.registered import EXPLAINERS
from xaibench.explainers.shared.fitting import NotFittedError
from xaibench.explainers.shared.layers import forward_rows, layer_name
from xaibench.explainers.shared.passes import Countable, assign_budget, explain_within_budget
from xaibench.network.answers import OutputOrFunction
from xaibench.network.contract import check_network as check_contract
from xaibench.network.contract import unchecked_networks
from xaibench.network.explained_output import ExplainedOutput, network_of
from xaibench.network.lending import lock_network, place_network, protect_input, restore_model_state
from xaibench.network.outputs import check_module, probe
from xaibench.registry.parameters import annotations_of, check_types, has_any_parameter, named_parameters
from xaibench.tensors.batching import halve_batch
from xaibench.tensors.device import precision_context, resolve_device, resolve_precision
from xaibench.tensors.inputs import Targets, as_images, as_targets
from xaibench.tensors.random_numbers import seeded_by

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
    check_network: bool = True,
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
            ``.logits`` (transformers), a dictionary with the entry ``"logits"``, or a dictionary or tuple with one
            tensor ``[N, K]``, or with logits and their softmax. With a function as ``output``, any network. If its
            last layer is a softmax, the inputs of that layer are taken as the logits, with a warning. A model
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
        check_network: Raise an error if the model is not a deterministic function of one image, or if an explainer
            that uses gradients would get another gradient than the slope of the outputs. The check takes a few passes
            of two images, once per model (:mod:`xaibench.network.contract`). ``False``: continue with a
            warning.
        **parameters: The explainer's own parameters, such as ``n_samples`` for LIME.

    Returns:
        Maps ``[N, H, W]``, signed, in ``dtype``: a tensor on the CPU, or an array if ``images`` is an array. For
        multi-hot targets ``[M, H, W]``, one map per set label. A map can be zero everywhere (LIME with a strong
        penalty). Maps are neither scaled nor clipped. Explainers of feature maps with ``resize=None`` return
        ``[N, h, w]``, the size of the layer's output.

    Raises:
        UnknownNameError: If no explainer has that name; similar names are suggested.
        UnsupportedModelError: If the explainer does not support a layer of the model; the message names it.
        NetworkContractError: If the model is random in evaluation mode, if the output for an image depends on its
            batch, or if a gradient is lost; the message names the layer. It is an ``UnsupportedModelError``.
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
    name = explainer_name(part)
    # A user's own class that must be fitted, or an object of it that is not. The library's have errors of their own.
    is_fitted = not inspect.isclass(explainer) and getattr(part, "fitted", True)
    if callable(getattr(part, "fit", None)) and not getattr(part, "info", None) and not is_fitted:
        kind = type(part).__name__
        raise NotFittedError(
            f"{kind} has a method fit and is not fitted. Fit it first, fitted = {kind}(...).fit(model, loader), and "
            "use the result, whose attribute `fitted` must be true."
        )
    outer = model if isinstance(model, ExplainedOutput) else None
    if outer is not None:
        model, output = outer.network, part_output(part, output or outer.requested)
    x = as_images(images)
    head, labels = _output_and_labels(part, output, targets, len(x))
    x, y = x if labels.rows is None else x[labels.rows.to(x.device)], labels.classes
    if model is not None:
        check_module(model)
        model = network_of(model)
        # A copy of the network has other modules, but the same names.
        if dataclasses.is_dataclass(part) and isinstance(layer := getattr(part, "layer", None), nn.Module):
            with lock_network(model):
                part = configured(part, layer=layer_name(name, model, layer))
    elif not getattr(getattr(part, "info", None), "control", False):
        raise TypeError(
            f"{name}: got no model, expected a torch.nn.Module; only controls (sobel, laplace, uniform, input, "
            "center_prior, prior) work without one."
        )
    device = resolve_device(device)
    dtype, precision = resolve_precision(model, x, dtype, precision, device)
    # Tensors created in inference mode cannot require a gradient, so they are copied outside of it.
    with torch.inference_mode(False):
        x, y = x.clone() if x.is_inference() else x, y.clone() if y.is_inference() else y
        with (
            precision_context(precision, device),
            seeded_by(x),
            nullcontext() if check_network else unchecked_networks(),
            _progress(part, name, x, budget, progress and outer is None) as bar,
            equal_warnings_once(),
        ):
            inputs = x.to(device, dtype), y.to(device)
            explained = None
            if model is not None:
                from_logits = getattr(part, "explains_only", False)
                network = place_network(model, device, dtype)
                explained = ExplainedOutput(network, head, requested=output, from_logits=from_logits)
                explained.on_rows = bar.advance if outer is None else outer.on_rows
            while True:
                try:
                    if explained is None:
                        maps = part(cast(nn.Module, None), *inputs)
                    else:
                        maps = _explain_lent(part, explained, *inputs, labels, budget)
                    break
                except (RuntimeError, MemoryError) as error:
                    largest = max(len(x), explained.largest_pass if explained else 0)
                    rows = halve_batch(error, min(_batch_rows(part, inputs[0]), largest))
                # Not inside the except block, where the error still references the tensors of the failed pass.
                torch.cuda.empty_cache()
                part = dataclasses.replace(cast(Any, part), batch_size=rows)
            maps = maps.to(dtype) if precision == "bfloat16" else maps
        # With resize=None, the maps have the size of the layer's output.
        resized = getattr(part, "resize", "") is not None
        checked = _check_maps(maps, x, channels, name, resized=resized)
    if isinstance(images, Tensor):
        return checked
    return (checked.float() if checked.dtype == torch.bfloat16 else checked).numpy()


def _explain_lent(
    part: Explainer, explained: ExplainedOutput, images: Tensor, targets: Tensor, labels: Targets, budget: int | None
) -> Tensor:
    """Lend the network to the explainer; what explainers assume of a network is checked here, before they get it."""
    with restore_model_state(explained.network) as network:
        explained.training = False
        outputs = probe(network, images[:2], select=explained.select)
        explained.check_activation(images[:2], outputs)
        explained.check_targets(outputs, targets, labels)
        info, check = getattr(part, "info", None), functools.partial(check_contract, network, images, outputs)
        if not getattr(info, "control", False) and not getattr(part, "has_own_function", False):
            check(gradients=getattr(info, "needs_gradient", False), select=explained.select)
        with unsupported_by_torch(explainer_name(part), network), protect_input(network):
            if budget is None:
                maps = part(explained, images, targets)
            else:
                maps = explain_within_budget(part, budget, explained, images, targets)
        if explained.gave_gradient:  # also to an explainer without metadata
            check(gradients=True, select=explained.select)
        return maps


def _batch_rows(part: Any, images: Tensor) -> int:
    """Return the current rows per pass; 0 for an explainer without ``batch_size``."""
    if not dataclasses.is_dataclass(part) or not hasattr(part, "batch_size"):
        return 0
    return int(part.rows(images) if hasattr(part, "rows") else forward_rows(images, part.batch_size))


def build(explainer: str | Explainer | type, **parameters: Any) -> Explainer:
    """Build an explainer with its parameters.

    Args:
        explainer: As in :func:`explain`.
        **parameters: Fields of the explainer, or keyword arguments of a function.

    Returns:
        A callable ``explainer(model, images, targets)``. Called directly, it explains the output of the model as it is;
        the conversions and checks of :func:`explain` are not applied.

    Raises:
        UnknownNameError: If no explainer has that name (did you mean).
        UnknownParameterError: If the explainer has no such parameter; lists all.
        TypeError: If the explainer cannot be called.

    Example:
        >>> build("ig", n_steps=20).n_steps
        20
        >>> build("lime", n_sample=20)
        Traceback (most recent call last):
            ...
        xaibench.core.checks.UnknownParameterError: LIME has no parameter 'n_sample'; did you mean 'n_samples'? \
Known: alpha, baseline, batch_size, cell_size, channels, feature_mask, kernel_width, n_samples, n_segments, seed.
    """
    part = EXPLAINERS.resolve(explainer) if isinstance(explainer, str) else explainer
    # The bases of a class are imported.
    if "captum" in sys.modules and _is_captums(part):
        from xaibench.explainers.captum_adapter import adapt

        return adapt(part, parameters)
    if not callable(part):
        raise TypeError(
            f"explainer: got {type(part).__name__}, expected a name, 'package.module:name', an explainer or a callable."
        )
    if parameters:
        _check_parameters(part, parameters)
    if inspect.isclass(part):
        return cast(Explainer, part(**parameters))
    if is_exact(part):
        return ExactMethod(functools.partial(part, **parameters) if parameters else part)
    if not parameters:
        return cast(Explainer, part)
    if dataclasses.is_dataclass(part):
        return cast(Explainer, dataclasses.replace(cast(Any, part), **parameters))
    return cast(Explainer, functools.partial(part, **parameters))


def _is_captums(part: Any) -> bool:
    """Return whether a part is a Captum class, an instance of one, or derived from one; captum is not imported."""
    kind = part if inspect.isclass(part) else type(part)
    return any(base.__module__.partition(".")[0] == "captum" for base in kind.__mro__)


def _check_parameters(part: Any, parameters: dict[str, Any]) -> None:
    is_instance = dataclasses.is_dataclass(part) and not inspect.isclass(part)
    called = type(part) if is_instance else part  # the fields of an instance are changed
    if not has_any_parameter(called):
        # The first three of a function are model, images and targets; a class is called with its parameters only.
        known = named_parameters(called, skip=0 if inspect.isclass(called) else 3)
        check_names(explainer_name(part), parameters, sorted(known))
    if getattr(called, "info", None):  # a user's own annotations are the user's
        check_types(parameters, annotations_of(called))
        if "seed" in parameters:
            check_count("seed", parameters["seed"], least=0)
        for name, value in parameters.items():
            if isinstance(value, float) and not math.isfinite(value):
                raise ParameterError(f"{name}={value}: expected a finite number.", parameter=name)


def configured(part: Explainer, **settings: Any) -> Explainer:
    """Return the explainer with some of its fields changed.

    Args:
        part: From :func:`build`.
        **settings: New values by field. None keeps the value, and fields that the explainer does not have are ignored.

    Returns:
        A changed copy; the explainer itself if nothing changes.
    """
    if not dataclasses.is_dataclass(part):
        return part
    changed = {}
    for name in part.__dataclass_fields__.keys() & settings.keys():
        if settings[name] not in (None, getattr(part, name)):
            changed[name] = settings[name]
    return cast(Explainer, dataclasses.replace(cast(Any, part), **changed)) if changed else part


def part_output(part: Any, output: OutputOrFunction | None) -> OutputOrFunction | None:
    """Return the output to explain where one output is requested for explainers of all kinds.

    Args:
        part: An explainer.
        output: The requested output.

    Returns:
        The same, or None if the explainer propagates from the logit and sees neither softmax nor margin
        (``explains_only``).
    """
    return None if getattr(part, "explains_only", False) and output in ("probability", "margin") else output


def _progress(part: Explainer, name: str, images: Tensor, budget: int | None, shown: bool) -> ProgressBar:
    """Return a bar of the rows that go through the network; its total is known for explainers that declare it."""
    if not isinstance(part, Countable):
        return ProgressBar(name, None, "row", shown=shown)
    advice = f"Fewer rows: {part.cheaper()}, fewer images than {len(images)}; or a GPU."

    def passes() -> int:
        if budget is None:
            return part.passes(images)
        groups = assign_budget(part, budget, images)
        return sum(some.passes(images[which]) for which, some in groups if isinstance(some, Countable))

    return ProgressBar(name, passes, "row", shown=shown, advice=advice)


def _output_and_labels(
    part: Explainer, output: OutputOrFunction | None, targets: Any, samples: int
) -> tuple[OutputOrFunction, Targets]:
    """Return the explained output, the requested one or the default of the explainer, and the explained classes."""
    own: Output | None = getattr(part, "explains", None)
    if own and output and getattr(part, "explains_only", False):
        if getattr(part, "has_own_function", False) and callable(output):
            raise ValueError(f"{explainer_name(part)} explains its own function, got output={output!r}; omit output.")
        if output in ("probability", "margin"):
            raise ValueError(
                f"{explainer_name(part)} is defined for the {own} only, got output={output!r}; omit output."
            )
    if callable(output):
        return output, Targets(torch.zeros(samples, dtype=torch.int64))
    if targets is None:
        raise TypeError("targets: got None, expected the class of each image; only a function as output needs none.")
    labels = as_targets(targets, samples)
    if labels.rows is not None and output not in ("sigmoid", "logit"):
        raise ValueError(
            f"targets: got multi-hot rows and output={output!r}, which is for one class per image. Pass "
            "output='sigmoid' to explain the probability of each set label, or output='logit'."
        )
    return output or own or "probability", labels


def _check_maps(maps: Any, images: Tensor, channels: Channels | None, name: str, *, resized: bool = True) -> Tensor:
    """Return the result of an explainer as maps on the CPU, reducing channels if there are any.

    Args:
        maps: The result of the explainer.
        images: ``[N, C, H, W]`` for maps ``[N, H, W]``, or ``[N, C, D, H, W]`` for maps ``[N, D, H, W]``.
        channels: How the channels become one map.
        name: Name of the explainer, for error messages.
        resized: False if the maps may differ from the images in size (``resize=None``).

    Raises:
        ValueError: If the shape is wrong or a value is not finite; the message names the explainer.
    """
    result: Tensor = torch.as_tensor(maps).detach().cpu()
    if result.ndim == images.ndim and result.shape[0] == len(images) and result.shape[2:] == images.shape[2:]:
        result = reduce_channels(result, channels or "sum")
    size = images.shape[2:] if resized or result.ndim != images.ndim - 1 else result.shape[1:]
    check_map_shape(result, (len(images), *size), f"maps of {name}")
    try:
        check_finite(result, f"maps of {name}")
    except ValueError as error:
        if result.dtype == torch.float64:
            raise
        hint = f"They may have left the range of {result.dtype}: try dtype=torch.float64."
        raise ValueError(f"{error} {hint}") from None
    return result.contiguous()
