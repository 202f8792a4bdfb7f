"""Metadata records of data sets, explainers, metrics and models.

This module imports neither torch nor anything else that is slow to load.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeVar

from xaibench.core.checks import check_choice, check_labels
from xaibench.core.truth_kinds import NO_TRUTH, TRUTHS, Truth
from xaibench.registry.parameters import Frozen

_F = TypeVar("_F", bound=Callable[..., Any])


class PartInfo:
    """Base class of the info records, which are decorators: they attach themselves to a part as its attribute ``info``.

    Registries, runner and report read it there.

    Example:
        >>> @MetricInfo("Zero", "map", higher_is_better=True, range=(0.0, 0.0))
        ... def zero(maps):
        ...     return 0.0
        >>> zero.info.label
        'Zero'
    """

    def __call__(self, part: _F) -> _F:
        """Set ``part.info`` to this record and return the part."""
        part.info = self  # type: ignore[attr-defined]
        return part


@dataclass(frozen=True)
class DatasetInfo(PartInfo):
    """Metadata of a data set that do not depend on its seed.

    A data set whose networks have published accuracies has a method ``published_accuracy(model, parameters)``, which
    returns the accuracy in percent, or None if there is none for these parameters. Tables of accuracies show it.

    Attributes:
        name: Registered name, such as ``"xai-tris/lin-white-8x8"``.
        classes: Class names in the order of their index.
        image_shape: ``(C, H, W)``, or ``(C, D, H, W)`` for volumes; 0 for sides that differ between samples.
        citation: The publication to cite.
        license: License of the data.
        how_to_get: What a user must do to obtain the data; empty for generated data.
        address: Download address, as Markdown; empty for generated data, as are the next two.
        download_size: Size of the download and its source, as Markdown.
        by_hand: Steps that cannot be automated, such as a form to sign.
        subset: First key for grouping in tables, such as ``"lin"``; empty if the set is not part of a group.
        variant: Second key for grouping, such as ``"white"``; empty as above.
        known_distribution: Whether its ``distribution`` is known, so that pixels can be resampled from it.
        published: Published counts, ``(("cat", 2371), ("dog", 4978))``; empty for generated data.
        benchmark_size: Number of images in the table of Saliency-Bench (April 2025); 0 if it is not listed there.
        truth: Kind of truth of its masks (:data:`xaibench.types.Truth`): ``"human"`` annotations by default, or
            ``"data"`` or ``"use"``.
        revision: Increased whenever the same parameters give other samples.

    Raises:
        ValueError: If the kind of truth is unknown (did you mean), or class names have invisible characters or look
            alike.
    """

    name: str
    classes: tuple[str, ...]
    image_shape: tuple[int, ...]
    citation: str = ""
    license: str = ""
    how_to_get: str = ""
    address: str = ""
    download_size: str = ""
    by_hand: str = ""
    subset: str = ""
    variant: str = ""
    known_distribution: bool = False
    published: tuple[tuple[str, int], ...] = ()
    benchmark_size: int = 0
    truth: Truth = "human"
    revision: int = 1

    def __post_init__(self) -> None:
        check_choice("truth", self.truth, TRUTHS)
        check_labels(f"{self.name}: class", self.classes)


def describe_own_data(
    name: str, classes: tuple[str, ...], image_shape: tuple[int, ...], how_to_get: str
) -> DatasetInfo:
    """Return the metadata of data that belong to the user; the arguments are those attributes of the metadata."""
    return DatasetInfo(name, classes, image_shape, citation="your own data", license="yours", how_to_get=how_to_get)


@dataclass(frozen=True)
class ExplainerInfo(PartInfo):
    """Metadata of an explainer.

    Attributes:
        label: Name in tables and figures.
        family: Family under which the documentation lists it, such as ``"Gradients"``.
        control: True for the baseline methods that do not use the model (Sobel, Laplace, uniform, input).
        needs_convolution: True if only networks with a convolution can be explained.
        needs_gradient: False if the explainer only calls the network and computes no gradient.
        reference: True for a reference map that is shown with the methods but not ranked. It needs to know the
            distribution of the images.
        citation: The publication to cite.
        revision: Increased whenever the same parameters give other maps.
        passes: Passes through the network per image: rows of forward passes plus rows of backward passes. None if it is
            not a constant; the method ``passes`` of the explainer may then return it.
        exact_zero: Whether pixels without effect on the output get exactly zero; False if such pixels are known to get
            other values, None if not stated.
    """

    label: str
    family: str = "Others"
    control: bool = False
    needs_convolution: bool = False
    needs_gradient: bool = True
    reference: bool = False
    citation: str = ""
    revision: int = 1
    passes: int | None = None
    exact_zero: bool | None = None


class SharedModelScores(NamedTuple):
    """A metric in two steps, the first of which calls the model and is the same for all maps.

    Attributes:
        ask: ``(model, images, targets, **parameters) -> answers [N, P]``, a tensor.
        score: ``(answers, maps, **parameters, reduction) -> scores``. Each function gets those parameters of the metric
            that it names.
    """

    ask: Callable[..., Any]
    score: Callable[..., Any]


@dataclass(frozen=True)
class MetricInfo(PartInfo):
    """Metadata of a metric.

    Attributes:
        label: Name in tables and figures.
        kind: Call signature: ``"ground-truth"`` ``(maps, masks)``, ``"model"`` ``(model, images, maps, targets)``,
            ``"explainer"`` ``(explainer, model, images, targets)`` or ``"map"`` ``(maps)``.
        higher_is_better: Direction.
        range: Smallest and largest possible value.
        attains_ends: Whether samples are often scored exactly at an end of the range. Then the interval of a mean
            accounts for unseen scores there (:mod:`xaibench.scores.nested_draws`).
        meaning: What a score means, in one or two sentences.
        pitfalls: Caveats for interpretation, as Markdown; links are relative to a page of the documentation.
        thresholded: True if the map is binarized at a ``threshold``, which an evaluation protocol sets: a number, or
            ``"area"`` for as many pixels as the mask has.
        map_sign: How a metric with a ground truth reads the sign of a map: ``"value"`` if it ranks or binarizes by
            value, ``"magnitude"`` if it drops the sign, ``"own"`` if its definition leaves no choice, so that the
            ``sign`` of an evaluation does not apply, as for a function without this record.
        undefined: Reasons for ``nan`` that follow from map and mask (:mod:`xaibench.metrics.undefined`);
            None = the usual ones of its kind.
        chance: Score of a random map, in a sentence; for metrics with a ground truth.
        chance_level: Score of a random map as a function ``(masks [N, H, W], **parameters) -> [N]``: the expected score
            of a map of independent uniform noise for each mask. It gets the parameters that matter for it.
        skill_of: Name of the metric that it rescales against chance; its scores follow from that metric's scores and
            the masks.
        skill_parameters: The parameters of that metric, if they are not its defaults.
        shared_scores: The two steps of a metric whose model calls do not depend on the map, so that an evaluation of
            several methods calls the model once.
        sample_inputs: Parameters of the metric that the data set gives for each sample, if it has them
            (:meth:`xaibench.data.Split.metric_inputs`). A parameter that is set explicitly takes precedence.
        picture: Name of its drawing in ``docs/generate``; empty = the one of its kind.
        class_name: Name of its class in :mod:`xaibench.metrics.torchmetrics`; empty = its name in CamelCase, such as
            ``MassAccuracy``.
        citation: The publication to cite.
        truth: Kind of truth of its scores on all data sets, such as ``"use"`` for a metric with masks of the pixels
            that a network uses. None = that of its kind (:attr:`own_truth`).
        revision: Increased whenever the same input gives another score.

    Raises:
        ValueError: If the kind of truth is unknown (did you mean).
    """

    label: str
    kind: Literal["ground-truth", "model", "explainer", "map"] = "ground-truth"
    higher_is_better: bool = field(kw_only=True)
    range: tuple[float, float] = (0.0, 1.0)
    attains_ends: bool = False
    meaning: str = ""
    pitfalls: str = ""
    thresholded: bool = False
    map_sign: Literal["value", "magnitude", "own"] = "value"
    undefined: tuple[str, ...] | None = None
    chance: str = ""
    chance_level: Callable[..., Any] | None = None
    skill_of: str = ""
    skill_parameters: Frozen = field(default_factory=Frozen)
    shared_scores: SharedModelScores | None = None
    sample_inputs: tuple[str, ...] = ()
    picture: str = ""
    class_name: str = ""
    citation: str = ""
    truth: Truth | None = None
    revision: int = 1

    def __post_init__(self) -> None:
        if self.truth is not None:
            check_choice("truth", self.truth, TRUTHS)

    @property
    def own_truth(self) -> Truth | Literal["none"] | None:
        """The kind of truth if the metric decides it; None if the masks decide it.

        Metrics that call the model or the explainer test an ``"intervention"``; metrics of the map alone have
        ``"none"``.
        """
        return self.truth or _TRUTH_OF_KIND[self.kind]


def describe_own_metric(name: str) -> MetricInfo:
    """Return the metadata of a user's function without an info record: it compares maps as they are with masks."""
    limits = -math.inf, math.inf
    return MetricInfo(name, "ground-truth", higher_is_better=True, range=limits, map_sign="own")


_TRUTH_OF_KIND: Mapping[str, Truth | Literal["none"] | None] = {
    **{"ground-truth": None, "map": NO_TRUTH},
    **{"model": "intervention", "explainer": "intervention"},
}


def truth_of(metric: MetricInfo | None, dataset: DatasetInfo | None) -> Truth | Literal["none"]:
    """Return the kind of truth of a metric's scores on a data set: the metric's own, otherwise that of the masks.

    Args:
        metric: Metadata of the metric; None for a metric without metadata, which compares maps and masks.
        dataset: Metadata of the data set; None for one without metadata, whose masks are human annotations.

    Returns:
        The kind; ``"none"`` for a metric that describes the map alone.

    Example:
        >>> pets = DatasetInfo("pets", ("cat", "dog"), (3, 224, 224), truth="human")
        >>> overlap = MetricInfo("IoU", "ground-truth", higher_is_better=True, range=(0.0, 1.0))
        >>> insertion = MetricInfo("Insertion", "model", higher_is_better=True, range=(0.0, 1.0))
        >>> truth_of(overlap, pets), truth_of(insertion, pets)
        ('human', 'intervention')
    """
    own = None if metric is None else metric.own_truth
    return own or (dataset.truth if dataset else "human")


@dataclass(frozen=True)
class ModelInfo(PartInfo):
    """Metadata of a model.

    Attributes:
        label: Name in tables and figures.
        citation: The publication to cite.
        revision: Increased whenever the same seed gives another network.
    """

    label: str
    citation: str = ""
    revision: int = 1
