"""Images of which some pixels are replaced, the most important ones first: what the curves of this package ask for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias, get_args

import numpy as np
import torch
from scipy.ndimage import gaussian_filter1d
from torch import Tensor

from xaibench.core.checks import check_choice, check_count
from xaibench.core.compute.segments import grid_cells, superpixels
from xaibench.metrics.shared.asked_model import MakeRows, ModelOutput, model_scorer
from xaibench.metrics.shared.model_inputs import LabeledImages, Model

if TYPE_CHECKING:
    from xaibench.core.vocabulary import Array

#: What replaces a pixel: a number, a list of one for each channel, the blurred image (see :func:`blurred`), or images
#: that broadcast to ``[N, C, H, W]``, such as one colour ``[C, 1, 1]``.
Baseline: TypeAlias = "float | Sequence[float] | Literal['blur'] | Array"

#: What goes as one: single pixels, the squares of a grid, or superpixels (see :func:`segment_order`).
Segmentation: TypeAlias = Literal["pixels", "grid", "slic"]

# Share of a score by which float32 may move it, depending on what else is in the batch.
_ROUNDING = 1e-6

# RISE's blur: a kernel of 11 taps, sigma 5.
_TAPS, _SIGMA = 11, 5.0


class Curves(NamedTuple):
    """What a score summarises, for every sample.

    Attributes:
        fractions: ``[P]``, share of the pixels (or of the layers) that are changed at each point.
        values: ``[N, P]``, what was measured there; ``nan`` for a sample whose score is ``nan``.
    """

    fractions: Array
    values: Array


class PixelOrder(NamedTuple):
    """Where pixels stand when some go before others; those that go as one share their places.

    Attributes:
        first: ``[N, H, W]``, the place of the first pixel of those that go with it.
        last: ``[N, H, W]``, that of the last.
    """

    first: Tensor
    last: Tensor

    @classmethod
    def of_pixels(cls, ranks: Tensor) -> PixelOrder:
        """Each pixel by itself."""
        return cls(ranks, ranks)


def perturbed_scores(
    model: Model,
    samples: LabeledImages,
    maps: Tensor,
    spans: Sequence[tuple[int, int]],
    *,
    baseline: Baseline,
    reveal: bool,
    output: ModelOutput,
    batch_size: int | None,
    segmentation: Segmentation = "pixels",
    n_segments: int = 100,
) -> Tensor:
    """The model's scores ``[N, P]`` with the pixels of a span of ranks changed.

    Args:
        model: Asked.
        samples: Images and targets.
        maps: ``[N, H, W]``; the largest value is the most important.
        spans: P times the first rank and the one after the last: ``(0, n)`` are the n most important pixels.
        baseline: The other picture.
        reveal: ``True``: these pixels are the image's, the others the baseline's. ``False``: the other way round.
        output: What is done with the outputs of the model.
        batch_size: Rows in one forward pass.
        segmentation: What goes as one, see :func:`segment_order`.
        n_segments: So many of them, about.

    Returns:
        float64; a row of ``nan`` for a constant map, which ranks nothing.
    """
    check_choice("segmentation", segmentation, get_args(Segmentation))
    check_count("n_segments", n_segments)

    def places(group: slice) -> PixelOrder:
        if segmentation == "pixels":
            return PixelOrder.of_pixels(ranks(maps[group]))
        return segment_order(maps[group], samples.images[group], segmentation, n_segments)

    scores = perturbed_scores_in_order(
        model, samples, places, spans, baseline=baseline, reveal=reveal, output=output, batch_size=batch_size
    )
    scores.masked_fill_(constant(maps)[:, None], torch.nan)
    return scores


def perturbed_scores_in_order(
    model: Model,
    samples: LabeledImages,
    places: Callable[[slice], PixelOrder],
    spans: Sequence[tuple[int, int]],
    *,
    baseline: Baseline,
    reveal: bool,
    output: ModelOutput,
    batch_size: int | None,
) -> Tensor:
    """The model's scores ``[N, P]`` as :func:`perturbed_scores`, where the places of the pixels are known.

    Args:
        model: Asked.
        samples: Images and targets.
        places: The places in a group of samples.
        spans: P times the first place and the one after the last: what lies within them wholly is changed.
        baseline: The other picture.
        reveal: Which is which.
        output: What is done with the outputs of the model.
        batch_size: Rows in one forward pass.

    Returns:
        float64.
    """
    start, stop = torch.tensor(spans, device=samples.images.device).T[..., None, None]
    base_of = resolve_baseline(baseline, samples.images)

    def prepare(group: slice) -> MakeRows:
        image, base, place = samples.images[group], base_of(group), places(group)
        top, rest = (image, base) if reveal else (base, image)

        def rows(sample: Tensor, point: Tensor) -> Tensor:
            inside = (place.first[sample] >= start[point]) & (place.last[sample] < stop[point])
            return torch.where(inside[:, None], top[sample], rest[sample])

        return rows

    with model_scorer(model, samples, len(spans), output=output, batch_size=batch_size) as scorer:
        return scorer.predict(samples, len(spans), prepare)


def score_drops(scores: Tensor) -> Tensor:
    """How far the other scores ``[N, P]`` lie below the first of each ``[N, 1 + P]``, that of the whole image.

    A difference that rounding may have made is 0: where the model does not see what was replaced, all falls are equal.

    Example:
        >>> score_drops(torch.tensor([[2.0, 0.5, 2.0000001, 3.0]], dtype=torch.float64)).tolist()
        [[1.5, 0.0, -1.0]]
    """
    whole, others = scores[:, :1], scores[:, 1:]
    rounding = _ROUNDING * torch.maximum(whole.abs(), others.abs())
    return (whole - others).masked_fill((whole - others).abs() <= rounding, 0.0)


def ranks(maps: Tensor) -> Tensor:
    """The place ``[N, H, W]`` of each pixel when the largest comes first; ties in the order of the pixels, row by row.

    Example:
        >>> ranks(torch.tensor([[[1.0, 3.0], [3.0, -9.0]]])).tolist()
        [[[2, 0], [1, 3]]]
    """
    order = maps.flatten(1).sort(dim=1, descending=True, stable=True).indices
    place = torch.arange(order.shape[1], device=maps.device).expand_as(order)
    return torch.empty_like(order).scatter_(1, order, place).reshape(maps.shape)


def segment_order(maps: Tensor, images: Tensor, segmentation: Segmentation, n_segments: int) -> PixelOrder:
    """The places of the pixels when whole segments go, those of the largest mean first.

    ``last < number`` has whole segments alone, all that fit among ``number`` pixels, and ``first >= number`` all that
    fit among the others. Of equal means the segment of the smaller number goes first.

    Args:
        maps: ``[N, H, W]``.
        images: ``[N, C, H, W]``, which superpixels are found in.
        segmentation: ``"grid"``: squares. ``"slic"``: superpixels.
        n_segments: Of an image, about: a grid has squares of the side that comes nearest from above.
    """
    height, width = maps.shape[1:]
    if segmentation == "grid":
        side = max(1, int(np.ceil(np.sqrt(height * width / n_segments))))
        labels = grid_cells(height, width, side).expand(maps.shape)
    else:
        labels = superpixels(images, n_segments)
    labels = labels.to(maps.device).flatten(1)
    count = int(labels.max()) + 1
    sums = maps.new_zeros(len(maps), count, dtype=torch.float64).scatter_add_(1, labels, maps.double().flatten(1))
    sizes = torch.zeros_like(sums).scatter_add_(1, labels, torch.ones_like(labels, dtype=torch.float64))
    means = torch.where(sizes > 0, sums / sizes, -torch.inf)  # an image with fewer segments than another
    order = means.sort(dim=1, descending=True, stable=True).indices
    ends = sizes.gather(1, order).cumsum(1).long()
    last = torch.empty_like(order).scatter_(1, order, ends - 1)
    first = last + 1 - sizes.long()
    return PixelOrder(*(place.gather(1, labels).reshape(maps.shape) for place in (first, last)))


def constant(maps: Tensor) -> Tensor:
    """Which maps ``[N]`` hold one value only."""
    flat = maps.flatten(1)
    return flat.amax(1) == flat.amin(1)


def unit_scaled(maps: Tensor) -> Tensor:
    """Maps shifted and scaled to [0, 1], each by itself, float64; a constant map becomes ``nan``."""
    flat = maps.double().flatten(1)
    flat = flat / flat.abs().amax(1, keepdim=True)  # so that the difference of huge values does not overflow
    low, high = flat.amin(1, keepdim=True), flat.amax(1, keepdim=True)
    return ((flat - low) / (high - low)).reshape(maps.shape)


def blurred(images: Tensor) -> Tensor:
    """The images as RISE blurs them: a Gaussian of sigma 5 on 11 × 11 taps, zeros outside the image.

    The released code makes the kernel by filtering a single one within an array of 11 × 11, mirrored at its border. The
    Gaussian of sigma 5 leaves such an array on all sides, which makes the kernel nearly a box.

    Args:
        images: ``[N, C, H, W]``.
    """
    down, across = (_banded(size).to(images) for size in images.shape[-2:])
    return down @ images @ across


def _banded(size: int) -> Tensor:
    """The blur of one axis as a symmetric matrix ``[size, size]``: faster than a convolution of single channels."""
    impulse = np.zeros(_TAPS)
    impulse[_TAPS // 2] = 1
    taps = torch.from_numpy(gaussian_filter1d(impulse, _SIGMA))
    distance = (torch.arange(size)[:, None] - torch.arange(size)).abs()
    return torch.where(distance <= _TAPS // 2, taps[_TAPS // 2 + distance.clamp_max(_TAPS // 2)], 0.0)


class _Baselines:
    """The baselines of a group of samples; those of a number or tensor are views.

    Attributes:
        shared: One ``[1, C, H, W]`` where it is the same for all samples, however many there are; else None.
    """

    def __init__(self, given: Tensor | None, images: Tensor, shared: Tensor | None = None) -> None:
        self._given, self._images, self.shared = given, images, shared

    def __call__(self, group: slice) -> Tensor:
        return blurred(self._images[group]) if self._given is None else self._given[group]


def resolve_baseline(baseline: Baseline, images: Tensor) -> _Baselines:
    """What gives the baselines of a group of samples, called with its slice.

    Raises:
        ValueError: If it is unknown, does not broadcast to the images, or is not finite.
        TypeError: If it is neither a number, numbers nor an array.
    """
    if isinstance(baseline, str):
        if baseline != "blur":
            raise ValueError(f"baseline must be a number, one for each channel, 'blur' or a tensor, got {baseline!r}.")
        return _Baselines(None, images)
    if isinstance(baseline, list | tuple) and all(isinstance(level, int | float) for level in baseline):
        baseline = torch.tensor(baseline, dtype=images.dtype)[:, None, None]
    if not isinstance(baseline, Tensor | np.ndarray | int | float):
        raise TypeError(
            f"baseline must be a number, one for each channel, 'blur' or a tensor, got {type(baseline).__name__}."
        )
    given = torch.as_tensor(baseline).detach().to(images)
    try:
        expanded = given.expand(images.shape)
    except RuntimeError:
        raise ValueError(
            f"baseline must broadcast to the images, got {list(given.shape)} for images {list(images.shape)}. "
            "One colour is [C, 1, 1]."
        ) from None
    if not given.isfinite().all():
        raise ValueError("baseline must be finite, got NaN or infinity.")
    alike = given.ndim < images.ndim or len(given) == 1
    return _Baselines(expanded, images, expanded[:1] if alike else None)
