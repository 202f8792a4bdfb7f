"""Reliance: how much the output changes when pixels are drawn again from the distribution that the images came from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Protocol, TypeAlias, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from xaibench.core.checks import check_choice, check_count
from xaibench.core.compute.sample_draws import sample_generators
from xaibench.core.part_info import ExplainerInfo, described
from xaibench.core.vocabulary import Output
from xaibench.explainers.forward.incremental_passes import IncrementalPasses, Steps
from xaibench.explainers.shared.counted_passes import Repeating
from xaibench.explainers.shared.interface import blocks, chunks, target_output
from xaibench.explainers.shared.layer_activations import forward_rows

#: From what a pixel is drawn again: its marginal distribution, or the one given all other pixels of the image.
Redraw: TypeAlias = Literal["marginal", "conditional"]

_Floats: TypeAlias = NDArray[np.float64]

#: Random numbers that are held at a time.
_NUMBERS = 2**22


class Distribution(Protocol):
    """What the images came from; ``data.distribution()`` of a data set that knows it is one.

    Attributes:
        image_shape: ``(C, H, W)`` of its images.
    """

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """``(C, H, W)``."""
        ...

    def redrawn(
        self,
        images: NDArray[np.floating[Any]],
        blocks: Sequence[NDArray[np.int64]],
        uniform: Iterable[_Floats],
        *,
        given_others: bool,
    ) -> Iterator[_Floats]:
        """Values ``[N, M, b]`` of each block of pixels, each block drawn again by itself.

        Args:
            images: ``[N, C, H, W]``.
            blocks: Of each block its pixels ``[b]``, as places in the flattened image.
            uniform: For each block ``[N, M, 1 + b]`` numbers in (0, 1) to make the draws of.
            given_others: Whether given all other pixels of the image.
        """
        ...


@described(
    ExplainerInfo(
        "Reliance",
        family="References",
        reference=True,
        citation="Haufe, Wilming, Clark, Zhumagambetov, Panknin, Boubekki: Explainable AI needs formal notions of "
        "explanation correctness. arXiv 2409.14590; Chen, Janizek, Lundberg, Lee: True to the Model or True to the "
        "Data? arXiv 2006.16234",
    )
)
@dataclass(frozen=True, kw_only=True)
class Reliance(Repeating):
    r"""The mean change of the output when a pixel is drawn again: what a map that is faithful to the network shows.

    .. math:: r_B(x) = \mathbb E_{x'_B}\, |f(x'_B, x_R) - f(x)|

    for each block :math:`B` of pixels and all others :math:`R`, with :math:`x'_B` from :math:`p(x_B)` or from
    :math:`p(x_B \mid x_R)`, in the units of the output. Needs to know what the images came from, which generated sets
    do. A pixel that the network does not use has 0; of a linear one, each has its weight times how far it varies.

    The draws of an image are a Latin hypercube: in each of M equally likely slices of every number lies one draw. Each
    mean is unbiased, and its variance at most M/(M − 1) times that of independent draws (Owen 1997), whose standard
    error :func:`xaibench.reliance` states.

    The explained output is the margin unless another is asked for: the probability of a network that is sure hardly
    moves, and its mean is then of a few draws that turn the answer over.

    Attributes:
        distribution: What the images came from: ``data.distribution()``. A run fills it in, and so does
            :func:`xaibench.evaluate`.
        redraw: ``"marginal"``: as if the pixel were of another image; ``"conditional"``: as the other pixels of this
            image let it be, by which a pixel of a smooth background hardly changes.
        block_size: Side of the squares that are drawn together, in pixels, from the upper left corner on; those at the lower
            and right border are cut off there. A pixel of a map has its block's value over its pixels.
        n_samples: Draws M of each block.
        seed: Of the draws, which depend on it and the image alone.
        batch_size: Rows in one forward pass; ``None`` chooses by the size of the images. It bounds the memory and
            changes the maps by no more than rounding.
    """

    explains: ClassVar[Output] = "margin"
    counted: ClassVar[str] = "n_samples"
    fewest: ClassVar[int] = 2

    distribution: Distribution | None = field(default=None, repr=False, compare=False)
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
        """The image as it is."""
        return 1

    def passes_each(self, images: Tensor) -> int:
        """Passes for an image for each draw.

        Args:
            images: ``[N, C, H, W]``.

        Returns:
            One for each block.
        """
        return len(self.blocks(images.shape[2:]))

    def cheaper_each(self) -> str:
        """What else to change.

        Returns:
            In words.
        """
        return f"block_size above {self.block_size}"

    def blocks(self, sides: Sequence[int]) -> list[NDArray[np.int64]]:
        """The pixels of each block, row by row.

        Args:
            sides: Height and width of the images.

        Returns:
            ``[b]`` places in the flattened image, for each block.
        """
        places = np.arange(sides[0] * sides[1]).reshape(*sides)
        starts = [range(0, side, self.block_size) for side in sides]
        size = self.block_size
        return [places[top : top + size, left : left + size].ravel() for top in starts[0] for left in starts[1]]

    def __call__(self, model: nn.Module, images: Tensor, targets: Tensor) -> Tensor:
        """Maps ``[N, H, W]``, never negative.

        Raises:
            ValueError: If there is no distribution, or it is one of other images.
        """
        return self.spread(self.values(model, images, targets)[0], images)

    def values(self, model: nn.Module, images: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Of each block the mean change of the output, and its standard error.

        Args:
            model: From images ``[N, C, H, W]`` to ``[N, K]``.
            images: ``[N, C, H, W]``.
            targets: ``[N]`` int64.

        Returns:
            ``[N, B]`` twice.

        Raises:
            ValueError: If there is no distribution, or it is one of other images.
        """
        distribution = self._checked(images)
        places = self.blocks(images.shape[2:])
        steps = _steps(places, self.n_samples)
        generators = sample_generators(self.seed, images)
        width = sum(1 + len(block) for block in places)
        chunk = max(1, _NUMBERS // (self.n_samples * width))
        passes = IncrementalPasses.find(model, images, max(map(len, places)))
        found = []
        for start in range(0, len(images), chunk):
            some = slice(start, start + chunk)
            uniform = _spread_evenly(generators[some], places, self.n_samples)
            pixels = images[some].detach().cpu().double().numpy()
            drawn = distribution.redrawn(pixels, places, uniform, given_others=self.redraw == "conditional")
            to = np.concatenate([block.reshape(len(pixels), -1) for block in drawn], axis=1)
            values = torch.from_numpy(to).to(images)
            outputs = self._outputs(model, passes, images[some], targets[some], steps, values)
            found.append((outputs[:, 1:] - outputs[:, :1]).abs().reshape(len(pixels), -1, self.n_samples))
        change = torch.cat(found) if found else images.new_zeros(0, len(places), self.n_samples)
        return change.mean(2), change.std(2) / self.n_samples**0.5

    def spread(self, values: Tensor, images: Tensor) -> Tensor:
        """A map from what its blocks are worth: each pixel has its block's value over its pixels.

        Args:
            values: ``[N, B]``.
            images: ``[N, C, H, W]``, of which the size counts.

        Returns:
            ``[N, H, W]``.
        """
        maps = values.new_zeros(len(values), images.shape[2] * images.shape[3])
        for number, places in enumerate(self.blocks(images.shape[2:])):
            maps[:, torch.from_numpy(places).to(maps.device)] = values[:, number, None] / len(places)
        return maps.reshape(len(values), *images.shape[2:])

    def _checked(self, images: Tensor) -> Distribution:
        if self.distribution is None:
            raise ValueError(
                "Reliance: got no distribution, expected what the images came from. Give "
                "distribution=data.distribution() of a generated set (xaibench.load), such as those of XAI-TRIS on "
                "white or correlated noise; of photographs nobody knows it."
            )
        if tuple(images.shape[1:]) != tuple(self.distribution.image_shape):
            raise ValueError(
                f"Reliance: the images are {list(images.shape[1:])}, and the distribution is one of images "
                f"{list(self.distribution.image_shape)}. Give that of the set that they are of."
            )
        return self.distribution

    def _outputs(
        self,
        model: nn.Module,
        passes: IncrementalPasses | None,
        images: Tensor,
        targets: Tensor,
        steps: Steps,
        to: Tensor,
    ) -> Tensor:
        """The target outputs ``[n, 1 + B M]``: of the images as they are, then with each draw."""
        count, rows = steps.ends.shape[1] - 1, forward_rows(images, self.batch_size)
        if passes is not None:
            ends = self._rows(images, steps, to, slice(count - 1, count))
            last = torch.cat([target_output(passes.model, x, y) for x, y in chunks(rows, ends, targets)])
            if (found := passes.outputs(images, steps, to, targets, last, carry=False)) is not None:
                return found
        outputs = images.new_empty(len(images), count)
        for samples, some in blocks(len(images), count, rows):
            redrawn = self._rows(images[samples], steps, to[samples], some)
            classes = targets[samples].repeat_interleave(some.stop - some.start)
            outputs[samples, some] = target_output(model, redrawn, classes).reshape(-1, some.stop - some.start)
        return outputs

    def _rows(self, images: Tensor, steps: Steps, to: Tensor, some: slice) -> Tensor:
        """The images ``[n s, C, H, W]`` of some steps."""
        ends = steps.ends[0]
        first, last = int(ends[some.start]), int(ends[some.stop])
        lengths = ends[some.start + 1 : some.stop + 1] - ends[some.start : some.stop]
        row = torch.arange(some.stop - some.start).repeat_interleave(lengths).to(images.device)
        flat = images.flatten(1)[:, None].repeat(1, some.stop - some.start, 1)
        flat[:, row, steps.which[0, first:last].to(images.device)] = to[:, first:last]
        return flat.reshape(-1, *images.shape[1:])


def _steps(places: Sequence[NDArray[np.int64]], draws: int) -> Steps:
    """First nothing changes, then each block as often as it is drawn."""
    which = np.concatenate([np.tile(block, draws) for block in places])
    lengths = np.concatenate([[0], np.repeat([len(block) for block in places], draws)])
    ends = np.concatenate([[0], lengths.cumsum()])
    return Steps(torch.from_numpy(which)[None], torch.from_numpy(ends)[None])


def _spread_evenly(
    generators: Sequence[np.random.Generator], places: Sequence[NDArray[np.int64]], draws: int
) -> Iterator[_Floats]:
    """For each block ``[n, M, 1 + b]`` numbers in (0, 1), of every number one draw in each of M equal slices."""
    sizes = [1 + len(block) for block in places]
    drawn = np.stack([rng.random((2, draws, sum(sizes))) for rng in generators])  # [n, 2, M, .]
    even = (drawn[:, 0].argsort(axis=1) + drawn[:, 1]) / draws
    even = even.clip(2.0**-54, 1 - 2.0**-53)  # normal numbers of 0 and 1 would be infinite
    yield from np.split(even, np.cumsum(sizes)[:-1], axis=2)
