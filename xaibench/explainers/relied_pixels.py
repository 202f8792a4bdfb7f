"""The other front door: :func:`reliance`, what a network relies on where it is known what the images came from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, get_args

import torch
from torch import Tensor, nn

from xaibench.core.checks import check_count
from xaibench.core.vocabulary import Output
from xaibench.explainers.api import explain
from xaibench.explainers.forward.redrawn_pixels import Redraw, Reliance


class KnownImages(Protocol):
    """A data set that knows what its images came from."""

    @property
    def test(self) -> Any:
        """The samples to look at; indexed, they give images, masks and targets."""
        ...

    @property
    def distribution(self) -> Callable[[], Any] | None:
        """Called, it returns what the images came from; None where nobody knows."""
        ...


@dataclass(frozen=True, eq=False)
class ReliedOn:
    """How much the output of a network changes when blocks of pixels are drawn again.

    Attributes:
        values: ``values["conditional", 2]`` are those of blocks of 2×2 pixels, drawn given all other pixels:
            ``[N, rows of blocks, blocks in a row]``, in the units of the output. ``"marginal"``: whatever the others
            are.
        errors: The standard error of each, that of independent draws, which is the most that ours can have.
    """

    values: Mapping[tuple[Redraw, int], Tensor]
    errors: Mapping[tuple[Redraw, int], Tensor]


def reliance(
    model: nn.Module,
    data: KnownImages,
    *,
    samples: int | None = None,
    block_sizes: Sequence[int] = (1, 2, 4),
    n_samples: int = 32,
    output: Output = "margin",
    seed: int = 0,
    device: torch.device | str = "auto",
    batch_size: int | None = None,
    progress: bool = True,
) -> ReliedOn:
    r"""How much the output changes when a pixel, or a block of them, is drawn again from what the images came from.

    .. math:: r_B(x) = \mathbb E_{x'_B}\, |f(x'_B, x_R) - f(x)|, \qquad x'_B \sim p(x_B \mid x_R)\ \text{or}\ p(x_B)

    The two answer two questions. From its *marginal* distribution a pixel comes as in another image, and what it shares
    with its neighbours is gone: whether the network reads it. From its *conditional* one, given all other pixels, the
    image stays one that could occur: whether the network says something else for what this pixel alone can tell. On
    white noise they differ little. On correlated noise a pixel is known from its neighbours up to the rounding of
    float32, so that only blocks of some size can change; hence several sizes.

    Both are of the distribution of all images of the set, over the patterns too: the pattern of a redrawn block is one
    that the rest of the image allows (conditional), or any (marginal). Exact up to the error of finitely many draws,
    which is stated (:mod:`xaibench.data.xai_tris.pattern_mixture` has the formulas, :class:`.Reliance` the draws).

    Args:
        model: Returns logits ``[N, K]``.
        data: A data set that knows what its images came from: XAI-TRIS on white or correlated noise (RIGID at 8×8).
        samples: Only the first so many of its test split; None = all.
        block_sizes: Sides of the squares, in pixels; from the upper left corner on, cut off at the lower and right border.
        n_samples: Draws of each block, at least 2.
        output: What changes: the ``"margin"`` or ``"logit"`` of the sample's class, or its ``"probability"``, which of
            a network that is sure hardly does.
        seed: Of the draws.
        device: As for :func:`xaibench.explain`, and so is the rest.
        batch_size: Rows in one forward pass.
        progress: Show how far it has come.

    Returns:
        The mean change of the output for every sample and block, and its standard error.

    Raises:
        ValueError: If nobody knows what the images came from, or a number is out of its range.

    Example:
        >>> import xaibench as xb
        >>> data = xb.load("xai-tris/lin-corr-8x8", n_samples=200)
        >>> model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 2, bias=False))
        >>> weights = torch.zeros(2, 64)
        >>> weights[0, 9], weights[0, 10] = 1.0, -1.0  # the difference of two neighbours
        >>> _ = model[1].weight.data.copy_(weights)
        >>> found = xb.reliance(model, data, samples=5, block_sizes=[1], progress=False)
        >>> alone = found.values["marginal", 1].mean(0)
        >>> bool(alone[1, 1] > 0.1), float(alone[0].sum())  # the network reads it; it reads none of the first row
        (True, 0.0)
        >>> bool(found.values["conditional", 1].max() < 1e-6)  # but its neighbours tell all of what it is
        True
    """
    check_count("samples", samples, none="for all")
    if data.distribution is None:
        raise ValueError(
            "reliance: nobody knows what the images of this data set came from, expected a generated set. Give one of "
            "XAI-TRIS on white or correlated noise, as xaibench.load makes it."
        )
    distribution = data.distribution()
    images, _, targets = data.test[: len(data.test) if samples is None else samples]
    values: dict[tuple[Redraw, int], Tensor] = {}
    errors: dict[tuple[Redraw, int], Tensor] = {}
    for redraw in get_args(Redraw):
        for block_size in block_sizes:
            part = Reliance(
                distribution=distribution,
                redraw=redraw,
                block_size=block_size,
                n_samples=n_samples,
                seed=seed,
                batch_size=batch_size,
            )
            asked = _Asked(part)
            explain(asked, model, images, targets, output=output, device=device, progress=progress)
            grid = len(images), -(-images.shape[2] // block_size), -(-images.shape[3] // block_size)
            values[redraw, block_size], errors[redraw, block_size] = (each.cpu().reshape(grid) for each in asked.found)
    return ReliedOn(values, errors)


class _Asked:
    """The explainer, which keeps what it finds of the blocks beside the maps that it makes of it."""

    def __init__(self, part: Reliance) -> None:
        self._part = part
        self.found: tuple[Tensor, Tensor]

    def __call__(self, model: nn.Module, images: Tensor, targets: Tensor) -> Tensor:
        self.found = self._part.values(model, images, targets)
        return self._part.spread(self.found[0], images)
