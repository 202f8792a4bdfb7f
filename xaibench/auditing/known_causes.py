"""Images whose decisive part is known for the audited network, made from the user's own images.

Every sample is verified by interventions on the network: without the part, the answer is gone. So the ground truth is
what this network uses, not what people would point at.

- *Mosaics*: four images on a grid (eight volumes on a grid of 2×2×2), answered with the class of one of them. After
  Böhle, Fritz, Schiele: Convolutional Dynamic Alignment Networks, CVPR 2021 (arXiv 2104.00032), where it is assumed
  that the cells of a class decide.
- *Insertions*: one image, at half its size, in a quarter of another one, whose answer it changes to its own class.
- *Decisive regions*: a small region of an image without which the network answers the class of another image, and which
  alone makes it answer the first class in the other image. Such regions reveal tags and other shortcuts.
- *Blinded copies*: copies of the network that receive only a quarter of the image.

Parts that are placed are quarters of the image, each equally often, so that they are not where images are centered. Of
volumes, "quarters" are the eight parts of half the size along every axis; an axis of one slice is not divided.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from xaibench.auditing.subject import Subject

#: A part of an image: a range of indices for each spatial axis.
Window: TypeAlias = tuple[slice, ...]
#: Fewer samples than these are no basis for a verdict.
FEWEST = 6
#: Windows in which decisive regions are searched: side as a share of the image; their number along each axis of an
#: image, where neighbors overlap by half, and of a volume, where they do not overlap.
_WINDOW, _WINDOWS, _VOLUME_WINDOWS = 0.25, 7, 4


@dataclass(frozen=True)
class KnownCauses:
    """Samples with a known decisive part.

    Attributes:
        images: ``[n, C, H, W]``.
        masks: ``[n, H, W]`` bool: the part that decides.
        targets: ``[n]`` the explained class.
        groups: ``[n]``: group of the image whose class is explained.
        models: The network that is explained, for each range of samples: ``[(start, stop, network)]``.
        tried: Number of candidates, of which those that passed the interventions are samples.
        places: For decisive regions: where they are, in all images that have one, also beyond the samples.
    """

    images: Tensor
    masks: Tensor
    targets: Tensor
    groups: NDArray[np.int64]
    models: Sequence[tuple[int, int, nn.Module]]
    tried: int
    places: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.images)


def make_mosaics(subject: Subject, count: int, rng: np.random.Generator) -> KnownCauses:
    """Build 2×2 mosaics of the images (2×2×2 of volumes) and keep those whose cells are verified.

    Args:
        subject: Network and images.
        count: Number of samples wanted.
        rng: Source of the random choice.

    Returns:
        At most ``count`` samples; the mask is all cells of the explained class.
    """
    quarters, small = _quarters(subject.images), _halved(subject.images)
    classes = subject.targets.numpy()
    images, masks, guests = [], [], []
    for guest in _guests(classes, 4 * count, rng):
        other = int(rng.choice(np.flatnonzero(classes != classes[guest])))
        chosen = rng.permutation([guest, other, *rng.choice(len(classes), len(quarters) - 2)])
        mosaic, mask = subject.canvas.expand_as(subject.images[0]).clone(), _empty_mask(subject)
        for image, window in zip(chosen.tolist(), quarters, strict=True):
            mosaic[:, *window] = small[image]
            mask[window] = bool(classes[image] == classes[guest])
        images.append(mosaic)
        masks.append(mask)
        guests.append(guest)
    return _verify(subject, images, masks, guests, count)


def insert_images(subject: Subject, count: int, rng: np.random.Generator) -> KnownCauses:
    """Insert images, made smaller, at random places of others, and keep the insertions that change the answer.

    Args:
        subject: Network and images.
        count: Number of samples wanted.
        rng: Source of the random choice.

    Returns:
        At most ``count`` samples; the mask is the inserted image, whose class is explained.
    """
    quarters, small, classes = _quarters(subject.images), _halved(subject.images), subject.targets.numpy()
    images, masks, guests = [], [], []
    for guest in _guests(classes, 8 * count, rng):
        host = int(rng.choice(np.flatnonzero(classes != classes[guest])))
        window = quarters[int(rng.integers(len(quarters)))]
        image, mask = subject.images[host].clone(), _empty_mask(subject)
        image[:, *window] = small[guest]
        mask[window] = True
        images.append(image)
        masks.append(mask)
        guests.append(guest)
    return _verify(subject, images, masks, guests, count)


def _guests(classes: NDArray[np.int64], count: int, rng: np.random.Generator) -> list[int]:
    """Draw images, each as often as the others; none if the network answers all with one class."""
    if len(np.unique(classes)) < 2:
        return []
    rounds = [rng.permutation(len(classes)) for _ in range(-(-count // len(classes)))]
    return [int(one) for one in np.concatenate(rounds)[:count]]


def _verify(subject: Subject, images: list[Tensor], masks: list[Tensor], guests: list[int], count: int) -> KnownCauses:
    """Keep the samples whose masked part decides.

    With it the network answers the target, without it the network does not, and the output of the target falls more
    without it than without everything else.
    """
    if not images:
        return _nothing(subject)
    x, m, y = torch.stack(images), torch.stack(masks), subject.targets[guests]
    canvas = subject.canvas
    without = torch.where(m[:, None], canvas, x)
    alone = torch.where(m[:, None], x, canvas)
    whole, less, only = (subject.ask(part) for part in (x, without, alone))
    answered = subject.answers(whole).gather(1, y[:, None])[:, 0]
    gone = ~subject.answers(less).gather(1, y[:, None])[:, 0]
    lost, kept = ((whole - other).gather(1, y[:, None])[:, 0] for other in (less, only))
    chosen = (answered & gone & (lost > kept)).nonzero().flatten()[:count]
    groups = subject.groups[guests][chosen.numpy()]
    return KnownCauses(x[chosen], m[chosen], y[chosen], groups, [(0, len(chosen), subject.model)], len(images))


def find_decisive_regions(
    subject: Subject, count: int, rng: np.random.Generator, advance: Callable[[int], None] = lambda images: None
) -> KnownCauses:
    """Search small regions that alone decide between two classes, by exchanging them between images.

    Image A gets region after region from image B, of another class, at the same place. A region decides if A is no
    longer answered with its class, and if B with that region of A is answered with the class of A.

    Args:
        subject: Network and images.
        count: Number of samples wanted.
        rng: Source of the random choice of the other images.
        advance: Called with 1 after each image.

    Returns:
        At most ``count`` samples: images of the user with a region that decides (of several, the one with the largest
        effect), which is the mask; and a description of where it is.
    """
    classes = subject.targets.numpy()
    if len(np.unique(classes)) < 2:
        return _nothing(subject)
    windows = _search_windows(subject.images)
    others = [int(rng.choice(np.flatnonzero(classes != one))) for one in classes]
    images, masks, targets, places, groups = [], [], [], [], []
    for index, other in enumerate(others):
        advance(1)
        a, b, target = subject.images[index], subject.images[other], int(classes[index])
        outputs = subject.ask(torch.cat([_exchange(a, b, windows), _exchange(b, a, windows)]))
        answers = subject.answers(outputs)[:, target]
        decides = ~answers[: len(windows)] & answers[len(windows) :]
        if not decides.any() or bool(subject.answers(subject.logits[other][None])[0, target]):
            continue
        loss = torch.where(decides, -outputs[: len(windows), target], -torch.inf)
        window = windows[int(loss.argmax())]
        mask = _empty_mask(subject)
        mask[window] = True
        images.append(a)
        masks.append(mask)
        targets.append(target)
        places.append(place_of(mask))
        groups.append(int(subject.groups[index]))
    if not images:
        return _nothing(subject, tried=len(others))
    found = slice(0, count)
    x, m, y = torch.stack(images)[found], torch.stack(masks)[found], torch.tensor(targets)[found]
    return KnownCauses(x, m, y, np.array(groups)[found], [(0, len(x), subject.model)], len(others), places)


def blind_copies(subject: Subject, count: int, rng: np.random.Generator) -> KnownCauses:
    """Make copies of the network that receive only a quarter of the image.

    A copy need not use what it sees. Therefore an image is a sample only if the output of the copy changes when the
    quarter is replaced by the mean color, by at least a hundredth of the largest change.

    Args:
        subject: Network and images.
        count: Number of samples wanted.
        rng: Source of the choice of images.

    Returns:
        At most ``count`` samples; the mask is the quarter, and the explained class the answer of the copy.
    """
    from xaibench.benchmarks import blind

    images, copies, answers, changes = subject.images, [], [], []
    for window in _quarters(images):
        visible = _empty_mask(subject)
        visible[window] = True
        network = blind(subject.model, visible)
        seen, unseen = (subject.ask(part, network) for part in (images, subject.canvas.expand_as(images)))
        answer = seen.argmax(1)
        copies.append((network, visible))
        answers.append(answer)
        changes.append((seen - unseen).gather(1, answer[:, None])[:, 0].abs())
    change = torch.stack(changes)  # [copy, image]
    passed = (change > 0.01 * change.max()).numpy()
    chosen = _choose_evenly(passed, count, rng)
    parts: list[tuple[Tensor, Tensor, Tensor]] = []
    models = []
    for (network, visible), answer, numbers in zip(copies, answers, chosen, strict=True):
        start = sum(len(shown) for shown, _, _ in parts)
        parts.append((images[numbers], visible.expand(len(numbers), *visible.shape), answer[numbers]))
        models.append((start, start + len(numbers), network))
    x, m, y = (torch.cat(tensors) for tensors in zip(*parts, strict=True))
    groups = subject.groups[np.concatenate(chosen)]
    return KnownCauses(x, m, y, groups, [part for part in models if part[0] < part[1]], passed.size)


def _choose_evenly(passed: NDArray[np.bool_], count: int, rng: np.random.Generator) -> list[NDArray[np.int64]]:
    """Choose passing images for each copy: each image at most once, and about as many for every copy.

    Args:
        passed: ``[copies, images]``.
        count: Number of images in all.
        rng: Source of the order.

    Returns:
        Indices of images for each copy.
    """
    chosen: list[list[int]] = [[] for _ in passed]
    for image in rng.permutation(passed.shape[1]):
        open_copies = [copy for copy in range(len(passed)) if passed[copy, image]]
        if open_copies and sum(map(len, chosen)) < count:
            chosen[min(open_copies, key=lambda copy: len(chosen[copy]))].append(int(image))
    return [np.array(numbers, dtype=np.int64) for numbers in chosen]


def place_of(mask: Tensor) -> str:
    """Describe where a region is, such as ``"top left"``, or ``"top left of the first slices"`` in a volume.

    Args:
        mask: ``[H, W]`` or ``[D, H, W]`` bool, not empty.

    Returns:
        One of nine places: thirds of the image by the middle of the region; of 27 places in a volume.

    Example:
        >>> mask = torch.zeros(9, 9, dtype=torch.bool)
        >>> mask[:2, 7:] = True
        >>> place_of(mask)
        'top right'
    """
    middle = mask.nonzero().double().mean(0) + 0.5
    *depth, row, column = (int(3 * middle[axis] / side) for axis, side in enumerate(mask.shape))
    depth = depth if mask.shape[0] > 1 else []
    vertical, horizontal = ("top", "", "bottom")[row], ("left", "", "right")[column]
    place = " ".join(filter(None, (vertical, horizontal))) or "center"
    return " of the ".join([place, *(f"{('first', 'middle', 'last')[third]} slices" for third in depth)])


def divided_axes(images: Tensor) -> int:
    """Return the number of spatial axes with more than one pixel."""
    return sum(side > 1 for side in images.shape[2:])


def _search_windows(images: Tensor) -> list[Window]:
    """Return windows on a grid that covers the image."""
    sides = images.shape[2:]
    size = tuple(max(1, round(_WINDOW * side)) for side in sides)
    count = _WINDOWS if divided_axes(images) <= 2 else _VOLUME_WINDOWS
    starts = (
        np.unique(np.linspace(0, whole - side, count).round().astype(int)).tolist()
        for whole, side in zip(sides, size, strict=True)
    )
    return [_window(corner, size) for corner in itertools.product(*starts)]


def _exchange(image: Tensor, other: Tensor, windows: Sequence[Window]) -> Tensor:
    """Return a copy of an image for each window, which has the other image there."""
    changed = image.repeat(len(windows), *[1] * image.ndim)
    for copied, window in zip(changed, windows, strict=True):
        copied[:, *window] = other[:, *window]
    return changed


def _window(corner: Sequence[int], size: Sequence[int]) -> Window:
    return tuple(slice(start, start + side) for start, side in zip(corner, size, strict=True))


def _quarters(images: Tensor) -> list[Window]:
    """Return windows of half the size along each axis, in the corners; of odd sides, the middle line is in none."""
    size = _half_size(images)
    starts = ((0,) if side == whole else (0, whole - side) for whole, side in zip(images.shape[2:], size, strict=True))
    return [_window(corner, size) for corner in itertools.product(*starts)]


def _halved(images: Tensor) -> Tensor:
    return functional.interpolate(images, size=_half_size(images), mode="area")


def _half_size(images: Tensor) -> list[int]:
    return [max(1, side // 2) for side in images.shape[2:]]


def _empty_mask(subject: Subject) -> Tensor:
    return torch.zeros(subject.images.shape[2:], dtype=torch.bool)


def _nothing(subject: Subject, tried: int = 0) -> KnownCauses:
    shape = subject.images.shape
    empty = torch.zeros(0, *shape[2:], dtype=torch.bool)
    return KnownCauses(subject.images[:0], empty, torch.zeros(0, dtype=torch.long), np.zeros(0, np.int64), [], tried)
