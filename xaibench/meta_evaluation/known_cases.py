"""Generated samples with a known right map, for each kind of truth."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from xaibench.benchmarks.certified.functions import FUNCTIONS
from xaibench.core.truth_kinds import Truth

if TYPE_CHECKING:
    from xaibench.benchmarks.certified.hand_set_networks import KnownNetwork


@dataclass(frozen=True)
class KnownCase:
    """Samples with their oracle, the map that is right by construction.

    Attributes:
        name: The scenario, kind of outline, or network.
        images: ``[N, C, H, W]``.
        masks: Ground-truth masks ``[N, H, W]``, bool.
        targets: ``[N]``.
        oracle: ``[N, H, W]`` float64, zero outside the masks.
        model: The network that the masks or the oracle refer to, or None.
    """

    name: str
    images: Tensor
    masks: Tensor
    targets: Tensor
    oracle: Tensor
    model: nn.Module | None = None


def _generate(name: str, samples: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return at least ``samples`` samples of a generated set."""
    from xaibench.data import load

    # Generate more than needed, because no split may be empty, and some images of some functions are left out later.
    data = load(name, seed=seed, n_samples=2 * samples + 40, split=(0.8, 0.1, 0.1))
    return data.train[:]


_SCENARIOS = ("lin", "mult", "rigid", "xor")


def _tetrominoes(draw: int, samples: int, seed: int) -> KnownCase:
    """Return XAI-TRIS samples at 8×8, from one scenario after the other; the oracle is the mask itself.

    The background does not matter, because it does not affect the masks, and these metrics do not use the image.
    """
    scenario = _SCENARIOS[draw % len(_SCENARIOS)]
    images, masks, targets = (some[:samples] for some in _generate(f"xai-tris/{scenario}-white-8x8", samples, seed))
    return KnownCase(scenario.upper(), images, masks, targets, masks.double())


#: Side length of the outline masks in pixels, and the range of the share of the image that they may cover.
_SIDE, _COVERED = 12, (0.1, 0.6)


def _outlines(draw: int, samples: int, seed: int) -> KnownCase:
    """Return masks like human annotations: outlines in even draws, boxes in odd ones."""
    rng = np.random.default_rng(seed)
    masks: list[NDArray[np.bool_]] = []
    while len(masks) < samples:
        mask = _box(rng) if draw % 2 else _blob(rng)
        if _COVERED[0] <= mask.mean() <= _COVERED[1]:
            masks.append(mask)
    marked = torch.from_numpy(np.stack(masks))
    blank = torch.zeros(samples, 1, _SIDE, _SIDE)  # these metrics do not use the image
    return KnownCase(
        "box" if draw % 2 else "outline", blank, marked, torch.zeros(samples, dtype=torch.int64), marked.double()
    )


def _box(rng: np.random.Generator) -> NDArray[np.bool_]:
    (top, bottom), (left, right) = np.sort(rng.integers(0, _SIDE + 1, (2, 2)), axis=1)
    mask = np.zeros((_SIDE, _SIDE), bool)
    mask[top:bottom, left:right] = True
    return mask


def _blob(rng: np.random.Generator) -> NDArray[np.bool_]:
    """Return the union of a few ellipses with a common middle, like a body with head and limbs."""
    rows, columns = np.indices((_SIDE, _SIDE)) + 0.5
    middle = rng.uniform(0.25, 0.75, 2) * _SIDE
    mask = np.zeros((_SIDE, _SIDE), bool)
    for _ in range(rng.integers(1, 4)):
        center, radii = middle + rng.normal(0, 0.12, 2) * _SIDE, rng.uniform(0.1, 0.3, 2) * _SIDE
        angle = rng.uniform(0, np.pi)
        dy, dx = rows - center[0], columns - center[1]
        first = dy * np.cos(angle) + dx * np.sin(angle)
        second = dx * np.cos(angle) - dy * np.sin(angle)
        mask |= (first / radii[0]) ** 2 + (second / radii[1]) ** 2 <= 1
    return mask


#: Networks with hand-set weights, and a blinded network.
_NETWORKS = (*(f"{name}-{form}" for name in FUNCTIONS for form in ("mlp", "cnn")), "blinded")


def _network_case(draw: int, samples: int, seed: int) -> KnownCase:
    """Return samples of a network whose used pixels are known; the oracle is the exact Shapley values of the logit."""
    name = _NETWORKS[draw % len(_NETWORKS)]
    return blinded(draw, samples, seed) if name == "blinded" else _hand_set_case(name, samples, seed)


def _hand_set_case(name: str, samples: int, seed: int) -> KnownCase:
    from xaibench.models import build

    function = name.rpartition("-")[0]
    images, masks, targets = _generate(f"certified:{function}", samples, seed)
    model = cast("KnownNetwork", build(f"certified:{name}", (1, 8, 8), 2))
    oracle = model.shapley_values(images, targets)
    # Images on which all Shapley values are zero have no right map.
    some = (oracle != 0).flatten(1).any(1).nonzero()[:samples, 0]
    return KnownCase(name, images[some], masks[some], targets[some], oracle[some], model)


def blinded(draw: int, samples: int, seed: int) -> KnownCase:
    """Return samples of a linear network that reads half of the pixels; the Shapley values are weight times pixel.

    Args:
        draw: Not used, because there is a single case.
        samples: Number of samples.
        seed: Seed of the weights, the visible pixels and the images.

    Returns:
        The case.
    """
    from xaibench.benchmarks import blind
    from xaibench.models import build

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


#: Functions that generate the cases per kind of truth: ``(index of the draw, samples, seed) -> KnownCase``.
CASES: Mapping[Truth, Callable[[int, int, int], KnownCase]] = {
    "data": _tetrominoes,
    "use": _network_case,
    "human": _outlines,
    "intervention": _network_case,
}
