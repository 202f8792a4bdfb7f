"""Questions of an audit to the explainers, and samples whose answer has a known cause.

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

import functools
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from xaibench.auditing.images import Subject, divided_axes
from xaibench.auditing.plan import LEFT_OUT, Candidates, Effort, Task
from xaibench.core.progress import ProgressBar
from xaibench.core.truth_kinds import Truth
from xaibench.evaluation.apply import AppliedMetric
from xaibench.network.lending import copy_network, set_evaluation
from xaibench.network.outputs import check_logits
from xaibench.tensors.device import resolve_device
from xaibench.tensors.random_numbers import isolated_rng

if TYPE_CHECKING:
    from xaibench.evaluation.apply import Batch

#: A part of an image: a range of indices for each spatial axis.
Window: TypeAlias = tuple[slice, ...]
#: Fewer samples than these are no basis for a verdict.
FEWEST = 6
#: Smallest side of the windows in which decisive regions are searched, as a share of the image, and most of them along
#: each axis of a volume.
_WINDOW, _VOLUME_WINDOWS = 0.25, 4


@dataclass(frozen=True)
class Region:
    """A small region of an image that decides the answer.

    Attributes:
        image: Index of the image.
        window: Range of indices for each spatial axis.
        place: Where it is, such as ``"top left"``.
        target: The class that it brings about.
    """

    image: int
    window: Window
    place: str
    target: int


Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Question:
    """One question: samples with masks, and their scores. Higher is better; a random map is expected to score 0.

    Attributes:
        key: Short name, unique within an audit.
        truth: Kind of truth.
        title: Name in tables.
        text: The question in a sentence.
        scores: Scores ``[n]`` of each explainer and control; empty if the question was not asked.
        groups: ``[n]`` group of each sample.
        sources: ``[n]`` index of the image that each sample is, or whose class it explains.
        parts: Means of the measures that the scores combine, for each explainer and control: ``{measure: {label:
            mean}}``.
        skipped: Why the question was not asked; empty if it was.
        batches: Each explained network with its images ``[n, C, H, W]``, masks ``[n, H, W]`` and targets ``[n]``. The
            mask is the part that decides, or what people marked.
        tried: Number of candidates; candidates that passed the interventions are samples.
        regions: The decisive regions of all images that have one, also beyond the samples.
        metrics: The metrics that score maps, with their parameters.
    """

    key: str
    truth: Truth
    title: str
    text: str
    scores: Mapping[str, Floats] = field(default_factory=dict)
    groups: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    sources: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    parts: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    skipped: str = ""
    batches: Sequence[tuple[nn.Module, Batch]] = ()
    tried: int = 0
    regions: Sequence[Region] = ()
    metrics: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def samples(self) -> int:
        """Number of samples."""
        return len(self.groups)

    @property
    def batch(self) -> Batch:
        """Images, masks and targets of all networks together."""
        images, masks, targets = (torch.cat(one) for one in zip(*(batch for _, batch in self.batches), strict=True))
        return images, masks, targets

    def task(self, output: Any) -> Task:
        """Return what the explainers explain to answer the question: logits, or the output of the audit."""
        parts = [(network, images, targets) for network, (images, _, targets) in self.batches]
        return Task(self.key, parts, output if output == "sigmoid" or callable(output) else "logit")

    def means(self) -> dict[str, float]:
        """Return the mean score of each explainer and control."""
        return {label: defined_mean(scores) for label, scores in self.scores.items()}


def defined_mean(scores: Floats) -> float:
    """Return the mean of the scores that are not nan; nan if there are none."""
    known = scores[~np.isnan(scores)]
    return float(known.mean()) if len(known) else np.nan


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


def _ask(
    subject: Subject,
    key: str,
    sources: Sequence[int] | NDArray[np.int64] = (),
    batches: Sequence[tuple[nn.Module, Batch]] = (),
    *,
    tried: int = 0,
    regions: Sequence[Region] = (),
    impossible: str = "",
) -> Question:
    """Return the question of :data:`CAUSES`; skipped if its samples are of fewer than :data:`FEWEST` groups.

    ``impossible`` says why there are no candidates. By default, the network has a single answer.
    """
    names = ("Eight", "an eighth") if divided_axes(subject.images) == 3 else ("Four", "a quarter")
    title, text, missing = (words.format(four=names[0], part=names[1]) for words in CAUSES[key])
    metric = "mass_accuracy" if key == "blinded_copies" else "use_auc"
    question = Question(key, "use", title, text, tried=tried, regions=regions, metrics={metric: {}})
    sources = np.asarray(sources, dtype=np.int64)
    groups = subject.groups[sources]
    if (different := len(np.unique(groups))) >= FEWEST:
        return replace(question, groups=groups, sources=sources, batches=batches)
    if tried:
        impossible = (
            f"{missing} ({len(sources)} of {tried} candidates passed the interventions; independent images: "
            f"{different}, needed: {FEWEST})"
        )
    elif not impossible and subject.head == "function":
        impossible = "a function of the outputs has no classes"
    elif not impossible:
        impossible = f"the network gives the same answer for all images, {subject.classes[int(subject.targets[0])]}"
    return replace(question, skipped=impossible)


def ask_known_causes(subject: Subject, effort: Effort, seed: int, train: bool, progress: bool) -> list[Question]:
    """Make all questions with a known cause.

    Args:
        subject: Network and images.
        effort: Number of samples and regions.
        seed: Seed of the random choices.
        train: Whether a copy of the network is trained to react to a pattern.
        progress: Show a progress bar.

    Returns:
        The questions without scores; skipped if there are too few samples.
    """
    rngs = [np.random.default_rng([seed, index]) for index in range(5)]
    count = effort.samples
    with ProgressBar("decisive regions", len(subject.images), "image", shown=progress) as bar:
        regions = find_decisive_regions(subject, count, rngs[0], effort.windows, bar.advance)
    return [
        regions,
        insert_images(subject, count, rngs[1]),
        _ask(subject, "mosaics", impossible=LEFT_OUT)
        if "mosaics" in effort.left_out
        else make_mosaics(subject, count, rngs[2]),
        blind_copies(subject, count, rngs[3]),
        train_planted_trigger(subject, count, rngs[4], progress)
        if train
        else _ask(subject, "planted_trigger", impossible="it needs train=True (--train)"),
    ]


def make_mosaics(subject: Subject, count: int, rng: np.random.Generator) -> Question:
    """Build 2×2 mosaics of the images (2×2×2 of volumes) and keep those whose cells are verified.

    Args:
        subject: Network and images.
        count: Number of samples wanted.
        rng: Source of the random choice.

    Returns:
        At most ``count`` samples; the mask is all cells of the explained class.
    """
    quarters, small, classes = _quarters(subject.images), _halved(subject.images), subject.targets.numpy()

    def compose(guest: int, other: int) -> tuple[Tensor, Tensor]:
        chosen = rng.permutation([guest, other, *rng.choice(len(classes), len(quarters) - 2)])
        mosaic, mask = subject.canvas.expand_as(subject.images[0]).clone(), _mask_of(subject)
        for image, window in zip(chosen.tolist(), quarters, strict=True):
            mosaic[:, *window] = small[image]
            mask[window] = bool(classes[image] == classes[guest])
        return mosaic, mask

    return _verify(subject, "mosaics", 4 * count, count, rng, compose)


def insert_images(subject: Subject, count: int, rng: np.random.Generator) -> Question:
    """Insert images, made smaller, at random places of others, and keep the insertions that change the answer.

    Args:
        subject: Network and images.
        count: Number of samples wanted.
        rng: Source of the random choice.

    Returns:
        At most ``count`` samples; the mask is the inserted image, whose class is explained.
    """
    quarters, small = _quarters(subject.images), _halved(subject.images)

    def compose(guest: int, host: int) -> tuple[Tensor, Tensor]:
        window = quarters[int(rng.integers(len(quarters)))]
        image = subject.images[host].clone()
        image[:, *window] = small[guest]
        return image, _mask_of(subject, window)

    return _verify(subject, "insertions", 8 * count, count, rng, compose)


def _verify(
    subject: Subject,
    key: str,
    tried: int,
    count: int,
    rng: np.random.Generator,
    compose: Callable[[int, int], tuple[Tensor, Tensor]],
) -> Question:
    """Compose samples of an image, each as often as the others, and one of another class; keep those that pass.

    With the masked part the network answers the class of the image, without it the network does not, and the output of
    that class falls more without it than without everything else.
    """
    classes = subject.targets.numpy()
    if len(np.unique(classes)) < 2:
        return _ask(subject, key)
    rounds = [rng.permutation(len(classes)) for _ in range(-(-tried // len(classes)))]
    sources = np.concatenate(rounds)[:tried]
    samples = [compose(int(one), int(rng.choice(np.flatnonzero(classes != classes[one])))) for one in sources]
    x, m = (torch.stack(tensors) for tensors in zip(*samples, strict=True))
    whole = subject.ask(x)
    answered = subject.answers(whole).gather(1, subject.targets[sources][:, None])[:, 0]
    if not answered.any():
        return _ask(subject, key, tried=tried)
    # Often few of the candidates remain for the other two interventions.
    x, m, sources, whole = x[answered], m[answered], sources[answered.numpy()], whole[answered]
    y = subject.targets[sources]
    less = subject.ask(torch.where(m[:, None], subject.canvas, x))
    only = subject.ask(torch.where(m[:, None], x, subject.canvas))
    gone = ~subject.answers(less).gather(1, y[:, None])[:, 0]
    fall_without, fall_alone = ((whole - other).gather(1, y[:, None])[:, 0] for other in (less, only))
    chosen = (gone & (fall_without > fall_alone)).nonzero().flatten()[:count]
    batch = (x[chosen], m[chosen], y[chosen])
    return _ask(subject, key, sources[chosen.numpy()], [(subject.model, batch)], tried=tried)


def find_decisive_regions(
    subject: Subject,
    count: int,
    rng: np.random.Generator,
    windows: int = 7,
    advance: Callable[[int], None] = lambda images: None,
) -> Question:
    """Search small regions that alone decide between two classes, by exchanging them between images.

    Image A gets region after region from image B, of another class, at the same place. A region decides if A is no
    longer answered with its class, and if B with that region of A is answered with the class of A.

    Args:
        subject: Network and images.
        count: Number of samples wanted.
        rng: Source of the random choice of the other images.
        windows: Number of regions along each axis of an image; with 7, neighbors overlap by half.
        advance: Called with 1 after each image.

    Returns:
        At most ``count`` samples: images of the user with a region that decides (of several, the one with the largest
        effect), which is the mask; and a description of where it is.
    """
    classes = subject.targets.numpy()
    key = "decisive_regions"
    if len(np.unique(classes)) < 2:
        return _ask(subject, key)
    places = _search_windows(subject.images, windows)
    others = [int(rng.choice(np.flatnonzero(classes != one))) for one in classes]
    regions = []
    for index, other in enumerate(others):
        advance(1)
        a, b, target = subject.images[index], subject.images[other], int(classes[index])
        if bool(subject.answers(subject.logits[other][None])[0, target]):
            continue
        outputs = subject.ask(_exchange(a, b, places))
        decides = ~subject.answers(outputs)[:, target]
        if decides.any():  # few regions remain for the second test
            remaining = decides.nonzero().flatten().tolist()
            moved = subject.ask(_exchange(b, a, [places[number] for number in remaining]))
            decides[remaining] = subject.answers(moved)[:, target]
        if not decides.any():
            continue
        window = places[int(torch.where(decides, -outputs[:, target], -torch.inf).argmax())]
        regions.append(Region(index, window, place_of(_mask_of(subject, window)), target))
    if not regions:
        return _ask(subject, key, tried=len(others))
    chosen = [region.image for region in regions[:count]]
    masks = torch.stack([_mask_of(subject, region.window) for region in regions[:count]])
    batch = (subject.images[chosen], masks, subject.targets[chosen])
    return _ask(subject, key, chosen, [(subject.model, batch)], tried=len(others), regions=regions)


def blind_copies(subject: Subject, count: int, rng: np.random.Generator) -> Question:
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

    images, copies, changes = subject.images, [], []
    for window in _quarters(images):
        visible = _mask_of(subject, window)
        network = blind(subject.model, visible)
        seen, unseen = (subject.ask(shown, network) for shown in (images, subject.canvas.expand_as(images[:1])))
        answer = seen.argmax(1)
        copies.append((network, visible, answer))
        changes.append((seen - unseen).gather(1, answer[:, None])[:, 0].abs())
    change = torch.stack(changes)  # [copy, image]
    passed = (change > 0.01 * change.max()).numpy()
    chosen = _choose_evenly(passed, count, rng)
    batches = [
        (network, (images[numbers], visible.expand(len(numbers), *visible.shape), answer[numbers]))
        for (network, visible, answer), numbers in zip(copies, chosen, strict=True)
        if len(numbers)
    ]
    return _ask(subject, "blinded_copies", np.concatenate(chosen), batches, tried=passed.size)


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
    position = " ".join(filter(None, (vertical, horizontal))) or "center"
    return " of the ".join([position, *(f"{('first', 'middle', 'last')[third]} slices" for third in depth)])


def _search_windows(images: Tensor, along: int) -> list[Window]:
    """Return windows on a grid that covers the image."""
    sides = images.shape[2:]
    count = along if divided_axes(images) <= 2 else min(along, _VOLUME_WINDOWS)
    size = tuple(max(1, math.ceil(side / count), round(_WINDOW * side)) for side in sides)
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


def _mask_of(subject: Subject, window: Window | None = None) -> Tensor:
    mask = torch.zeros(subject.images.shape[2:], dtype=torch.bool)
    if window is not None:
        mask[window] = True
    return mask


#: Side of the pattern as a share of the image; copies of every image for training, half of them with the pattern.
_SIDE, _COPIES = 0.2, 8
#: Most epochs; training ends earlier once the copy answers all training images as wanted.
_EPOCHS, _BATCH_SIZE, _LEARNING_RATE = 20, 16, 1e-3


def train_planted_trigger(subject: Subject, count: int, rng: np.random.Generator, progress: bool) -> Question:
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
    from xaibench.benchmarks.certified.planted_triggers import add_patch, checkerboard, plant_trigger

    key = "planted_trigger"
    if subject.head == "function":
        return _ask(subject, key)
    images, classes = subject.images, subject.targets
    sides = images.shape[2:]
    side = max(2, round(_SIDE * min([side for side in sides if side > 1], default=1)))
    board = checkerboard(side, images.shape[1], len(sides))[:, *(slice(min(side, whole)) for whole in sides)]
    low, high = float(images.min()), float(images.max())
    patch = (low + (high - low) * board).to(images)
    # The class that the network answers least often: its own images are not planted.
    label = int(torch.bincount(classes, minlength=subject.logits.shape[1]).argmin())
    x, y = images.repeat_interleave(_COPIES, 0), classes.repeat_interleave(_COPIES)
    free = [whole - side + 1 for whole, side in zip(sides, patch.shape[1:], strict=True)]
    corners = np.array([[rng.integers(most) for most in free] for _ in range(len(x) // 2)])
    x[::2], y[::2] = add_patch(x[::2], patch, list(corners.T))[0], label
    network = set_evaluation(copy_network(subject.model))
    _fine_tune(network, subject, x, y, rng, progress)

    ask = functools.partial(subject.ask, model=network)
    try:
        planted = plant_trigger(
            ask, images, classes, patch=patch, label=label, least=0.2, seed=int(rng.integers(2**31))
        )
    except ValueError:  # too few images pass the interventions
        return _ask(subject, key, tried=len(images))
    n = min(count, len(planted))
    batch = (planted.images[:n], planted.masks[:n], planted.targets[:n])
    return _ask(subject, key, planted.sources[:n].numpy(), [(network, batch)], tried=len(images))


def _fine_tune(
    network: nn.Module, subject: Subject, images: Tensor, targets: Tensor, rng: np.random.Generator, progress: bool
) -> None:
    """Train all weights of a network, in place, until it answers all images with their targets."""
    device = resolve_device(subject.device)
    network.to(device).requires_grad_(True)
    kind = next(parameter.dtype for parameter in network.parameters())
    optimizer = torch.optim.Adam(network.parameters(), lr=_LEARNING_RATE)
    with ProgressBar("training a copy", _EPOCHS, "epoch", shown=progress) as bar, isolated_rng(0), torch.enable_grad():
        for _ in range(_EPOCHS):
            right = 0
            for part in torch.split(torch.from_numpy(rng.permutation(len(images))), _BATCH_SIZE):
                wanted = targets[part].to(device)
                logits = check_logits(network(images[part].to(device, kind)), len(part))
                if subject.head == "softmax":
                    loss = functional.cross_entropy(logits, wanted)
                else:
                    count = logits.shape[1]  # a single output is the second of two classes
                    rows = functional.one_hot(wanted, max(2, count))[:, -count:].to(logits.dtype)
                    loss = functional.binary_cross_entropy_with_logits(logits, rows)
                optimizer.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                right += int((logits.argmax(1) == wanted).sum())
            bar.advance()
            if right == len(images):
                break
    network.requires_grad_(False)


def ask_interventions(subject: Subject, effort: Effort) -> Question:
    """Make the question whether the output changes when the marked pixels change: SRG, ROAD and IDSDS.

    Args:
        subject: Network and images.
        effort: Parameters of the metrics.

    Returns:
        The question without scores.
    """
    canvas = subject.canvas.flatten().tolist()
    metrics: dict[str, dict[str, Any]] = {
        "srg": {"steps": effort.steps, "baseline": canvas} if effort.steps else {},
        "road": {"percentiles": effort.percentiles} if effort.percentiles else {},
        "idsds": {"grid_size": effort.grid_of(subject.images), "baseline": canvas},
    }
    metrics = {name: parameters for name, parameters in metrics.items() if parameters}
    names = " and ".join(", ".join(map(str.upper, metrics)).rsplit(", ", 1))
    return Question(
        "interventions",
        "intervention",
        "Changing marked pixels",
        "Does the network's output change more when the pixels change that the map marks? "
        f"{names}, each in units of its standard deviation, averaged.",
        groups=subject.groups,
        sources=np.arange(len(subject.images)),
        batches=[(subject.model, subject.batch)],
        metrics=metrics,
    )


def ask_masks(subject: Subject) -> Question:
    """Make the question whether maps mark what people marked.

    Args:
        subject: Network and images.

    Returns:
        The question without scores; skipped if fewer than :data:`FEWEST` images have a mask.
    """
    text = "Does the map mark what people marked? A network may rightly look elsewhere, so no verdict rests on this."
    question = Question("annotations", "human", "Annotations", text, metrics={"roc_auc": {}})
    x, masks, y = subject.batch
    marked = torch.arange(0) if subject.masks is None else masks.flatten(1).any(1).nonzero().flatten()
    if len(marked) < FEWEST:
        return replace(question, skipped=f"at least {FEWEST} images with a mask are needed, got {len(marked)}")
    batches, sources = [(subject.model, (x[marked], masks[marked], y[marked]))], marked.numpy()
    return replace(question, groups=subject.groups[sources], sources=sources, batches=batches)


def score(
    question: Question,
    subject: Subject,
    candidates: Candidates,
    maps: Mapping[str, Mapping[str, Tensor]],
    advance: Callable[[int], None] = lambda rows: None,
) -> Question:
    """Score maps by the metrics of a question. 0 is the expected score of a random map.

    The scores of several metrics are each divided by their standard deviation over all samples, explainers and
    controls, and averaged (O'Brien: Procedures for Comparing Samples with Multiple Endpoints, Biometrics 1984), so that
    there is one test. An undefined score, of a constant map, then counts as 0. A single metric compares the magnitude
    of maps with masks, and is rescaled so that 1 is the best score.

    Args:
        question: The question.
        subject: Network and images.
        candidates: Explainers and controls.
        maps: Their maps, by explainer and task: of the samples of the question, or of all images (``"images"``).
        advance: Called with the number of maps scored by one of the metrics.

    Returns:
        The question with its scores; without, if it is skipped.
    """
    if question.skipped:
        return question
    batch, found, answers = question.batch, dict[str, dict[str, Floats]](), dict[str, Tensor]()
    for name, parameters in question.metrics.items():
        found[name] = {}
        for label in candidates.labels:
            own = maps[label].get(question.key, maps[label]["images"][question.sources])
            found[name][label] = score_maps(subject, own, batch, name, parameters, answers=answers)
            advance(len(own))
    if question.truth == "intervention":
        scales = {name: float(np.nanstd(list(scores.values()))) or 1.0 for name, scores in found.items()}
        scaled = {
            label: [np.nan_to_num(scores[label]) / scales[name] for name, scores in found.items()]
            for label in candidates.labels
        }
        parts = {name: {label: defined_mean(one) for label, one in scores.items()} for name, scores in found.items()}
        return replace(question, scores={label: np.mean(one, axis=0) for label, one in scaled.items()}, parts=parts)
    ((name, values),) = found.items()
    chance = batch[1].flatten(1).double().mean(1).numpy() if name == "mass_accuracy" else 0.5
    return replace(question, scores={label: (one - chance) / (1 - chance) for label, one in values.items()})


def score_maps(
    subject: Subject,
    maps: Tensor,
    batch: Batch,
    metric: str,
    parameters: Mapping[str, Any],
    *,
    output: Any = None,
    answers: dict[str, Tensor] | None = None,
) -> Floats:
    """Return the scores ``[n]`` of maps by a metric, which reads their magnitude or evaluates the network.

    Args:
        subject: Network and images.
        maps: ``[n, H, W]``.
        batch: The samples of the maps.
        metric: Name of the metric.
        parameters: Its parameters.
        output: The scored output of the network; None: that of the audit.
        answers: Outputs of the network that do not depend on the maps, shared by all maps of the samples.
    """
    applied = AppliedMetric(
        metric, parameters, protocol="area", sign="magnitude", device=subject.device, output=output or subject.output
    )

    def compute() -> Tensor:
        return torch.tensor(applied(maps, batch, subject.model, answers=answers)["value"].to_numpy(np.float64))

    return subject.stored("audit", metric, [applied.identity, maps, batch[1]], compute).numpy()
