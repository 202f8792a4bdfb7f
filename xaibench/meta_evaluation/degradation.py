"""Stepwise degradation of maps and explainers, so that the order of their quality is known.

Each degradation starts with the oracle, which is right by construction, and ends with an uninformative map. Every step
is certainly worse than the one before, not only on average: values that were moved away stay away, and all steps use
the same noise with increasing weight.
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

#: Share of the mass to be moved off the mask, relative to the amount at which the mask is hit by chance only.
MOVED = (0.25, 0.5, 0.75, 1.0)
#: Noise's share of the map's variance. Smaller shares do not change the ranks of the pixels, so that rank-based metrics
#: could not notice them.
NOISE = (0.6, 0.7, 0.8, 1.0)


def moved(oracle: _Maps, masks: NDArray[np.bool_], rng: np.random.Generator) -> list[_Maps]:
    """Swap values inside the mask with pixels outside, more of them at each step.

    In the last step, as many values remain inside as expected by chance, and all values are shuffled inside and
    outside.

    Args:
        oracle: ``[N, H, W]``, zero outside the masks.
        masks: ``[N, H, W]``.
        rng: Random generator that selects the pixels.

    Returns:
        The oracle, and maps ``[N, H, W]`` for each share in :data:`MOVED`.
    """
    steps = [oracle.reshape(len(oracle), -1).copy() for _ in range(len(MOVED) + 1)]
    for index, inside in enumerate(masks.reshape(len(masks), -1)):
        nonzero = rng.permutation(np.flatnonzero(steps[0][index]))
        outside = rng.permutation(np.flatnonzero(~inside))
        for share, maps in zip(MOVED, steps[1:], strict=True):
            count = round(share * len(nonzero) * (1 - inside.mean()))
            source, target = nonzero[:count], outside[:count]
            maps[index, source], maps[index, target] = maps[index, target], maps[index, source]
        for part in (inside, ~inside):
            steps[-1][index, part] = rng.permutation(steps[-1][index, part])
    return [maps.reshape(oracle.shape) for maps in steps]


def noisy(oracle: _Maps, masks: NDArray[np.bool_], rng: np.random.Generator) -> list[_Maps]:
    """Mix in uniform noise, more of it at each step; the last step is pure noise.

    The noise has both signs if the oracle has, and is positive otherwise. All steps have the oracle's variance.

    Args:
        oracle: ``[N, H, W]``.
        masks: Not used.
        rng: Random generator of the noise, which is the same for all steps.

    Returns:
        The oracle, and maps ``[N, H, W]`` for each share in :data:`NOISE`.
    """
    noise = rng.uniform(-1.0 if (oracle < 0).any() else 0.0, 1.0, oracle.shape)
    return [oracle, *(_mixed(oracle, noise, share) for share in NOISE)]


def _mixed(oracle: _Maps, noise: _Maps, share: float) -> _Maps:
    """Mix oracle and noise, so that ``share`` of the variance is noise, and the variance remains that of the oracle."""
    scale = oracle.std(axis=(1, 2), keepdims=True) / noise.std(axis=(1, 2), keepdims=True)
    mixed: _Maps = np.sqrt(1 - share) * oracle + np.sqrt(share) * scale * noise
    return mixed


#: Degradations of maps: ``(oracle, masks, rng) -> [oracle, *steps]``.
WORSE_MAPS: Mapping[str, Callable[[_Maps, NDArray[np.bool_], np.random.Generator], list[_Maps]]] = {
    "moved": moved,
    "noisy": noisy,
}


@dataclass
class DegradedExplainer:
    """An exact explainer whose maps are mixed with noise or with a fixed picture.

    Attributes:
        exact: The exact explainer.
        share: Share of the maps' variance that is noise or picture.
        fixed: Whether to mix in a fixed picture per image, like an explainer that ignores the model; otherwise new
            noise at every call.
        rng: Random generator of noise and pictures.
    """

    exact: Explain
    share: float
    fixed: bool
    rng: np.random.Generator
    _picture: _Maps | None = None

    def __call__(self, model: nn.Module, images: Tensor, targets: Tensor) -> Tensor:
        """Return maps ``[N, H, W]``. Fixed pictures are drawn at the first call."""
        maps = self.exact(model, images, targets).double().numpy()
        if self._picture is None or not self.fixed:
            self._picture = self.rng.uniform(-1, 1, maps.shape)
        return torch.from_numpy(_mixed(maps, self._picture, self.share))


def worse_explainers(exact: Explain, rng: np.random.Generator, *, fixed: bool) -> list[Explain]:
    """Return the exact explainer, and degraded ones for each share in :data:`NOISE`.

    Args:
        exact: The exact explainer.
        rng: Random generator for the seeds of the degraded explainers.
        fixed: As in :class:`DegradedExplainer`.

    Returns:
        The explainers, best first.
    """
    seeds = rng.integers(2**32, size=len(NOISE)) if not fixed else [rng.integers(2**32)] * len(NOISE)
    return [
        exact,
        *(
            DegradedExplainer(exact, share, fixed, np.random.default_rng(seed))
            for share, seed in zip(NOISE, seeds, strict=True)
        ),
    ]


#: Degradations of explainers: ``(exact, rng) -> [exact, *steps]``.
WORSE_EXPLAINERS: Mapping[str, Callable[[Explain, np.random.Generator], list[Explain]]] = {
    "noisy": lambda exact, rng: worse_explainers(exact, rng, fixed=False),
    "unmoved": lambda exact, rng: worse_explainers(exact, rng, fixed=True),
}
