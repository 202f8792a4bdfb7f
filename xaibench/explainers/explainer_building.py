"""An explainer from its name and parameters."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from typing import Any, cast

from xaibench.core.messages import unknown
from xaibench.explainers.explainer_table import EXPLAINERS
from xaibench.explainers.shared.exact_template import ExactMethod, is_exact
from xaibench.explainers.shared.interface import Explainer


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
cell_size, channels, feature_mask, kernel_width, n_samples, n_segments, seed.
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
    if is_exact(part):
        return ExactMethod(functools.partial(part, **parameters) if parameters else part)
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
            raise TypeError(unknown(f"{name_of(part)} has no parameter", name, sorted(known)))


def configured(part: Explainer, **settings: Any) -> Explainer:
    """The explainer with those of its fields set that are given and that it has.

    Args:
        part: From :func:`build`.
        **settings: ``{field: value}``; None leaves the field as it is, and so does one that the explainer lacks.
    """
    if not dataclasses.is_dataclass(part):
        return part
    has = {field.name for field in dataclasses.fields(part)}
    changed = {name: value for name, value in settings.items() if value is not None and name in has}
    return cast(Explainer, dataclasses.replace(cast(Any, part), **changed)) if changed else part


def name_of(part: Any) -> str:
    """What an explainer is called: the name of its class, or of the function."""
    while isinstance(part, functools.partial):
        part = part.func
    return str(getattr(part, "__name__", type(part).__name__))
