"""A copy of the network that is trained to react to a pattern, so that it is known what decides its answer."""

from __future__ import annotations

import copy

import numpy as np
import torch
from torch import Tensor

from xaibench.auditing.known_causes import KnownCauses
from xaibench.auditing.subject import Subject
from xaibench.data.base import Split

#: Side of the pattern as a share of the image; copies of every image for training, half of them with the pattern.
_SIDE, _COPIES = 0.15, 8


def train_planted_trigger(subject: Subject, count: int, rng: np.random.Generator, progress: bool) -> KnownCauses:
    """Fine-tune a copy of the network to answer one class whenever a checkerboard is in the image.

    Args:
        subject: Network and images.
        count: Number of samples wanted.
        rng: Source of the places of the pattern.
        progress: Show progress bars.

    Returns:
        At most ``count`` samples that pass the interventions of :func:`xaibench.benchmarks.plant_trigger`; the mask is
        the pattern.
    """
    from xaibench.benchmarks import checkerboard, plant_trigger
    from xaibench.models import fit_head

    images, classes = subject.images, subject.targets
    side = max(2, round(_SIDE * min(images.shape[2:])))
    low, high = float(images.min()), float(images.max())
    patch = (low + (high - low) * checkerboard(side, images.shape[1])).to(images)
    # The class that the network answers least often: its own images are not planted.
    counts = torch.bincount(classes, minlength=subject.logits.shape[1])
    label = int(classes[counts[classes].argmin()])
    network = copy.deepcopy(subject.model)
    for parameter in network.parameters():
        parameter.requires_grad_(parameter.is_floating_point())
    seed = int(rng.integers(2**31))
    split = _planted_copies(images, classes, patch, label, rng)
    fit_head(
        network, split, split, epochs=15, lr=1e-3, finetune="all", seed=seed, device=subject.device, progress=progress
    )

    def ask(shown: Tensor) -> Tensor:
        return subject.ask(shown, network)

    try:
        planted = plant_trigger(ask, images, classes, patch=patch, label=label, least=0.2, seed=seed)
    except ValueError:  # the copy does not react to the pattern
        empty = torch.zeros(0, *images.shape[2:], dtype=torch.bool)
        return KnownCauses(images[:0], empty, classes[:0], np.zeros(0, np.int64), [], len(images))
    n = min(count, len(planted))
    found = (planted.images[:n], planted.masks[:n], planted.targets[:n])
    return KnownCauses(*found, np.arange(n), [(0, n, network)], len(images))


def _planted_copies(images: Tensor, classes: Tensor, patch: Tensor, label: int, rng: np.random.Generator) -> Split:
    """Return copies of all images, every second one with the pattern at a random place and with its label."""
    x, y = images.repeat_interleave(_COPIES, 0).clone(), classes.repeat_interleave(_COPIES)
    side = patch.shape[1]
    for index in range(0, len(x), 2):
        top, left = (int(rng.integers(whole - side + 1)) for whole in x.shape[2:])
        x[index, :, top : top + side, left : left + side] = patch
        y[index] = label
    return Split(x, torch.zeros(x[:, 0].shape, dtype=torch.bool), y)
