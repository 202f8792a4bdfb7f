"""Recognize a network that expects its pixels in another range than it gets."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from xaibench.auditing.images import Subject
from xaibench.auditing.network_accuracy import check_network
from xaibench.models.networks.pretrained import find_normalization

#: Level of the tests of all ranges together.
_LEVEL = 0.01

#: Mean and standard deviation that networks of ImageNet subtract and divide by.
_IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


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
        if is_better and right.sum() > best[1].sum() and check_network(replace(subject, logits=logits), 0).passed:
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
            torch.tensor(value, dtype=images.dtype).reshape(-1, *[1] * (images.ndim - 2)) for value in _IMAGENET
        )
        return {"ImageNet's normalization": (images - mean) / std}
    return {"mean 0 and standard deviation 1": (images - images.mean()) / images.std().clamp(min=1e-6)}


def _right(subject: Subject, logits: Tensor, labels: Tensor) -> Tensor:
    """Return whether each answer is right, or its share of right labels, ``[N]``."""
    answers = subject.answers(logits)
    if labels.ndim == 1:
        return answers.gather(1, labels[:, None].long())[:, 0].double()
    return (answers == (labels > 0)).double().mean(1)
