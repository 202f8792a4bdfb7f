"""The test of an audit whether the network is better than chance.

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
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from xaibench.auditing.images import Subject
from xaibench.core.progress import ProgressBar
from xaibench.network.lending import copy_network, set_evaluation
from xaibench.report.page.templating import p_value
from xaibench.tensors.random_numbers import isolated_rng

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


def check_network(subject: Subject, seed: int, progress: bool = False, most: int = 100) -> NetworkTest:
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
