"""How far is the map's mass from the ground truth? The earth mover's distance, exact.

With the map normed to a distribution ``p = |s| / sum |s|`` over the pixels and the ground truth to ``q = F+ / |F+|``,
the distance is the least mean way, in pixels, that carries ``p`` into ``q``:

    W1(p, q) = min sum_ij P_ij d(i, j)   over P >= 0 with row sums p and column sums q,

``d`` being the Euclidean distance between the centres of two pixels. Since ``d`` is a metric, the mass that ``p`` and
``q`` have in common can stay where it is: W1(p, q) = W1((p - q)+, (q - p)+). No distance becomes a score that is not
proven by a lower bound: see :mod:`xaibench.metrics.truth.proven_distance`, which knows the right solver for each size.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias, overload

import numpy as np
from numpy.typing import NDArray

from xaibench.core.checks import check_count
from xaibench.core.part_info import MetricInfo, described
from xaibench.core.vocabulary import Reduction
from xaibench.metrics.shared.map_inputs import Scores, check_finite_number, reduce_scores, score_pairs
from xaibench.metrics.truth.noise_distance import expected_distance, expected_performance
from xaibench.metrics.truth.proven_distance import (
    FEW_PAIRS,
    Bounds,
    Diameter,
    TransportError,
    diameter_of,
    marks_few,
    wasserstein,
    wasserstein_to_few,
)

if TYPE_CHECKING:
    from xaibench.core.vocabulary import Array

__all__ = ["Diameter", "ProgressCallback", "TransportError", "TransportProgress", "emd", "emd_perf"]

_XAI_TRIS = "Clark, Wilming, Haufe: XAI-TRIS, Machine Learning 2024, arXiv 2306.12816"


@dataclass(frozen=True)
class TransportProgress:
    """What is known of the distance of one map.

    Attributes:
        sample: Index of the map in the batch.
        lower: It is not less, in pixels; ``nan`` where it is undefined.
        upper: It is not more. The distance, when it is exact and done.
        done: Whether this is the last word on it.
    """

    sample: int
    lower: float
    upper: float
    done: bool


#: Lower and upper bounds of ``n`` scores, each ``[n]``.
_Intervals: TypeAlias = tuple[NDArray[np.float64], NDArray[np.float64]]
#: Told of each :class:`TransportProgress`, from one thread at a time.
ProgressCallback: TypeAlias = Callable[[TransportProgress], None]


@overload
def emd(
    maps: Array,
    masks: Array,
    *,
    exact: Literal[True] = True,
    workers: int = 1,
    time_limit: float | None = None,
    progress: ProgressCallback | None = None,
    reduction: Reduction = "mean",
) -> Scores: ...


@overload
def emd(
    maps: Array,
    masks: Array,
    *,
    exact: Literal[False],
    workers: int = 1,
    time_limit: float | None = None,
    progress: ProgressCallback | None = None,
    reduction: Reduction = "mean",
) -> tuple[Scores, Scores]: ...


@described(
    MetricInfo(
        "EMD",
        "ground-truth",
        higher_is_better=False,
        range=(0.0, math.inf),
        meaning="How far, in pixels, the map’s magnitude must be moved on average until it lies evenly over the "
        "ground truth. 0: it does already.",
        pitfalls="In pixels: images of different sizes do not compare. At 224×224 the exact distance takes some "
        "twenty seconds a map; `exact=False` gives bounds ([more](emd.md)).",
        chance="About that of a constant map: some 1.9 pixels in XAI-TRIS at 8×8.",
        chance_level=expected_distance,
        picture="cheapest plan",
        class_name="EMD",
        citation=_XAI_TRIS,
    )
)
def emd(
    maps: Array,
    masks: Array,
    *,
    exact: bool = True,
    workers: int = 1,
    time_limit: float | None = None,
    progress: ProgressCallback | None = None,
    reduction: Reduction = "mean",
) -> Scores | tuple[Scores, Scores]:
    r"""Earth mover's distance between the map and the ground truth, in pixels.

    .. math:: W_1\bigl(|s| / \textstyle\sum |s|,\; F^+ / |F^+|\bigr)

    with the Euclidean distance between pixels: the exact optimum, in float64. From 0 (the map is constant on the ground
    truth and zero elsewhere) to the distance between opposite corners; lower is better. Both sides are normed to a mass
    of one here; signs are dropped. Clark et al. (2024), the distance in Equation 5.

    Args:
        maps: ``[N, H, W]`` or ``[H, W]``; taken by magnitude.
        masks: Of the same shape, binary, ``True`` = important.
        exact: The distance itself, proven for each map to 1e-9 of it. Else bounds of it that are at most 0.3 % apart,
            which for images of 224×224 takes a fraction of the time.
        workers: Maps at a time, in threads; the same numbers, whatever the number.
        time_limit: Seconds for each map. When they are up, exact distances are a :class:`TransportError`, since what is
            not proven is no score; bounds are those reached by then. ``None`` for no limit.
        progress: Called with a :class:`TransportProgress` now and then, and when a map is done.
        reduction: ``"mean"`` over the defined scores, or ``"none"`` for all ``[N]``.

    Returns:
        The distance; ``nan`` for a map that is all zero and for an empty mask, which are no distributions. With
        ``exact=False`` the pair ``(lower, upper)``, each reduced as the distance would be.

    Raises:
        ValueError: For shapes that differ, maps that are not finite, masks that are not binary, ``workers`` below 1, a
            negative ``time_limit``.
        TypeError: For anything but numpy arrays and torch tensors of real numbers.
        TransportError: If the optimum is not reached; the message says what is known.

    Example:
        >>> import numpy as np
        >>> masks = np.array([[1, 0, 0, 0]])
        >>> emd(np.array([[0, 0, 0, -7.0]]), masks)  # everything lies three pixels off
        3.0
        >>> lower, upper = emd(np.array([[1.0, 2.0, 3.0, 4.0]]), masks, exact=False)
        >>> lower <= 2.0 <= upper
        True
    """
    return _score(_Search(exact, workers, time_limit, progress), exact, maps, masks, reduction)


@overload
def emd_perf(
    maps: Array,
    masks: Array,
    *,
    diameter: Diameter = "image",
    exact: Literal[True] = True,
    workers: int = 1,
    time_limit: float | None = None,
    progress: ProgressCallback | None = None,
    reduction: Reduction = "mean",
) -> Scores: ...


@overload
def emd_perf(
    maps: Array,
    masks: Array,
    *,
    diameter: Diameter = "image",
    exact: Literal[False],
    workers: int = 1,
    time_limit: float | None = None,
    progress: ProgressCallback | None = None,
    reduction: Reduction = "mean",
) -> tuple[Scores, Scores]: ...


@described(
    MetricInfo(
        "EMD performance",
        "ground-truth",
        higher_is_better=True,
        range=(0.0, 1.0),
        meaning="One minus the earth mover’s distance between the map and the ground truth, both scaled to sum one, "
        "divided by the largest distance of two pixels. 1: all importance lies on the ground truth.",
        pitfalls="Mass that lies near counts nearly as much as mass that hits, so that whatever is spread over the "
        "image scores high, and the gaps between methods are small: read it beside the controls or as `emd_skill`, not "
        'beside 1. The released code divides by √(2HW) and so lifts every score (`diameter="released"`).',
        chance="About that of a constant map: some 0.81 in XAI-TRIS’s LIN at 8×8, 0.86 at 64×64.",
        chance_level=expected_performance,
        picture="cheapest plan, turned",
        class_name="EMDPerformance",
        citation=_XAI_TRIS,
    )
)
def emd_perf(
    maps: Array,
    masks: Array,
    *,
    diameter: Diameter = "image",
    exact: bool = True,
    workers: int = 1,
    time_limit: float | None = None,
    progress: ProgressCallback | None = None,
    reduction: Reduction = "mean",
) -> Scores | tuple[Scores, Scores]:
    r"""Earth mover's distance as a performance: 1 when the map is the ground truth, 0 when it is as far as can be.

    .. math:: 1 - W_1\bigl(|s| / \textstyle\sum |s|,\; F^+ / |F^+|\bigr) \,/\, \delta

    Clark et al. (2024), Equation 5; in [0, 1], higher is better. See :func:`emd` for the distance.

    Args:
        maps: ``[N, H, W]`` or ``[H, W]``; taken by magnitude.
        masks: Of the same shape, binary, ``True`` = important.
        diameter: :math:`\delta`. ``"image"`` is the largest distance between two pixels,
            :math:`\sqrt{(H-1)^2 + (W-1)^2}`, as the paper's text has it; ``"released"`` is :math:`\sqrt{2HW}`, by which
            the authors' code divides (square images only). At 8×8 they are 9.90 and 11.31.
        exact: As for :func:`emd`; the 0.3 % are of the distance.
        workers: As for :func:`emd`.
        time_limit: As for :func:`emd`.
        progress: As for :func:`emd`; told distances.
        reduction: ``"mean"`` over the defined scores, or ``"none"`` for all ``[N]``.

    Returns:
        The performance; ``nan`` for a map that is all zero and for an empty mask. In an image of one pixel it is 1.
        With ``exact=False`` the pair ``(lower, upper)``.

    Raises:
        ValueError: For shapes that differ, maps that are not finite, masks that are not binary, an unknown
            ``diameter``, ``"released"`` for an image that is not square, ``workers`` below 1, a negative
            ``time_limit``.
        TypeError: For anything but numpy arrays and torch tensors of real numbers.
        TransportError: If the optimum is not reached; the message says what is known.

    Example:
        >>> import numpy as np
        >>> masks = np.array([[[1, 1], [0, 0]]])
        >>> emd_perf(masks, masks), round(emd_perf(1 - masks, masks), 3)
        (1.0, 0.293)
    """
    if diameter not in ("image", "released"):
        raise ValueError(f"diameter must be 'image' or 'released', got {diameter!r}.")
    search = _Search(exact, workers, time_limit, progress)

    def performance(maps: NDArray[np.float64], masks: NDArray[np.bool_]) -> _Intervals:
        largest = diameter_of(maps.shape[1], maps.shape[2], diameter) or 1.0  # one pixel: all distances are 0
        lower, upper = search(maps, masks)
        return 1.0 - upper / largest, 1.0 - lower / largest

    return _score(performance, exact, maps, masks, reduction)


class _Search:
    """How the distances are found, and how many so far."""

    def __init__(self, exact: bool, workers: int, time_limit: float | None, progress: ProgressCallback | None) -> None:
        check_count("workers", workers)
        if time_limit is not None:
            check_finite_number(time_limit, "time_limit", least=0)
        self.exact, self.workers, self.time_limit, self.progress = exact, int(workers), time_limit, progress
        self.seen = 0
        self.turn = threading.Lock()

    def __call__(self, maps: NDArray[np.float64], masks: NDArray[np.bool_]) -> _Intervals:
        """Lower and upper bounds for the next ``n`` samples; the same ones if they are exact."""
        samples = self.seen + np.arange(len(maps))
        self.seen += len(maps)
        bounds = np.empty((len(maps), 2))
        few = marks_few(masks)
        if few.any():
            bounds[few] = wasserstein_to_few(samples[few], maps[few], masks[few])
            for sample, found in zip(samples[few].tolist(), bounds[few].tolist(), strict=True):
                self._tell(sample, tuple(found), done=True)
        if not few.all():
            bounds[~few] = self._one_by_one(samples[~few], maps[~few], masks[~few])
        if self.exact:  # what is proven has one value
            bounds[:, 0] = bounds[:, 1]
        return bounds[:, 0], bounds[:, 1]

    def _one_by_one(
        self, samples: NDArray[np.intp], maps: NDArray[np.float64], masks: NDArray[np.bool_]
    ) -> list[Bounds]:
        if self.workers == 1 or (maps[0].size / 2) ** 2 <= FEW_PAIRS:  # so small that threads cost more than they gain
            return list(map(self._bounds, samples.tolist(), maps, masks))
        with ThreadPoolExecutor(self.workers) as pool:  # the loops of the solver do not hold the interpreter's lock
            return list(pool.map(self._bounds, samples.tolist(), maps, masks))

    def _bounds(self, sample: int, values: NDArray[np.float64], mask: NDArray[np.bool_]) -> Bounds:
        magnitude = np.abs(values)
        peak = magnitude.max()
        bounds = math.nan, math.nan
        if peak > 0 and mask.any():
            magnitude /= peak  # so that the sums of huge and of tiny maps neither over- nor underflow
            try:
                bounds = wasserstein(
                    magnitude / magnitude.sum(),
                    mask / mask.sum(),
                    exact=self.exact,
                    time_limit=self.time_limit,
                    progress=self.progress and (lambda lower, upper: self._tell(sample, (lower, upper), done=False)),
                )
            except TransportError as error:
                raise TransportError(f"Map {sample}: {error}") from error
        self._tell(sample, bounds, done=True)
        return bounds

    def _tell(self, sample: int, bounds: Bounds, *, done: bool) -> None:
        if self.progress is not None:
            with self.turn:
                self.progress(TransportProgress(sample, *bounds, done))


def _score(
    bounds: Callable[[NDArray[np.float64], NDArray[np.bool_]], _Intervals],
    exact: bool,
    maps: Array,
    masks: Array,
    reduction: Reduction,
) -> Scores | tuple[Scores, Scores]:
    """Scores, or lower and upper ones, from the bounds of each block of samples."""
    lowers = [np.empty(0)]

    def upper(maps: NDArray[np.float64], masks: NDArray[np.bool_]) -> NDArray[np.float64]:
        low, high = bounds(maps, masks)
        lowers.append(low)
        return high

    uppers = score_pairs(upper, maps, masks, reduction)
    return uppers if exact else (reduce_scores(np.concatenate(lowers), reduction, like=maps), uppers)
