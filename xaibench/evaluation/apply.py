"""The one caller of explainers and metrics: ``evaluate``, the command line and the jobs of a run all come through here.

So a map has the same score, to the bit, whoever asks for it and however its metric is named; and an explainer that a
metric asks is the one that made the map: its parameters, its output, its device, fitted to the network it explains.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from xaibench.core.part_info import MetricInfo
from xaibench.evaluation.evaluation_checks import as_float64, check_parameters, check_scores, name_of
from xaibench.evaluation.kept_maps import as_kept
from xaibench.evaluation.placed_networks import has_weights, placed, weights
from xaibench.evaluation.protocol import Protocol, of_noise, prepared

if TYPE_CHECKING:
    import pandas as pd
    import torch
    from torch import Tensor, nn

    from xaibench.core.vocabulary import Output

    #: Images ``[n, C, H, W]``, masks ``[n, H, W]`` and targets ``[n]``.
    Batch: TypeAlias = tuple[Tensor, Tensor, Tensor]

#: Of what :func:`xaibench.explain` takes, what is no parameter of the explainer in a suite, but stated for all of them.
_STATED = ("output", "device", "progress")
#: And what decides how an explainer is fitted, so that it must have it before.
_BEFORE_FITTING = ("batch_size", "channels")


class AppliedExplainer:
    """An explainer with all that decides its maps, to be called as ``(model, images, targets) -> maps [n, H, W]``.

    An explainer that learns from data first (one that has ``fit``) is fitted when it is first asked about a network,
    and again when it is asked about another, or about the same one with other weights: patterns belong to the
    weights they were estimated with, so that what explains a randomised network (``parameter_randomisation``) is the
    explainer fitted to the randomised network. An object whose ``fitted`` is true serves the first network as it is.

    Args:
        explainer: As :func:`xaibench.explain` takes it: a name, ``"package.module:name"``, a class, an object or a
            callable.
        parameters: The explainer's own, and besides what else :func:`xaibench.explain` takes by name, such as ``seed``
            or ``channels``.
        seed: Where the parameters state none.
        output: What of the model is explained; None leaves it to the explainer.
        device: ``"auto"``: the GPU when there is one.
        training: Makes the batches that an explainer is fitted to (:mod:`.training_data`); None = there are none.
        fit: Fits it, called as ``(explainer, network, training) -> fitted explainer``; None = its own ``fit``.
        distribution: Makes what the images came from, for a reference that is given none; None = nobody knows.
        progress: Show how far each explanation has come.

    Attributes:
        name: The listed name; of what is not listed, as it was given, or what it is called.
        info: What is known of it, or None.
        control: Whether it knows no model.

    Raises:
        UnknownNameError: If no explainer has that name (did you mean).
        TypeError: If it cannot be called, or a parameter is not known.
    """

    @staticmethod
    def takes() -> Callable[..., Any]:
        """The function whose keyword arguments every explainer takes beside its own, for who checks parameters."""
        from xaibench.explainers import explain

        return explain

    def __init__(
        self,
        explainer: Any,
        parameters: Mapping[str, Any] | None = None,
        *,
        seed: int | None = None,
        output: Output | None = None,
        device: str | torch.device = "auto",
        training: Callable[[], Iterable[Any]] | None = None,
        fit: Callable[[Any, nn.Module, Callable[[], Iterable[Any]]], Any] | None = None,
        distribution: Callable[[], Any] | None = None,
        progress: bool = False,
    ) -> None:
        from xaibench.explainers import EXPLAINERS, build, explain
        from xaibench.explainers.explainer_building import configured

        part = EXPLAINERS.resolve(explainer) if isinstance(explainer, str) else explainer
        given = dict(parameters or {})
        self._fits = callable(getattr(part, "fit", None))
        taken = {p.name for p in inspect.signature(explain).parameters.values() if p.kind is p.KEYWORD_ONLY}
        later = taken.difference(_STATED, _BEFORE_FITTING if self._fits else ())
        self._settings: dict[str, Any] = {"seed": seed, "progress": progress} | {
            name: given.pop(name) for name in later & given.keys()
        }
        reference = bool(getattr(getattr(part, "info", None), "reference", False))
        if reference and distribution is not None and getattr(part, "distribution", None) is None:
            given.setdefault("distribution", distribution())
        self._part: Any = build(part, **given)
        if not self._fits:  # a fit does not depend on these settings
            set_once = {name: self._settings.get(name) for name in ("seed", "batch_size", "channels")}
            self._part = configured(self._part, **set_once)
        self._output, self._device, self._training = output, device, training
        self._fitting = fit or (lambda part, network, training: part.fit(network, training()))
        own = not isinstance(explainer, str) and not inspect.isclass(explainer)
        self._came_fitted = own and bool(getattr(part, "fitted", True))
        self._weights: dict[str, Tensor] | None = None
        self.name: str = EXPLAINERS.name_of(part) or (explainer if isinstance(explainer, str) else name_of(part))
        self.info = getattr(part, "info", None)
        self.control = bool(getattr(self.info, "control", False))

    def passes_in_budget(self, image: Tensor) -> int | None:
        """The passes for such an image ``[1, C, H, W]``, where stated; a ValueError where its budget does not do."""
        from xaibench.explainers.budgets import passes_of, shares

        return passes_of(shares(self._part, self._settings["budget"], image)[0][1], image)

    def meet(self, model: nn.Module) -> None:
        """Look at the user's own network before it is copied: a layer given as a module is known by name from then on.

        Args:
            model: The network.

        Raises:
            ValueError: If the layer is none of its modules.
        """
        from xaibench.explainers.shared.layer_runs import with_layer_named

        self._part = with_layer_named(self._part, self.name, model)

    def __call__(self, model: nn.Module | None, images: Tensor, targets: Tensor) -> Tensor:
        """Maps ``[n, H, W]`` on the CPU, as :func:`xaibench.explain` makes them; raises what that raises."""
        from xaibench.explainers import explain

        if self._fits and model is not None:
            self._fit(model)
        return explain(self._part, model, images, targets, output=self._output, device=self._device, **self._settings)

    def _fit(self, model: nn.Module) -> None:
        """Fit to a network that it is not fitted to; what came fitted is so to the first that it is asked about."""
        if self._weights is not None and has_weights(model, self._weights):
            return
        if self._training is not None and not (self._came_fitted and self._weights is None):
            self._part = self._fitting(self._part, placed(model, self._device), self._training)
        self._weights = weights(model)


class AppliedMetric:
    """A metric with all that decides its scores, to be called on maps for a table of scores.

    Args:
        metric: A name, ``"package.module:name"`` or a function. How it is written decides nothing: an alias or the
            function itself is the listed metric.
        parameters: Its own, without ``reduction``.
        protocol: How maps are cut (:mod:`xaibench.evaluation.protocol`).
        device: Where the model is asked; ``"auto"``: the GPU when there is one.

    Attributes:
        name: The listed name; of what is not listed, as it was given, or what it is called.
        info: What is known of it. A metric that says nothing of itself is one of maps and masks, the higher the better.
        raw: The metric whose scores this one reads against chance (``info.skill_of``), or None. Its scores follow from
            those and the masks (:meth:`against_chance`), so that a map is scored once for both.

    Raises:
        UnknownNameError: If no metric has that name (did you mean).
        TypeError: If it is neither a name nor a function, or has no such parameter (did you mean).
    """

    def __init__(
        self,
        metric: str | Callable[..., Any],
        parameters: Mapping[str, Any] | None = None,
        *,
        protocol: Protocol,
        device: str | torch.device = "auto",
    ) -> None:
        from xaibench.metrics import METRICS

        if not isinstance(metric, str) and not callable(metric):
            raise TypeError(
                f"metric: got {type(metric).__name__}, expected a name, 'package.module:name' or a function."
            )
        self._function: Callable[..., Any] = METRICS.resolve(metric) if isinstance(metric, str) else metric
        self._listed = METRICS.name_of(self._function)
        self.name: str = self._listed or (metric if isinstance(metric, str) else name_of(metric))
        self.info: MetricInfo = getattr(self._function, "info", None) or MetricInfo(
            self.name, "ground-truth", higher_is_better=True, range=(-np.inf, np.inf)
        )
        parameters = {} if parameters is None else parameters
        check_parameters(self.name, self._function, self.info, parameters)
        self._parameters, self._protocol, self._device = dict(parameters), protocol, device
        self.raw = self._raw()

    def _raw(self) -> AppliedMetric | None:
        from xaibench.metrics import METRICS

        if not self.info.skill_of:
            return None
        shared = self._taken(METRICS.resolve(self.info.skill_of))
        return AppliedMetric(self.info.skill_of, shared, protocol=self._protocol, device=self._device)

    @property
    def asks_model(self) -> bool:
        """Whether it needs a model, by itself or for the explainer it asks."""
        return self.info.kind in ("model", "explainer")

    def __call__(
        self,
        maps: Tensor,
        batch: Batch,
        model: nn.Module | None = None,
        explainer: Callable[[nn.Module, Tensor, Tensor], Tensor] | None = None,
        scored: dict[str, pd.DataFrame] | None = None,
        answers: dict[str, Tensor] | None = None,
    ) -> pd.DataFrame:
        """The scores of maps.

        Args:
            maps: ``[n, H, W]`` on the CPU; scored as they would be kept (:mod:`xaibench.evaluation.kept_maps`).
            batch: The samples they are of.
            model: For a metric that asks it; one that lies elsewhere than on the device is copied there.
            explainer: What made the maps, for a metric that asks it: called as ``(model, images, targets) -> maps``.
            scored: What these maps have been scored by already, by :attr:`identity`; what is found there is not worked
                out again, and what is worked out is added.
            answers: What the model has answered about this batch whatever the map, by :attr:`identity`, for a metric
                that asks that (``info.asked_once``): likewise.

        Returns:
            A row a sample: ``sample`` (0 to n - 1), ``value`` (nan where undefined), ``curve`` (a list, where the
            metric was asked for curves) and ``reason`` (why it is undefined; empty where it is not).

        Raises:
            ValueError: If the metric needs a model or an explainer and there is none, does not return one score a
                sample, or refuses what it is given.
        """
        scored = {} if scored is None else scored
        if self.identity not in scored:
            raw = self.raw(maps, batch, model, explainer, scored) if self.raw else None
            scored[self.identity] = (
                self._score(maps, batch, model, explainer, answers)
                if raw is None
                else self.against_chance(raw, batch[1])
            )
        return scored[self.identity].copy()

    @property
    def identity(self) -> str:
        """Name and parameters: two of one identity score alike."""
        return f"{self.name} {sorted(self._parameters.items())!r}"

    def against_chance(self, raw: pd.DataFrame, masks: Tensor) -> pd.DataFrame:
        """What the scores of :attr:`raw` are worth beside those of noise.

        Args:
            raw: As that metric made them.
            masks: ``[n, H, W]``, of the same samples.

        Returns:
            The table with other values, and a reason where chance is already perfect.
        """
        from xaibench.metrics import skill_scores
        from xaibench.metrics.shared.undefined_scores import PERFECT_CHANCE

        level = of_noise(self.info, self._parameters, self._protocol)
        values = skill_scores(self.info.skill_of, raw["value"].to_numpy(), masks.numpy(), level)
        reasons = raw["reason"].where((raw["reason"] != "") | ~np.isnan(values), PERFECT_CHANCE)
        return raw.assign(value=values, reason=reasons)

    def _score(
        self, maps: Tensor, batch: Batch, model: nn.Module | None, explainer: Any, answers: dict[str, Tensor] | None
    ) -> pd.DataFrame:
        import pandas as pd

        maps = as_kept(maps)
        seen, parameters, function = maps.numpy(), dict(self._parameters), self._function
        if (once := self.info.asked_once) is not None:
            function, parameters = once.score, self._taken(once.score)
            inputs: tuple[Any, ...] = (self._answers(once.ask, batch, model, {} if answers is None else answers), maps)
        elif self.info.kind in ("ground-truth", "map"):
            seen, parameters = prepared(self.info, seen, parameters, self._protocol)
            inputs = (seen, batch[1].numpy()) if self.info.kind == "ground-truth" else (seen,)
        else:
            inputs = self._asking(maps, batch, model, explainer)
        found = function(*inputs, **parameters, reduction="none")
        found, curves = found if parameters.get("return_curves") else (found, None)
        values = as_float64(found)
        check_scores(values, self.name, len(maps))
        table = pd.DataFrame({"sample": range(len(maps)), "value": values})
        if curves is not None:
            table["curve"] = as_float64(curves.values).tolist()
        table["reason"] = self._reasons(values, seen, batch[1].numpy(), parameters)
        return table

    def _answers(
        self, ask: Callable[..., Any], batch: Batch, model: nn.Module | None, known: dict[str, Tensor]
    ) -> Tensor:
        """What the model says about the batch, whatever the map."""
        if self.identity not in known:
            known[self.identity] = ask(*self._placed(batch, model), **self._taken(ask))
        return known[self.identity]

    def _taken(self, function: Callable[..., Any]) -> dict[str, Any]:
        """Those of the parameters that a function takes."""
        taken = inspect.signature(function).parameters
        return {name: value for name, value in self._parameters.items() if name in taken}

    def _placed(self, batch: Batch, model: nn.Module | None) -> tuple[nn.Module, Tensor, Tensor]:
        """Network, images and targets, all of them on the device."""
        from xaibench.core.compute.device import resolve_device

        if model is None:
            raise ValueError(f"Metric {self.name!r} asks the model, and there is none; give one, or leave it out.")
        place = resolve_device(self._device)
        return placed(model, place), batch[0].to(place), batch[2].to(place)

    def _asking(self, maps: Tensor, batch: Batch, model: nn.Module | None, explainer: Any) -> tuple[Any, ...]:
        """What a metric that asks the model is called with."""
        network, images, targets = self._placed(batch, model)
        if self.info.kind == "model":
            return network, images, maps.to(images.device), targets
        if explainer is None:
            raise ValueError(
                f"Metric {self.name!r} asks the explainer, and there is none; give what made the maps, or leave the "
                "metric out."
            )
        return explainer, network, images, targets

    def _reasons(self, values: Any, seen: Any, masks: Any, parameters: Mapping[str, Any]) -> list[str]:
        """Why a score is undefined, of the map that the metric saw and at the threshold that cut it."""
        from xaibench.metrics import undefined_reasons

        undefined = np.isnan(values)
        if not undefined.any():
            return [""] * len(values)
        own = inspect.signature(self._function).parameters.get("threshold")
        threshold = parameters.get("threshold", own.default if own else 0.0)
        reasons = undefined_reasons(seen, masks, self._listed, threshold=threshold)
        return [(why or "undefined") if nan else "" for nan, why in zip(undefined, reasons, strict=True)]


def shares_of(maps: Tensor, masks: Tensor, reliance: Tensor) -> Mapping[str, Any]:
    """Whose doing the mass of maps is (:func:`xaibench.shares`), each share ``[n]``; of maps as they would be kept."""
    from xaibench.metrics import shares

    return shares(as_kept(maps).numpy(), masks.numpy(), as_kept(reliance).numpy(), reduction="none")._asdict()


def is_inapplicable(error: Exception) -> bool:
    """Whether an explainer, ours or one's own, said that it cannot treat the network: no failure, but an answer.

    Args:
        error: What it raised.

    Returns:
        True for :class:`xaibench.explainers.UnsupportedModelError`.
    """
    from xaibench.explainers import UnsupportedModelError

    return isinstance(error, UnsupportedModelError)
