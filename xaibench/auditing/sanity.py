"""Sanity checks of an audit: maps must depend on the network and the class, and not on chance."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from xaibench.auditing.candidates import COMPLETE, Candidates
from xaibench.auditing.images import Subject
from xaibench.auditing.questions import defined_mean
from xaibench.compute.lending import copy_network
from xaibench.evaluation.apply import AppliedMetric
from xaibench.metrics.shared.explainer_calls import layers_with_parameters, reinitialize
from xaibench.metrics.shared.ranks import centered_ranks, correlation

Floats = NDArray[np.float64]
#: Images that are explained again for the checks.
IMAGES = 6
#: Standard deviation of the noise, as a share of the range of the images.
_NOISE = 0.01


@dataclass(frozen=True)
class SanityCheck:
    """A check with its result for each explainer.

    Attributes:
        key: Short name.
        title: Name in tables.
        text: What is compared.
        failure: What is wrong with an explainer that fails.
        limit: The mean from which on an explainer fails; None: for information.
        fails: Whether it fails at or above the limit, or at or below it.
        values: Scores of each explainer, ``[n]``; nan where undefined.
        skipped: Why the check was not made; empty if it was.
    """

    key: str
    title: str
    text: str
    failure: str
    limit: float | None
    fails: Literal["above", "below"]
    values: Mapping[str, Floats]
    skipped: str = ""

    def mean(self, label: str) -> float:
        """Return the mean of the defined scores of an explainer; nan if there are none."""
        return defined_mean(self.values.get(label, np.zeros(0)))

    def has_failed(self, label: str) -> bool:
        """Whether an explainer fails; not if it has no score."""
        mean = self.mean(label)
        if self.limit is None:
            return False
        return bool(mean >= self.limit) if self.fails == "above" else bool(mean <= self.limit)


def check_sanity(
    subject: Subject,
    candidates: Candidates,
    maps: Mapping[str, Tensor],
    advance: Callable[[int], None] = lambda rows: None,
) -> list[SanityCheck]:
    """Make all sanity checks.

    Args:
        subject: Network and images.
        candidates: The explainers.
        maps: Their maps of the images.
        advance: Called with the number of maps made.

    Returns:
        One entry per check.
    """
    x, y = subject.images[:IMAGES], subject.targets[:IMAGES]
    first = {label: maps[label][:IMAGES] for label in candidates.explainers}

    def again(magnitude: bool, **changed: Any) -> dict[str, Floats]:
        found = {}
        for label, own in first.items():
            arguments: dict[str, Any] = {"model": subject.model, "images": x, "targets": y} | changed
            found[label] = similarity(own, candidates.maps(label, **arguments), magnitude=magnitude)
            advance(len(own))
        return found

    noise = np.random.default_rng([candidates.seed, 1]).normal(size=tuple(x.shape))
    spread = float(subject.images.max() - subject.images.min()) * _NOISE
    return [
        SanityCheck(
            "weights",
            "Depends on the weights",
            "Rank correlation of the magnitudes with the map of a copy of the network with random weights.",
            "does not depend on the network: random weights give the same map",
            0.9,
            "above",
            again(True, model=randomized_copy(subject.model, candidates.seed)),
        ),
        _check_classes(subject, again),
        SanityCheck(
            "image",
            "Depends on the image",
            "Rank correlation of the magnitudes with the map of another image. A network may look at the same place of "
            "all images, so no explainer fails.",
            "",
            None,
            "above",
            {one: similarity(maps[one], maps[one].roll(1, 0), magnitude=True) for one in candidates.explainers},
        ),
        SanityCheck(
            "seed",
            "Repeatable with another seed",
            "Rank correlation with the map that another seed of the random numbers gives.",
            "gives another map with another seed; a larger budget may help",
            0.3,
            "below",
            again(False, seed=candidates.seed + 1),
        ),
        SanityCheck(
            "noise",
            "Stable under noise",
            f"Rank correlation with the map of the image with noise of {_NOISE:.0%} of the range of the images.",
            "gives an unrelated map if the image changes invisibly",
            0.1,
            "below",
            again(False, images=x + spread * torch.from_numpy(noise).to(x)),
        ),
        _check_completeness(subject, candidates, maps),
    ]


def _check_classes(subject: Subject, again: Callable[..., dict[str, Floats]]) -> SanityCheck:
    skipped = "" if subject.logits.shape[1] > 2 else "with two classes, the map of one may be that of the other"
    return SanityCheck(
        "class",
        "Depends on the class",
        "Rank correlation with the map of the second most likely class.",
        "gives the same map for another class",
        0.99,
        "above",
        {} if skipped else again(False, targets=subject.logits[:IMAGES].topk(2).indices[:, 1]),
        skipped,
    )


def _check_completeness(subject: Subject, candidates: Candidates, maps: Mapping[str, Tensor]) -> SanityCheck:
    batch = (subject.images, torch.ones(subject.images[:, 0].shape, dtype=torch.bool), subject.targets)
    values = {}
    for label, explainer in candidates.explainers.items():
        if explainer not in COMPLETE:
            continue
        output = candidates.explained_output(label)
        absolute, relative = (
            AppliedMetric(
                "completeness_error", {"relative": kind}, protocol="area", device=candidates.device, output=output
            )(maps[label], batch, subject.model)["value"].to_numpy(np.float64)
            for kind in (False, True)
        )
        known = relative > 0  # also False for nan, where the output does not change
        total = float((absolute[known] / relative[known]).sum())
        values[label] = np.array([absolute[known].sum() / total if total else 0.0])
    return SanityCheck(
        "completeness",
        "Adds up",
        "For methods that promise it: mean difference between the sum of the map and the change of the output from a "
        "black image, relative to the mean change.",
        "does not add up to the change of the output, as it promises; a larger budget may help",
        0.5,
        "above",
        values,
    )


def similarity(first: Tensor, second: Tensor, *, magnitude: bool) -> Floats:
    """Compute Spearman's rank correlation of maps over the pixels.

    Args:
        first: ``[N, H, W]``.
        second: ``[N, H, W]``.
        magnitude: Whether pixels are ranked by magnitude.

    Returns:
        ``[N]``; nan where a map is constant.
    """
    one, other = (centered_ranks(maps.abs() if magnitude else maps) for maps in (first, second))
    return correlation(one, other)


def randomized_copy(model: nn.Module, seed: int) -> nn.Module:
    """Copy a network and initialize all its weights again.

    Args:
        model: The network; not changed.
        seed: Seed of the weights.

    Returns:
        The copy.
    """
    copied = copy_network(model)
    for index, layer in enumerate(layers_with_parameters(copied)):
        reinitialize(layer, seed, index)
    return copied


def agreement(maps: Mapping[str, Tensor], labels: list[str]) -> tuple[Floats, Floats]:
    """Compute how similar the maps of explainers are.

    Args:
        maps: Maps ``[N, H, W]`` by explainer.
        labels: The explainers to compare.

    Returns:
        Mean rank correlation of the magnitudes for each pair, ``[M, M]``; and for each image the mean over all pairs,
        ``[N]``, nan with fewer than two explainers.
    """
    ranks = [centered_ranks(maps[label].abs()) for label in labels]
    pairs = np.array([[correlation(one, other) for other in ranks] for one in ranks])  # [M, M, N]
    different = pairs[np.triu_indices(len(labels), 1)]
    table = np.array([[defined_mean(cell) for cell in row] for row in pairs]).reshape(len(labels), len(labels))
    return table, np.array([defined_mean(different[:, image]) for image in range(pairs.shape[2])])
