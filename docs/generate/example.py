"""The example in all pictures of metrics: one sample, its map, and a network with hand-set weights.

The image is an XAI-TRIS image of class T. The network compares the brightness at the positions of T and L. The map is
also set by hand: it marks most of the T, little of the L, and some other pixels.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from drawing import Grid, gray
from numpy.typing import NDArray
from torch import Tensor, nn

import xaibench as xb
from xaibench.metrics.shared.perturb import ranks

#: A registered metric.
Metric: TypeAlias = Callable[..., Any]

# Tenths, so that counting along by eye is easy.
MAP = np.array([
    [0, 1, 0, 0, 0, 0, 0, 0],
    [1, 6, 3, 1, 0, 0, 0, 0],
    [2, 9, 8, 10, 1, 0, 0, 0],
    [1, 7, 2, 1, 0, 0, 1, 0],
    [0, 1, 0, 0, 0, 4, 1, 0],
    [0, 0, -2, 0, 0, 2, 0, 0],
    [0, -3, -6, 0, 0, -1, 1, 0],
    [0, 0, -1, 0, 0, 0, 0, 0],
]) / 10  # fmt: skip


class Example(NamedTuple):
    """One sample, its map, and a network with hand-set weights, shown in all pictures."""

    image: Tensor
    mask: NDArray[np.bool_]
    map: Grid
    model: nn.Module
    target: Tensor

    @property
    def asked(self) -> tuple[Any, ...]:
        """Return the arguments of a metric that calls the model."""
        return self.model, self.image, torch.from_numpy(self.map)[None], self.target

    def probability(self, image: Tensor) -> float:
        """Return the probability of the T."""
        with torch.no_grad():
            return float(self.model(image.reshape(1, 1, 8, 8).float()).softmax(1)[0, 0])

    def logit(self, image: Tensor) -> float:
        """Return the logit of the T."""
        with torch.no_grad():
            return float(self.model(image.reshape(1, 1, 8, 8).float())[0, 0])


def example() -> Example:
    data = xb.load("xai-tris/lin-corr-8x8", seed=0, n_samples=200, alpha=0.25)
    index = int((data.test.targets == 0).nonzero()[0])
    mask = data.test.masks[index].numpy()
    places = torch.from_numpy(mask.copy()).float()
    first, second = places.clone(), places.clone()
    first[4:], second[:4] = 0, 0  # the T is above, the L below
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 2), nn.ReLU(), nn.Linear(2, 2))
    with torch.no_grad():
        model[1].weight.copy_(torch.stack([first, second]).flatten(1) / 4)
        model[1].bias.zero_()
        model[3].weight.copy_(torch.eye(2) * 8)
        model[3].bias.copy_(torch.tensor([-1.5, 0.0]))
    return Example(data.test.images[index : index + 1], mask, MAP, model.eval(), torch.tensor([0]))


def number(value: float) -> str:
    return f"{round(value, 2) + 0.0:.2f}".replace("-", "−")


def pixels(image: Tensor) -> Grid:
    found: Grid = image.reshape(8, 8).double().numpy()
    return found


def contrast(value: float) -> str:
    """Return the gray level of a pixel; the images of the example are within ±0.5."""
    return gray(2 * value)


def replaced(e: Example, count: int, other: Tensor, *, reveal: bool) -> Tensor:
    """Return the image with the ``count`` largest pixels of the map changed, or with ``reveal`` all others."""
    inside = ranks(torch.from_numpy(e.map)[None])[:, None] < count
    return torch.where(inside, e.image, other) if reveal else torch.where(inside, other, e.image)
