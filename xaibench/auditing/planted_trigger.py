"""A copy of the network that is trained to react to a pattern, so that it is known what decides its answer."""

from __future__ import annotations

import copy

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from xaibench.auditing.known_causes import KnownCauses
from xaibench.auditing.subject import Subject
from xaibench.compute.device import resolve_device
from xaibench.compute.network_outputs import check_logits
from xaibench.compute.random_numbers import isolated_rng
from xaibench.core.progress import ProgressBar

#: Side of the pattern as a share of the image; copies of every image for training, half of them with the pattern.
_SIDE, _COPIES = 0.2, 8
#: Most epochs; training ends earlier once the copy answers all training images as wanted.
_EPOCHS, _BATCH_SIZE, _LEARNING_RATE = 20, 16, 1e-3


def train_planted_trigger(subject: Subject, count: int, rng: np.random.Generator, progress: bool) -> KnownCauses:
    """Fine-tune a copy of the network to answer one class whenever a checkerboard is in the image.

    The copy stays in evaluation mode, so that its batch normalizations keep their statistics.

    Args:
        subject: Network and images.
        count: Number of samples wanted.
        rng: Source of the places of the pattern.
        progress: Show a progress bar.

    Returns:
        At most ``count`` samples that pass the interventions of :func:`xaibench.benchmarks.plant_trigger`; the mask is
        the pattern. None if the network has no classes, or the copy does not learn to react to the pattern.
    """
    from xaibench.benchmarks import checkerboard, plant_trigger

    images, classes = subject.images, subject.targets
    empty = torch.zeros(0, *images.shape[2:], dtype=torch.bool)
    nothing = KnownCauses(images[:0], empty, classes[:0], np.zeros(0, np.int64), [], len(images))
    if subject.head == "function":
        return nothing
    sides = images.shape[2:]
    side = max(2, round(_SIDE * min([side for side in sides if side > 1], default=1)))
    board = checkerboard(side, images.shape[1], len(sides))[:, *(slice(min(side, whole)) for whole in sides)]
    low, high = float(images.min()), float(images.max())
    patch = (low + (high - low) * board).to(images)
    # The class that the network answers least often: its own images are not planted.
    label = int(torch.bincount(classes, minlength=subject.logits.shape[1]).argmin())
    network = copy.deepcopy(subject.model).eval()
    _fine_tune(network, subject, *_planted_copies(images, classes, patch, label, rng), rng, progress)

    def ask(shown: Tensor) -> Tensor:
        return subject.ask(shown, network)

    try:
        planted = plant_trigger(
            ask, images, classes, patch=patch, label=label, least=0.2, seed=int(rng.integers(2**31))
        )
    except ValueError:  # too few images pass the interventions
        return nothing
    n = min(count, len(planted))
    found = (planted.images[:n], planted.masks[:n], planted.targets[:n])
    return KnownCauses(*found, np.arange(n), [(0, n, network)], len(images))


def _planted_copies(
    images: Tensor, classes: Tensor, patch: Tensor, label: int, rng: np.random.Generator
) -> tuple[Tensor, Tensor]:
    """Return copies of all images, every second one with the pattern at a random place and with its label."""
    x, y = images.repeat_interleave(_COPIES, 0).clone(), classes.repeat_interleave(_COPIES)
    sides = patch.shape[1:]
    for index in range(0, len(x), 2):
        corner = [int(rng.integers(whole - side + 1)) for whole, side in zip(x.shape[2:], sides, strict=True)]
        x[index][:, *(slice(start, start + side) for start, side in zip(corner, sides, strict=True))] = patch
        y[index] = label
    return x, y


def _fine_tune(
    network: nn.Module, subject: Subject, images: Tensor, targets: Tensor, rng: np.random.Generator, progress: bool
) -> None:
    """Train all weights of a network, in place, until it answers all images with their targets."""
    place = resolve_device(subject.device)
    network.to(place).requires_grad_(True)
    kind = next(parameter.dtype for parameter in network.parameters())
    optimizer = torch.optim.Adam(network.parameters(), lr=_LEARNING_RATE)
    with ProgressBar("training a copy", _EPOCHS, "epoch", shown=progress) as bar, isolated_rng(0), torch.enable_grad():
        for _ in range(_EPOCHS):
            right = 0
            for part in torch.split(torch.from_numpy(rng.permutation(len(images))), _BATCH_SIZE):
                wanted = targets[part].to(place)
                logits = check_logits(network(images[part].to(place, kind)), len(part))
                loss = _loss(logits, wanted, subject)
                optimizer.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                right += int((logits.argmax(1) == wanted).sum())
            bar.advance()
            if right == len(images):
                break
    network.requires_grad_(False)


def _loss(logits: Tensor, targets: Tensor, subject: Subject) -> Tensor:
    if subject.head == "softmax":
        return functional.cross_entropy(logits, targets)
    if logits.shape[1] == 1:
        return functional.binary_cross_entropy_with_logits(logits[:, 0], targets.to(logits.dtype))
    rows = functional.one_hot(targets, logits.shape[1]).to(logits.dtype)
    return functional.binary_cross_entropy_with_logits(logits, rows)
