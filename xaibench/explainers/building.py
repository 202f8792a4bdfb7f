"""Build an explainer from its name and parameters."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from typing import Any, cast

from xaibench.component.parameters import has_any_parameter, named_parameters
from xaibench.compute.output import OutputOrFunction
from xaibench.core.checks import check_names
from xaibench.explainers.base import Explainer
from xaibench.explainers.exact_template import ExactMethod, is_exact
from xaibench.explainers.table import EXPLAINERS


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
    names = {field.name for field in dataclasses.fields(part)} & settings.keys()
    changed = {name: settings[name] for name in names if settings[name] not in (None, getattr(part, name))}
    return cast(Explainer, dataclasses.replace(cast(Any, part), **changed)) if changed else part


def explainer_name(part: Any) -> str:
    """Return the name of an explainer: that of its class or function."""
    while isinstance(part, functools.partial):
        part = part.func
    return str(getattr(part, "__name__", type(part).__name__))


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
