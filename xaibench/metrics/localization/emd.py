"""Earth mover's distance between the map and the ground truth, exact.

With the map normalized to a distribution ``p = |s| / sum |s|`` over the pixels and the ground truth to
``q = F+ / |F+|``, the distance is the smallest mean distance, in pixels or the unit of ``spacing``, that transports
``p`` to ``q``:

    W1(p, q) = min sum_ij P_ij d(i, j)   over P >= 0 with row sums p and column sums q,

where ``d`` is the Euclidean distance between the centers of two pixels, or voxels. Since ``d`` is a metric, the mass
that ``p`` and ``q`` have in common can stay in place: W1(p, q) = W1((p - q)+, (q - p)+). Every distance is
proven by a lower bound before it becomes a score: see :mod:`xaibench.metrics.localization.emd_bounds`, which selects a
solver by problem size.
"""

from __future__ import annotations

import functools
import itertools
import math
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from xaibench.core.checks import check_count
from xaibench.core.types import Array, Bools, Floats, Reduction
from xaibench.metrics.localization.emd_bounds import (
    FEW_PAIRS,
    Bounds,
    Diameter,
    TransportError,
    diameters,
    marks_few,
    wasserstein,
    wasserstein_to_few,
)
from xaibench.metrics.shared.inputs import (
    Scores,
    Spacing,
    check_finite_number,
    pixel_spacing,
    reduce_scores,
    score_pairs,
)
from xaibench.registry.info import MetricInfo

#: Total number of noise pixels, and the maximum number of pairs of draws.
_PIXELS, _MOST_PAIRS = 2**11, 64


def draws(*shape: int) -> int:
    """Return the number of noise draws: fewer for larger images, where a single draw is more precise.

    Example:
        >>> draws(8, 8), draws(16, 16), draws(64, 64)
        (64, 16, 2)
    """
    return 2 * min(_MOST_PAIRS, max(1, _PIXELS // math.prod(shape)))


def expected_distance(masks: Bools, *, spacing: Spacing = None) -> Floats:
    """Return the expected distance of a map of independent uniform noise to each mask.

    No formula is known. The expectation is the mean over :func:`draws` fixed draws, in antithetic pairs (``u`` and
    ``1 - u``, whose errors nearly cancel). From 8×8 on and for masks of up to two fifths of the image, its standard
    error is below 0.3 % of the distance (and so below 0.003 of a skill), and smaller for smaller masks. The remaining
    error is the same for all maps of a mask. Masks that are equal up to the order and the direction of their axes have
    the same distance (the spacing of the pixels turns with them), so few masks have to be integrated.

    Args:
        masks: ``[N, H, W]``.
        spacing: As in :func:`xaibench.metrics.emd`.

    Returns:
        ``[N]``; NaN for an empty mask.
    """
    distances = [
        _cached_distance(np.packbits(mask).tobytes(), mask.shape, tuple(lengths)) if mask.any() else math.nan
        for mask, lengths in zip(masks, pixel_spacing(spacing, masks.shape).tolist(), strict=True)
    ]
    return np.array(distances, dtype=np.float64)


def expected_performance(masks: Bools, *, diameter: Diameter = "image", spacing: Spacing = None) -> Floats:
    """Return the score of noise in :func:`xaibench.metrics.emd_perf`.

    Args:
        masks: ``[N, H, W]``.
        diameter: As in that function.
        spacing: As in that function.

    Returns:
        ``[N]``; NaN for an empty mask.
    """
    largest = diameters(masks.shape[1:], pixel_spacing(spacing, masks.shape), diameter)
    return 1.0 - expected_distance(masks, spacing=spacing) / largest


def noise_distances(mask: Bools, lengths: Floats) -> Floats:
    """Return the distances of the draws, whose mean is the expected distance.

    Args:
        mask: ``[H, W]``, not empty.
        lengths: ``[axes]``, the spacing along each axis, which is the unit of the distances.

    Returns:
        One number per antithetic pair, with a relative error of at most 0.15 %, or more in large volumes
        (:func:`~xaibench.metrics.localization.emd_bounds.wasserstein`). Their standard deviation divided by the square
        root of their number is the standard error.
    """
    pairs = draws(*mask.shape) // 2
    noise = np.random.default_rng(0).random((pairs, *mask.shape))
    both = np.concatenate([noise, 1 - noise])
    if marks_few(mask[None])[0]:
        same = np.broadcast_to(mask, both.shape), np.broadcast_to(lengths, (len(both), mask.ndim))
        distances = wasserstein_to_few(np.arange(len(both)), both, *same)[:, 1]
    else:
        target = mask / mask.sum()
        # For large problems, the middle of bounds 0.3 % apart is precise enough.
        distances = np.array([sum(wasserstein(one / one.sum(), target, lengths, exact=False)) / 2 for one in both])
    return np.asarray(distances.reshape(2, pairs).mean(axis=0))


def unpack_mask(packed: bytes, shape: tuple[int, ...]) -> Bools:
    """Return the mask whose packed bits are hashable, for caches."""
    return np.unpackbits(np.frombuffer(packed, np.uint8), count=math.prod(shape)).astype(np.bool_).reshape(shape)


@functools.lru_cache(maxsize=2**13)
def _cached_distance(packed: bytes, shape: tuple[int, ...], lengths: tuple[float, ...]) -> float:
    """Return the expected distance; a mask and its mirror images and rotations share the result of the solver."""
    mask, spacing = unpack_mask(packed, shape), np.array(lengths)
    turned = [(np.transpose(mask, order), spacing[list(order)]) for order in itertools.permutations(range(mask.ndim))]
    directions = [
        tuple(slice(None, None, way) for way in ways) for ways in itertools.product((1, -1), repeat=mask.ndim)
    ]
    symmetric = [(side[flip], spaces) for side, spaces in turned for flip in directions]
    first, spaces = min(symmetric, key=lambda pair: (pair[0].shape, pair[1].tolist(), pair[0].tobytes()))
    return _integrate(np.packbits(first).tobytes(), first.shape, tuple(spaces.tolist()))


@functools.lru_cache(maxsize=2**13)
def _integrate(packed: bytes, shape: tuple[int, ...], lengths: tuple[float, ...]) -> float:
    return float(noise_distances(unpack_mask(packed, shape), np.array(lengths)).mean())


__all__ = ["Diameter", "ProgressCallback", "TransportError", "TransportProgress", "emd", "emd_perf"]

_XAI_TRIS = "Clark, Wilming, Haufe: XAI-TRIS, Machine Learning 2024, arXiv 2306.12816"


@dataclass(frozen=True)
class TransportProgress:
    """Current bounds of the distance of one map.

    Attributes:
        sample: Index of the map in the batch.
        lower: Lower bound, in the unit of the distance; NaN where the distance is undefined.
        upper: Upper bound. The distance, if it is exact and done.
        done: Whether the computation for this map is finished.
    """

    sample: int
    lower: float
    upper: float
    done: bool


#: Lower and upper bounds of ``n`` scores, each ``[n]``.
_Intervals: TypeAlias = tuple[Floats, Floats]
#: Called with each :class:`TransportProgress`, from one thread at a time.
ProgressCallback: TypeAlias = Callable[[TransportProgress], None]


@MetricInfo(
    "EMD",
    higher_is_better=False,
    range=(0.0, math.inf),
    meaning="Mean distance in pixels by which the map’s magnitude must be moved to cover the ground truth "
    "evenly. 0: it already does.",
    pitfalls="In pixels: images of different sizes are not comparable. At 224×224 the exact distance takes about "
    "twenty seconds per map; `exact=False` gives bounds ([more](emd.md)).",
    map_sign="magnitude",
    chance="About the score of a constant map: about 1.9 pixels in XAI-TRIS at 8×8.",
    chance_level=expected_distance,
    sample_inputs=("spacing",),
    picture="cheapest plan",
    class_name="EMD",
    citation=_XAI_TRIS,
)
def emd(
    maps: Array,
    masks: Array,
    *,
    exact: bool = True,
    spacing: Spacing = None,
    workers: int = 1,
    time_limit: float | None = None,
    progress: ProgressCallback | None = None,
    reduction: Reduction = "mean",
) -> Scores:
    r"""Earth mover's distance between the map and the ground truth, in pixels.

    .. math:: W_1\bigl(|s| / \textstyle\sum |s|,\; F^+ / |F^+|\bigr)

    with the Euclidean distance between pixels: the exact optimum, in float64. From 0 (the map is constant on the ground
    truth and zero elsewhere) to the distance between opposite corners; lower is better. Both are normalized to a mass
    of one; signs are ignored. Clark et al. (2024), the distance in Equation 5.

    Args:
        maps: ``[N, H, W]`` or ``[H, W]``; their magnitude is used.
        masks: Same shape as the maps, binary; ``True`` = important.
        exact: Compute the distance itself, proven per map to a relative error of 1e-9. Otherwise compute bounds at most
            0.3 % apart, which takes a fraction of the time for images of 224×224. In volumes of more than 2^24 pairs of
            a voxel inside and a voxel outside, such as 32×32×32 with 2 % inside, voxels are merged: their bounds are
            about 0.5 % apart, and more if mass moves by a few voxels only.
        spacing: Distance between neighboring pixels or voxels, which is the unit of the score: ``None`` (1 along every
            axis), one positive number per spatial axis, such as millimeters in the order D, H, W, or a row of them per
            sample, ``[N, axes]``.
        workers: Number of threads; the results do not depend on it.
        time_limit: Seconds per map; ``None`` for no limit. When the time is up, an exact distance raises a
            :class:`TransportError`, because it is not proven; with ``exact=False`` the bounds reached so far are
            returned.
        progress: Called with a :class:`TransportProgress` from time to time, and when a map is done.
        reduction: ``"mean"`` of the defined scores, or ``"none"`` for all scores ``[N]``.

    Returns:
        The distance; ``nan`` for a map that is all zero and for an empty mask, which are not distributions. With
        ``exact=False`` the pair ``(lower, upper)``, each reduced like the distance.

    Raises:
        ValueError: If shapes differ, maps are not finite, masks are not binary, ``spacing`` is not positive or does not
            match the maps, ``workers`` is below 1, ``time_limit`` is negative, or an exact distance is requested in a
            volume of more than 2^28 pairs of voxels.
        TypeError: If an input is not a numpy array or torch tensor of real numbers.
        TransportError: If the optimum is not reached; the message contains the known bounds.

    Example:
        >>> import numpy as np
        >>> masks = np.array([[1, 0, 0, 0]])
        >>> emd(np.array([[0, 0, 0, -7.0]]), masks)  # all mass is three pixels away
        3.0
        >>> emd(np.array([[0, 0, 0, -7.0]]), masks, spacing=(1.0, 0.5))  # columns that are half a millimeter apart
        1.5
        >>> lower, upper = emd(np.array([[1.0, 2.0, 3.0, 4.0]]), masks, exact=False)
        >>> lower <= 2.0 <= upper
        True
    """
    return _score(_DistanceSolver(exact, workers, time_limit, progress), exact, maps, masks, spacing, reduction)


@MetricInfo(
    "EMD performance",
    higher_is_better=True,
    meaning="One minus the earth mover’s distance between the map and the ground truth, both scaled to sum one, "
    "divided by the largest distance between two pixels. 1: all importance is on the ground truth.",
    pitfalls="Mass near the ground truth counts nearly as much as mass on it. So any map that is spread over the "
    "image scores high, and differences between methods are small: compare it with the controls or use"
    " `emd_skill`, and do not compare it with 1. The released code divides by √(2HW), which raises "
    'every score (`diameter="released"`).',
    map_sign="magnitude",
    chance="About the score of a constant map: about 0.81 in XAI-TRIS’s LIN at 8×8, 0.86 at 64×64.",
    chance_level=expected_performance,
    sample_inputs=("spacing",),
    picture="cheapest plan, turned",
    class_name="EMDPerformance",
    citation=_XAI_TRIS,
)
def emd_perf(
    maps: Array,
    masks: Array,
    *,
    diameter: Diameter = "image",
    exact: bool = True,
    spacing: Spacing = None,
    workers: int = 1,
    time_limit: float | None = None,
    progress: ProgressCallback | None = None,
    reduction: Reduction = "mean",
) -> Scores:
    r"""Earth mover's distance as a performance: 1 for the ground truth itself, 0 at the largest possible distance.

    .. math:: 1 - W_1\bigl(|s| / \textstyle\sum |s|,\; F^+ / |F^+|\bigr) \,/\, \delta

    Clark et al. (2024), Equation 5; in [0, 1], higher is better. See :func:`emd` for the distance.

    Args:
        maps: ``[N, H, W]`` or ``[H, W]``; their magnitude is used.
        masks: Same shape as the maps, binary; ``True`` = important.
        diameter: :math:`\delta`. ``"image"`` is the largest distance between two pixels, :math:`\sqrt{(H-1)^2 +
            (W-1)^2}`, as in the paper's text (in a volume or with a spacing likewise); ``"released"`` is
            :math:`\sqrt{2HW}`, as in the authors' code (square images without spacing only). At 8×8 they are 9.90 and
            11.31.
        exact: As in :func:`emd`; the 0.3 % refer to the distance.
        spacing: As in :func:`emd`; only its ratios matter.
        workers: As in :func:`emd`.
        time_limit: As in :func:`emd`.
        progress: As in :func:`emd`; it receives distances.
        reduction: ``"mean"`` of the defined scores, or ``"none"`` for all scores ``[N]``.

    Returns:
        The performance; ``nan`` for a map that is all zero and for an empty mask. In an image of one pixel it is 1.
        With ``exact=False`` the pair ``(lower, upper)``.

    Raises:
        ValueError: If shapes differ, maps are not finite, masks are not binary, ``diameter`` is unknown, or
            ``"released"`` for other than a square image without spacing, ``spacing`` is not positive or does not match
            the maps, ``workers`` is below 1, ``time_limit`` is negative, or a volume is too large (:func:`emd`).
        TypeError: If an input is not a numpy array or torch tensor of real numbers.
        TransportError: If the optimum is not reached; the message contains the known bounds.

    Example:
        >>> import numpy as np
        >>> masks = np.array([[[1, 1], [0, 0]]])
        >>> emd_perf(masks, masks), round(emd_perf(1 - masks, masks), 3)
        (1.0, 0.293)
    """
    if diameter not in ("image", "released"):
        raise ValueError(f"diameter must be 'image' or 'released', got {diameter!r}.")
    solver = _DistanceSolver(exact, workers, time_limit, progress)

    def performance(maps: Floats, masks: Bools, lengths: Floats) -> _Intervals:
        largest = diameters(maps.shape[1:], lengths, diameter)
        lower, upper = solver(maps, masks, lengths)
        return 1.0 - upper / largest, 1.0 - lower / largest

    return _score(performance, exact, maps, masks, spacing, reduction)


class _DistanceSolver:
    """Computes distances and counts the samples done so far."""

    def __init__(self, exact: bool, workers: int, time_limit: float | None, progress: ProgressCallback | None) -> None:
        check_count("workers", workers)
        if time_limit is not None:
            check_finite_number(time_limit, "time_limit", least=0)
        if not (progress is None or callable(progress)):
            raise TypeError(f"progress={progress!r}: expected a function of a TransportProgress, or None.")
        self.exact, self.workers, self.time_limit, self.progress = exact, int(workers), time_limit, progress
        self.n_seen = 0
        self.lock = threading.Lock()

    def __call__(self, maps: Floats, masks: Bools, lengths: Floats) -> _Intervals:
        """Return lower and upper bounds for the next ``n`` samples; both are equal if exact."""
        samples = self.n_seen + np.arange(len(maps))
        self.n_seen += len(maps)
        bounds = np.empty((len(maps), 2))
        few = marks_few(masks)
        if few.any():
            bounds[few] = wasserstein_to_few(samples[few], maps[few], masks[few], lengths[few])
            for sample, (lower, upper) in zip(samples[few].tolist(), bounds[few].tolist(), strict=True):
                self._report(sample, (lower, upper), done=True)
        if not few.all():
            rest = samples[~few].tolist(), maps[~few], masks[~few], lengths[~few]
            if self.workers == 1 or (maps[0].size / 2) ** 2 <= FEW_PAIRS:  # too small for threads to pay off
                bounds[~few] = list(map(self._bounds, *rest))
            else:
                with ThreadPoolExecutor(self.workers) as pool:  # the solver's loops release the GIL
                    bounds[~few] = list(pool.map(self._bounds, *rest))
        if self.exact:
            bounds[:, 0] = bounds[:, 1]
        return bounds[:, 0], bounds[:, 1]

    def _bounds(self, sample: int, values: Floats, mask: Bools, lengths: Floats) -> Bounds:
        magnitude = np.abs(values)
        peak = magnitude.max()
        bounds = math.nan, math.nan
        if peak > 0 and mask.any():
            magnitude /= peak  # avoids overflow and underflow of sums
            try:
                bounds = wasserstein(
                    magnitude / magnitude.sum(),
                    mask / mask.sum(),
                    lengths,
                    exact=self.exact,
                    time_limit=self.time_limit,
                    progress=self.progress and (lambda lower, upper: self._report(sample, (lower, upper), done=False)),
                )
            except TransportError as error:
                raise TransportError(f"Map {sample}: {error}") from error
        self._report(sample, bounds, done=True)
        return bounds

    def _report(self, sample: int, bounds: Bounds, *, done: bool) -> None:
        if self.progress is not None:
            with self.lock:
                self.progress(TransportProgress(sample, *bounds, done))


def _score(
    bounds: Callable[[Floats, Bools, Floats], _Intervals],
    exact: bool,
    maps: Array,
    masks: Array,
    spacing: Spacing,
    reduction: Reduction,
) -> Scores:
    """Return scores, or lower and upper scores, from the bounds of each block of samples."""
    lowers = [np.empty(0)]

    def upper(maps: Floats, masks: Bools, lengths: Floats) -> Floats:
        lower, upper = bounds(maps, masks, lengths)
        lowers.append(lower)
        return upper

    uppers = score_pairs(upper, maps, masks, reduction, functools.partial(pixel_spacing, spacing))
    return uppers if exact else (reduce_scores(np.concatenate(lowers), reduction, like=maps), uppers)
