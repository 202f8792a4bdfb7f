"""What is known of a part: one frozen record for each data set, explainer, metric and model.

This module imports neither torch nor anything else that is slow to load.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeVar

from xaibench.core.checks import check_choice
from xaibench.core.truths import NO_TRUTH, TRUTHS, Truth

_F = TypeVar("_F", bound=Callable[..., Any])


@dataclass(frozen=True)
class DatasetInfo:
    """What is fixed about a data set, whatever its seed.

    Attributes:
        name: Registered name, such as ``"xai-tris/lin-white-8x8"``.
        classes: Class names in the order of their index.
        image_shape: ``(C, H, W)``.
        citation: The publication to cite.
        licence: Licence of the data.
        how_to_get: What a user must do to have the data; empty when it is generated.
        address: Where it is fetched from, as Markdown; empty likewise, as are the next two.
        download_size: How much that is, and who says so, as Markdown.
        by_hand: What no program can do, such as a form to sign.
        scenario: First key by which tables group sets, such as ``"lin"``; empty for a set that stands alone.
        background: Second key, such as ``"white"``; empty likewise.
        known_distribution: Whether its ``distribution`` is known, from which pixels can be drawn again.
        published: What its publication counts, ``(("cat", 2371), ("dog", 4978))``; empty when it is generated.
        benchmark_size: Images in today's table of Saliency-Bench (April 2025); 0 for what is not in it.
        truth: What its masks are the truth of (:data:`xaibench.types.Truth`): ``"human"``, what people marked, unless
            it says that they are of the ``"data"`` or of what a network has in ``"use"``.
        revision: Bumped whenever the same parameters give other samples.

    Raises:
        ValueError: If there is no such kind of truth (did you mean).
    """

    name: str
    classes: tuple[str, ...]
    image_shape: tuple[int, int, int]
    citation: str = ""
    licence: str = ""
    how_to_get: str = ""
    address: str = ""
    download_size: str = ""
    by_hand: str = ""
    scenario: str = ""
    background: str = ""
    known_distribution: bool = False
    published: tuple[tuple[str, int], ...] = ()
    benchmark_size: int = 0
    truth: Truth = "human"
    revision: int = 1

    def __post_init__(self) -> None:
        check_choice("truth", self.truth, TRUTHS)


@dataclass(frozen=True)
class ExplainerInfo:
    """What the runner and the report need to know of an explainer.

    Attributes:
        label: Name as printed in tables and figures.
        family: What it has in common with others, and below which the documentation lists it: ``"Gradients"``.
        control: True for the baselines that know no model (Sobel, Laplace, uniform, input).
        needs_convolution: True when only networks with a convolution can be explained.
        reference: True for what says what a map should show, beside which methods are read: it is ranked with none of
            them, and needs to know what the images were drawn from.
        citation: The publication to cite.
        revision: Bumped whenever the same parameters give other maps.
        passes: How often it asks the network for an image: rows that go forward, and rows that a gradient takes back.
            None where that is not one number: then ``passes`` of the explainer tells, or nobody.
    """

    label: str
    family: str = "Others"
    control: bool = False
    needs_convolution: bool = False
    reference: bool = False
    citation: str = ""
    revision: int = 1
    passes: int | None = None


class AskedOnce(NamedTuple):
    """A metric in two steps, of which the first asks the model and is the same for all maps.

    Attributes:
        ask: ``(model, images, targets, **parameters) -> answers [N, P]``, a tensor.
        score: ``(answers, maps, **parameters, reduction) -> scores``. Each takes those of the metric's parameters that
            it names.
    """

    ask: Callable[..., Any]
    score: Callable[..., Any]


@dataclass(frozen=True)
class MetricInfo:
    """What the runner and the report need to know of a metric.

    Attributes:
        label: Name as printed in tables and figures.
        kind: What the metric is called with: ``"ground-truth"`` ``(maps, masks)``, ``"model"``
            ``(model, images, maps, targets)``, ``"explainer"`` ``(explainer, model, images, targets)`` or ``"map"``
            ``(maps)``.
        higher_is_better: Direction.
        range: Smallest and largest possible value.
        meaning: What a score means, in a sentence or two of plain words.
        pitfalls: What to mind when reading it, as Markdown; links are those of a page of the documentation.
        thresholded: True when it cuts the map at a ``threshold``, so that the protocol of an evaluation decides which
            map it sees.
        undefined: Why a score is ``nan``, of the causes that map and mask show
            (:mod:`xaibench.metrics.shared.undefined_scores`); None = those that its kind usually has.
        chance: What noise scores, in a sentence; for a metric with a ground truth.
        chance_level: The same in numbers: ``(masks [N, H, W], **parameters) -> [N]``, the expected score of a map of
            independent uniform noise for each mask, from those of the metric's parameters that decide it.
        skill_of: Name of the metric that it reads against chance: its scores follow from that one's and the masks.
        asked_once: Of a metric that asks the model the same whatever the map: its two steps, so that an evaluation of
            many methods asks once for all of them.
        picture: The drawing that shows what it measures, by its name in ``docs/generate``; empty: the one of its kind.
        class_name: Its class in :mod:`xaibench.metrics.torchmetrics`; empty: its name in capitals, ``MassAccuracy``.
        citation: The publication to cite.
        truth: The kind of truth that its scores are of on whatever data set, as ``"use"`` of one that reads masks of
            what a network uses. None: as its kind has it (:attr:`own_truth`).
        revision: Bumped whenever the same input gives another score.

    Raises:
        ValueError: If there is no such kind of truth (did you mean).
    """

    label: str
    kind: Literal["ground-truth", "model", "explainer", "map"]
    higher_is_better: bool
    range: tuple[float, float]
    meaning: str = ""
    pitfalls: str = ""
    thresholded: bool = False
    undefined: tuple[str, ...] | None = None
    chance: str = ""
    chance_level: Callable[..., Any] | None = None
    skill_of: str = ""
    asked_once: AskedOnce | None = None
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
        """The kind of truth, as far as the metric decides it; None for one that takes that of the masks it is given.

        A metric that asks the model or the explainer tries something (``"intervention"``); one of the map alone asks
        for no truth (``"none"``).
        """
        return self.truth or _OF_KIND[self.kind]


_OF_KIND: Mapping[str, Truth | Literal["none"] | None] = {
    **{"ground-truth": None, "map": NO_TRUTH},
    **{"model": "intervention", "explainer": "intervention"},
}


def truth_of(metric: MetricInfo | None, dataset: DatasetInfo | None) -> Truth | Literal["none"]:
    """The kind of truth that the scores of a metric on a data set are of: the metric's own, else that of the masks.

    Args:
        metric: What is known of the metric; None for one that says nothing of itself, and is of maps and masks.
        dataset: What is known of the data set; None for one that says nothing of itself, whose masks are people's.

    Returns:
        The kind; ``"none"`` for a metric that describes the map and asks for no truth.

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
class ModelInfo:
    """What the runner and the report need to know of a model.

    Attributes:
        label: Name as printed in tables and figures.
        citation: The publication to cite.
        revision: Bumped whenever the same seed gives another network.
    """

    label: str
    citation: str = ""
    revision: int = 1


def described(info: DatasetInfo | ExplainerInfo | MetricInfo | ModelInfo) -> Callable[[_F], _F]:
    """Attach ``info`` to a function or class, where the registries, the runner and the report read it.

    Args:
        info: What is known of the part.

    Returns:
        A decorator, which returns the part itself.

    Example:
        >>> @described(MetricInfo("Zero", "map", higher_is_better=True, range=(0.0, 0.0)))
        ... def zero(maps):
        ...     return 0.0
        >>> zero.info.label
        'Zero'
    """

    def attach(part: _F) -> _F:
        part.info = info  # type: ignore[attr-defined]
        return part

    return attach
