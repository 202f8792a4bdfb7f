"""``evaluate``: methods, a data set, perhaps a model, and metrics in; a table out."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from xaibench.core.checks import check_choice
from xaibench.core.progress import ProgressBar
from xaibench.evaluation.apply import AppliedExplainer, AppliedMetric, is_inapplicable
from xaibench.evaluation.evaluation_checks import check_maps, check_numbers
from xaibench.evaluation.evaluation_table import Evaluation
from xaibench.evaluation.found_scores import Found
from xaibench.evaluation.placed_networks import placed
from xaibench.evaluation.protocol import DEFAULT, PROTOCOLS, Protocol
from xaibench.evaluation.training_data import training_batches

if TYPE_CHECKING:
    import pandas as pd
    from torch import Tensor, nn

    from xaibench.core.vocabulary import Precision
    from xaibench.data import Dataset, Split
    from xaibench.evaluation.apply import Batch

#: A name of an explainer, an explainer, any callable ``(model, images, targets) -> maps``, or maps ``[N, H, W]``.
Method: TypeAlias = Any
#: A name of a metric, or a function as those of :mod:`xaibench.metrics`.
Metric: TypeAlias = "str | Callable[..., Any]"

#: What a table has when nothing is asked for: with a ground truth, and beyond that with a model.
GROUND_TRUTH = ("iou", "precision", "recall", "f1", "hit", "average_precision")
MODEL = ("insertion", "deletion", "average_drop", "comprehensiveness", "sufficiency")
#: The maps that know no model, beside which every method is shown.
CONTROLS = ("uniform", "sobel", "laplace", "input", "centre")


def evaluate(
    methods: Method | Mapping[str, Method],
    dataset: str | Dataset | Split,
    model: nn.Module | None = None,
    metrics: Metric | Sequence[Metric] | Mapping[Metric, Mapping[str, Any]] | None = None,
    *,
    controls: bool | Sequence[str] = True,
    samples: int | None = None,
    protocol: Protocol = DEFAULT,
    scored: Literal["correct", "all"] = "correct",
    batch_size: int = 32,
    seed: int = 0,
    device: str = "auto",
    precision: Precision | None = None,
    progress: Callable[[int, int], None] | bool = True,
) -> Evaluation:
    """Score methods on the test split of a data set, beside controls that know no model.

    Args:
        methods: One, several ``{label: method}``, or a list of names. A method is the name of an explainer, an
            explainer of ours or Captum's, any callable ``(model, images, targets) -> maps [n, H, W]``, or maps
            ``[N, H, W]`` (numpy or torch) that were computed elsewhere, one for each sample in the order of the split.
            What must be fitted first is fitted to the training split, unless it is an object that has been.
        dataset: A name (:func:`xaibench.load`), a data set (its test split is taken) or a split.
        model: Returns logits ``[N, K]``, one for each class of the set. Needed by explainers other than the controls,
            and by metrics that ask the model.
        metrics: Names or functions, or ``{name: parameters}``. None = IoU, precision, recall, F1, pointing game and
            average precision; with a model also insertion, deletion, average drop, comprehensiveness and sufficiency.
        controls: Add the rows of uniform noise, Sobel, Laplace, the input and the centre prior; or the names of some.
        samples: Only the first so many; None = all.
        scored: With a model, which samples are explained and scored: ``"correct"`` those that it classifies correctly,
            as XAI-TRIS and Saliency-Bench do (of others nobody knows which pixels the wrong answer came from), or
            ``"all"``. Without a model all are.
        protocol: How maps are cut by IoU, precision, recall and F1: ``"scaled"`` halfway between their smallest and
            largest magnitude, ``"published"`` by the functions' own defaults (:mod:`xaibench.evaluation.protocol`).
        batch_size: Samples read, explained and scored at a time; changes no score.
        seed: Of explainers that draw random numbers.
        device: Where explainers compute and metrics ask the model; a model that lies elsewhere is copied.
            ``"auto"``: the GPU when there is one.
        precision: How explainers and the metrics that ask the model multiply float32, as in :func:`xaibench.explain`;
            None: exactly, and in the model's own dtype.
        progress: Show a progress bar in terminals and notebooks if evaluating takes longer than half a second
            (``TQDM_DISABLE=1`` turns off all bars), and a warning with an estimate beyond five minutes. Or a function
            that is called with the number of samples done and their total.

    Returns:
        The scores, with ``.table()``, ``.summary()``, ``.compare(metric)`` and ``.ranks(metric)``; printed, it says
        how many samples were scored, the model's accuracy, and whose maps are zero everywhere.

    Raises:
        ValueError: If there is no sample, or none that the model classifies correctly where only such are scored; if
            maps do not fit the samples, the model's outputs do not fit the classes, a metric or method needs a model
            and there is none, or a method's maps have another shape or are not finite.
        UnknownNameError: If there is no such data set, explainer or metric (did you mean).
        UnsupportedModelError: If none of the methods can treat the model; where some can, the others are left out, and
            ``.inapplicable`` says why.

    Example:
        >>> import xaibench as xb
        >>> data = xb.load("xai-tris/lin-white-8x8", n_samples=200)
        >>> result = evaluate({"truth": data.test.masks.float()}, data, metrics=["iou", "hit"], controls=["uniform"])
        >>> result.summary()[["metric", "method", "mean", "beats_controls"]].head(1).to_numpy().tolist()
        [['iou', 'truth', 1.0, True]]
    """
    import torch

    from xaibench.core.compute.device import resolve_device
    from xaibench.core.compute.model_probe import check_module, probe
    from xaibench.core.compute.precision import computing

    check_numbers(samples, batch_size)
    split, classes, training, distribution = _opened(dataset)
    count = len(split) if samples is None else min(samples, len(split))
    if count == 0:
        raise ValueError("dataset: the split holds no sample, expected at least one.")
    check_choice("protocol", protocol, PROTOCOLS)
    check_choice("scored", scored, ("correct", "all"))
    scorers = _scorers(metrics, model, protocol, device)
    applied = functools.partial(
        AppliedExplainer,
        seed=seed,
        device=device,
        training=training,
        distribution=distribution,
        progress=progress is True,
    )
    makers = _makers(methods, controls, model, count, applied)
    found = Found(count)
    steps = len(makers) * len(scorers)
    advice = f"Fewer samples (samples= below {count}), methods or metrics, or a GPU, take less."
    bar = ProgressBar("evaluate", count * steps, "score", shown=progress is True, advice=advice)
    with computing(precision, resolve_device(device)), bar:
        if model is not None:
            check_module(model)
            model = placed(model, device)
        for start in range(0, count, batch_size):
            stop = min(start + batch_size, count)
            batch, numbers = split[start:stop], torch.arange(start, stop)
            if model is not None:
                if start == 0:
                    probe(model, batch[0][:1], classes=classes)
                right = found.classified(model, batch)
                if scored == "correct":
                    batch, numbers = (batch[0][right], batch[1][right], batch[2][right]), numbers[right]
            if len(numbers):
                for table in _score_batch(makers, scorers, model, batch, numbers, found):
                    found.tables.append(table)
                    bar.advance(len(table))
            bar.advance(stop * steps - bar.done)  # what is not scored is done too
            if callable(progress):
                progress(stop, count)
    found.check(scored)
    infos = {scorer.name: scorer.info for scorer in scorers}
    return found.evaluation(split, infos, frozenset(m.label for m in makers if m.control))


@dataclass(frozen=True)
class _Maker:
    """Makes the maps of one method, a batch at a time: those that were given, or those of an explainer."""

    label: str
    given: Tensor | None = None
    explainer: AppliedExplainer | None = None

    @property
    def control(self) -> bool:
        return self.explainer is not None and self.explainer.control

    def __call__(self, model: nn.Module | None, images: Tensor, targets: Tensor, numbers: Tensor) -> Tensor:
        if self.given is not None:
            return self.given[numbers]
        assert self.explainer is not None
        return self.explainer(model, images, targets)


def _opened(
    dataset: str | Dataset | Split,
) -> tuple[Split, tuple[str, ...] | None, Callable[[], Any] | None, Callable[[], Any] | None]:
    """The samples to score on, their classes, training batches and what they came from; a split has the first alone."""
    from xaibench.data import Dataset, Split, load

    found = load(dataset) if isinstance(dataset, str) else dataset
    if isinstance(found, Split):
        return found, None, None, None
    if isinstance(found, Dataset):
        return found.test, found.classes, functools.partial(training_batches, found.train), found.distribution
    raise TypeError(
        f"dataset: got {type(found).__name__}, expected a name, a data set (xaibench.load) or a split of one."
    )


def _scorers(
    metrics: Metric | Sequence[Metric] | Mapping[Metric, Mapping[str, Any]] | None,
    model: nn.Module | None,
    protocol: Protocol,
    device: str,
) -> list[AppliedMetric]:
    if metrics is None:
        metrics = (*GROUND_TRUTH, *(MODEL if model is not None else ()))
    if isinstance(metrics, str) or callable(metrics):
        metrics = [metrics]
    table = metrics if isinstance(metrics, Mapping) else dict.fromkeys(metrics)
    if not table:
        raise ValueError(f"metrics={metrics!r}: expected at least one, or None for the usual ones.")
    scorers: dict[str, AppliedMetric] = {}
    for metric, parameters in table.items():
        scorer = AppliedMetric(metric, parameters, protocol=protocol, device=device)
        if scorer.asks_model and model is None:
            raise ValueError(
                f"Metric {scorer.name!r} asks the model, and there is none; give one, or leave the metric out."
            )
        if scorers.setdefault(scorer.name, scorer) is not scorer:
            raise ValueError(f"metrics: {scorer.name!r} is there more than once, under several names; give it once.")
    return list(scorers.values())


def _makers(
    methods: Method | Mapping[str, Method],
    controls: bool | Sequence[str],
    model: nn.Module | None,
    count: int,
    applied: Callable[[Any], AppliedExplainer],
) -> list[_Maker]:
    if isinstance(methods, list | tuple) and all(isinstance(name, str) for name in methods):
        methods = {name: name for name in methods}
    named = dict(methods) if isinstance(methods, Mapping) else {_label(methods): methods}
    makers = [_maker(label, method, model, count, applied) for label, method in named.items()]
    chosen = CONTROLS if controls is True else tuple(controls or ())
    for name in chosen:
        control = applied(name)
        if not control.control:
            raise ValueError(f"controls={list(chosen)}: {name!r} is no control; give it as one of the methods.")
        if control.name not in named:
            makers.append(_Maker(control.name, explainer=control))
    if not makers:
        raise ValueError("methods is empty, and controls are off; give at least one method.")
    return makers


def _maker(
    label: str, method: Method, model: nn.Module | None, count: int, applied: Callable[[Any], AppliedExplainer]
) -> _Maker:
    import torch

    if isinstance(method, np.ndarray | torch.Tensor):
        maps = torch.as_tensor(method).detach().cpu()
        check_maps(maps, label, count)
        return _Maker(label, given=maps)
    # What has `attribute` is one of Captum's.
    if not isinstance(method, str) and not callable(method) and not callable(getattr(method, "attribute", None)):
        raise TypeError(
            f"{label}: got {type(method).__name__}, expected maps [N, H, W] (a numpy array or a torch tensor), the "
            "name of an explainer, or a callable (model, images, targets) -> maps."
        )
    explainer = applied(method)
    if model is None and not explainer.control:
        raise ValueError(
            f"{label} explains a model, and there is none; give one, or maps that were computed elsewhere."
        )
    if isinstance(model, torch.nn.Module):
        explainer.meet(model)
    return _Maker(label, explainer=explainer)


def _label(method: Method) -> str:
    if isinstance(method, str):
        return method
    name = getattr(method, "__name__", type(method).__name__)
    return "maps" if name in ("ndarray", "Tensor") else str(name)


def _score_batch(
    makers: Sequence[_Maker],
    scorers: Sequence[AppliedMetric],
    model: nn.Module | None,
    batch: Batch,
    numbers: Tensor,
    found: Found,
) -> Iterator[pd.DataFrame]:
    """For each method and metric the scores of the batch, numbered by their place in the split."""
    images, masks, targets = batch
    answers: dict[str, Tensor] = {}  # of the model, whatever the map: the same for all methods
    for maker in makers:
        if maker.label in found.inapplicable:
            continue
        try:
            maps = maker(model, images, targets, numbers)
        except ValueError as error:
            # Who asks for one method wants to know why there is nothing; who asks for several wants the others.
            found.inapplicable[maker.label] = str(error)
            if not is_inapplicable(error) or all(one.control or one.label in found.inapplicable for one in makers):
                raise
            continue
        if maps.shape != masks.shape:
            raise ValueError(
                f"{maker.label}: its maps are {list(maps.shape)}, but the masks of the images are {list(masks.shape)}. "
                "Resize the maps, or load the set with their size."
            )
        found.see(maker.label, maps, numbers)
        scored: dict[str, pd.DataFrame] = {}
        for scorer in scorers:
            if scorer.info.kind == "explainer" and maker.explainer is None:
                raise ValueError(
                    f"Metric {scorer.name!r} asks the explainer, but {maker.label} are maps computed elsewhere. Give "
                    "the explainer itself, or leave the metric out."
                )
            table = scorer(maps, batch, model, maker.explainer, scored, answers)
            table["sample"] = numbers.numpy()
            table.insert(0, "method", maker.label)
            table.insert(1, "metric", scorer.name)
            yield table
