"""Checks of an audit: whether the network is better than chance, and sanity checks of the explainers.

Sanity checks: the maps of an explainer must depend on the network and the class, and not on chance.

An explanation of a network with random weights can describe that network correctly and is still no evidence of
anything. Therefore an audit supports nothing unless the network passes one of two exact tests:

- with labels, a permutation test: its answers fit the labels better than they fit shuffled labels;
- without labels, a Monte Carlo test: its answers differ between the images more than the answers of copies whose
  weights are shuffled within each tensor. A network with random weights is exchangeable with such copies.

The level is 2 %, so that this alone keeps the probability of supporting an explanation of a random network below 5 %.

Phipson and Smyth: Permutation P-values Should Never Be Zero, 2010 (arXiv 1603.05766).
"""

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
from xaibench.compute.lending import copy_network, set_evaluation
from xaibench.compute.random_numbers import isolated_rng
from xaibench.core.progress import ProgressBar
from xaibench.evaluation.apply import AppliedMetric
from xaibench.metrics.shared.explainer_calls import layers_with_parameters, reinitialize
from xaibench.metrics.shared.ranks import centered_ranks, correlation

#: Significance level of the test.
LEVEL = 0.02
#: Shuffled labels and shuffled copies to compare with.
_SHUFFLED_LABELS, _SHUFFLED_COPIES = 9999, 59


@dataclass(frozen=True)
class NetworkTest:
    """Result of the test of the network.

    Attributes:
        by: What the answers were compared with: ``"labels"`` or ``"shuffled weights"``.
        value: Share of correct answers; or how much the answers tell about which image was shown, in nats (for a
            function of the outputs, its standard deviation over the images).
        expected: Mean of the same number under the null hypothesis.
        p: P-value.
    """

    by: Literal["labels", "shuffled weights"]
    value: float
    expected: float
    p: float

    @property
    def passed(self) -> bool:
        """Whether the network is better than chance at the level :data:`LEVEL`."""
        return self.p <= LEVEL


def check_network(subject: Subject, seed: int, progress: bool = False) -> NetworkTest:
    """Test whether the network's answers on the images are better than chance.

    Args:
        subject: Network and images. Labels are used if they differ between images.
        seed: Seed of the permutations.
        progress: Show a progress bar.

    Returns:
        The result.
    """
    labels = subject.labels
    if labels is not None and bool((labels != labels[0]).any()):
        return _by_labels(subject, labels, seed)
    return _by_weights(subject, seed, progress)


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
    agreement_with_labels = float(hits[np.arange(count), np.arange(count)].mean())
    shuffled = np.array([hits[np.arange(count), rng.permutation(count)].mean() for _ in range(_SHUFFLED_LABELS)])
    p = (1 + int((shuffled >= agreement_with_labels - 1e-12).sum())) / (1 + _SHUFFLED_LABELS)
    return NetworkTest("labels", agreement_with_labels, float(shuffled.mean()), p)


def _by_weights(subject: Subject, seed: int, progress: bool) -> NetworkTest:
    own_information = _information(subject, subject.logits)
    others = []
    with ProgressBar("testing the network", _SHUFFLED_COPIES, "copy", shown=progress) as bar:
        for index in range(_SHUFFLED_COPIES):
            copied = shuffled_copy(subject.model, [seed, index], subject.images)
            with np.errstate(all="ignore"):
                outputs = subject.ask(subject.images, copied)
            others.append(_information(subject, outputs.nan_to_num(0.0)))
            bar.advance()
    p = (1 + sum(other >= own_information - 1e-12 for other in others)) / (1 + _SHUFFLED_COPIES)
    return NetworkTest("shuffled weights", own_information, float(np.mean(others)), p)


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
    """Copy a network with the entries of every parameter tensor shuffled.

    Args:
        model: The network; not changed.
        seed: Seed of the permutations.
        images: ``[N, C, H, W]``. If batch normalizations of the network have running statistics, those of the copy are
            estimated on these images; the old ones do not fit its weights.

    Returns:
        The copy.
    """
    copied = copy_network(model)
    rng = np.random.default_rng(seed)
    norms = [m for m in copied.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm) and _is_estimated(m)]
    with torch.no_grad():
        for parameter in copied.parameters():
            order = torch.from_numpy(rng.permutation(parameter.numel())).to(parameter.device)
            parameter.copy_(parameter.flatten()[order].reshape(parameter.shape))
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
