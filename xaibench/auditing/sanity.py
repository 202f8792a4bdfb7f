"""Sanity checks of an audit: maps must depend on the network and the class, and not on chance.

A check compares maps before and after a change, over the pixels where at least one of them is not zero: black
background, on which both maps are zero, would make unrelated maps agree.

A map that stays the same is a fault of the explainer only if the network itself has changed. A network that reads the
mean brightness has the same map for all weights (Yona and Greenfeld: Revisiting Sanity Checks for Saliency Maps, 2021,
arXiv 2110.14297). The yardstick is the network's own behavior: how much its output changes when a region of the image
is set to zero, region by region. The regions divide the pixels that are not black. An explainer fails if its maps,
summed over the same regions, stay significantly more similar than that. Otherwise, a map that stays the same cannot be
told from the architecture.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from xaibench.auditing.images import Subject
from xaibench.auditing.plan import COMPLETE, LEFT_OUT, Candidates, Task
from xaibench.auditing.questions import defined_mean, score_maps
from xaibench.metrics.shared.explainer_calls import randomized_copy
from xaibench.metrics.shared.perturb import score_drops
from xaibench.metrics.shared.ranks import TOLERANCE, centered_ranks, correlation
from xaibench.network.explained_output import ExplainedOutput
from xaibench.scores.rank_tests import ALPHA

Floats = NDArray[np.float64]
#: Standard deviation of the noise, as a share of the range of the images.
_NOISE = 0.01
#: Fewest pixels and regions that are not zero in both maps for a correlation, and fewest images for a test.
_PIXELS, _REGIONS, _IMAGES = 10, 6, 5
#: Difference from the yardstick that is no evidence against an explainer.
_MARGIN = 0.1


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
        values: Similarity of the maps of each explainer, ``[n]``; nan where undefined.
        outcome: The verdict on an explainer that fails.
        regions: The same for the sums of the maps over regions, ``[n]``.
        yardstick: The same for the changes of the network's output without each region, ``[n]``. If it is empty, the
            limit alone decides.
        errors: Why an explainer could not be tested, by label.
        skipped: Why the check was not made; empty if it was.
    """

    key: str
    title: str
    text: str
    failure: str
    limit: float | None
    fails: Literal["above", "below"]
    values: Mapping[str, Floats] = field(default_factory=dict)
    outcome: Literal["refuted", "not stable"] = "refuted"
    regions: Mapping[str, Floats] = field(default_factory=dict)
    yardstick: Mapping[str, Floats] = field(default_factory=dict)
    errors: Mapping[str, str] = field(default_factory=dict)
    skipped: str = ""

    def mean(self, label: str) -> float:
        """Return the mean of the defined scores of an explainer; nan if there are none."""
        return defined_mean(self.values.get(label, np.zeros(0)))

    def p(self, label: str) -> float:
        """Return the p-value of a permutation test; nan for fewer than 5 images.

        Null hypothesis: the maps change as much as the network, up to a margin of 0.1, so that the difference of each
        image is as likely to be positive as negative.
        """
        difference = self.regions[label] - self.yardstick[label]
        difference = (difference if self.fails == "above" else -difference) - _MARGIN
        known = difference[~np.isnan(difference)]
        if len(known) < _IMAGES:
            return np.nan
        signs = np.array(list(itertools.product((1, -1), repeat=len(known))))
        return float((signs @ known >= known.sum() - 1e-9).mean())

    def has_failed(self, label: str) -> bool:
        """Whether an explainer fails; not if it has no score, or the network itself changes as little (or as much)."""
        return self._is_beyond_limit(label) and (not self.yardstick or self.p(label) <= ALPHA)

    def _is_beyond_limit(self, label: str) -> bool:
        mean = self.mean(label)
        if self.limit is None:
            return False
        return bool(mean >= self.limit) if self.fails == "above" else bool(mean <= self.limit)

    @property
    def reasons(self) -> dict[str, str]:
        """Why an explainer has no result, by label."""
        reasons = dict(self.errors)
        for label, values in self.values.items():
            if np.isnan(values).all():
                reasons[label] = f"the maps are constant, or fewer than {_PIXELS} of their pixels differ from zero"
            elif self._is_beyond_limit(label) and not self.has_failed(label):
                how = "too few regions of the image change the output"
                if not np.isnan(self.p(label)):
                    own = defined_mean(self.yardstick[label])
                    how = f"the network's own dependence on the regions of the image is as similar ({own:.2f})"
                reasons[label] = f"cannot be told from the architecture: {how}"
        return reasons


#: The checks, without results. The reason of ``skipped`` is that of a check without maps.
CHECKS = (
    SanityCheck(
        "weights",
        "Depends on the weights",
        "Rank correlation of the magnitudes with the map of a copy of the network with random weights.",
        "does not depend on the network: random weights give the same map",
        0.9,
        "above",
    ),
    SanityCheck(
        "class",
        "Depends on the class",
        "Rank correlation with the map of the second most likely class.",
        "gives the same map for another class",
        0.99,
        "above",
        skipped="with two classes, the map of one may be that of the other",
    ),
    SanityCheck(
        "image",
        "Depends on the image",
        "Rank correlation of the magnitudes with the map of another image. A network may look at the same place of all "
        "images, so no explainer fails.",
        "",
        None,
        "above",
    ),
    SanityCheck(
        "seed",
        "Repeatable with another seed",
        "Rank correlation with the map that another seed of the random numbers gives.",
        "gives another map with another seed",
        0.3,
        "below",
        outcome="not stable",
    ),
    SanityCheck(
        "noise",
        "Stable under noise",
        f"Rank correlation with the map of the image with noise of {_NOISE:.0%} of the range of the images.",
        "gives an unrelated map if the image changes invisibly",
        0.1,
        "below",
        skipped=LEFT_OUT,
    ),
    SanityCheck(
        "completeness",
        "Adds up",
        "For methods that promise it: mean difference between the sum of the map and the change of the output from a "
        "black image, relative to the mean change.",
        "does not add up to the change of the output, as it promises",
        0.5,
        "above",
        outcome="not stable",
    ),
)


def choose_images(subject: Subject, count: int) -> NDArray[np.int64]:
    """Return the indices of the first image of each of ``count`` groups, since images of a group are not independent.

    Args:
        subject: Network and images.
        count: Number of images.
    """
    return np.sort(np.unique(subject.groups, return_index=True)[1])[:count]


def sanity_tasks(subject: Subject, seed: int, images: int) -> list[Task]:
    """Return the explanations that the checks compute again.

    Args:
        subject: Network and images.
        seed: Seed of the audit.
        images: Number of images (:func:`choose_images`).

    Returns:
        Explanations of a copy with random weights (``"weights"``), of the second most likely class (``"class"``, with
        at least three outputs), with another seed (``"seed"``) and of images with noise (``"noise"``).
    """
    chosen = choose_images(subject, images)
    model, x, y = subject.model, subject.images[chosen], subject.targets[chosen]
    noise = torch.from_numpy(np.random.default_rng([seed, 1]).normal(size=tuple(x.shape))).to(x)
    spread = float(subject.images.max() - subject.images.min()) * _NOISE
    tasks = [
        Task("weights", [(randomized_copy(model, seed), x, y)], by="explainers"),
        Task("seed", [(model, x, y)], seed=seed + 1, by="random explainers"),
        Task("noise", [(model, x + spread * noise, y)], by="explainers"),
    ]
    if subject.logits.shape[1] > 2:
        tasks.append(Task("class", [(model, x, subject.logits[chosen].topk(2).indices[:, 1])], by="explainers"))
    return tasks


def check_sanity(
    subject: Subject,
    candidates: Candidates,
    maps: Mapping[str, Mapping[str, Tensor]],
    tasks: Sequence[Task],
    regions: int,
) -> list[SanityCheck]:
    """Make all sanity checks.

    Args:
        subject: Network and images.
        candidates: The explainers.
        maps: Their maps, by explainer and task; ``"images"`` are those of all images.
        tasks: The tasks of :func:`sanity_tasks`.
        regions: Number of regions of each image.

    Returns:
        One entry per check.
    """
    changed = {task.key: task for task in tasks}
    y = changed["weights"].parts[0][2]
    chosen = choose_images(subject, len(y))
    numbers = torch.stack([divide_pixels(image, regions) for image in subject.images[chosen]])
    before = _region_logits(subject, subject.model, subject.images[chosen], numbers)
    # With the same network and images, only the class differs.
    after = {"class": before} | {
        key: _region_logits(subject, *changed[key].parts[0][:2], numbers)
        for key in ("weights", "noise")
        if key in changed
    }

    def compare(key: str) -> dict[str, Any]:
        found: dict[str, Any] = {"values": {}, "regions": {}, "yardstick": {}, "skipped": ""}
        found["errors"] = {label: why for (label, task), why in candidates.errors.items() if task == key}
        for label in candidates.explainers:
            if key not in maps[label]:
                continue
            both, magnitude = (maps[label]["images"][chosen], maps[label][key]), key == "weights"
            found["values"][label] = similarity(*both, magnitude=magnitude)
            if key in after:
                sums = (_region_sums(one, numbers) for one in both)
                found["regions"][label] = similarity(*sums, magnitude=magnitude, fewest=_REGIONS)
                output, targets = explained_output(subject, candidates, label), changed[key].parts[0][2]
                drops = (_drops(subject, output, *given) for given in ((before, y), (after[key], targets)))
                found["yardstick"][label] = similarity(*drops, magnitude=magnitude, fewest=_REGIONS)
        return found

    own = {label: maps[label]["images"] for label in candidates.explainers}
    found = {key: compare(key) for key in changed} | {
        "image": {"values": {label: similarity(one, one.roll(1, 0), magnitude=True) for label, one in own.items()}},
        "completeness": {"values": _measure_completeness(subject, candidates, own)},
    }
    return [replace(check, **found.get(check.key, {})) for check in CHECKS]


def divide_pixels(image: Tensor, regions: int) -> Tensor:
    """Divide the pixels that are not black into compact regions with equally many pixels.

    The pixels are halved along the axis on which they are spread the most, and the halves again.

    Args:
        image: ``[C, H, W]``.
        regions: Number of regions, a power of two; fewer if there are fewer pixels.

    Returns:
        ``[H, W]`` int64, the region of each pixel; -1 where all channels are zero.
    """
    points = (image != 0).any(0).nonzero()
    groups = [torch.arange(len(points))]
    while len(groups) < min(regions, len(points)):
        halves = []
        for group in groups:
            spread = points[group].amax(0) - points[group].amin(0)
            order = points[group][:, int(spread.argmax())].argsort(stable=True)
            halves += list(group[order].tensor_split(2))
        groups = halves
    numbers = torch.full(image.shape[1:], -1)
    for number, group in enumerate(groups):
        numbers[tuple(points[group].T)] = number
    return numbers


def _region_logits(subject: Subject, model: nn.Module, images: Tensor, numbers: Tensor) -> Tensor:
    """Return the logits ``[n, 1 + R, K]`` of images, and of images in which one region is zero."""
    regions = range(int(numbers.max()) + 1)
    rows = [
        torch.stack([image, *(image.masked_fill(own == region, 0) for region in regions)])
        for image, own in zip(images, numbers, strict=True)
    ]
    return torch.stack([subject.ask(row, model) for row in rows])


def _region_sums(maps: Tensor, numbers: Tensor) -> Tensor:
    """Return the sum ``[n, R]`` of maps over each region."""
    rows, flat = numbers.flatten(1) + 1, maps.double().flatten(1)
    return flat.new_zeros(len(maps), int(rows.max()) + 1).scatter_add_(1, rows, flat)[:, 1:]


#: Outputs that decide the same without rounding to 1: those of a confident network would not change.
_UNSATURATED = {"probability": "margin", "sigmoid": "logit"}


def _drops(subject: Subject, output: Any, logits: Tensor, targets: Tensor) -> Tensor:
    """Return the change ``[n, R]`` of the explained output without each region."""
    unsaturated: Any = output if callable(output) else _UNSATURATED.get(output, output)
    head = ExplainedOutput(subject.model, unsaturated).head(logits.flatten(0, 1)).reshape(logits.shape)
    column = torch.zeros_like(targets) if logits.shape[2] == 1 else targets
    return score_drops(head[torch.arange(len(head)), :, column])


def explained_output(subject: Subject, candidates: Candidates, label: str) -> Any:
    """Return the output that an explainer explains on the images."""
    return subject.output or getattr(candidates.part(label), "explains", None) or "probability"


def _measure_completeness(subject: Subject, candidates: Candidates, maps: Mapping[str, Tensor]) -> dict[str, Floats]:
    values = {}
    for label, explainer in candidates.explainers.items():
        if explainer not in COMPLETE:
            continue
        output = explained_output(subject, candidates, label)
        absolute, relative = (
            score_maps(subject, maps[label], subject.batch, "completeness_error", {"relative": kind}, output=output)
            for kind in (False, True)
        )
        known = relative > 0  # also False for nan, where the output does not change
        total = float((absolute[known] / relative[known]).sum())
        values[label] = np.array([absolute[known].sum() / total if total else 0.0])
    return values


def similarity(first: Tensor, second: Tensor, *, magnitude: bool, fewest: int = _PIXELS) -> Floats:
    """Compute Spearman's rank correlation of maps over the pixels where at least one of them is not zero.

    Args:
        first: ``[N, ...]``.
        second: ``[N, ...]``.
        magnitude: Whether pixels are ranked by magnitude.
        fewest: Fewest such pixels.

    Returns:
        ``[N]``; nan where there are fewer pixels, or a map is constant on them.
    """
    found = np.full(len(first), np.nan)
    for index, pair in enumerate(zip(first, second, strict=True)):
        one, other = (values.flatten().double() for values in pair)
        used = _is_nonzero(one) | _is_nonzero(other)
        if int(used.sum()) >= fewest:
            one, other = ((values.abs() if magnitude else values)[used][None] for values in (one, other))
            found[index] = correlation(centered_ranks(one), centered_ranks(other))[0]
    return found


def _is_nonzero(values: Tensor) -> Tensor:
    magnitudes = values.abs()
    return magnitudes > TOLERANCE * magnitudes.max()


def agreement(maps: Mapping[str, Tensor], labels: list[str]) -> tuple[Floats, Floats]:
    """Compute how similar the maps of explainers are.

    Args:
        maps: Maps ``[N, H, W]`` by explainer.
        labels: The explainers to compare.

    Returns:
        Mean :func:`similarity` of the magnitudes for each pair, ``[M, M]``; and for each image the mean over all pairs,
        ``[N]``, nan with fewer than two explainers.
    """
    magnitudes = {label: maps[label].abs() for label in labels}
    ranks = {label: centered_ranks(magnitudes[label]) for label in labels}
    # Most maps have no zeros, so that their ranks serve all pairs.
    dense = {label: np.array([bool(_is_nonzero(one).all()) for one in maps[label]]) for label in labels}
    table, pairs = np.eye(len(labels)), []
    for (i, one), (j, other) in itertools.combinations(enumerate(labels), 2):
        found = correlation(ranks[one], ranks[other])
        sparse = ~(dense[one] | dense[other])
        found[sparse] = similarity(magnitudes[one][sparse], magnitudes[other][sparse], magnitude=False)
        pairs.append(found)
        table[i, j] = table[j, i] = defined_mean(found)
    images = len(maps[labels[0]]) if labels else 0
    return table, np.array([defined_mean(np.array([pair[image] for pair in pairs])) for image in range(images)])
