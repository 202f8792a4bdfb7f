"""The entry point :func:`reliance`: the pixels that a network relies on, if the distribution of the images is known."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, get_args

import torch
from torch import Tensor, nn

from xaibench.core.checks import check_count
from xaibench.core.types import Output
from xaibench.explainers.api import explain
from xaibench.explainers.perturbation.reliance import Redraw, Reliance


class KnownImages(Protocol):
    """A data set whose image distribution is known."""

    @property
    def test(self) -> Any:
        """The test samples; indexing returns images, masks and targets."""
        ...

    @property
    def distribution(self) -> Callable[[], Any] | None:
        """A function that returns the distribution of the images; None if it is unknown."""
        ...


@dataclass(frozen=True, eq=False)
class ReliedOn:
    """The change of a network's output when blocks of pixels are resampled.

    Attributes:
        values: ``values["conditional", 2]`` are the values of blocks of 2×2 pixels, resampled given all other pixels:
            ``[N, rows of blocks, blocks per row]``, in units of the output. ``"marginal"``: resampled independently of
            the other pixels.
        errors: The standard error of each value, computed for independent draws. It is an upper bound, since the draws
            are stratified.
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
    r"""Compute how much the output changes when a pixel or a block of pixels is resampled.

    .. math:: r_B(x) = \mathbb E_{x'_B}\, |f(x'_B, x_R) - f(x)|, \qquad x'_B \sim p(x_B \mid x_R)\ \text{or}\ p(x_B)

    The two distributions answer two questions. *Marginal*: the pixel comes from another image, and its dependence on
    its neighbors is broken. This shows whether the network reads the pixel. *Conditional*, given all other pixels: the
    image remains plausible. This shows whether the output depends on the information that only this pixel carries. On
    white noise the two differ little. On correlated noise, the neighbors determine a pixel up to the rounding of
    float32, so only larger blocks can change; hence several block sizes.

    Both refer to the distribution of all images of the set, including all patterns. The pattern of a resampled block is
    one that the rest of the image allows (conditional) or any pattern (marginal). The values are exact up to the error
    of a finite number of draws, which is reported (:mod:`xaibench.benchmarks.xai_tris.pattern_mixture` has the
    formulas, :class:`.Reliance` the draws).

    Args:
        model: Returns logits ``[N, K]``.
        data: A data set whose image distribution is known: XAI-TRIS on white or correlated noise (RIGID at 8×8).
        samples: Number of test samples, taken from the beginning of the split; None = all.
        block_sizes: Sides of the square blocks in pixels. Blocks start at the upper left corner and are cut off at the
            lower and right border.
        n_samples: Draws per block, at least 2.
        output: The output that changes: the ``"margin"`` or ``"logit"`` of the sample's class, or its
            ``"probability"``, which hardly changes for a confident network.
        seed: Seed of the draws.
        device: See :func:`xaibench.explain`, also for the other arguments.
        batch_size: Rows per forward pass.
        progress: Show the progress.

    Returns:
        The mean change of the output for every sample and block, and its standard error.

    Raises:
        ValueError: If the distribution of the images is unknown, or a number is out of range.

    Example:
        >>> import xaibench as xb
        >>> data = xb.load("xai-tris/lin-corr-8x8", n_samples=200)
        >>> model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 2, bias=False))
        >>> weights = torch.zeros(2, 64)
        >>> weights[0, 9], weights[0, 10] = 1.0, -1.0  # the difference of two neighbors
        >>> _ = model[1].weight.data.copy_(weights)
        >>> found = xb.reliance(model, data, samples=5, block_sizes=[1], progress=False)
        >>> alone = found.values["marginal", 1].mean(0)
        >>> bool(alone[1, 1] > 0.1), float(alone[0].sum())  # this pixel is read; the first row is not
        (True, 0.0)
        >>> bool(found.values["conditional", 1].max() < 1e-6)  # but its neighbors determine its value
        True
    """
    check_count("samples", samples, none="for all")
    if data.distribution is None:
        raise ValueError(
            "reliance: the distribution of the images of this data set is unknown, expected a generated set. Use "
            "XAI-TRIS on white or correlated noise, loaded with xaibench.load."
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
            explainer = _BlockValues(part)
            explain(explainer, model, images, targets, output=output, device=device, progress=progress)
            grid = len(images), *(-(-side // block_size) for side in images.shape[2:])
            values[redraw, block_size], errors[redraw, block_size] = (
                each.cpu().reshape(grid) for each in explainer.found
            )
    return ReliedOn(values, errors)


class _BlockValues:
    """Call the explainer, and keep the values of the blocks in addition to the maps."""

    def __init__(self, part: Reliance) -> None:
        self._part = part
        self.found: tuple[Tensor, Tensor]

    def __call__(self, model: nn.Module, images: Tensor, targets: Tensor) -> Tensor:
        self.found = self._part.values(model, images, targets)
        return self._part.spread(self.found[0], images)
