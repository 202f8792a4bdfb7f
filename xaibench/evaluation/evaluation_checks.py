"""What an evaluation refuses, with what was got, what was expected, and what to do."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from xaibench.core.checks import check_count
from xaibench.core.messages import unknown

if TYPE_CHECKING:
    from torch import Tensor

    from xaibench.core.part_info import MetricInfo

#: How many arguments a metric is called with before its parameters, by its kind.
_INPUTS = {"ground-truth": 2, "map": 1, "model": 4, "explainer": 4}


def check_numbers(samples: int | None, batch_size: int) -> None:
    """Whether there is something to evaluate on.

    Raises:
        ValueError: For less than one sample, in all or at a time.
    """
    check_count("samples", samples, none="for all")
    check_count("batch_size", batch_size)


def check_parameters(name: str, function: Callable[..., Any], info: MetricInfo, parameters: object) -> None:
    """Refuse parameters that a metric does not have.

    Raises:
        TypeError: Names the nearest, and all that there are.
    """
    if not isinstance(parameters, Mapping):
        raise TypeError(f"metrics: the parameters of {name!r} are {parameters!r}, expected a table {{name: value}}.")
    signature = inspect.signature(function).parameters.values()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in signature):
        return
    known = [parameter.name for parameter in list(signature)[_INPUTS[info.kind] :] if parameter.name != "reduction"]
    for given in parameters:
        if given not in known:
            raise TypeError(unknown(f"Metric {name!r} has no parameter", given, known))


def check_maps(maps: Tensor, label: str, count: int) -> None:
    """Refuse maps that are not one ``[H, W]`` of finite numbers for each sample.

    Raises:
        ValueError: Says what they are, or which of them are not finite.
    """
    if maps.ndim != 3 or len(maps) < count or not maps.is_floating_point():
        raise ValueError(
            f"{label}: expected floating maps [{count}, H, W], one for each sample; got {list(maps.shape)} "
            f"{str(maps.dtype).removeprefix('torch.')}."
        )
    finite = maps[:count].isfinite().flatten(1).all(1)
    if not finite.all():
        raise ValueError(
            f"{label}: NaN or infinite numbers in {int((~finite).sum())} of {count} maps (the first is of sample "
            f"{int(finite.int().argmin())}). Find out why the explainer fails on these images, or leave them out."
        )


def check_scores(values: NDArray[np.float64], name: str, count: int) -> None:
    """Refuse what is not one score a sample; a metric of your own may return anything.

    Raises:
        ValueError: Names the metric.
    """
    if values.shape != (count,):
        raise ValueError(
            f"Metric {name!r} returned {list(values.shape)} for {count} samples with reduction='none', expected "
            f"[{count}], one score for each."
        )


def name_of(part: object) -> str:
    """What a part that is not listed is called."""
    return str(getattr(part, "__name__", type(part).__name__))


def as_float64(values: Any) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Whatever a metric returns, tensors on a GPU too."""
    return np.asarray(values.cpu() if hasattr(values, "cpu") else values, dtype=np.float64)
