"""Perturbed images and the model's scores for them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, TypeAlias, get_args

import numpy as np
import torch
from scipy.ndimage import gaussian_filter1d
from torch import Tensor

from xaibench.core.checks import check_choice, check_count
from xaibench.core.types import Array, Reduction
from xaibench.metrics.shared.inputs import Scores, check_finite_number, without_unit_axes
from xaibench.metrics.shared.model_scores import (
    LabeledImages,
    MakeRows,
    Model,
    ModelOutput,
    model_scorer,
    reduce_tensor,
)
from xaibench.metrics.shared.ranks import order_descending
from xaibench.tensors.inputs import as_tensor
from xaibench.tensors.segments import grid_cells, superpixels

#: Values of replaced pixels: a number, one number per channel, the blurred image (see :func:`blurred`), the mean color
#: of each image, or images that broadcast to ``[N, C, H, W]``, such as one color ``[C, 1, 1]``, which is
#: ``[C, 1, 1, 1]`` for volumes.
Baseline: TypeAlias = "float | Sequence[float] | Literal['blur', 'mean'] | Array"

#: Units that are replaced together: single pixels, the squares of a grid, or superpixels; in volumes, the cubes of a
#: grid or supervoxels (see :func:`segment_order`).
Segmentation: TypeAlias = Literal["pixels", "grid", "slic"]

# Relative error of a score in float32, which depends on the other rows of the batch.
_ROUNDING = 1e-6

# RISE's blur: a kernel of 11 taps, sigma 5.
_TAPS, _SIGMA = 11, 5.0


class Curves(NamedTuple):
    """The curve behind a score, for every sample.

    Attributes:
        fractions: ``[P]``, share of the pixels (or of the layers) that are changed at each point.
        values: ``[N, P]``, the measured values; NaN for a sample whose score is NaN.
    """

    fractions: Array
    values: Array


def reduce_curves(
    scores: Tensor, fractions: Tensor, values: Tensor, reduction: Reduction, like: Array, return_curves: bool
) -> Scores:
    """Reduce scores ``[N]``; with ``return_curves`` also return their curves, in the type of ``like``."""
    reduced = reduce_tensor(scores, reduction, like)
    if not return_curves:
        return reduced
    if isinstance(like, Tensor):
        return reduced, Curves(fractions.to(like.device), values.to(like.device))
    return reduced, Curves(fractions.cpu().numpy(), values.cpu().numpy())


class PixelOrder(NamedTuple):
    """Positions of pixels in the order in which they are replaced; the pixels of one segment share their positions.

    Attributes:
        first: ``[N, H, W]``, position of the first pixel of the segment.
        last: ``[N, H, W]``, position of the last pixel of the segment.
    """

    first: Tensor
    last: Tensor

    @classmethod
    def of_pixels(cls, ranks: Tensor) -> PixelOrder:
        """Create an order of single pixels from their ranks, without segments."""
        return cls(ranks, ranks)


def perturbed_scores(
    model: Model,
    samples: LabeledImages,
    maps: Tensor,
    spans: Sequence[tuple[int, int]],
    baseline: Baseline,
    output: ModelOutput,
    batch_size: int | None,
    *,
    reveal: bool,
    units: tuple[Segmentation, int] = ("pixels", 1),
) -> Tensor:
    """Return the model's scores ``[N, P]`` for images with the pixels of a range of ranks replaced.

    Args:
        model: The model that is called.
        samples: Images and targets.
        maps: ``[N, H, W]``; the largest value is the most important.
        spans: P pairs of the first rank and the one after the last: ``(0, n)`` are the n most important pixels.
        baseline: The image that replaces pixels.
        output: Class score, see :data:`~xaibench.metrics.shared.model_scores.ModelOutput`.
        batch_size: Rows per forward pass.
        reveal: ``True``: the pixels in the range are from the image, the others from the baseline. ``False``: the
            reverse.
        units: Units that are replaced together, and their approximate number; see :func:`segment_order`.

    Returns:
        float64; a row of NaN for a constant map, which does not rank pixels.
    """
    segmentation, n_segments = units
    check_choice("segmentation", segmentation, get_args(Segmentation))
    check_count("n_segments", n_segments)

    def order(group: slice) -> PixelOrder:
        if segmentation == "pixels":
            return PixelOrder.of_pixels(ranks(maps[group]))
        return segment_order(maps[group], samples.images[group], segmentation, n_segments)

    scores = perturbed_scores_in_order(model, samples, order, spans, baseline, output, batch_size, reveal=reveal)
    return scores.masked_fill_(constant(maps)[:, None], torch.nan)


def perturbed_scores_in_order(
    model: Model,
    samples: LabeledImages,
    order: Callable[[slice], PixelOrder],
    spans: Sequence[tuple[int, int]],
    baseline: Baseline,
    output: ModelOutput,
    batch_size: int | None,
    *,
    reveal: bool = False,
) -> Tensor:
    """Return the model's scores ``[N, P]`` as :func:`perturbed_scores`, for a given order of the pixels.

    Args:
        model: The model that is called.
        samples: Images and targets.
        order: Returns the order of the pixels for a group of samples.
        spans: P pairs of the first position and the one after the last; segments that are entirely inside are changed.
        baseline: The image that replaces pixels.
        output: Class score.
        batch_size: Rows per forward pass.
        reveal: As in :func:`perturbed_scores`.

    Returns:
        float64.
    """
    ends = torch.tensor(spans, device=samples.images.device).T
    start, stop = ends.reshape(*ends.shape, *(1,) * (samples.images.ndim - 2))
    base_of = resolve_baseline(baseline, samples.images)

    def prepare(group: slice) -> MakeRows:
        image, base, positions = samples.images[group], base_of(group), order(group)
        top, rest = (image, base) if reveal else (base, image)

        def rows(sample: Tensor, point: Tensor) -> Tensor:
            inside = (positions.first[sample] >= start[point]) & (positions.last[sample] < stop[point])
            return torch.where(inside[:, None], top[sample], rest[sample])

        return rows

    with model_scorer(model, samples, len(spans), output=output, batch_size=batch_size) as scorer:
        return scorer.predict(samples, len(spans), prepare)


def score_drops(scores: Tensor) -> Tensor:
    """Return the drop of the other scores in each row ``[N, 1 + P]`` from the first, that of the whole image.

    A difference within rounding error is set to 0, so that all drops are equal where the model ignores the replaced
    pixels.

    Example:
        >>> score_drops(torch.tensor([[2.0, 0.5, 2.0000001, 3.0]], dtype=torch.float64)).tolist()
        [[1.5, 0.0, -1.0]]
    """
    whole, others = scores[:, :1], scores[:, 1:]
    rounding = _ROUNDING * torch.maximum(whole.abs(), others.abs())
    return (whole - others).masked_fill((whole - others).abs() <= rounding, 0.0)


def ranks(maps: Tensor) -> Tensor:
    """Return the rank ``[N, H, W]`` of each pixel, the largest first; ties are broken by pixel order, row by row.

    Values that differ by rounding only are tied (:mod:`xaibench.metrics.shared.ranks`).

    Example:
        >>> ranks(torch.tensor([[[1.0, 3.0], [3.0, -9.0]]])).tolist()
        [[[2, 0], [1, 3]]]
    """
    order = order_descending(maps.flatten(1))
    positions = torch.arange(order.shape[1], device=maps.device).expand_as(order)
    return torch.empty_like(order).scatter_(1, order, positions).reshape(maps.shape)


def segment_order(maps: Tensor, images: Tensor, segmentation: Segmentation, n_segments: int) -> PixelOrder:
    """Return the order of the pixels when whole segments are replaced, the largest mean value first.

    ``last < number`` selects the segments that fit entirely into the first ``number`` pixels, and ``first >=
    number`` the segments that fit into the other pixels. Of segments with equal mean, the one with the smaller
    number comes first.

    Args:
        maps: ``[N, H, W]``.
        images: ``[N, C, H, W]``, from which superpixels are computed.
        segmentation: ``"grid"`` for squares (cubes in volumes), ``"slic"`` for superpixels (supervoxels). A volume of
            one slice is an image.
        n_segments: Approximate number per image; the squares of a grid have the nearest side length from above.
    """
    sides = without_unit_axes(maps.shape[1:])
    if segmentation == "grid":
        side = next(side for side in itertools.count(1) if side ** len(sides) * n_segments >= math.prod(sides))
        labels = grid_cells(sides, side).expand(len(maps), *sides)
    else:
        labels = superpixels(images.reshape(*images.shape[:2], *sides), n_segments)
    labels = labels.to(maps.device).flatten(1)
    count = int(labels.max()) + 1
    sums = maps.new_zeros(len(maps), count, dtype=torch.float64).scatter_add_(1, labels, maps.double().flatten(1))
    sizes = torch.zeros_like(sums).scatter_add_(1, labels, torch.ones_like(labels, dtype=torch.float64))
    means = torch.where(sizes > 0, sums / sizes, -torch.inf)  # images may have different numbers of segments
    order = order_descending(means)
    ends = sizes.gather(1, order).cumsum(1).long()
    last = torch.empty_like(order).scatter_(1, order, ends - 1)
    first = last + 1 - sizes.long()
    return PixelOrder(*(place.gather(1, labels).reshape(maps.shape) for place in (first, last)))


def constant(maps: Tensor) -> Tensor:
    """Return ``[N]`` bool: which maps have a single value."""
    flat = maps.flatten(1)
    return flat.amax(1) == flat.amin(1)


def peaks(maps: Tensor) -> Tensor:
    """Return the largest magnitude of each map, ``[N, 1, 1]`` (volumes: ``[N, 1, 1, 1]``)."""
    return maps.abs().amax(tuple(range(1, maps.ndim)), keepdim=True)


def unit_scaled(maps: Tensor) -> Tensor:
    """Return each map shifted and scaled to [0, 1], in float64; a constant map becomes NaN."""
    flat = maps.double().flatten(1)
    flat = flat / flat.abs().amax(1, keepdim=True)  # avoids overflow in the difference of huge values
    low, high = flat.amin(1, keepdim=True), flat.amax(1, keepdim=True)
    return ((flat - low) / (high - low)).reshape(maps.shape)


def blurred(images: Tensor) -> Tensor:
    """Blur images as RISE does: a Gaussian of sigma 5 on 11 × 11 taps, with zeros outside the image.

    The released code creates the kernel by filtering a single one within an array of 11 × 11, mirrored at its border.
    The Gaussian of sigma 5 exceeds this array on all sides, which makes the kernel nearly a box. Volumes are blurred
    along all of their axes; a volume of one slice is blurred as an image.

    Args:
        images: ``[N, C, H, W]``.
    """
    sides = without_unit_axes(images.shape[2:])
    *deep, down, across = (_banded(size).to(images) for size in sides)
    result = down @ images.reshape(*images.shape[:2], *sides) @ across
    for band in deep:
        result = band @ result.flatten(3)
    return result.reshape(images.shape)


def _banded(size: int) -> Tensor:
    """Return the blur along one axis as a symmetric matrix ``[size, size]``, which is faster than a convolution."""
    impulse = np.zeros(_TAPS)
    impulse[_TAPS // 2] = 1
    taps = torch.from_numpy(gaussian_filter1d(impulse, _SIGMA))
    distance = (torch.arange(size)[:, None] - torch.arange(size)).abs()
    return torch.where(distance <= _TAPS // 2, taps[_TAPS // 2 + distance.clamp_max(_TAPS // 2)], 0.0)


class _Baselines:
    """Baselines for groups of samples; those from a number or tensor are views.

    Attributes:
        shared: The baseline ``[1, C, H, W]`` if it is the same for all samples, otherwise None.
    """

    def __init__(self, given: Tensor | None, images: Tensor, shared: Tensor | None = None) -> None:
        self._given, self._images, self.shared = given, images, shared

    def __call__(self, group: slice) -> Tensor:
        return blurred(self._images[group]) if self._given is None else self._given[group]


def resolve_baseline(baseline: Baseline, images: Tensor) -> _Baselines:
    """Return an object that maps the slice of a group of samples to its baselines.

    Raises:
        ValueError: If the baseline is unknown, does not broadcast to the images, or is not finite.
        TypeError: If it is neither a number, a sequence of numbers nor an array.
    """
    if isinstance(baseline, str):
        if baseline not in ("blur", "mean"):
            raise ValueError(
                f"baseline must be a number, one number per channel, 'blur', 'mean' or a tensor, got {baseline!r}."
            )
        is_mean = baseline == "mean"
        return _Baselines(
            images.mean(tuple(range(2, images.ndim)), keepdim=True).expand(images.shape) if is_mean else None, images
        )
    if isinstance(baseline, list | tuple | int | float):
        for level in baseline if isinstance(baseline, list | tuple) else [baseline]:
            check_finite_number(level, "baseline")
        axes = (1,) * (images.ndim - 2) if isinstance(baseline, list | tuple) else ()
        baseline = torch.tensor(baseline, dtype=images.dtype).reshape(-1, *axes)  # float32 would round float64
    values = as_tensor(
        baseline, "baseline", "a number, one number per channel, 'blur', 'mean', a tensor or an array"
    ).to(images)
    try:
        expanded = values.expand(images.shape)
    except RuntimeError:
        raise ValueError(
            f"baseline must broadcast to the images, got {list(values.shape)} for images {list(images.shape)}. "
            "One color is [C, 1, 1] (volumes: [C, 1, 1, 1])."
        ) from None
    if not values.isfinite().all():
        raise ValueError("baseline must be finite, got NaN or infinity.")
    is_shared = values.ndim < images.ndim or len(values) == 1
    return _Baselines(expanded, images, expanded[:1] if is_shared else None)


#: Returns a perturbation ``[H, W]`` float64 by its index.
Field: TypeAlias = Callable[[int], Tensor]


class Fields(NamedTuple):
    """The perturbations of an image.

    Attributes:
        number: Number of perturbations.
        field: Returns a perturbation by its index; the one after the last is zero.
        replace: True if the field marks pixels to set to the baseline, False if it is subtracted from the image.
    """

    number: int
    field: Field
    replace: bool


def field_scores(
    model: Model,
    samples: LabeledImages,
    fields: Fields,
    *,
    output: ModelOutput,
    batch_size: int | None,
    baseline: Baseline = 0.0,
) -> Tensor:
    """Return the model's scores under each perturbation.

    Args:
        model: The model that is called.
        samples: Images and targets.
        fields: The perturbations.
        output: Class score.
        batch_size: Rows per forward pass.
        baseline: Values of marked pixels.

    Returns:
        ``[N, number + 1]`` float64; the last column is the original image.
    """
    base_of = resolve_baseline(baseline, samples.images)

    def prepare(group: slice) -> MakeRows:
        image, base = samples.images[group], base_of(group)

        def rows(sample: Tensor, point: Tensor) -> Tensor:
            # Neighboring rows belong to the same point, whose field is computed once.
            made = {index: fields.field(index) for index in set(point.tolist())}
            perturbations = torch.stack([made[index] for index in point.tolist()])[:, None]
            if fields.replace:
                return torch.where(perturbations > 0, base[sample], image[sample])
            return image[sample] - perturbations.to(image)

        return rows

    with model_scorer(model, samples, fields.number + 1, output=output, batch_size=batch_size) as scorer:
        return scorer.predict(samples, fields.number + 1, prepare)


def patch_numbers(sides: Sequence[int], grid_size: int) -> Tensor:
    """Return the patch of each pixel, numbered row by row; a side has at most as many patches as pixels.

    Args:
        sides: Spatial axes of the image: H and W, or D, H and W.
        grid_size: Patches along each axis.

    Returns:
        ``[H, W]`` int64, or ``[D, H, W]``.

    Example:
        >>> patch_numbers((2, 3), 2).tolist()
        [[0, 0, 1], [2, 2, 3]]
    """
    numbers = torch.zeros((), dtype=torch.int64)
    for side in sides:
        patches = min(grid_size, side)
        numbers = numbers[..., None] * patches + torch.arange(side) * patches // side
    return numbers


def patch_sums(maps: Tensor, grid_size: int) -> Tensor:
    """Return the sums ``[N, patches]`` of maps ``[N, H, W]``, up to one factor per map; zero for a constant map."""
    peak = peaks(maps.double())
    flat = (maps.double() / torch.where(peak > 0, peak, 1.0)).flatten(1)  # avoids overflow in sums of huge values
    labels = patch_numbers(maps.shape[1:], grid_size).flatten().to(flat.device)
    sums = flat.new_zeros(len(flat), int(labels.max()) + 1).index_add_(1, labels, flat)
    return sums.masked_fill_(constant(maps)[:, None], 0)  # otherwise patch sizes would decide
