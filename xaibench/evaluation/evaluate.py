"""Evaluation of methods on a data set, with or without a model, by one or more metrics."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from xaibench.core.checks import check_choice, check_count, check_finite, check_map_shape
from xaibench.core.process_settings import equal_warnings_once
from xaibench.core.progress import ProgressBar
from xaibench.evaluation.apply import AppliedExplainer, AppliedMetric, is_inapplicable, to_device, training_batches
from xaibench.evaluation.protocol import DEFAULT, DEFAULT_SIGN, PROTOCOLS, SIGNS, Protocol, Sign
from xaibench.evaluation.table import Evaluation

if TYPE_CHECKING:
    import pandas as pd
    from torch import Tensor, nn

    from xaibench.core.types import Precision
    from xaibench.data import Dataset, Split
    from xaibench.evaluation.apply import AppliedMetric, Batch
    from xaibench.network.answers import NetworkAnswers, OutputOrFunction


class ScoreCollector:
    """Collects the scores of one batch after the other.

    Args:
        count: Total number of samples.

    Attributes:
        tables: Score tables, with samples as their indices in the split.
        inapplicable: Methods that do not support the model, with the reason.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._n_correct: int | None = None
        self._zero: dict[str, list[int]] = {}
        self.tables: list[pd.DataFrame] = []
        self.inapplicable: dict[str, str] = {}

    def find_correct(self, answers: NetworkAnswers, batch: Batch) -> Tensor:
        """Return which samples the model classifies correctly, ``[n]`` bool; all of them if it has no classes.

        Raises:
            ValueError: If the model does not accept the images, or a target is not one of its classes.
        """
        images, _, targets = batch
        correct = answers.correct(images, targets)
        if correct is None:
            return targets == targets
        self._n_correct = (self._n_correct or 0) + int(correct.sum())
        return correct

    def record_maps(self, method: str, maps: Tensor, numbers: Tensor) -> None:
        """Record which of the maps ``[n, H, W]`` are zero everywhere; ``numbers`` are the sample indices."""
        zero = numbers[(maps == 0).flatten(1).all(1)].tolist()
        if zero:
            self._zero.setdefault(method, []).extend(zero)

    def check(self, scored: str) -> None:
        """Check that at least one sample was scored.

        Raises:
            ValueError: If only correctly classified samples are scored, and there are none.
        """
        if not self.tables:
            raise ValueError(
                f"The model classifies none of the {self._count} samples correctly, and scored={scored!r} needs at "
                "least one. Check that the model is trained, that images are scaled as it expects, and that its "
                "classes are in the same order; or include wrongly classified samples with scored='all'."
            )

    def evaluation(self, split: Split, metrics: Sequence[AppliedMetric], controls: frozenset[str]) -> Evaluation:
        """Return the evaluation, with sample ids instead of indices."""
        import pandas as pd

        scores = pd.concat(self.tables, ignore_index=True)
        scores = scores[~scores["method"].isin(self.inapplicable)].reset_index(drop=True)
        numbers = scores["sample"].drop_duplicates().to_numpy()
        ids = split.ids
        scores["sample"] = [ids[number] for number in scores["sample"]]
        return Evaluation(
            scores,
            {metric.name: metric.info for metric in metrics},
            controls,
            None if split.groups is None else split.groups[numbers],
            split.groups_by,
            samples=self._count,
            accuracy=None if self._n_correct is None else self._n_correct / self._count,
            zero_maps={method: tuple(ids[number] for number in zero) for method, zero in self._zero.items()},
            inapplicable=self.inapplicable,
            parameters={metric.name: metric.given for metric in metrics if metric.given},
        )


#: The name of an explainer, an explainer, any callable ``(model, images, targets) -> maps``, or maps ``[N, H, W]``.
Method: TypeAlias = Any
#: The name of a metric, or a function like those of :mod:`xaibench.metrics`.
Metric: TypeAlias = "str | Callable[..., Any]"

#: Steps of insertion and deletion among the default metrics. The 224 steps of the metrics themselves, as in the paper,
#: would take most of the time of an evaluation.
STEPS = 20
#: Default metrics with their parameters: with ground-truth masks, and in addition with a model.
GROUND_TRUTH: Mapping[Metric, Mapping[str, Any]] = {
    "iou": {},
    "topk_precision": {},
    "hit": {},
    "average_precision": {},
}
MODEL: Mapping[Metric, Mapping[str, Any]] = {
    "insertion": {"steps": STEPS},
    "deletion": {"steps": STEPS},
    "average_drop": {},
    "comprehensiveness": {},
    "sufficiency": {},
}
#: Default controls, which do not use the model.
CONTROLS = ("uniform", "sobel", "laplace", "input", "center_prior")


def evaluate(
    methods: Method | Mapping[str, Method],
    dataset: str | Dataset | Split,
    model: nn.Module | None = None,
    metrics: Metric | Sequence[Metric] | Mapping[Metric, Mapping[str, Any]] | None = None,
    *,
    controls: bool | Sequence[str] = True,
    samples: int | None = None,
    protocol: Protocol = DEFAULT,
    sign: Sign = DEFAULT_SIGN,
    output: OutputOrFunction | None = None,
    scored: Literal["correct", "all"] = "correct",
    batch_size: int = 32,
    seed: int = 0,
    device: str = "auto",
    precision: Precision | None = None,
    progress: Callable[[int, int], None] | bool = True,
    check_network: bool = True,
) -> Evaluation:
    """Score methods on the test split of a data set, together with controls that do not use the model.

    Args:
        methods: One method, several as ``{label: method}``, or a list of names. A method is the name of an explainer,
            an explainer of xaibench or Captum, any callable ``(model, images, targets) -> maps [n, H, W]``, or
            precomputed maps ``[N, H, W]`` (numpy or torch), one per sample in the order of the split. Explainers that
            need fitting are fitted to the training split, except objects that are already fitted.
        dataset: A name (:func:`xaibench.load`), a data set (its test split is used) or a split.
        model: The model, which returns logits ``[N, K]``, one per class of the data set, or something that contains
            them, as for :func:`xaibench.explain`. Controls and most metrics with masks do not need it; other explainers
            and metrics do.
        metrics: Names or functions, or ``{name: parameters}``. None = IoU, top-k precision, pointing game and average
            precision; with a model also insertion and deletion in 20 steps (``steps=20``), average drop,
            comprehensiveness and sufficiency. Metrics that are given have the defaults of their functions, such as 224
            steps of insertion and deletion.
        controls: Whether to add the controls uniform noise, Sobel, Laplace, the input and the center prior; or the
            names of the controls to add.
        samples: Number of samples, taken from the start of the split; None = all.
        output: The output of the model that methods explain and metrics score, as for :func:`xaibench.explain`; a
            metric's own parameter ``output`` takes precedence. ``"sigmoid"`` for independent labels (one sample per
            image and label, see :func:`xaibench.explainers.label_pairs`) and for networks with one output; a function
            of the outputs for networks without classes. None: the defaults of each method and metric.
        scored: Which samples are explained and scored, if there is a model: ``"correct"`` for samples that it
            classifies correctly, as in XAI-TRIS and Saliency-Bench (for the others, it is unknown which pixels led to
            the wrong prediction), or ``"all"``. Under ``output="sigmoid"``, a sample is correct if its label has a
            probability above 0.5. Without a model, or with a function as ``output``, all samples are scored.
        protocol: How IoU, precision, recall and F1 binarize maps (:mod:`xaibench.evaluation.protocol`): ``"area"``
            marks the k largest pixels, where k is the number of pixels of the mask (precision, recall and F1 are then
            the same number); ``"scaled"`` cuts halfway between the smallest and largest magnitude, ``"published"`` at
            the functions' default thresholds.
        sign: How metrics with a ground truth read maps: by ``"magnitude"``, or ``"signed"``. Signed maps are ranked and
            binarized by value, and metrics that take magnitudes (earth mover's distance, top-k precision, mass
            accuracy) get their positive part. Metrics whose definition leaves no choice get maps as they are
            (``map_sign="own"`` in their info), and so do functions without an info record. Metrics without masks are
            not affected.
        batch_size: Number of samples that are read, explained and scored at a time. It does not affect the scores.
        seed: Seed of explainers that use random numbers.
        device: The device for explainers and metrics; a model on another device is copied. ``"auto"`` is the GPU if
            there is one.
        precision: Precision of float32 multiplications in explainers and model-based metrics, as in
            :func:`xaibench.explain`; None: full precision, in the model's dtype.
        progress: Whether to show a progress bar in terminals and notebooks if the evaluation takes longer than half a
            second (``TQDM_DISABLE=1`` turns off all bars), and a warning with an estimate beyond five minutes.
            Alternatively, a function called with the number of samples done and the total.
        check_network: Whether to raise an error if the model is not a deterministic function of one image, as for
            :func:`xaibench.explain`. False: continue with a warning, which is also kept in ``.broken_assumptions``.

    Returns:
        The scores, with ``.table()``, ``.summary()``, ``.compare(metric)`` and ``.ranks(metric)``. Its printed form
        includes the number of scored samples, the model's accuracy, and how many maps are zero everywhere.

    Raises:
        ValueError: If no sample can be scored; if maps do not match the samples, or the model's outputs do not
            match the classes; if a metric or method needs a model and there is none; or if a method's maps have the
            wrong shape or are not finite.
        UnknownNameError: If a data set, explainer or metric is unknown (did you mean).
        UnsupportedModelError: If none of the methods supports the model. If some do, the others are left out and
            listed in ``.inapplicable``.
        NetworkContractError: If the model is random in evaluation mode, or the output for an image depends on its
            batch. A lost gradient concerns only methods that use gradients, which are then listed in ``.inapplicable``.

    Example:
        >>> import xaibench as xb
        >>> data = xb.load("xai-tris/lin-white-8x8", n_samples=200)
        >>> result = evaluate({"truth": data.test.masks.float()}, data, metrics=["iou", "hit"], controls=["uniform"])
        >>> result.summary()[["metric", "method", "mean", "beats_controls"]].head(1).to_numpy().tolist()
        [['iou', 'truth', 1.0, True]]
    """
    import torch

    from xaibench.network.answers import NetworkAnswers
    from xaibench.network.contract import check_network as check_contract
    from xaibench.network.contract import unchecked_networks
    from xaibench.network.outputs import check_module
    from xaibench.tensors.device import precision_context, resolve_device

    check_count("samples", samples, none="for all")
    check_count("batch_size", batch_size)
    split, classes, training, distribution = _open_dataset(dataset)
    count = len(split) if samples is None else min(samples, len(split))
    if count == 0:
        raise ValueError("dataset: the split has no samples, expected at least one.")
    check_choice("protocol", protocol, PROTOCOLS)
    check_choice("sign", sign, SIGNS)
    check_choice("scored", scored, ("correct", "all"))
    applied_metric = functools.partial(AppliedMetric, protocol=protocol, sign=sign, output=output, device=device)
    scorers = _build_metrics(metrics, model, applied_metric)
    applied = functools.partial(
        AppliedExplainer,
        seed=seed,
        output=output,
        device=device,
        training=training,
        distribution=distribution,
        progress=progress is True,
    )
    applied_methods = _build_methods(methods, controls, model, count, applied)
    collector = ScoreCollector(count)
    steps = len(applied_methods) * len(scorers)
    advice = f"Fewer samples (samples= below {count}), methods or metrics, or a GPU, take less."
    bar = ProgressBar("evaluate", count * steps, "score", shown=progress is True, advice=advice)
    with (
        precision_context(precision, resolve_device(device), keeps_autocast=False),
        bar,
        unchecked_networks(not check_network) as broken,
        equal_warnings_once(),
    ):
        if model is not None:
            check_module(model)
            model = to_device(model, device)
            answers = NetworkAnswers(model, output)
        for start in range(0, count, batch_size):
            stop = min(start + batch_size, count)
            batch, numbers = split[start:stop], torch.arange(start, stop)
            if model is not None:
                if start == 0:
                    first = answers.logits(batch[0][:1], classes, finite=True)
                    check_contract(model, batch[0][:2], first, select=answers.select)
                correct = collector.find_correct(answers, batch)
                if scored == "correct":
                    batch, numbers = (batch[0][correct], batch[1][correct], batch[2][correct]), numbers[correct]
            if len(numbers):
                more = split.metric_inputs(numbers)
                for table in _score_batch(applied_methods, scorers, model, batch, numbers, collector, more):
                    collector.tables.append(table)
                    # With the samples that are not scored, so that all batches count alike.
                    bar.advance(stop - start)
            bar.advance(stop * steps - bar.done)  # methods that are not applicable count as done
            if callable(progress):
                progress(stop, count)
    collector.check(scored)
    controls_used = frozenset(method.label for method in applied_methods if method.control)
    return dataclasses.replace(collector.evaluation(split, scorers, controls_used), broken_assumptions=tuple(broken))


@dataclass(frozen=True)
class _Method:
    """Source of the maps of one method, batch by batch: given maps, or an explainer."""

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


def _open_dataset(
    dataset: str | Dataset | Split,
) -> tuple[Split, tuple[str, ...] | None, Callable[[], Any] | None, Callable[[], Any] | None]:
    """Return the samples to score, the classes, the training batches and the distribution; None if unknown."""
    from xaibench.data import Dataset, Split, load

    loaded = load(dataset) if isinstance(dataset, str) else dataset
    if isinstance(loaded, Split):
        return loaded, None, None, None
    if isinstance(loaded, Dataset):
        return loaded.test, loaded.classes, functools.partial(training_batches, loaded.train), loaded.distribution
    raise TypeError(f"dataset: got {type(loaded).__name__}, expected a name, a data set (xaibench.load) or a split.")


def _build_metrics(
    metrics: Metric | Sequence[Metric] | Mapping[Metric, Mapping[str, Any]] | None,
    model: nn.Module | None,
    applied: Callable[[Metric, Mapping[str, Any] | None], AppliedMetric],
) -> list[AppliedMetric]:
    if metrics is None:
        metrics = {**GROUND_TRUTH, **(MODEL if model is not None else {})}
    if isinstance(metrics, str) or callable(metrics):
        metrics = [metrics]
    table = metrics if isinstance(metrics, Mapping) else dict.fromkeys(metrics)
    if not table:
        raise ValueError(f"metrics={metrics!r}: expected at least one metric, or None for the default ones.")
    scorers: dict[str, AppliedMetric] = {}
    for metric, parameters in table.items():
        scorer = applied(metric, parameters)
        if scorer.needs_model and model is None:
            raise ValueError(f"Metric {scorer.name!r} needs a model, but none was given; give one, or omit the metric.")
        if scorers.setdefault(scorer.name, scorer) is not scorer:
            raise ValueError(f"metrics: {scorer.name!r} is given more than once, under several names; give it once.")
    return list(scorers.values())


def _build_methods(
    methods: Method | Mapping[str, Method],
    controls: bool | Sequence[str],
    model: nn.Module | None,
    count: int,
    applied: Callable[[Any], AppliedExplainer],
) -> list[_Method]:
    if isinstance(methods, list | tuple) and all(isinstance(name, str) for name in methods):
        methods = {name: name for name in methods}
    named = dict(methods) if isinstance(methods, Mapping) else {default_label(methods): methods}
    built = [_build_method(label, method, model, count, applied) for label, method in named.items()]
    chosen = CONTROLS if controls is True else tuple(controls or ())
    for name in chosen:
        control = applied(name)
        if not control.control:
            raise ValueError(f"controls={list(chosen)}: {name!r} is not a control; give it as one of the methods.")
        if control.name not in named:
            built.append(_Method(control.name, explainer=control))
    if not built:
        raise ValueError("methods is empty, and controls are off; give at least one method.")
    return built


def _build_method(
    label: str, method: Method, model: nn.Module | None, count: int, applied: Callable[[Any], AppliedExplainer]
) -> _Method:
    import torch

    if isinstance(method, np.ndarray | torch.Tensor):
        maps = torch.as_tensor(method).detach().cpu()
        check_maps(maps, label, count)
        return _Method(label, given=maps)
    # Captum's explainers have `attribute`.
    if not isinstance(method, str) and not callable(method) and not callable(getattr(method, "attribute", None)):
        raise TypeError(
            f"{label}: got {type(method).__name__}, expected maps [N, H, W] (a numpy array or a torch tensor), the "
            "name of an explainer, or a callable (model, images, targets) -> maps."
        )
    explainer = applied(method)
    if model is None and not explainer.control:
        raise ValueError(f"{label} explains a model, but none was given; give one, or precomputed maps.")
    if isinstance(model, torch.nn.Module):
        explainer.resolve_layer(model)
    return _Method(label, explainer=explainer)


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
    check_finite(maps[:count], label)


def default_label(method: Method) -> str:
    """Return the label of a method that is given without one: its name, or that of its class."""
    if isinstance(method, str):
        return method
    name = getattr(method, "__name__", type(method).__name__)
    return "maps" if name in ("ndarray", "Tensor") else str(name)


def _score_batch(
    methods: Sequence[_Method],
    scorers: Sequence[AppliedMetric],
    model: nn.Module | None,
    batch: Batch,
    numbers: Tensor,
    collector: ScoreCollector,
    sample_inputs: Mapping[str, Any],
) -> Iterator[pd.DataFrame]:
    """Yield the scores of the batch per method and metric, with samples as their indices in the split."""
    images, masks, targets = batch
    answers: dict[str, Tensor] = {}  # model outputs that do not depend on the map, shared by all methods
    for method in methods:
        if method.label in collector.inapplicable:
            continue
        try:
            maps = method(model, images, targets, numbers)
        except ValueError as error:
            # With several methods, the unsupported ones are left out. If none is left, the error is raised.
            collector.inapplicable[method.label] = str(error)
            none_left = all(other.control or other.label in collector.inapplicable for other in methods)
            if not is_inapplicable(error) or none_left:
                raise
            continue
        check_map_shape(maps, masks.shape, f"maps of {method.label}")
        collector.record_maps(method.label, maps, numbers)
        scored: dict[str, pd.DataFrame] = {}
        for scorer in scorers:
            if scorer.info.kind == "explainer" and method.explainer is None:
                raise ValueError(
                    f"Metric {scorer.name!r} needs the explainer, but the maps of {method.label!r} are precomputed. "
                    "Give the explainer itself, or omit the metric."
                )
            table = scorer(maps, batch, model, method.explainer, scored, answers, sample_inputs)
            table["sample"] = numbers.numpy()
            table.insert(0, "method", method.label)
            table.insert(1, "metric", scorer.name)
            yield table
