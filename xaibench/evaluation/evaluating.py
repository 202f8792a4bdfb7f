"""``evaluate``: methods, a data set, perhaps a model, and metrics in; a table out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from xaibench.core.part_info import MetricInfo
from xaibench.evaluation.evaluation_checks import (
    check_maps,
    check_model,
    check_numbers,
    check_outputs,
    check_parameters,
    check_scores,
)
from xaibench.evaluation.evaluation_table import Evaluation
from xaibench.evaluation.protocol import PROTOCOLS, Protocol, prepared

if TYPE_CHECKING:
    from torch import Tensor, nn

    from xaibench.data import Dataset, Split

#: A name of an explainer, an explainer, any callable ``(model, images, targets) -> maps``, or maps ``[N, H, W]``.
Method: TypeAlias = Any

#: What a table has when nothing is asked for: with a ground truth, and beyond that with a model.
GROUND_TRUTH = ("iou", "precision", "recall", "f1", "hit", "average_precision")
MODEL = ("insertion", "deletion", "average_drop", "comprehensiveness", "sufficiency")
#: The maps that know no model, beside which every method is shown.
CONTROLS = ("uniform", "sobel", "laplace", "input", "centre")


def evaluate(
    methods: Method | Mapping[str, Method],
    dataset: str | Dataset | Split,
    model: nn.Module | None = None,
    metrics: Sequence[str] | Mapping[str, Mapping[str, Any]] | None = None,
    *,
    controls: bool | Sequence[str] = True,
    samples: int | None = None,
    protocol: Protocol = "scaled",
    batch_size: int = 32,
    seed: int = 0,
    device: str = "auto",
    progress: Callable[[int, int], None] | None = None,
) -> Evaluation:
    """Score methods on the test split of a data set, beside controls that know no model.

    Args:
        methods: One, several ``{label: method}``, or a list of names. A method is the name of an explainer, an
            explainer of ours or Captum's, any callable ``(model, images, targets) -> maps [n, H, W]``, or maps
            ``[N, H, W]`` (numpy or torch) that were computed elsewhere, one for each sample in the order of the split.
        dataset: A name (:func:`xaibench.load`), a data set (its test split is taken) or a split.
        model: Returns logits ``[N, K]``, one for each class of the set. Needed by explainers other than the controls,
            and by metrics that ask the model.
        metrics: Names, or ``{name: parameters}``. None = IoU, precision, recall, F1, pointing game and average
            precision; with a model also insertion, deletion, average drop, comprehensiveness and sufficiency.
        controls: Add the rows of uniform noise, Sobel, Laplace, the input and the centre prior; or the names of some.
        samples: Only the first so many; None = all.
        protocol: How maps are cut by IoU, precision, recall and F1: ``"scaled"`` halfway between their smallest and
            largest magnitude, ``"published"`` by the functions' own defaults (:mod:`xaibench.evaluation.protocol`).
        batch_size: Samples read, explained and scored at a time; changes no score.
        seed: Of explainers that draw random numbers.
        device: ``"auto"``: the GPU when there is one.
        progress: Called with the samples done and their number.

    Returns:
        The scores, with ``.table()``, ``.summary()``, ``.compare(metric)`` and ``.ranks(metric)``.

    Raises:
        ValueError: If there is no sample, maps do not fit the samples, the model's outputs do not fit the classes, a
            metric or method needs a model and there is none, or a method's maps have another shape or are not finite.
        UnknownNameError: If there is no such data set, explainer or metric (did you mean).

    Example:
        >>> import xaibench as xb
        >>> data = xb.load("xai-tris/lin-white-8x8", n_samples=200)
        >>> result = evaluate({"truth": data.test.masks.float()}, data, metrics=["iou", "hit"], controls=["uniform"])
        >>> result.summary()[["metric", "method", "mean", "beats_controls"]].head(1).to_numpy().tolist()
        [['iou', 'truth', 1.0, True]]
    """
    check_numbers(samples, batch_size)
    split, classes = _split(dataset)
    count = len(split) if samples is None else min(samples, len(split))
    if count == 0:
        raise ValueError("dataset: the split holds no sample, expected at least one.")
    if protocol not in PROTOCOLS:
        raise ValueError(f"protocol={protocol!r}: expected one of {', '.join(map(repr, PROTOCOLS))}.")
    scorers = _scorers(metrics, model, protocol)
    makers = _makers(methods, controls, model, count, seed, device)
    if model is not None:
        check_model(model)
    rows = []
    for start in range(0, count, batch_size):
        batch = split[start : min(start + batch_size, count)]
        if start == 0 and model is not None:
            check_outputs(model, batch[0], classes)
        rows += [(start, *row) for row in _score_batch(makers, scorers, model, batch, start, device)]
        if progress is not None:
            progress(min(start + batch_size, count), count)
    infos = {scorer.name: scorer.info for scorer in scorers}
    groups = None if split.groups is None else split.groups[:count]
    return Evaluation(_table(rows, list(split.ids[:count])), infos, _controls(makers), groups)


@dataclass(frozen=True)
class _Scorer:
    name: str
    function: Callable[..., Any]
    info: MetricInfo
    parameters: Mapping[str, Any]
    protocol: Protocol

    def __call__(self, method: _Maker, maps: Tensor, model: nn.Module | None, batch: Any) -> np.ndarray[Any, Any]:
        import torch

        images, masks, targets = batch
        kind = self.info.kind
        if kind in ("ground-truth", "map"):
            seen, parameters = prepared(self.name, maps.numpy(), self.parameters, self.protocol)
            values = self.function(
                *((seen, masks.numpy()) if kind == "ground-truth" else (seen,)), **parameters, reduction="none"
            )
        elif kind == "model":
            values = self.function(model, images, maps, targets, **self.parameters, reduction="none")
        else:
            values = self.function(method.explain, model, images, targets, **self.parameters, reduction="none")
        found = np.asarray(values.cpu() if isinstance(values, torch.Tensor) else values, dtype=np.float64)
        check_scores(found, self.name, len(images))
        return found


@dataclass(frozen=True)
class _Maker:
    """Makes the maps of one method, a batch at a time."""

    label: str
    control: bool
    given: Tensor | None
    explain: Callable[[nn.Module | None, Tensor, Tensor], Tensor] | None

    def __call__(self, model: nn.Module | None, images: Tensor, targets: Tensor, start: int) -> Tensor:
        if self.given is not None:
            return self.given[start : start + len(images)]
        assert self.explain is not None
        return self.explain(model, images, targets)


def _split(dataset: str | Dataset | Split) -> tuple[Split, tuple[str, ...] | None]:
    from xaibench.data import Dataset, Split, load

    if isinstance(dataset, str):
        dataset = load(dataset)
    if not isinstance(dataset, Dataset | Split):
        raise TypeError(
            f"dataset: got {type(dataset).__name__}, expected a name, a data set (xaibench.load) or a split of one."
        )
    return (dataset.test, dataset.classes) if isinstance(dataset, Dataset) else (dataset, None)


def _scorers(
    metrics: Sequence[str] | Mapping[str, Mapping[str, Any]] | None, model: nn.Module | None, protocol: Protocol
) -> list[_Scorer]:
    from xaibench.metrics import METRICS

    if metrics is None:
        metrics = (*GROUND_TRUTH, *(MODEL if model is not None else ()))
    if isinstance(metrics, str):
        metrics = [metrics]
    table = metrics if isinstance(metrics, Mapping) else {name: {} for name in metrics}
    if not table:
        raise ValueError(f"metrics={metrics!r}: expected at least one, or None for the usual ones.")
    scorers = []
    for name, parameters in table.items():
        function = METRICS.resolve(name)
        info = getattr(function, "info", None) or MetricInfo(name, "ground-truth", True, (-np.inf, np.inf))
        if info.kind in ("model", "explainer") and model is None:
            raise ValueError(f"Metric {name!r} asks the model, and there is none; give one, or leave the metric out.")
        check_parameters(name, function, info, parameters)
        scorers.append(_Scorer(METRICS.canonical(name), function, info, parameters, protocol))
    return scorers


def _makers(
    methods: Method | Mapping[str, Method],
    controls: bool | Sequence[str],
    model: nn.Module | None,
    count: int,
    seed: int,
    device: str,
) -> list[_Maker]:
    from xaibench.explainers import EXPLAINERS

    if isinstance(methods, list | tuple) and all(isinstance(name, str) for name in methods):
        methods = {name: name for name in methods}
    named = dict(methods) if isinstance(methods, Mapping) else {_label(methods): methods}
    chosen = CONTROLS if controls is True else tuple(controls or ())
    for name in chosen:
        if not EXPLAINERS.resolve(name).info.control:
            raise ValueError(f"controls={list(chosen)}: {name!r} is no control; give it as one of the methods.")
    named |= {EXPLAINERS.canonical(name): name for name in chosen if EXPLAINERS.canonical(name) not in named}
    if not named:
        raise ValueError("methods is empty, and controls are off; give at least one method.")
    return [_maker(label, method, model, count, seed, device) for label, method in named.items()]


def _maker(label: str, method: Method, model: nn.Module | None, count: int, seed: int, device: str) -> _Maker:
    import torch

    from xaibench.explainers import EXPLAINERS, explain

    if isinstance(method, np.ndarray | torch.Tensor):
        maps = torch.as_tensor(method).detach().cpu()
        check_maps(maps, label, count)
        return _Maker(label, False, maps, None)
    part = EXPLAINERS.resolve(method) if isinstance(method, str) else method
    if not callable(part) and not callable(getattr(part, "attribute", None)):  # the latter is one of Captum's
        raise TypeError(
            f"{label}: got {type(part).__name__}, expected maps [N, H, W] (a numpy array or a torch tensor), the name "
            "of an explainer, or a callable (model, images, targets) -> maps."
        )
    control = bool(getattr(getattr(part, "info", None), "control", False))
    if model is None and not control:
        raise ValueError(
            f"{label} explains a model, and there is none; give one, or maps that were computed elsewhere."
        )

    def make(network: nn.Module | None, images: Tensor, targets: Tensor) -> Tensor:
        return explain(method, network, images, targets, seed=seed, device=device)

    return _Maker(label, control, None, make)


def _label(method: Method) -> str:
    if isinstance(method, str):
        return method
    name = getattr(method, "__name__", type(method).__name__)
    return "maps" if name in ("ndarray", "Tensor") else str(name)


def _score_batch(
    makers: Sequence[_Maker],
    scorers: Sequence[_Scorer],
    model: nn.Module | None,
    batch: tuple[Tensor, Tensor, Tensor],
    start: int,
    device: str,
) -> Iterator[tuple[str, str, np.ndarray[Any, Any], list[str]]]:
    """``(method, metric, values [n], reasons [n])``."""
    from xaibench.metrics import METRICS, undefined_reasons

    images, masks, targets = batch
    for maker in makers:
        maps = maker(model, images, targets, start)
        if maps.shape != masks.shape:
            raise ValueError(
                f"{maker.label}: its maps are {list(maps.shape)}, but the masks of the images are {list(masks.shape)}. "
                "Resize the maps, or load the set with their size."
            )
        for scorer in scorers:
            if scorer.info.kind == "explainer" and maker.explain is None:
                raise ValueError(
                    f"Metric {scorer.name!r} asks the explainer, but {maker.label} are maps computed elsewhere. Give "
                    "the explainer itself, or leave the metric out."
                )
            values = scorer(maker, maps, model, batch)
            reasons = [""] * len(values)
            if np.isnan(values).any():
                known = scorer.name if scorer.name in METRICS else None
                found = undefined_reasons(maps, masks, known)
                reasons = [(why or "undefined") if np.isnan(v) else "" for v, why in zip(values, found, strict=True)]
            yield maker.label, scorer.name, values, reasons


def _table(rows: list[tuple[int, str, str, np.ndarray[Any, Any], list[str]]], ids: list[str]) -> Any:
    import pandas as pd

    parts = [
        pd.DataFrame(
            {
                "method": method,
                "metric": metric,
                "sample": ids[start : start + len(values)],
                "value": values,
                "reason": reasons,
            }
        )
        for start, method, metric, values, reasons in rows
    ]
    return pd.concat(parts, ignore_index=True)


def _controls(makers: Sequence[_Maker]) -> frozenset[str]:
    return frozenset(maker.label for maker in makers if maker.control)
