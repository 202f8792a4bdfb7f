"""The front door: :func:`explain` and :func:`build`."""

from __future__ import annotations

import copy
import dataclasses
import functools
import inspect
from typing import Any, Literal, TypeVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from xaibench.core.compute.device import resolve_device
from xaibench.core.compute.modes import unharmed
from xaibench.core.compute.precision import Precision, check_precision, computing, stated, stored_dtype
from xaibench.core.messages import kind_of, listed, unknown
from xaibench.core.vocabulary import Output
from xaibench.explainers.explainer_table import EXPLAINERS
from xaibench.explainers.shared.explained_output import ExplainedOutput
from xaibench.explainers.shared.interface import Channels, Explainer, reduce_channels
from xaibench.explainers.shared.memory_retry import within_memory

_Images = TypeVar("_Images", Tensor, NDArray[np.floating[Any]])


def explain(
    explainer: str | Explainer | type,
    model: nn.Module | None,
    images: _Images,
    targets: Tensor | NDArray[np.integer[Any]],
    *,
    output: Output | None = None,
    dtype: torch.dtype | Literal["auto"] = "auto",
    device: torch.device | str = "auto",
    precision: Precision | None = None,
    batch_size: int | None = None,
    seed: int | None = None,
    channels: Channels | None = None,
    **parameters: Any,
) -> _Images:
    """Saliency maps of a classifier.

    The model is explained in evaluation mode and comes back as it was given: training mode of every submodule, hooks,
    gradients, precision, device. The state of the global random generators is neither used nor changed.

    Args:
        explainer: A registered name (``xaibench.explainers.EXPLAINERS``), ``"package.module:name"``, an instance or
            class, any callable ``(model, images, targets) -> maps``, or an ``Attribution`` of Captum: a class
            (``captum.attr.Saliency``, ``"captum.attr:Saliency"``) is built on the explained model; an object
            (``captum.attr.Saliency(f)``) explains what its own ``f`` returns, as it is, whatever ``model``. The
            parameters are then Captum's, with its defaults. Layer and neuron attributions are not maps of the image.
        model: Returns logits ``[N, K]`` for images ``[N, C, H, W]``. ``None`` will do for the controls, which look at
            no model.
        images: ``[N, C, H, W]``, floating.
        targets: ``[N]``, the class to explain of each sample.
        output: What of the model is explained, taking what it returns for logits: the softmax ``"probability"``, the
            ``"logit"`` (for a model that returns something else: its output as it is), or the ``"margin"`` (see
            :class:`xaibench.explainers.ExplainedOutput`). ``None``: what the explainer's paper explains, that is
            ``explainer.explains`` where it has it (the CAM family, propagation and patterns: the logit), else the
            probability.
        dtype: Of the images, the weights and the maps. ``"auto"``: what ``precision`` is kept in; without one,
            ``model.explain_dtype`` if the model has it (our small networks: float64, because their softmax saturates
            in float32), else that of its parameters.
        device: ``"auto"``: the GPU when there is one. A model that is elsewhere, or of another dtype, is copied.
        precision: How float32 is multiplied. ``"float32"``: exactly, also by a GPU, which would round it to TF32 of its
            own accord; ``"tf32"``: so rounded, where the machine can; ``"bfloat16"``: ``torch.autocast`` runs the
            network in bfloat16 where it deems that safe. The two are faster and less exact: region maps hardly change,
            gradients do (``docs/explainers.md``). ``"float64"``: everything in float64. ``None``: float32 exactly, and
            the dtype as it is.
        batch_size: Rows in one forward pass; ``None``: chosen by the size of the images. It changes the maps by
            no more than rounding, and is halved, with a line in the log, when the GPU's memory does not do. A callable
            that is no explainer of ours gets all images at once.
        seed: Of the explainers that draw random numbers; ``None``: their own default, 0. Others ignore it.
        channels: How the channels become one map (see :func:`xaibench.explainers.reduce_channels`); ``None``: the
            explainer's own default. A single channel is only squeezed.
        **parameters: The explainer's own parameters, such as ``n_samples`` for LIME.

    Returns:
        Maps ``[N, H, W]``, signed, in ``dtype``: a tensor on the CPU, or an array where ``images`` is one. A map can be
        zero everywhere (LIME with a strong penalty); nothing is scaled or cut off.

    Raises:
        UnknownNameError: If no explainer has that name (did you mean).
        UnsupportedModelError: If the explainer cannot treat a layer of the model; named in the message.
        TypeError: If the images are not floating, the targets not integers, or a parameter is not known.
        ValueError: If shapes do not fit, a target is no class of the model, numbers are not finite, or there is no such
            device here.

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
    if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0):
        raise ValueError(f"seed={seed!r}: expected a whole number, at least 0, or None for the explainer's own.")
    part = _configure(build(explainer, **parameters), batch_size=batch_size, seed=seed, channels=channels)
    x, y = _check_images(images), _check_targets(targets, len(images))
    if model is not None:
        _check_kind(model)
    place = resolve_device(device)
    kept = _kept_dtype(model, x, dtype, precision, place)
    exactly: Precision = "float64" if kept == torch.float64 else "float32"
    # What is made in inference mode can never have a gradient again, so copies are made outside of it.
    with torch.inference_mode(False):
        x, y = (t.clone() if t.is_inference() else t for t in (x, y))
        with computing(precision or stated() or exactly, place):
            x_there, y_there = x.to(place, kept), y.to(place)
            maps = within_memory(part, x_there, lambda one: _run(one, model, x_there, y_there, _output(part, output)))
            maps = maps.to(kept) if stated() == "bfloat16" else maps
        checked = _check_maps(maps, x, channels, _name(part))
    return checked if isinstance(images, Tensor) else checked.numpy()


def _run(part: Explainer, model: nn.Module | None, images: Tensor, targets: Tensor, output: Output) -> Tensor:
    if model is None:
        if not getattr(getattr(part, "info", None), "control", False):
            raise TypeError(
                f"{_name(part)}: got no model, expected a torch.nn.Module; only controls (sobel, laplace, uniform, "
                "input, centre) need none."
            )
        return part(cast(nn.Module, None), images, targets)
    with unharmed(_moved(model, images.device, images.dtype)) as lent:
        explained = ExplainedOutput(lent, output).eval()
        _check_model(explained, images, targets)
        return part(explained, images, targets)


def _output(part: Explainer, output: Output | None) -> Output:
    """What of the model is explained: as asked for, else what the explainer is defined on."""
    own: Output | None = getattr(part, "explains", None)
    if own and output and getattr(part, "explains_only", False) and output != own:
        raise ValueError(f"{_name(part)} is defined on the {own} only, got output={output!r}; leave output out.")
    return output or own or "probability"


def build(explainer: str | Explainer | type, **parameters: Any) -> Explainer:
    """An explainer with its parameters set.

    Args:
        explainer: As in :func:`explain`.
        **parameters: Fields of the explainer, or keyword arguments of a function.

    Returns:
        Something to call as ``explainer(model, images, targets)``. Called so directly, it explains what the model
        returns as it is; :func:`explain` does the rest.

    Raises:
        UnknownNameError: If no explainer has that name (did you mean).
        TypeError: If a parameter is not known; the message lists the known ones.

    Example:
        >>> build("ig", n_steps=20).n_steps
        20
        >>> build("lime", n_sample=20)
        Traceback (most recent call last):
            ...
        TypeError: LIME has no parameter 'n_sample'; did you mean 'n_samples'? Known: alpha, baseline, batch_size, \
cell, channels, feature_mask, kernel_width, n_samples, n_segments, seed.
    """
    part = EXPLAINERS.resolve(explainer) if isinstance(explainer, str) else explainer
    if _is_captums(part):
        from xaibench.explainers.captum_adapter import adapt

        return adapt(part, parameters)
    if not callable(part):
        raise TypeError(
            f"explainer: got {type(part).__name__}, expected a name, 'package.module:name', an explainer or a callable."
        )
    _check_parameters(part, parameters)
    if inspect.isclass(part):
        return cast(Explainer, part(**parameters))
    if not parameters:
        return cast(Explainer, part)
    if dataclasses.is_dataclass(part):
        return cast(Explainer, dataclasses.replace(cast(Any, part), **parameters))
    return cast(Explainer, functools.partial(part, **parameters))


def _is_captums(part: Any) -> bool:
    """Whether a class or object is of Captum's, or derived from one; nobody has those before captum is imported."""
    kind = part if inspect.isclass(part) else type(part)
    return any(base.__module__.partition(".")[0] == "captum" for base in kind.__mro__)


def _check_parameters(part: Any, parameters: dict[str, Any]) -> None:
    if dataclasses.is_dataclass(part):
        known = {field.name for field in dataclasses.fields(part) if field.init}
    else:
        signature = inspect.signature(part).parameters.values()
        if any(parameter.kind is parameter.VAR_KEYWORD for parameter in signature):
            return
        # The first three of a function are model, images and targets; a class is called with its parameters only.
        own = list(signature)[0 if inspect.isclass(part) else 3 :]
        known = {parameter.name for parameter in own if parameter.kind is not parameter.VAR_POSITIONAL}
    for name in parameters:
        if name not in known:
            raise TypeError(unknown(f"{_name(part)} has no parameter", name, sorted(known)))


def _configure(part: Explainer, **settings: Any) -> Explainer:
    """Set what is given and what the explainer has."""
    if not dataclasses.is_dataclass(part):
        return part
    has = {field.name for field in dataclasses.fields(part)}
    changed = {name: value for name, value in settings.items() if value is not None and name in has}
    return cast(Explainer, dataclasses.replace(cast(Any, part), **changed)) if changed else part


def _name(part: Any) -> str:
    while isinstance(part, functools.partial):
        part = part.func
    return str(getattr(part, "__name__", type(part).__name__))


def _check_images(images: Any) -> Tensor:
    x = _as_tensor(images, "images").detach()
    if x.ndim != 4 or x.numel() == 0:
        raise ValueError(f"images: got {list(x.shape)}, expected [N, C, H, W] with at least one image.")
    if not x.is_floating_point():
        raise TypeError(f"images: got {x.dtype}, expected floating numbers, scaled as the model expects them.")
    finite = x.isfinite().flatten(1).all(1)
    if not finite.all():
        raise ValueError(f"images: NaN or infinite numbers in samples {_some(~finite)}; expected finite numbers.")
    return x


def _check_targets(targets: Any, samples: int) -> Tensor:
    y = _as_tensor(targets, "targets").detach()
    if y.is_floating_point() or y.is_complex() or y.dtype is torch.bool:
        raise TypeError(f"targets: got {y.dtype}, expected integers, the class index of each sample.")
    if tuple(y.shape) != (samples,):
        raise ValueError(f"targets: got {list(y.shape)}, expected [{samples}], one class index for each image.")
    return y.long()


def _as_tensor(values: Any, what: str) -> Tensor:
    if not isinstance(values, Tensor | np.ndarray):
        raise TypeError(
            f"{what}: got {type(values).__name__}, expected a torch tensor or a numpy array; torch.as_tensor makes one."
        )
    if isinstance(values, Tensor):
        return values
    return torch.from_numpy(np.array(values))  # a copy: a read-only or reversed array cannot be shared with torch


def _kept_dtype(
    model: nn.Module | None,
    images: Tensor,
    dtype: torch.dtype | Literal["auto"],
    precision: Precision | None,
    place: torch.device,
) -> torch.dtype:
    """The dtype of images, weights and maps."""
    if precision is not None:
        check_precision(precision)
        if dtype not in ("auto", torch.float64) and precision == "float64":
            raise ValueError(f"precision='float64' with dtype={dtype}: expected one of them, or both float64.")
    chosen = precision or stated()
    kept = dtype
    if kept == "auto":
        kept = stored_dtype(chosen) if chosen else _own_dtype(model, images)
    if kept == torch.float64 and place.type == "mps":
        raise ValueError(
            "device 'mps' has no float64, in which this model is explained; pass precision='float32', or device='cpu'."
        )
    return kept


def _own_dtype(model: nn.Module | None, images: Tensor) -> torch.dtype:
    if model is None:
        return images.dtype
    own = getattr(model, "explain_dtype", None)
    if isinstance(own, torch.dtype):
        return own
    floating = (parameter.dtype for parameter in getattr(model, "parameters", tuple)() if parameter.is_floating_point())
    return next(floating, images.dtype)


def _check_kind(model: object) -> None:
    if not isinstance(model, nn.Module):
        raise TypeError(f"model: got {kind_of(model)}, expected a torch.nn.Module that returns logits [N, K].")


def _moved(model: nn.Module, device: torch.device, dtype: torch.dtype) -> nn.Module:
    """The model itself if it is where and what it should be, else a copy that is."""
    tensors = [*model.parameters(), *model.buffers()]
    if all(t.device == device and (t.dtype == dtype or not t.is_floating_point()) for t in tensors):
        return model
    return copy.deepcopy(model).to(device, dtype)


def _check_model(explained: ExplainedOutput, images: Tensor, targets: Tensor) -> None:
    few = images[:2]
    try:
        with torch.no_grad():
            logits = explained.network(few)
    except torch.cuda.OutOfMemoryError:
        raise
    except (RuntimeError, ValueError) as error:
        raise ValueError(f"The model cannot take images of shape {list(few.shape)}: {error}") from error
    if not isinstance(logits, Tensor) or logits.ndim != 2 or len(logits) != len(few):
        got = list(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        raise ValueError(
            f"The model returns {got} for {len(few)} images, expected logits [{len(few)}, K]. Wrap a model with one "
            "output for two classes so that it returns both, such as torch.stack([-z, z], 1) / 2."
        )
    classes = logits.shape[1]
    if classes < 2 and explained.output != "logit":
        raise ValueError(
            f"The model returns [N, 1]: with a single class there is no {explained.output} to explain. Pass "
            "output='logit', or wrap the model so that it returns two classes, torch.stack([-z, z], 1) / 2."
        )
    if not logits.isfinite().all():
        raise ValueError("The model returns NaN or infinite logits; check its weights and the scale of the images.")
    wrong = (targets < 0) | (targets >= classes)
    if wrong.any():
        value = int(targets[wrong][0])
        raise ValueError(f"targets: class {value} in samples {_some(wrong)}; the model has classes 0 to {classes - 1}.")


def _check_maps(maps: Any, images: Tensor, channels: Channels | None, name: str) -> Tensor:
    result: Tensor = torch.as_tensor(maps).detach().cpu()
    if result.ndim == 4 and result.shape[0] == len(images) and result.shape[2:] == images.shape[2:]:
        result = reduce_channels(result, channels or "sum")
    expected = (len(images), *images.shape[2:])
    if tuple(result.shape) != expected:
        raise ValueError(f"{name} returned maps {list(result.shape)}, expected {list(expected)} ([N, H, W]).")
    finite = result.isfinite().flatten(1).all(1)
    if not finite.all():
        hint = (
            ""
            if result.dtype == torch.float64
            else f" They may have left the range of {result.dtype}: try dtype=torch.float64."
        )
        raise ValueError(f"{name} returned NaN or infinite numbers for samples {_some(~finite)}.{hint}")
    return result.contiguous()


def _some(which: Tensor) -> str:
    return listed(which.nonzero().flatten().tolist(), most=5)
