"""Samples of which it is known what the right map is, for each kind of truth: made, never downloaded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from xaibench.core.known_functions import FUNCTIONS
from xaibench.core.truths import Truth

if TYPE_CHECKING:
    from xaibench.models.certified.hand_set import KnownNetwork


@dataclass(frozen=True)
class KnownCase:
    """Some samples, and the oracle: the map of each that is right by construction.

    Attributes:
        name: What was drawn: a scenario, a kind of outline, a network.
        images: ``[N, C, H, W]``.
        masks: ``[N, H, W]`` bool: the ground truth of that kind.
        targets: ``[N]``.
        oracle: ``[N, H, W]`` float64, zero outside of the masks.
        model: The network that the masks or the oracle are of; None where the truth is not of a network.
    """

    name: str
    images: Tensor
    masks: Tensor
    targets: Tensor
    oracle: Tensor
    model: nn.Module | None = None


def _generated(name: str, samples: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """At least so many samples of a generated set."""
    from xaibench.data import load

    # More than are wanted: no split of a set may be empty, and of some functions there are images that say nothing.
    data = load(name, seed=seed, n_samples=2 * samples + 40, split=(0.8, 0.1, 0.1))
    return data.train[:]


_SCENARIOS = ("lin", "mult", "rigid", "xor")


def _tetrominoes(draw: int, samples: int, seed: int) -> KnownCase:
    """XAI-TRIS at 8×8, a scenario after the other; the right map is the ground truth itself.

    Backgrounds do not matter here: the masks are the same, and metrics with a ground truth never see the image.
    """
    scenario = _SCENARIOS[draw % len(_SCENARIOS)]
    images, masks, targets = (some[:samples] for some in _generated(f"xai-tris/{scenario}-white-8x8", samples, seed))
    return KnownCase(scenario.upper(), images, masks, targets, masks.double())


#: Pixels along the side of an outline, and the shares of the image that one may cover.
_SIDE, _COVERED = 12, (0.1, 0.6)


def _outlines(draw: int, samples: int, seed: int) -> KnownCase:
    """Masks of the shapes that people draw: outlines of things in every other draw, else boxes."""
    rng = np.random.default_rng(seed)
    masks: list[NDArray[np.bool_]] = []
    while len(masks) < samples:
        mask = _box(rng) if draw % 2 else _blob(rng)
        if _COVERED[0] <= mask.mean() <= _COVERED[1]:
            masks.append(mask)
    marked = torch.from_numpy(np.stack(masks))
    blank = torch.zeros(samples, 1, _SIDE, _SIDE)  # no metric with a ground truth looks at it
    return KnownCase(
        "box" if draw % 2 else "outline", blank, marked, torch.zeros(samples, dtype=torch.int64), marked.double()
    )


def _box(rng: np.random.Generator) -> NDArray[np.bool_]:
    (top, bottom), (left, right) = np.sort(rng.integers(0, _SIDE + 1, (2, 2)), axis=1)
    mask = np.zeros((_SIDE, _SIDE), bool)
    mask[top:bottom, left:right] = True
    return mask


def _blob(rng: np.random.Generator) -> NDArray[np.bool_]:
    """A few ellipses that share a middle part, as a body, a head and limbs do."""
    rows, columns = np.indices((_SIDE, _SIDE)) + 0.5
    middle = rng.uniform(0.25, 0.75, 2) * _SIDE
    mask = np.zeros((_SIDE, _SIDE), bool)
    for _ in range(rng.integers(1, 4)):
        centre, radii = middle + rng.normal(0, 0.12, 2) * _SIDE, rng.uniform(0.1, 0.3, 2) * _SIDE
        turn = rng.uniform(0, np.pi)
        across, along = rows - centre[0], columns - centre[1]
        one = across * np.cos(turn) + along * np.sin(turn)
        other = along * np.cos(turn) - across * np.sin(turn)
        mask |= (one / radii[0]) ** 2 + (other / radii[1]) ** 2 <= 1
    return mask


#: Networks set by hand, and one that is blinded.
_NETWORKS = (*(f"{name}-{form}" for name in FUNCTIONS for form in ("mlp", "cnn")), "blinded")


def _used(draw: int, samples: int, seed: int) -> KnownCase:
    """Networks of which it is certain what they use; the right map are the exact Shapley values of the logit."""
    name = _NETWORKS[draw % len(_NETWORKS)]
    return blinded(draw, samples, seed) if name == "blinded" else _set_by_hand(name, samples, seed)


def _set_by_hand(name: str, samples: int, seed: int) -> KnownCase:
    from xaibench.models import build

    function = name.rpartition("-")[0]
    images, masks, targets = _generated(f"certified:{function}", samples, seed)
    model = cast("KnownNetwork", build(f"certified:{name}", (1, 8, 8), 2))
    oracle = model.shapley_values(images, targets)
    # An image of which no pixel is worth anything has no right map.
    some = (oracle != 0).flatten(1).any(1).nonzero()[:samples, 0]
    return KnownCase(name, images[some], masks[some], targets[some], oracle[some], model)


def blinded(draw: int, samples: int, seed: int) -> KnownCase:
    """A linear network that reads half of the pixels: the Shapley values are weight times pixel, whatever the weights.

    Args:
        draw: Not looked at: there is one of a kind.
        samples: How many.
        seed: Of the weights, the half and the images.

    Returns:
        The case.
    """
    from xaibench.models import blind, build

    rng = np.random.default_rng(seed)
    visible = torch.from_numpy(rng.permutation(64).reshape(8, 8) < 32)
    model = blind(build("llr", (1, 8, 8), 2, seed=seed), visible).eval()
    images = torch.from_numpy(rng.standard_normal((samples, 1, 8, 8))).float()
    pixels = images.clone().requires_grad_()
    logits = model(pixels)
    targets = logits.argmax(1)
    (weights,) = torch.autograd.grad(logits.gather(1, targets[:, None]).sum(), pixels)
    oracle = (weights * images)[:, 0].double()
    return KnownCase("blinded", images, visible.expand(samples, 8, 8), targets, oracle, model)


#: What makes the cases of each kind of truth: ``(number of the draw, samples, seed) -> KnownCase``.
CASES: Mapping[Truth, Callable[[int, int, int], KnownCase]] = {
    "data": _tetrominoes,
    "use": _used,
    "human": _outlines,
    "intervention": _used,
}
