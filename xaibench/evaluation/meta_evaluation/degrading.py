"""Maps and explainers that are made worse step by step, so that the order of the steps is known.

Each way begins with the oracle, which is right by construction, and ends with what knows nothing. Between them each
step is worse than the one before it for certain, not only on average: what was moved away stays away, and the noise is
the same at all steps and only grows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

Explain: TypeAlias = Callable[[nn.Module, Tensor, Tensor], Tensor]
_Maps: TypeAlias = NDArray[np.float64]

#: Of what separates the oracle from chance, the share that is moved off the ground truth.
MOVED = (0.25, 0.5, 0.75, 1.0)
#: Share of the map's variance that is noise. Less of it leaves all ranks as they are, so that nothing would be asked of
#: metrics that look at ranks alone.
NOISE = (0.6, 0.7, 0.8, 1.0)


def moved(oracle: _Maps, masks: NDArray[np.bool_], rng: np.random.Generator) -> list[_Maps]:
    """Values trade places with pixels off the ground truth, more of them at each step.

    In the last as much is left inside as by chance, to the pixel, and where it is left is drawn anew.

    Args:
        oracle: ``[N, H, W]``, zero outside of the masks.
        masks: ``[N, H, W]``.
        rng: Draws the pixels.

    Returns:
        The oracle and a map ``[N, H, W]`` for each of :data:`MOVED`.
    """
    steps = [oracle.reshape(len(oracle), -1).copy() for _ in range(len(MOVED) + 1)]
    for index, inside in enumerate(masks.reshape(len(masks), -1)):
        marked = rng.permutation(np.flatnonzero(steps[0][index]))
        beside = rng.permutation(np.flatnonzero(~inside))
        for share, maps in zip(MOVED, steps[1:], strict=True):
            count = round(share * len(marked) * (1 - inside.mean()))
            here, there = marked[:count], beside[:count]
            maps[index, here], maps[index, there] = maps[index, there], maps[index, here]
        for part in (inside, ~inside):
            steps[-1][index, part] = rng.permutation(steps[-1][index, part])
    return [maps.reshape(oracle.shape) for maps in steps]


def noisy(oracle: _Maps, masks: NDArray[np.bool_], rng: np.random.Generator) -> list[_Maps]:
    """Uniform noise is mixed in, more of it at each step; in the last nothing else is left.

    It is of both signs where the oracle is, else positive. All steps have the oracle's variance.

    Args:
        oracle: ``[N, H, W]``.
        masks: Not looked at.
        rng: Draws the noise, once for all steps.

    Returns:
        The oracle and a map ``[N, H, W]`` for each of :data:`NOISE`.
    """
    noise = rng.uniform(-1.0 if (oracle < 0).any() else 0.0, 1.0, oracle.shape)
    return [oracle, *(_mixed(oracle, noise, share) for share in NOISE)]


def _mixed(oracle: _Maps, noise: _Maps, share: float) -> _Maps:
    """Of the oracle's variance; a share of it is the noise's."""
    size = oracle.std(axis=(1, 2), keepdims=True) / noise.std(axis=(1, 2), keepdims=True)
    mixed: _Maps = np.sqrt(1 - share) * oracle + np.sqrt(share) * size * noise
    return mixed


#: The ways to make a map worse: ``(oracle, masks, rng) -> the oracle and its steps``.
WORSE_MAPS: Mapping[str, Callable[[_Maps, NDArray[np.bool_], np.random.Generator], list[_Maps]]] = {
    "moved": moved,
    "noisy": noisy,
}


@dataclass
class Worse:
    """An explainer of which a share is something else than an explanation.

    Attributes:
        exact: The explainer that is right.
        share: Of the variance of its maps, that of what is mixed in.
        fixed: Mix in one picture for each image, whatever is asked (an explainer that takes no notice); else noise that
            is drawn anew whenever it is asked.
        rng: Draws both.
    """

    exact: Explain
    share: float
    fixed: bool
    rng: np.random.Generator
    _picture: _Maps | None = None

    def __call__(self, model: nn.Module, images: Tensor, targets: Tensor) -> Tensor:
        """Maps ``[N, H, W]``; the pictures are those of the first images that it was asked about."""
        maps = self.exact(model, images, targets).double().numpy()
        if self._picture is None or not self.fixed:
            self._picture = self.rng.uniform(-1, 1, maps.shape)
        return torch.from_numpy(_mixed(maps, self._picture, self.share))


def worse_explainers(exact: Explain, rng: np.random.Generator, *, fixed: bool) -> list[Explain]:
    """The exact explainer, and worse ones for each of :data:`NOISE`.

    Args:
        exact: Right by construction.
        rng: Draws what is mixed in.
        fixed: As :class:`Worse` has it.

    Returns:
        The explainers, best first.
    """
    seeds = rng.integers(2**32, size=len(NOISE)) if not fixed else [rng.integers(2**32)] * len(NOISE)
    return [
        exact,
        *(Worse(exact, share, fixed, np.random.default_rng(seed)) for share, seed in zip(NOISE, seeds, strict=True)),
    ]


#: The ways to make an explainer worse: ``(exact, rng) -> the exact one and its steps``.
WORSE_EXPLAINERS: Mapping[str, Callable[[Explain, np.random.Generator], list[Explain]]] = {
    "noisy": lambda exact, rng: worse_explainers(exact, rng, fixed=False),
    "unmoved": lambda exact, rng: worse_explainers(exact, rng, fixed=True),
}
