"""Reliance: the change of the output when pixels are resampled from the distribution of the images."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Protocol, TypeAlias, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from xaibench.core.checks import check_choice, check_count
from xaibench.core.types import Output
from xaibench.explainers.base import blocks, chunks, target_output
from xaibench.explainers.shared.layers import forward_rows
from xaibench.explainers.shared.passes import Repeating
from xaibench.kernels.pixel_updates.incremental_passes import IncrementalPasses, Steps
from xaibench.kernels.pixel_updates.network_stages import FloatArray
from xaibench.registry.info import ExplainerInfo
from xaibench.tensors.random_numbers import sample_generators

#: The distribution that a pixel is resampled from: marginal, or conditional on all other pixels of the image.
Redraw: TypeAlias = Literal["marginal", "conditional"]

#: Number of random numbers that are held at a time.
_MAX_NUMBERS = 2**22


class ImageDistribution(Protocol):
    """The distribution of the images of a data set, as returned by ``data.distribution()``.

    Attributes:
        image_shape: ``(C, H, W)`` of its images.
    """

    @property
    def image_shape(self) -> tuple[int, ...]:
        """``(C, H, W)``."""
        ...

    def redrawn(
        self,
        images: NDArray[np.floating[Any]],
        blocks: Sequence[NDArray[np.int64]],
        uniform: Iterable[FloatArray],
        *,
        given_others: bool,
    ) -> Iterator[FloatArray]:
        """Resample each block of pixels separately, and return its values ``[N, M, b]``.

        Args:
            images: ``[N, C, H, W]``.
            blocks: The pixels ``[b]`` of each block, as indices into the flattened image.
            uniform: For each block, ``[N, M, 1 + b]`` numbers in (0, 1) that determine the draws.
            given_others: Whether to condition on all other pixels of the image.
        """
        ...


@ExplainerInfo(
    "Reliance",
    family="References",
    needs_gradient=False,
    reference=True,
    citation="Haufe, Wilming, Clark, Zhumagambetov, Panknin, Boubekki: Explainable AI needs formal notions of "
    "explanation correctness. arXiv 2409.14590; Chen, Janizek, Lundberg, Lee: True to the Model or True to the "
    "Data? arXiv 2006.16234",
)
@dataclass(frozen=True, kw_only=True)
class Reliance(Repeating):
    r"""The mean change of the output when a pixel is resampled: the map that a faithful explainer would produce.

    .. math:: r_B(x) = \mathbb E_{x'_B}\, |f(x'_B, x_R) - f(x)|

    for each block :math:`B` of pixels and all others :math:`R`, with :math:`x'_B` from :math:`p(x_B)` or :math:`p(x_B
    \mid x_R)`, in units of the output. It needs the distribution of the images, which generated sets have. A pixel that
    the network does not use has the value 0. In a linear network, the value of a pixel is proportional to its weight
    and its spread.

    The draws for an image are a Latin hypercube: each of the M equally likely intervals of every number holds one draw.
    Each mean is unbiased, and its variance is at most M/(M − 1) times that of independent draws (Owen 1997), whose
    standard error :func:`xaibench.reliance` reports.

    The margin is explained by default. The probability of a confident network hardly changes, so its mean would depend
    on the few draws that change the decision.

    Attributes:
        distribution: The distribution of the images, ``data.distribution()``. A run and :func:`xaibench.evaluate` set
            it.
        redraw: ``"marginal"``: independently of the other pixels. ``"conditional"``: given the other pixels of the
            image, so that a pixel of a smooth background hardly changes.
        block_size: Side of the square blocks in pixels. Blocks start at the upper left corner; those at the lower and
            right border are cut off. A pixel of the map has the value of its block divided by the number of its pixels.
        n_samples: Draws M per block.
        seed: Seed of the draws, which depend on it and on the image only.
        batch_size: Rows per forward pass; ``None``: chosen by the size of the images. It bounds the memory and changes
            the maps by rounding only.
    """

    explains: ClassVar[Output] = "margin"
    counted: ClassVar[str] = "n_samples"
    fewest: ClassVar[int] = 2

    distribution: ImageDistribution | None = field(default=None, repr=False, compare=False)
    redraw: Redraw = "marginal"
    block_size: int = 1
    n_samples: int = 32
    seed: int = 0
    batch_size: int | None = None

    def __post_init__(self) -> None:
        check_choice("redraw", self.redraw, get_args(Redraw), owner="Reliance")
        check_count("block_size", self.block_size, owner="Reliance")
        check_count("n_samples", self.n_samples, least=2, owner="Reliance")
        check_count("batch_size", self.batch_size, owner="Reliance", none="for as many as suit the images")

    @property
    def once(self) -> int:
        """One pass for the unchanged image."""
        return 1

    def passes_each(self, images: Tensor) -> int:
        """Return the passes per image and draw: one per block."""
        return len(self.blocks(images.shape[2:]))

    def cheaper_each(self) -> str:
        """Return advice on other parameters that reduce the passes, for error messages."""
        return f"block_size above {self.block_size}"

    def blocks(self, sides: Sequence[int]) -> list[NDArray[np.int64]]:
        """Return the pixels of each block, row by row.

        Args:
            sides: Height and width of the images, for volumes after their number of slices.

        Returns:
            For each block, ``[b]`` indices into the flattened image.
        """
        places, size = np.arange(math.prod(sides)).reshape(*sides), self.block_size
        along = [[slice(start, start + size) for start in range(0, side, size)] for side in sides]
        return [places[block].ravel() for block in itertools.product(*along)]

    def __call__(self, model: nn.Module, images: Tensor, targets: Tensor) -> Tensor:
        """Return maps ``[N, H, W]``, never negative.

        Raises:
            ValueError: If the distribution is missing, or is one of images of another shape.
        """
        return self.spread(self.values(model, images, targets)[0], images)

    def values(self, model: nn.Module, images: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Compute the mean change of the output for each block, and its standard error.

        Args:
            model: Maps images ``[N, C, H, W]`` to ``[N, K]``.
            images: ``[N, C, H, W]``.
            targets: ``[N]`` int64.

        Returns:
            Two tensors ``[N, B]``.

        Raises:
            ValueError: If the distribution is missing, or is one of images of another shape.
        """
        distribution = self._check_distribution(images)
        places = self.blocks(images.shape[2:])
        steps = _draw_steps(places, self.n_samples)
        generators = sample_generators(self.seed, images)
        width = sum(1 + len(block) for block in places)
        chunk = max(1, _MAX_NUMBERS // (self.n_samples * width))
        passes = IncrementalPasses.find(model, images, max(map(len, places)))
        found = []
        for start in range(0, len(images), chunk):
            some = slice(start, start + chunk)
            uniform = _latin_hypercube(generators[some], places, self.n_samples)
            pixels = images[some].detach().cpu().double().numpy()
            drawn = distribution.redrawn(pixels, places, uniform, given_others=self.redraw == "conditional")
            to = np.concatenate([block.reshape(len(pixels), -1) for block in drawn], axis=1)
            values = torch.from_numpy(to).to(images)
            outputs = self._draw_outputs(model, passes, images[some], targets[some], steps, values)
            found.append((outputs[:, 1:] - outputs[:, :1]).abs().reshape(len(pixels), -1, self.n_samples))
        change = torch.cat(found) if found else images.new_zeros(0, len(places), self.n_samples)
        return change.mean(2), change.std(2) / self.n_samples**0.5

    def spread(self, values: Tensor, images: Tensor) -> Tensor:
        """Distribute the value of each block evenly over its pixels.

        Args:
            values: ``[N, B]``.
            images: ``[N, C, H, W]``; only their size matters.

        Returns:
            Maps ``[N, H, W]``.
        """
        maps = values.new_zeros(len(values), images.shape[2:].numel())
        for number, places in enumerate(self.blocks(images.shape[2:])):
            maps[:, torch.from_numpy(places).to(maps.device)] = values[:, number, None] / len(places)
        return maps.reshape(len(values), *images.shape[2:])

    def _check_distribution(self, images: Tensor) -> ImageDistribution:
        if self.distribution is None:
            raise ValueError(
                "Reliance: got no distribution, expected the distribution of the images. Pass "
                "distribution=data.distribution() of a generated set (xaibench.load), such as XAI-TRIS on white or "
                "correlated noise; the distribution of photographs is unknown."
            )
        if tuple(images.shape[1:]) != tuple(self.distribution.image_shape):
            raise ValueError(
                f"Reliance: got images {list(images.shape[1:])} and a distribution of images "
                f"{list(self.distribution.image_shape)}, expected the same shape. Pass the distribution of their set."
            )
        return self.distribution

    def _draw_outputs(
        self,
        model: nn.Module,
        passes: IncrementalPasses | None,
        images: Tensor,
        targets: Tensor,
        steps: Steps,
        to: Tensor,
    ) -> Tensor:
        """Compute the target outputs ``[n, 1 + B M]``: of the unchanged images, then with each draw."""
        count, rows = steps.ends.shape[1] - 1, forward_rows(images, self.batch_size)
        if passes is not None:
            ends = self._redrawn_rows(images, steps, to, slice(count - 1, count))
            last = torch.cat([target_output(passes.model, x, y) for x, y in chunks(rows, ends, targets)])
            if (found := passes.outputs(images, steps, to, targets, last, carry=False)) is not None:
                return found
        outputs = images.new_empty(len(images), count)
        for samples, some in blocks(len(images), count, rows):
            redrawn = self._redrawn_rows(images[samples], steps, to[samples], some)
            classes = targets[samples].repeat_interleave(some.stop - some.start)
            outputs[samples, some] = target_output(model, redrawn, classes).reshape(-1, some.stop - some.start)
        return outputs

    def _redrawn_rows(self, images: Tensor, steps: Steps, to: Tensor, some: slice) -> Tensor:
        """Return the images ``[n s, C, H, W]`` of some steps."""
        ends = steps.ends[0]
        first, last = int(ends[some.start]), int(ends[some.stop])
        lengths = ends[some.start + 1 : some.stop + 1] - ends[some.start : some.stop]
        row = torch.arange(some.stop - some.start).repeat_interleave(lengths).to(images.device)
        flat = images.flatten(1)[:, None].repeat(1, some.stop - some.start, 1)
        flat[:, row, steps.which[0, first:last].to(images.device)] = to[:, first:last]
        return flat.reshape(-1, *images.shape[1:])


def _draw_steps(places: Sequence[NDArray[np.int64]], draws: int) -> Steps:
    """Return the steps: no change first, then each block once per draw."""
    which = np.concatenate([np.tile(block, draws) for block in places])
    lengths = np.concatenate([[0], np.repeat([len(block) for block in places], draws)])
    ends = np.concatenate([[0], lengths.cumsum()])
    return Steps(torch.from_numpy(which)[None], torch.from_numpy(ends)[None])


def _latin_hypercube(
    generators: Sequence[np.random.Generator], places: Sequence[NDArray[np.int64]], draws: int
) -> Iterator[FloatArray]:
    """Yield for each block a Latin hypercube ``[n, M, 1 + b]`` of numbers in (0, 1)."""
    sizes = [1 + len(block) for block in places]
    drawn = np.stack([rng.random((2, draws, sum(sizes))) for rng in generators])  # [n, 2, M, .]
    even = (drawn[:, 0].argsort(axis=1) + drawn[:, 1]) / draws
    even = even.clip(2.0**-54, 1 - 2.0**-53)  # normal numbers of 0 and 1 would be infinite
    yield from np.split(even, np.cumsum(sizes)[:-1], axis=2)
