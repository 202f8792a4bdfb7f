"""Checks of the inputs and results of an evaluation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from xaibench.component.parameters import has_any_parameter, named_parameters
from xaibench.core.checks import check_count, check_names

if TYPE_CHECKING:
    from torch import Tensor

    from xaibench.component.info import MetricInfo

#: Number of arguments of a metric before its parameters, by kind of metric.
_INPUT_COUNTS = {"ground-truth": 2, "map": 1, "model": 4, "explainer": 4}


def check_numbers(samples: int | None, batch_size: int) -> None:
    """Check the number of samples and the batch size.

    Raises:
        ValueError: If one of them is less than 1.
    """
    check_count("samples", samples, none="for all")
    check_count("batch_size", batch_size)


def check_parameters(name: str, function: Callable[..., Any], info: MetricInfo, parameters: object) -> None:
    """Check the names of the parameters of a metric.

    Raises:
        UnknownParameterError: If the metric has no such parameter; names the nearest, and lists all.
        TypeError: If the parameters are not a table.
    """
    if not isinstance(parameters, Mapping):
        raise TypeError(f"metrics: the parameters of {name!r} are {parameters!r}, expected a table {{name: value}}.")
    if not has_any_parameter(function):
        known = named_parameters(function, skip=_INPUT_COUNTS[info.kind], without=("reduction",))
        check_names(f"Metric {name!r}", parameters, known)


def check_maps(maps: Tensor, label: str, count: int) -> None:
    """Check that there is one map, ``[H, W]`` or ``[D, H, W]``, of finite numbers per sample.

    Raises:
        ValueError: Gives the shape, or the maps that are not finite.
    """
    if maps.ndim not in (3, 4) or len(maps) < count or not maps.is_floating_point():
        raise ValueError(
            f"{label}: expected floating maps [{count}, H, W], one per sample; got {list(maps.shape)} "
            f"{str(maps.dtype).removeprefix('torch.')}. Maps of volumes are [{count}, D, H, W]."
        )
    finite = maps[:count].isfinite().flatten(1).all(1)
    if not finite.all():
        raise ValueError(
            f"{label}: NaN or infinite numbers in {int((~finite).sum())} of {count} maps (the first is of sample "
            f"{int(finite.int().argmin())}). Find out why the explainer fails on these images, or leave them out."
        )


def check_scores(values: NDArray[np.float64], name: str, count: int) -> None:
    """Check that a metric, which may be the user's own, has returned one score per sample.

    Raises:
        ValueError: If the shape differs.
    """
    if values.shape != (count,):
        raise ValueError(
            f"Metric {name!r} returned {list(values.shape)} for {count} samples with reduction='none', expected "
            f"[{count}], one score per sample."
        )


def name_of(part: object) -> str:
    """Return the name of a part that is not registered: that of its class or function."""
    return str(getattr(part, "__name__", type(part).__name__))


def as_float64(values: Any) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Convert the result of a metric, which may be a tensor on a GPU, to a float64 array."""
    return np.asarray(values.cpu() if hasattr(values, "cpu") else values, dtype=np.float64)
