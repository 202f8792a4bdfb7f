"""The questions of an audit: scores of every explainer and control on the same samples."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from xaibench.auditing.candidates import Candidates
from xaibench.auditing.known_causes import FEWEST, KnownCauses, divided_axes
from xaibench.auditing.subject import Subject
from xaibench.core.truth_kinds import Truth
from xaibench.evaluation.apply import AppliedMetric

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Question:
    """One question, answered by scores. Higher is better, and 0 is the expected score of a random map.

    Attributes:
        key: Short name, unique within an audit.
        truth: Kind of truth.
        title: Name in tables.
        text: The question in a sentence.
        scores: Scores ``[n]`` of each explainer and control; empty if the question was not asked.
        groups: ``[n]`` group of each sample.
        parts: Means of the measures that the scores combine, for each explainer and control: ``{measure: {label:
            mean}}``.
        skipped: Why the question was not asked; empty if it was.
    """

    key: str
    truth: Truth
    title: str
    text: str
    scores: Mapping[str, Floats] = field(default_factory=dict)
    groups: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    parts: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    skipped: str = ""

    @property
    def samples(self) -> int:
        """Number of samples."""
        return len(self.groups)

    def means(self) -> dict[str, float]:
        """Return the mean score of each explainer and control."""
        return {label: defined_mean(scores) for label, scores in self.scores.items()}


def defined_mean(scores: Floats) -> float:
    """Return the mean of the scores that are not nan; nan if there are none."""
    known = scores[~np.isnan(scores)]
    return float(known.mean()) if len(known) else np.nan


#: The metrics of :func:`ask_interventions`.
INTERVENTIONS = ("srg", "road", "idsds")


def ask_interventions(
    subject: Subject,
    candidates: Candidates,
    maps: Mapping[str, Tensor],
    advance: Callable[[int], None] = lambda rows: None,
) -> Question:
    """Score how much the output changes when the marked pixels change: SRG, ROAD and IDSDS.

    The three scores of a sample are each divided by their standard deviation over all samples, explainers and controls,
    and averaged (O'Brien: Procedures for Comparing Samples with Multiple Endpoints, Biometrics 1984), so that there is
    one test. 0 is what random maps score on average. An undefined score, of a constant map, counts as 0.

    Args:
        subject: Network and images.
        candidates: Explainers and controls.
        maps: Their maps of the images.
        advance: Called with the number of maps scored by one of the metrics.

    Returns:
        The question with its scores.
    """
    canvas = subject.canvas.flatten().tolist()
    most = 7 if divided_axes(subject.images) <= 2 else 4  # at most 49 or 64 patches
    grid = max(2, min([most, *(side // 4 for side in subject.images.shape[2:] if side > 1)]))
    settings: tuple[dict[str, Any], ...] = (
        {"steps": 5, "baseline": canvas},
        {"percentiles": (20, 50, 80)},
        {"grid_size": grid, "baseline": canvas},
    )
    batch = (subject.images, torch.ones(subject.images[:, 0].shape, dtype=torch.bool), subject.targets)
    shared: dict[str, Tensor] = {}
    found: dict[str, dict[str, Floats]] = {}
    for name, parameters in zip(INTERVENTIONS, settings, strict=True):
        metric = AppliedMetric(name, parameters, protocol="area", device=candidates.device, output=subject.output)
        found[name] = {}
        for label in candidates.labels:
            scores = metric(maps[label], batch, subject.model, answers=shared)["value"]
            found[name][label] = scores.to_numpy(np.float64)
            advance(len(scores))
    scales = {name: float(np.nanstd(list(scores.values()))) or 1.0 for name, scores in found.items()}
    combined = {
        label: np.mean([np.nan_to_num(found[name][label]) / scales[name] for name in found], axis=0)
        for label in candidates.labels
    }
    return Question(
        "interventions",
        "intervention",
        "Changing marked pixels",
        "Does the network's output change more when the pixels change that the map marks? SRG, ROAD and IDSDS, each "
        "in units of its standard deviation, averaged.",
        combined,
        subject.groups,
        {name: {label: defined_mean(one) for label, one in scores.items()} for name, scores in found.items()},
    )


#: Questions with a known cause: title, question, and what is missing if there are too few samples. ``{four}`` and
#: ``{part}`` stand for the number of cells and their size, which depend on the number of axes.
CAUSES: Mapping[str, tuple[str, str, str]] = {
    "mosaics": (
        "Mosaics",
        "{four} images on a grid, answered with the class of one: does the map mark the images of that class?",
        "the network does not tell images apart when they are at half their size",
    ),
    "insertions": (
        "Inserted images",
        "An image at half its size, inside another image whose answer it changes: does the map of the new answer mark "
        "it?",
        "too few inserted images change the answer",
    ),
    "decisive_regions": (
        "Decisive regions",
        "A small region without which the answer changes, and which brings it about in another image: does the map "
        "mark it?",
        "no small region decides the answer in enough images",
    ),
    "blinded_copies": (
        "Blinded copies",
        "A copy of the network that receives only {part} of the image: does the map stay inside?",
        "the output hardly depends on what {part} of the image shows",
    ),
    "planted_trigger": (
        "Planted trigger",
        "A copy of the network that was trained to react to a small pattern: does the map of that answer mark the "
        "pattern?",
        "the trained copy does not react to the pattern reliably",
    ),
}


def ask_known_causes(
    key: str, causes: KnownCauses, candidates: Candidates, advance: Callable[[int], None] = lambda rows: None
) -> Question:
    """Score whether maps mark the part that is known to decide.

    By magnitude: the area under the ROC curve of the part; for blinded copies the share of the map's mass in the part,
    since the copy need not use all that it sees. Both are rescaled so that 0 is the expected score of a random map
    and 1 the best score.

    Args:
        key: Name of the question in :data:`CAUSES`.
        causes: Samples with known causes.
        candidates: Explainers and controls.
        advance: Called with the number of maps made.

    Returns:
        The question with its scores; skipped if there are fewer than :data:`FEWEST` samples.
    """
    names = ("Eight", "an eighth") if divided_axes(causes.images) == 3 else ("Four", "a quarter")
    title, text, missing = (words.format(four=names[0], part=names[1]) for words in CAUSES[key])
    different = len(np.unique(causes.groups))
    if different < FEWEST:
        why = f"{len(causes)} of {causes.tried} candidates passed the interventions, made from {different} images; "
        why += f"samples from at least {FEWEST} images are needed: "
        return Question(key, "use", title, text, skipped=why + missing)
    name = "mass_accuracy" if key == "blinded_copies" else "use_auc"
    metric = AppliedMetric(name, protocol="area", sign="magnitude", device=candidates.device)
    chance = causes.masks.flatten(1).double().mean(1).numpy() if name == "mass_accuracy" else 0.5
    batch = (causes.images, causes.masks, causes.targets)
    scores = {}
    for label in candidates.labels:
        maps = candidates.maps_of(causes, label)
        scores[label] = (metric(maps, batch)["value"].to_numpy(np.float64) - chance) / (1 - chance)
        advance(len(maps))
    return Question(key, "use", title, text, scores, causes.groups)


def ask_masks(subject: Subject, candidates: Candidates, maps: Mapping[str, Tensor]) -> Question:
    """Score whether maps mark what people marked: area under the ROC curve, by magnitude, rescaled as above.

    Args:
        subject: Network and images.
        candidates: Explainers and controls.
        maps: Their maps of the images.

    Returns:
        The question with its scores; skipped if fewer than :data:`FEWEST` images have a mask.
    """
    title = "Annotations"
    text = "Does the map mark what people marked? A network may rightly look elsewhere, so no verdict rests on this."
    marked = (
        torch.zeros(len(subject.images), dtype=torch.bool) if subject.masks is None else subject.masks.flatten(1).any(1)
    )
    if subject.masks is None or int(marked.sum()) < FEWEST:
        why = f"{int(marked.sum())} images have a mask, at least {FEWEST} are needed"
        return Question("annotations", "human", title, text, skipped=why)
    metric = AppliedMetric("roc_auc", protocol="area", sign="magnitude", device=candidates.device)
    batch = (subject.images[marked], subject.masks[marked], subject.targets[marked])
    areas = {one: metric(maps[one][marked], batch)["value"].to_numpy(np.float64) for one in candidates.labels}
    scores = {label: 2 * area - 1 for label, area in areas.items()}
    return Question("annotations", "human", title, text, scores, subject.groups[marked.numpy()])
