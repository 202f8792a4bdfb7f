"""The only caller of explainers and metrics, used by ``evaluate``, the command line and the jobs of a run.

This makes the scores of a map bit-identical in all of them, regardless of how the metric is named. A metric that calls
the explainer gets the explainer that made the map: same parameters, output and device, fitted to the same network.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from xaibench.core.checks import check_names
from xaibench.core.types import SCORED_AS_CHANCE
from xaibench.evaluation.protocol import (
    Protocol,
    Sign,
    apply_sign,
    resolve_protocol,
    resolve_sign,
    scaled,
    scores_constant_maps,
)
from xaibench.registry.info import MetricInfo, describe_own_metric
from xaibench.registry.parameters import has_any_parameter, named_parameters

if TYPE_CHECKING:
    import pandas as pd
    import torch
    from torch import Tensor, nn

    from xaibench.data import Split
    from xaibench.network.answers import OutputOrFunction

    #: Images ``[n, C, H, W]``, masks ``[n, H, W]`` and targets ``[n]``.
    Batch: TypeAlias = tuple[Tensor, Tensor, Tensor]


def to_device(model: nn.Module, device: str | torch.device) -> nn.Module:
    """Return the model itself if it is on the device, otherwise a copy on the device. The model is never moved.

    Inside :func:`xaibench.tensors.device.precision_context`, the result has the dtype of that precision.

    Args:
        model: A network.
        device: A device; ``"auto"`` is the GPU if there is one.

    Returns:
        The network on the device.
    """
    import torch

    from xaibench.network.lending import place_network
    from xaibench.tensors.device import current_precision, resolve_device, stored_dtype

    target = torch.empty(0, device=resolve_device(device)).device  # with the GPU's index, unlike "cuda"
    precision = current_precision()
    dtype = stored_dtype(precision) if precision else None
    return place_network(model, target, dtype)


def copy_weights(model: nn.Module) -> dict[str, Tensor]:
    """Return a copy of a network's parameters and buffers."""
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}


def has_weights(model: nn.Module, kept: Mapping[str, Tensor]) -> bool:
    """Return whether a network's parameters and buffers are equal to a copy made by :func:`copy_weights`."""
    import torch

    own = model.state_dict()
    if own.keys() != kept.keys() or any(own[name].shape != tensor.shape for name, tensor in kept.items()):
        return False
    # One synchronization with the GPU for all tensors, instead of one per tensor.
    same = [(own[name].to(tensor.device) == tensor).all() for name, tensor in kept.items()]
    return not same or bool(torch.stack([one.to(same[0].device) for one in same]).all())


def encode_maps(maps: Tensor) -> dict[str, Tensor]:
    """Encode maps for storage.

    Args:
        maps: ``[n, H, W]`` on the CPU.

    Returns:
        For float64 maps, ``maps`` in float32 and ``powers`` ``[n]`` int16; for others, ``maps`` unchanged. Pixels below
        1e-38 of the map's largest magnitude lose digits; below 1e-45 they become zero.

    Example:
        >>> import torch
        >>> encoded = encode_maps(torch.tensor([[[3e-60, -6e-60]]], dtype=torch.float64))
        >>> encoded["maps"].dtype, decode_maps(encoded)
        (torch.float32, tensor([[[ 3.0000e-60, -6.0000e-60]]], dtype=torch.float64))
    """
    import torch

    if maps.dtype != torch.float64:
        return {"maps": maps}
    values = maps.detach().numpy()
    axes = tuple(range(1, values.ndim))
    peaks = np.abs(values).max(axis=axes, initial=0.0)
    powers = np.where(np.isfinite(peaks), np.frexp(peaks)[1], 0)
    scaled = np.ldexp(values, -np.expand_dims(powers, axes)).astype(np.float32)
    return {"maps": torch.from_numpy(scaled), "powers": torch.from_numpy(powers.astype(np.int16))}


def decode_maps(encoded: dict[str, Tensor]) -> Tensor:
    """Decode maps ``[n, H, W]`` encoded by :func:`encode_maps`, with their original dtype."""
    import torch

    maps = encoded["maps"]
    if "powers" not in encoded:
        return maps
    powers = np.expand_dims(encoded["powers"].numpy().astype(np.int32), tuple(range(1, maps.ndim)))
    return torch.from_numpy(np.ldexp(maps.numpy().astype(np.float64), powers))


def round_maps(maps: Tensor) -> Tensor:
    """Round maps ``[n, H, W]`` as storing and loading them would.

    Example:
        >>> import torch
        >>> float(round_maps(torch.full((1, 1, 1), 0.1, dtype=torch.float64)))
        0.10000000149011612
    """
    return decode_maps(encode_maps(maps))


#: Number of arguments of a metric before its parameters, by kind of metric.
_INPUT_COUNTS = {"ground-truth": 2, "map": 1, "model": 4, "explainer": 4}


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


#: Arguments of :func:`xaibench.explain` that a suite sets for all explainers.
_GLOBAL_ARGS = ("output", "device", "progress")
#: Arguments of :func:`xaibench.explain` that also affect fitting, so they are passed when the explainer is built.
_FIT_ARGS = ("batch_size", "channels")


#: Number of images per batch. It affects only the memory and the rounding of the maps.
_TRAINING_BATCH = 512


def training_batches(split: Split) -> Iterator[Batch]:
    """Yield the training samples for explainers that are fitted, in the order of the split.

    Args:
        split: The training split; samples of a set on disk are read batch by batch.

    Yields:
        Images, masks and targets.
    """
    for start in range(0, len(split), _TRAINING_BATCH):
        yield split[start : start + _TRAINING_BATCH]


class AppliedExplainer:
    """An explainer with its full configuration, called as ``(model, images, targets) -> maps [n, H, W]``.

    An explainer with a ``fit`` method is fitted at the first call with a network, and again at a call with another
    network or with changed weights. Patterns belong to the weights that they were estimated with, so a randomized
    network (``parameter_randomization``) is explained by an explainer that was fitted to the randomized network. An
    object whose ``fitted`` is true is used as it is for the first network. A control does not use the network, so it is
    fitted once, with or without one.

    Args:
        explainer: An explainer as :func:`xaibench.explain` accepts it: a name, ``"package.module:name"``, a class, an
            object or a callable.
        parameters: Parameters of the explainer, and keyword arguments of :func:`xaibench.explain`, such as ``seed`` or
            ``channels``.
        seed: The seed, unless ``parameters`` contain one.
        output: The explained output of the model, as for :func:`xaibench.explain`; None uses the explainer's default,
            and so does an explainer that propagates from the logit for ``"probability"`` and ``"margin"``.
        device: The device; ``"auto"`` is the GPU if there is one.
        training: Function that returns the batches for fitting (:mod:`.training_data`); None if there are none.
        distribution: Function that returns the distribution of the images, for reference explainers; None if unknown.
        progress: Show a progress bar for each explanation.

    Attributes:
        name: The registered name; for unregistered explainers, the name as given or the name of the class or function.
        info: The info record, or None.
        control: Whether the explainer is a control, which does not use the model.

    Raises:
        UnknownNameError: If no explainer has that name (did you mean).
        TypeError: If it is not callable, or a parameter is unknown.
    """

    @staticmethod
    def takes() -> Callable[..., Any]:
        """Return ``explain``, whose keyword arguments every explainer accepts. Used to validate parameters."""
        from xaibench.explainers import explain

        return explain

    def __init__(
        self,
        explainer: Any,
        parameters: Mapping[str, Any] | None = None,
        *,
        seed: int | None = None,
        output: OutputOrFunction | None = None,
        device: str | torch.device = "auto",
        training: Callable[[], Iterable[Any]] | None = None,
        distribution: Callable[[], Any] | None = None,
        progress: bool = False,
    ) -> None:
        from xaibench.explainers import EXPLAINERS, build, explain
        from xaibench.explainers.api import configured, part_output

        part = EXPLAINERS.resolve(explainer) if isinstance(explainer, str) else explainer
        given = dict(parameters or {})
        self._needs_fit = callable(getattr(part, "fit", None))
        keywords = {p.name for p in inspect.signature(explain).parameters.values() if p.kind is p.KEYWORD_ONLY}
        call_args = keywords.difference(_GLOBAL_ARGS, _FIT_ARGS if self._needs_fit else ())
        self._call_args: dict[str, Any] = {"seed": seed, "progress": progress} | {
            name: given.pop(name) for name in call_args & given.keys()
        }
        reference = bool(getattr(getattr(part, "info", None), "reference", False))
        if reference and distribution is not None and getattr(part, "distribution", None) is None:
            given.setdefault("distribution", distribution())
        self._part: Any = build(part, **given)
        if not self._needs_fit:  # a fit does not depend on these settings
            set_once = {name: self._call_args.get(name) for name in ("seed", "batch_size", "channels")}
            self._part = configured(self._part, **set_once)
        self._output, self._device, self._training = part_output(self._part, output), device, training
        is_object = not isinstance(explainer, str) and not inspect.isclass(explainer)
        self._was_fitted = is_object and bool(getattr(part, "fitted", False))
        self._weights: dict[str, Tensor] | None = None
        self.name: str = EXPLAINERS.name_of(part) or (explainer if isinstance(explainer, str) else name_of(part))
        self.info = getattr(part, "info", None)
        self.control = bool(getattr(self.info, "control", False))

    def passes_in_budget(self, image: Tensor) -> int | None:
        """Return the passes for an image ``[1, C, H, W]``, None if unknown; ValueError if the budget is too small."""
        from xaibench.explainers.shared.passes import assign_budget, passes_of

        return passes_of(assign_budget(self._part, self._call_args["budget"], image)[0][1], image)

    def declared_passes(self, image: Tensor) -> int | None:
        """Return the passes for an image ``[1, C, H, W]`` without a budget; None if unknown."""
        from xaibench.explainers.shared.passes import passes_of

        return passes_of(self._part, image)

    def resolve_layer(self, model: nn.Module) -> None:
        """Replace a layer given as a module by its name, so that it is found in copies of the model.

        Args:
            model: The network.

        Raises:
            ValueError: If the layer is not a module of the network.
        """
        from torch import nn

        from xaibench.explainers.shared.layers import layer_name

        layer = getattr(self._part, "layer", None)
        if dataclasses.is_dataclass(self._part) and isinstance(layer, nn.Module):
            self._part = dataclasses.replace(cast(Any, self._part), layer=layer_name(self.name, model, layer))

    def __call__(self, model: nn.Module | None, images: Tensor, targets: Tensor) -> Tensor:
        """Return maps ``[n, H, W]`` on the CPU, as :func:`xaibench.explain`, and raise the same errors."""
        from xaibench.explainers import explain

        if self._needs_fit and (model is not None or self.control):
            self._fit(model)
        return explain(self._part, model, images, targets, output=self._output, device=self._device, **self._call_args)

    def _fit(self, model: nn.Module | None) -> None:
        """Fit the explainer to ``model``, unless it is fitted to it already. The fit of a control suits every model."""
        network = None if self.control else model
        if self._weights is not None and (network is None or has_weights(network, self._weights)):
            return
        if self._training is None and self._weights is None and not self._was_fitted:
            from xaibench.explainers import NotFittedError

            kind = name_of(self._part)
            raise NotFittedError(
                f"{kind} is not fitted. Fit it to the network first, fitted = {kind}().fit(model, loader), and use the "
                "result, whose attribute `fitted` must be true; or give a data set with training samples, not a split."
            )
        if self._training is not None and not (self._was_fitted and self._weights is None):
            placed = None if network is None else to_device(network, self._device)
            self._part = self._part.fit(placed, self._training())
        self._weights = {} if network is None else copy_weights(network)


class AppliedMetric:
    """A metric with its full configuration, called on maps to get a table of scores.

    Args:
        metric: A name, ``"package.module:name"`` or a function. A name, its aliases and the function itself are the
            same metric.
        parameters: Parameters of the metric, without ``reduction``.
        protocol: How maps are binarized (:mod:`xaibench.evaluation.protocol`).
        sign: Whether metrics with a ground truth get the magnitude of maps or signed maps; None passes maps unchanged.
        output: The output that is scored by metrics that call the model, unless ``parameters`` contain one; None uses
            the metric's default.
        device: The device on which the model is evaluated; ``"auto"`` is the GPU if there is one.

    Attributes:
        name: The registered name; for unregistered metrics, the name as given or the name of the function.
        info: The info record. A metric without one is assumed to compare maps with masks, higher being better, and gets
            maps as they are, regardless of ``sign``.
        given: The parameters as they were given.
        raw: For a chance-corrected metric, the underlying metric (``info.skill_of``); otherwise None. Its scores are
            computed once and converted (:meth:`against_chance`).

    Raises:
        UnknownNameError: If no metric has that name (did you mean).
        TypeError: If it is neither a name nor a function, or a parameter is unknown (did you mean).
    """

    def __init__(
        self,
        metric: str | Callable[..., Any],
        parameters: Mapping[str, Any] | None = None,
        *,
        protocol: Protocol,
        sign: Sign | None = None,
        output: OutputOrFunction | None = None,
        device: str | torch.device = "auto",
    ) -> None:
        from xaibench.metrics import METRICS

        if not isinstance(metric, str) and not callable(metric):
            raise TypeError(
                f"metric: got {type(metric).__name__}, expected a name, 'package.module:name' or a function."
            )
        self._function: Callable[..., Any] = METRICS.resolve(metric) if isinstance(metric, str) else metric
        self._registered_name = METRICS.name_of(self._function)
        self.name: str = self._registered_name or (metric if isinstance(metric, str) else name_of(metric))
        self.info: MetricInfo = getattr(self._function, "info", None) or describe_own_metric(self.name)
        self.given = parameters = {} if parameters is None else parameters
        if output is not None and self.needs_model and "output" in named_parameters(self._function):
            parameters = {"output": output} | dict(parameters)
        check_parameters(self.name, self._function, self.info, parameters)
        self._protocol, self._parameters = resolve_protocol(self.info, parameters, protocol)
        self._sign, self._map_part = sign, resolve_sign(self.info, self._protocol, sign)
        self._device = device
        self.raw = self._build_raw()

    def _build_raw(self) -> AppliedMetric | None:
        from xaibench.metrics import METRICS

        if not self.info.skill_of:
            return None
        shared = _accepted(METRICS.resolve(self.info.skill_of), self._parameters) | dict(self.info.skill_parameters)
        return AppliedMetric(self.info.skill_of, shared, protocol=self._protocol, sign=self._sign, device=self._device)

    @property
    def needs_model(self) -> bool:
        """Whether the metric needs a model, for itself or for the explainer that it calls."""
        return self.info.kind in ("model", "explainer")

    def __call__(
        self,
        maps: Tensor,
        batch: Batch,
        model: nn.Module | None = None,
        explainer: Callable[[nn.Module, Tensor, Tensor], Tensor] | None = None,
        scored: dict[str, pd.DataFrame] | None = None,
        answers: dict[str, Tensor] | None = None,
        sample_inputs: Mapping[str, Any] | None = None,
    ) -> pd.DataFrame:
        """Score maps.

        Args:
            maps: ``[n, H, W]`` on the CPU; they are rounded as if they had been stored
                (:mod:`xaibench.evaluation.apply`).
            batch: The samples of the maps.
            model: The model, for metrics that need it; it is copied to the device if it is elsewhere.
            explainer: The explainer that made the maps, for metrics that need it; called as
                ``(model, images, targets) -> maps``.
            scored: Cache of the scores of these maps by :attr:`identity`. Cached scores are reused, new ones are added.
            answers: Cache of model outputs on this batch that do not depend on the map (``info.shared_scores``), by
                :attr:`identity`; used in the same way.
            sample_inputs: What the data set gives for these samples
                (:meth:`xaibench.data.Split.metric_inputs`), for metrics that take it and whose ``parameters`` do not
                set it.

        Returns:
            One row per sample: ``sample`` (0 to n - 1), ``value`` (nan where undefined), ``curve`` (a list, if the
            metric returns curves) and ``reason`` (why the value is undefined, otherwise empty). A map that cannot be
            scored, because it is constant or no pixel is above the threshold, gets the chance level of its sample if
            the chance level of the metric is known; ``reason`` then ends in ``": scored as chance"``.

        Raises:
            ValueError: If the metric needs a model or an explainer and there is none, does not return one score per
                sample, or rejects its inputs.
        """
        scored = {} if scored is None else scored
        if self.identity not in scored:
            raw = self.raw(maps, batch, model, explainer, scored, None, sample_inputs) if self.raw else None
            scored[self.identity] = (
                self._score(maps, batch, model, explainer, answers, self._own_inputs(sample_inputs))
                if raw is None
                else self.against_chance(raw, batch[1], sample_inputs)
            )
        return scored[self.identity].copy()

    @property
    def identity(self) -> str:
        """Name and parameters; metrics with the same identity give the same scores."""
        return f"{self.name} {sorted(self._parameters.items())!r}"

    def against_chance(
        self, raw: pd.DataFrame, masks: Tensor, sample_inputs: Mapping[str, Any] | None = None
    ) -> pd.DataFrame:
        """Convert the scores of :attr:`raw` to chance-corrected scores.

        Args:
            raw: Score table of the metric :attr:`raw`.
            masks: Masks of the same samples, ``[n, H, W]``.
            sample_inputs: As in a call.

        Returns:
            The table with chance-corrected values: 0 where the map was scored as chance; undefined, with a reason,
            where the chance level is perfect.
        """
        from xaibench.metrics import skill_scores
        from xaibench.metrics.shared.inputs import PERFECT_CHANCE

        assert self.raw is not None, "only the table of the underlying metric is converted"
        parameters = self.raw._chance_parameters(self.raw._own_inputs(sample_inputs))
        values = skill_scores(self.info.skill_of, raw["value"].to_numpy(), masks.numpy(), parameters)
        values[raw["reason"].str.endswith(SCORED_AS_CHANCE).to_numpy(bool) & ~np.isnan(values)] = 0.0
        is_perfect = np.isnan(values) & raw["value"].notna()
        return raw.assign(value=values, reason=raw["reason"].mask(is_perfect, PERFECT_CHANCE))

    def _chance_parameters(self, sample_inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Parameters of the chance level, so that noise is binarized and measured in the same way as the maps."""
        return dict(sample_inputs) | self._parameters | ({"scaled": True} if self._protocol == "scaled" else {})

    def _score(
        self,
        maps: Tensor,
        batch: Batch,
        model: nn.Module | None,
        explainer: Any,
        answers: dict[str, Tensor] | None,
        sample_inputs: Mapping[str, Any],
    ) -> pd.DataFrame:
        import pandas as pd

        maps = round_maps(maps)
        given, parameters, function = maps.numpy(), dict(sample_inputs) | self._parameters, self._function
        if (once := self.info.shared_scores) is not None:
            cache = {} if answers is None else answers
            if self.identity not in cache:
                asked = _accepted(once.ask, parameters)
                cache[self.identity] = once.ask(*self._move_to_device(batch, model), **asked)
            inputs: tuple[Any, ...] = (cache[self.identity], maps)
            function, parameters = once.score, _accepted(once.score, parameters)
        elif self.info.kind in ("ground-truth", "map"):
            given = apply_sign(given, self._map_part)
            given = scaled(given) if self._protocol == "scaled" else given
            inputs = (given, batch[1].numpy()) if self.info.kind == "ground-truth" else (given,)
        else:
            inputs = self._model_inputs(maps, batch, model, explainer)
        result = function(*inputs, **parameters, reduction="none")
        result, curves = result if parameters.get("return_curves") else (result, None)
        values = as_float64(result)
        check_scores(values, self.name, len(maps))
        table = pd.DataFrame({"sample": range(len(maps)), "value": values})
        if curves is not None:
            table["curve"] = as_float64(curves.values).tolist()
        table["reason"] = self._reasons(values, given, batch[1].numpy(), parameters)
        return self._score_maps_as_chance(table, batch[1].numpy(), sample_inputs)

    def _score_maps_as_chance(self, table: pd.DataFrame, masks: Any, sample_inputs: Mapping[str, Any]) -> pd.DataFrame:
        """Replace scores that are undefined because of the map by the chance level, if it is known."""
        from xaibench.metrics.localization.chance import call_chance_level
        from xaibench.metrics.shared.inputs import REASONS_OF_MAP

        rows = np.flatnonzero(table["reason"].isin(REASONS_OF_MAP))
        if not len(rows) or not scores_constant_maps(self.info) or self.info.chance_level is None:
            return table
        own = {name: value[rows] for name, value in sample_inputs.items()}
        levels = call_chance_level(self.info.chance_level, masks[rows], self._chance_parameters(own))
        rows, levels = rows[~np.isnan(levels)], levels[~np.isnan(levels)]
        table.loc[rows, "value"] = levels
        table.loc[rows, "reason"] += SCORED_AS_CHANCE
        return table

    def _own_inputs(self, sample_inputs: Mapping[str, Any] | None) -> dict[str, Any]:
        """Return the parameters of the metric that the data set provides."""
        return {name: value for name, value in (sample_inputs or {}).items() if name in self.info.sample_inputs}

    def _move_to_device(self, batch: Batch, model: nn.Module | None) -> tuple[nn.Module, Tensor, Tensor]:
        """Return the network, images and targets on the device."""
        from xaibench.tensors.device import resolve_device

        if model is None:
            raise ValueError(f"Metric {self.name!r} needs a model, but none was given; give one, or omit the metric.")
        target = resolve_device(self._device)
        return to_device(model, target), batch[0].to(target), batch[2].to(target)

    def _model_inputs(self, maps: Tensor, batch: Batch, model: nn.Module | None, explainer: Any) -> tuple[Any, ...]:
        """Return the positional arguments of a metric that needs the model or the explainer."""
        network, images, targets = self._move_to_device(batch, model)
        if self.info.kind == "model":
            return network, images, maps.to(images.device), targets
        if explainer is None:
            raise ValueError(
                f"Metric {self.name!r} needs the explainer, but none was given; give the explainer that made the maps, "
                "or omit the metric."
            )
        return explainer, network, images, targets

    def _reasons(self, values: Any, given: Any, masks: Any, parameters: Mapping[str, Any]) -> list[str]:
        """Return why each undefined score is undefined, given the maps and the threshold that the metric received."""
        from xaibench.metrics import undefined_reasons

        undefined = np.isnan(values)
        if not undefined.any():
            return [""] * len(values)
        default = inspect.signature(self._function).parameters.get("threshold")
        threshold = parameters.get("threshold", default.default if default else 0.0)
        reasons = undefined_reasons(given, masks, self._registered_name, threshold=threshold)
        return [(why or "undefined") if nan else "" for nan, why in zip(undefined, reasons, strict=True)]


def _accepted(function: Callable[..., Any], parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters that ``function`` accepts."""
    accepted = inspect.signature(function).parameters
    return {name: value for name, value in parameters.items() if name in accepted}


def shares_of(maps: Tensor, masks: Tensor, reliance: Tensor) -> Mapping[str, Any]:
    """Compute the mass shares of maps (:func:`xaibench.shares`), ``[n]`` each, after rounding the maps for storage."""
    from xaibench.metrics import shares

    return shares(round_maps(maps).numpy(), masks.numpy(), round_maps(reliance).numpy(), reduction="none")._asdict()


def is_inapplicable(error: Exception) -> bool:
    """Return whether an explainer raised ``error`` because it does not support the network, which is not a failure.

    Args:
        error: The error that the explainer raised.

    Returns:
        True for :class:`xaibench.explainers.UnsupportedModelError`.
    """
    from xaibench.explainers import UnsupportedModelError

    return isinstance(error, UnsupportedModelError)
