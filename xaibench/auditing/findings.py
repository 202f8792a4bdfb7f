"""Findings about the network and its images: whether it is better than chance, and images to look at.

An explanation of a network with random weights can describe that network correctly and is still no evidence of
anything. Therefore an audit supports nothing unless the network passes one of two exact tests:

- with labels, a permutation test: its answers fit the labels better than they fit shuffled labels;
- without labels, a Monte Carlo test: its answers differ between the images more than the answers of copies whose
  weights are shuffled within each neuron. A network with random weights is exchangeable with such copies.

The level is 2 %, so that this alone keeps the probability of supporting an explanation of a random network below 5 %.

Phipson and Smyth: Permutation P-values Should Never Be Zero, 2010 (arXiv 1603.05766).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from xaibench.auditing.images import Subject
from xaibench.core.messages import listed
from xaibench.core.progress import ProgressBar
from xaibench.data.disk.lazy_split import IMAGENET
from xaibench.models.networks.pretrained import find_normalization
from xaibench.network.lending import copy_network, set_evaluation
from xaibench.report.page.templating import p_value
from xaibench.tensors.random_numbers import isolated_rng

if TYPE_CHECKING:
    from xaibench.auditing.questions import Question

#: Significance level of the test.
LEVEL = 0.02
#: Number of permutations of the labels, and of copies of the network with shuffled weights.
_SHUFFLED_LABELS, COPIES = 9999, 49
#: Power for which the number of needed images is computed, and the largest number that is given.
POWER, MOST_IMAGES = 0.8, 10_000


@dataclass(frozen=True)
class NetworkTest:
    """Result of the test of the network.

    Attributes:
        by: What the answers were compared with: ``"labels"`` or ``"shuffled weights"``.
        value: Share of correct answers; or how much the answers tell about which image was shown, in nats (for a
            function of the outputs, its standard deviation over the images).
        expected: Mean of the same number under the null hypothesis.
        p: P-value.
        images: Number of images.
        needed: Number of images for which the test would have a power of 80 %, if the share of correct answers is as
            measured; None if the network passed, there are no labels, or more images would not help.
        copies: The same number of each copy with shuffled weights.
    """

    by: Literal["labels", "shuffled weights"]
    value: float
    expected: float
    p: float
    images: int = 0
    needed: int | None = None
    copies: Sequence[float] = ()

    @property
    def text(self) -> str:
        """The result with count, p-value and level."""
        if self.by == "labels":
            right = self.value * self.images
            share = f"{right:.0f} of {self.images}" if abs(right - round(right)) < 1e-6 else f"{self.value:.1%}"
            result = f"{share} answers agree with the labels, {self.expected:.1%} would by chance"
        else:
            result = f"its answers tell the {self.images} images apart by {self.value:.3g}, those of copies with "
            result += f"shuffled weights by {self.expected:.3g}"
        more = "" if self.needed is None else f"; at this accuracy, about {self.needed} images would be enough"
        return f"{result}; p {p_value(self.p)}, level {LEVEL}{more}"

    @property
    def passed(self) -> bool:
        """Whether the network is better than chance at the level :data:`LEVEL`."""
        return self.p <= LEVEL


def check_accuracy(subject: Subject, seed: int, progress: bool = False, most: int = 100) -> NetworkTest:
    """Test whether the network's answers on the images are better than chance.

    Args:
        subject: Network and images. Labels are used if they differ between images.
        seed: Seed of the permutations.
        progress: Show a progress bar.
        most: Most images for the test without labels; the first ones.

    Returns:
        The result.
    """
    labels = subject.labels
    if labels is not None and bool((labels != labels[0]).any()):
        return _by_labels(subject, labels, seed)
    return _by_weights(subject, seed, progress, most)


def _by_labels(subject: Subject, labels: Tensor, seed: int) -> NetworkTest:
    answers = subject.answers(subject.logits).numpy()
    if labels.ndim == 1:
        truth = np.zeros_like(answers)
        truth[np.arange(len(truth)), labels.numpy()] = True
        # How often each answer meets each label; a permutation changes which image has which label.
        hits = answers[:, labels.numpy()]  # [image, label of another image]
    else:
        truth = labels.numpy() > 0
        hits = (answers[:, None] == truth[None]).mean(2)
    rng, count = np.random.default_rng(seed), len(hits)
    own = hits.diagonal().astype(np.float64)
    agreement_with_labels = float(own.mean())
    shuffled = np.array([hits[np.arange(count), rng.permutation(count)].mean() for _ in range(_SHUFFLED_LABELS)])
    p = (1 + int((shuffled >= agreement_with_labels - 1e-12).sum())) / (1 + _SHUFFLED_LABELS)
    expected = float(shuffled.mean())
    needed = None if p <= LEVEL else _images_needed(own, agreement_with_labels - expected, float(shuffled.std()))
    return NetworkTest("labels", agreement_with_labels, expected, p, count, needed)


def _images_needed(hits: NDArray[np.float64], gain: float, error: float) -> int | None:
    """Return the number of images for which the test has a power of 80 %; None if that is out of reach.

    Normal approximation: ``gain`` over shuffled labels, whose mean has the standard deviation ``error``.
    """
    from scipy.stats import norm

    if gain <= 0:
        return None
    spread = float(norm.isf(LEVEL)) * error * math.sqrt(len(hits)) + float(norm.ppf(POWER)) * float(hits.std())
    needed = max(len(hits) + 1, math.ceil((spread / gain) ** 2))
    return needed if needed <= MOST_IMAGES else None


def _by_weights(subject: Subject, seed: int, progress: bool, most: int) -> NetworkTest:
    images = subject.images[:most]
    own_information = _information(subject, subject.logits[:most])
    others = []
    with ProgressBar("testing the network", COPIES, "copy", shown=progress) as bar:
        for index in range(COPIES):
            copied = shuffled_copy(subject.model, [seed, index], images)
            with np.errstate(all="ignore"):
                outputs = subject.ask(images, copied, f"shuffled {seed} {index}")
            others.append(_information(subject, outputs.nan_to_num(0.0)))
            bar.advance()
    p = (1 + sum(other >= own_information - 1e-12 for other in others)) / (1 + COPIES)
    return NetworkTest("shuffled weights", own_information, float(np.mean(others)), p, len(images), copies=others)


def _information(subject: Subject, logits: Tensor) -> float:
    if subject.head == "function":
        return float(logits.std(correction=0))
    p = subject.probabilities(logits)
    return information(p if subject.head == "softmax" else torch.cat([p, 1 - p], 1))


def information(probabilities: Tensor) -> float:
    """Compute how much the answer tells about which image was shown: the mutual information in nats.

    Args:
        probabilities: ``[N, K]``; for independent labels, the probability of each label and of its absence.

    Returns:
        At least 0; 0 if the network answers the same for all images.

    Example:
        >>> round(information(torch.eye(2, dtype=torch.float64)), 3), information(torch.full((3, 2), 0.5))
        (0.693, 0.0)
    """
    p = probabilities.double().clamp(0, 1)
    entropies = [torch.special.entr(shares).sum(-1) for shares in (p.mean(0), p)]
    return max(0.0, float(entropies[0] - entropies[1].mean()))


def shuffled_copy(model: nn.Module, seed: list[int], images: Tensor) -> nn.Module:
    """Copy a network with the weights of every neuron (of every filter, and all biases of a layer) shuffled.

    Args:
        model: The network; not changed.
        seed: Seed of the permutations.
        images: ``[N, C, H, W]``. If batch normalizations of the network have running statistics, those of the copy are
            estimated on these images; the old statistics do not fit its weights.

    Returns:
        The copy.
    """
    copied = copy_network(model)
    rng = np.random.default_rng(seed)
    norms = [m for m in copied.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm) and _is_estimated(m)]
    with torch.no_grad():
        for parameter in copied.parameters():
            rows = parameter.flatten(1) if parameter.ndim > 1 else parameter.reshape(1, -1)
            rows = rows.to("cpu", torch.promote_types(rows.dtype, torch.float32))  # NumPy has no bfloat16
            shuffled = rng.permuted(rows.numpy(), axis=1)
            parameter.copy_(torch.from_numpy(shuffled).reshape(parameter.shape))
        if norms:
            set_evaluation(copied)
            for norm in norms:
                norm.reset_running_stats()
                norm.momentum = None
                norm.train()
            parameter = next(copied.parameters())
            with isolated_rng(0):
                copied(images.to(parameter.device, parameter.dtype))
    return set_evaluation(copied)


def _is_estimated(norm: nn.modules.batchnorm._BatchNorm) -> bool:
    """Whether the running statistics are not the initial ones."""
    if norm.running_mean is None or norm.running_var is None:
        return False
    return bool((norm.running_mean != 0).any()) or bool((norm.running_var != 1).any())


#: Width of the border, as a share of each side; and the share of a map's mass in it from which on an image is named.
_BORDER, _MASS_IN_BORDER = 0.1, 0.6
#: Images named per finding.
_MOST = 5
#: Level of the tests of another assignment of the labels and of other pixels, and number of shuffled labels.
_LEVEL, _SHUFFLES = 0.01, 999


@dataclass(frozen=True)
class Finding:
    """A finding and the images that it is about.

    Attributes:
        key: ``"labels"``, ``"normalization"``, ``"decisive_regions"``, ``"border"``, ``"disagreement"`` or ``"wrong"``.
        text: What was found, in a sentence.
        images: Indices of the images, most striking first.
    """

    key: str
    text: str
    images: Sequence[int]


def find_suspicious_images(
    subject: Subject,
    maps: Mapping[str, Tensor],
    trusted: Sequence[str],
    agreements: NDArray[np.float64],
    regions: Question,
) -> list[Finding]:
    """Find images that should be looked at.

    Args:
        subject: Network and images.
        maps: Maps of the images by explainer.
        trusted: The explainers whose maps are used: the supported ones, or all that were not refuted.
        agreements: How similar the maps of an image are, ``[N]``.
        regions: The decisive regions that were found.

    Returns:
        The findings, the most important first.
    """
    normalization = find_input_range(subject)
    findings = [
        _labels(subject),
        Finding("normalization", normalization, []) if normalization else None,
        _decisive_regions(subject, regions),
        _border(subject, maps, trusted),
        _disagreement(subject, agreements),
    ]
    return [finding for finding in (*findings, _wrong(subject)) if finding is not None]


def _labels(subject: Subject) -> Finding | None:
    """Report another assignment of the labels to the outputs, if far more answers would be right.

    Two tests at 1 %: the answers are right more often than under the assignment given (exact sign test), and they fit
    the labels better than shuffled labels, each with its own best assignment.
    """
    if subject.labels is None or subject.labels.ndim != 1:
        return None
    from scipy.stats import binomtest

    labels, answers = subject.labels.numpy(), subject.targets.numpy()
    outputs, best = _best_assignment(labels, answers)
    would = np.array([outputs.get(label) == answer for label, answer in zip(labels, answers, strict=True)])
    gained, lost = int((would & (labels != answers)).sum()), int((~would & (labels == answers)).sum())
    if not gained or binomtest(gained, gained + lost, alternative="greater").pvalue > _LEVEL:
        return None
    rng = np.random.default_rng(0)
    as_good = sum(_best_assignment(rng.permutation(labels), answers)[1] >= best for _ in range(_SHUFFLES))
    if (1 + as_good) / (1 + _SHUFFLES) > _LEVEL:
        return None
    names = {number: name for name, number in subject.label_names.items()}
    moved = [
        f"{names.get(label, subject.classes[label])}: output {output} instead of {label}"
        for label, output in outputs.items()
        if label != output
    ]
    text = (
        f"The labels may belong to other outputs: with the classes exchanged, {best} of {len(labels)} answers would be "
        f"right, instead of {int((labels == answers).sum())} ({'; '.join(moved)}). Compare the order of the class "
        "names with that of the network's outputs."
    )
    return Finding("labels", text, [])


def _best_assignment(labels: NDArray[np.int64], answers: NDArray[np.int64]) -> tuple[dict[int, int], int]:
    """Assign each label to another output, so that most answers are right; return the outputs and that number."""
    from scipy.optimize import linear_sum_assignment

    rows, columns = np.unique(labels), np.unique(answers)
    counts = ((labels == rows[:, None, None]) & (answers == columns[:, None])).sum(2)
    chosen = linear_sum_assignment(-counts)
    outputs = zip(rows[chosen[0]].tolist(), columns[chosen[1]].tolist(), strict=True)
    return dict(outputs), int(counts[chosen].sum())


def _decisive_regions(subject: Subject, causes: Question) -> Finding | None:
    regions = causes.regions
    if not regions:
        return None
    share = math.prod(side.stop - side.start for side in regions[0].window) / subject.images[0, 0].numel()
    answers = []
    for target, count in Counter(region.target for region in regions).most_common():
        places = Counter(region.place for region in regions if region.target == target).most_common()
        where = ", ".join(f"{place} {number}" for place, number in places)
        answers.append(f"{subject.classes[target]} in {count} image{'s' * (count > 1)} ({where})")
    text = (
        f"In {len(regions)} of {causes.tried} images, one small region ({share:.0%} of the image) decides the answer: "
        "without it the network answers otherwise, and in another image it brings the answer about. The regions bring "
        f"about {listed(answers, most=_MOST)}. If the object is not there, this is a shortcut, such as a tag or a logo."
    )
    return Finding("decisive_regions", text, [region.image for region in regions])


def _border(subject: Subject, maps: Mapping[str, Tensor], trusted: Sequence[str]) -> Finding | None:
    if not trusted:
        return None
    sides = subject.images.shape[2:]
    inner = torch.zeros(sides, dtype=torch.bool)
    borders = [max(1, round(_BORDER * side)) if side > 1 else 0 for side in sides]
    inner[tuple(slice(border, side - border) for border, side in zip(borders, sides, strict=True))] = True
    masses = []
    for label in trusted:
        mass = maps[label].double().abs()
        masses.append(1 - (mass * inner).flatten(1).sum(1) / mass.flatten(1).sum(1))
    share = np.nanmedian(torch.stack(masses).numpy(), axis=0)
    chosen = [int(i) for i in np.argsort(-np.nan_to_num(share)) if share[i] >= _MASS_IN_BORDER]
    if not chosen:
        return None
    border = 1 - float(inner.double().mean())
    text = (
        f"In {len(chosen)} images, at least {_MASS_IN_BORDER:.0%} of the importance lies at the border, which is "
        f"{border:.0%} of the image (median over {', '.join(trusted)})."
    )
    return Finding("border", text, chosen[:_MOST])


def _disagreement(subject: Subject, agreements: NDArray[np.float64]) -> Finding | None:
    if np.isnan(agreements).all():
        return None
    order = [int(i) for i in np.argsort(agreements) if not np.isnan(agreements[i])][:_MOST]
    text = (
        f"On these images the explainers agree least: mean rank correlation {agreements[order[0]]:.2f} to "
        f"{agreements[order[-1]]:.2f}, over all images {np.nanmean(agreements):.2f}."
    )
    return Finding("disagreement", text, order)


def _wrong(subject: Subject) -> Finding | None:
    if subject.labels is None or subject.labels.ndim != 1:
        return None
    wrong = (subject.targets != subject.labels).nonzero().flatten().tolist()
    if not wrong:
        return None
    text = (
        f"The network answers {len(wrong)} of {len(subject.images)} images wrongly. The maps explain its wrong answer."
    )
    return Finding("wrong", text, wrong[:_MOST])


def find_input_range(subject: Subject) -> str | None:
    """Look for a normalization of the pixels with which the network answers better.

    Tried are ImageNet's normalization (for three channels), mean 0 and standard deviation 1 (for others), and pixels
    from 0 to 255 and from -1 to 1. Answers must be right more often than for the pixels as they are, by an exact sign
    test at 1 %, divided by the number of ranges, and better than chance.

    Args:
        subject: Network and images.

    Returns:
        The normalization and the number of right answers, in sentences. None if there is none, without labels, for
        images that are not in [0, 1], and for networks that normalize inside.
    """
    from scipy.stats import binomtest

    images, labels = subject.images, subject.labels
    if labels is None or not bool((labels != labels[0]).any()) or subject.head == "function":
        return None
    if images.min() < 0 or images.max() > 1 or find_normalization(subject.model):
        return None
    ranges = {
        **_standardized(images),
        "pixels from -1 to 1": images * 2 - 1,
        "pixels from 0 to 255": images * 255,
    }
    given, best = _right(subject, subject.logits, labels), ("", torch.zeros(0))
    for name, changed in ranges.items():
        logits = subject.ask(changed).nan_to_num(0.0)
        right = _right(subject, logits, labels)
        gained, lost = int((right > given).sum()), int((right < given).sum())
        is_better = gained and binomtest(gained, gained + lost, alternative="greater").pvalue <= _LEVEL / len(ranges)
        if is_better and right.sum() > best[1].sum() and check_accuracy(replace(subject, logits=logits), 0).passed:
            best = name, right
    name, right = best
    if not name:
        return None
    if labels.ndim == 1:
        counts = f"{int(right.sum())} of {len(images)} answers would be right, instead of {int(given.sum())}"
    else:
        counts = f"{right.mean():.0%} of the labels would be right, instead of {given.mean():.0%}"
    return (
        f"The network may expect other pixels: it gets them in [0, 1] as they are, and with {name}, {counts}. Put the "
        "normalization that it was trained with before it (xaibench.models.Classifier), and audit that network."
    )


def _standardized(images: Tensor) -> dict[str, Tensor]:
    if images.shape[1] == 3:
        mean, std = (
            torch.tensor(value, dtype=images.dtype).reshape(-1, *[1] * (images.ndim - 2)) for value in IMAGENET
        )
        return {"ImageNet's normalization": (images - mean) / std}
    return {"mean 0 and standard deviation 1": (images - images.mean()) / images.std().clamp(min=1e-6)}


def _right(subject: Subject, logits: Tensor, labels: Tensor) -> Tensor:
    """Return whether each answer is right, or its share of right labels, ``[N]``."""
    answers = subject.answers(logits)
    if labels.ndim == 1:
        return answers.gather(1, labels[:, None].long())[:, 0].double()
    return (answers == (labels > 0)).double().mean(1)
