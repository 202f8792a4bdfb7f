"""Earth mover's distance that ignores false negatives: mass moves freely within the ground truth.

:func:`xaibench.metrics.emd_perf` asks for mass that covers the ground truth evenly, so a map that marks half of it
scores below one even if every marked pixel is right. Here mass on the ground truth costs nothing wherever on it; only
mass outside has to move, by its Euclidean distance, and no pixel of the ground truth takes more than its share.
"""

from __future__ import annotations

import functools

import numpy as np

from xaibench.core.types import Array, Bools, Floats, Reduction
from xaibench.kernels.compilation import kernels_enabled
from xaibench.metrics.localization.emd import draws, unpack_mask
from xaibench.metrics.localization.emd_bounds import (
    FEW_PAIRS,
    ROUNDING,
    Bounds,
    TransportError,
    check_exact_size,
    check_proven,
    group_masks,
    marks_few,
    solve_with_pot,
    wasserstein,
    wasserstein_to_few,
)
from xaibench.metrics.shared.inputs import Scores, Spacing, flat, pixel_spacing, score_pairs
from xaibench.registry.info import MetricInfo

#: The paper.
PATTERN_GAM = "Clark et al.: Correcting misinterpretations of additive models (PatternGAM), NeurIPS 2025"
#: Largest number of pairs of a pixel outside and a pixel of the ground truth for POT: 256 MiB of distances.
_MOST_PAIRS = 2**25
#: Smallest share of mass on the ground truth that is a source of its own; it is above the rounding of the solver's
#: integer masses.
_LEAST_INSIDE = 1e-12
#: Pixels of which distances to all pixels of the ground truth are computed at a time.
_CHUNK = 1024


def expected_fni_emd(masks: Bools, *, spacing: Spacing = None) -> Floats:
    """Return the mean :func:`fni_emd` of independent uniform noise, over fixed draws in antithetic pairs.

    Args:
        masks: ``[N, H, W]``.
        spacing: As in that function.

    Returns:
        ``[N]``; NaN for an empty mask. The standard error is below 0.003.
    """
    pairs = zip(masks, pixel_spacing(spacing, masks.shape).tolist(), strict=True)
    levels = [_expected(np.packbits(mask).tobytes(), mask.shape, tuple(lengths)) for mask, lengths in pairs]
    return np.array(levels, dtype=np.float64)


@functools.lru_cache(maxsize=2**14)
def _expected(packed: bytes, shape: tuple[int, ...], lengths: tuple[float, ...]) -> float:
    mask = unpack_mask(packed, shape)
    noise = np.random.default_rng(0).random((draws(*shape) // 2, *shape))
    both = np.concatenate([noise, 1 - noise])
    same = np.broadcast_to(mask, both.shape), np.tile(lengths, (len(both), 1))
    return float(_performances(both, *same).mean())


@MetricInfo(
    "FNI-EMD performance",
    higher_is_better=True,
    meaning="One minus the distance that mass outside of the ground truth must move, divided by the largest "
    "possible one. 1: all importance is on the ground truth, wherever on it.",
    pitfalls="A map that marks a single right pixel scores 1, even if the rest is not found. "
    "Diffuse maps score high, as with `emd_perf`: compare with the controls or use `fni_emd_skill`. Maps "
    "of 224×224 pixels are slow: resize them.",
    map_sign="magnitude",
    chance="About 0.69 in XAI-TRIS’s LIN at 8×8.",
    chance_level=expected_fni_emd,
    sample_inputs=("spacing",),
    picture="cheapest plan of the mass outside",
    class_name="FNIEMD",
    citation=PATTERN_GAM,
)
def fni_emd(maps: Array, masks: Array, *, spacing: Spacing = None, reduction: Reduction = "mean") -> Scores:
    r"""False-negative-invariant earth mover's distance as a performance: 1 if all mass is on the ground truth.

    .. math::
        1 - \frac{\min_P \sum_{ij} P_{ij} C_{ij}}{\max_i \sum_j C_{ij} q_j}, \qquad
        C_{ij} = \begin{cases} 0 & i, j \in F^+ \\ \lVert i - j \rVert & \text{otherwise} \end{cases}

    over plans :math:`P` from :math:`p = |s| / \sum |s|` to :math:`q = F^+ / |F^+|`. The denominator is the distance of
    the pixel that is farthest from the ground truth on average. In [0, 1], higher is better. Exact: the optimum is
    proven by a dual solution, to a relative error of 1e-9 or 1e-12 pixels.

    Departures: the authors' code scores a zero map 0, or 1 with an empty mask; here both are undefined.

    Args:
        maps: ``[N, H, W]`` or ``[H, W]``; their magnitude is used.
        masks: Same shape as the maps, binary; ``True`` = important.
        spacing: Distance between neighboring pixels, as in :func:`emd`; only its ratios matter.
        reduction: ``"mean"`` of the defined scores, or ``"none"`` for all scores ``[N]``.

    Returns:
        The performance; ``nan`` for a map that is all zero and for an empty mask. 1 for a mask of the whole image.

    Raises:
        ValueError: If shapes differ, maps are not finite, masks are not binary, ``spacing`` is not positive or does not
            match the maps, or there are more than 2^28 pairs of a voxel outside and a voxel of the ground truth in a
            volume (without compiled kernels: 2^25, also in an image).
        TypeError: If an input is not a numpy array or torch tensor of real numbers.
        TransportError: If the optimum is not reached; the message contains the known bounds.

    Example:
        >>> import numpy as np
        >>> masks = np.array([[1, 1, 0, 0]])
        >>> fni_emd(np.array([[7.0, 0, 0, 0]]), masks)  # a right pixel suffices
        1.0
        >>> fni_emd(np.array([[1.0, 0, 1, 0]]), masks)  # half of the mass moves by 1, of at most 2.5
        0.8
    """
    return score_pairs(_performances, maps, masks, reduction, functools.partial(pixel_spacing, spacing))


def _performances(maps: Floats, masks: Bools, spacing: Floats) -> Floats:
    known = flat(masks).any(1) & (flat(maps) != 0).any(1)
    distances = np.full(len(maps), np.nan)
    few = known & marks_few(masks)
    if few.any():
        problems = np.flatnonzero(few), maps[few], masks[few], spacing[few]
        distances[few] = wasserstein_to_few(*problems, free_inside=True)[:, 1]
    for sample in np.flatnonzero(known & ~few):
        distances[sample] = _distance(int(sample), maps[sample], masks[sample], spacing[sample])
    firsts, groups = group_masks(masks, spacing)
    largest = np.array([_largest(masks[first], spacing[first]) for first in firsts])[groups]
    performances: Floats = 1.0 - distances / np.where(largest > 0, largest, 1.0)
    return np.clip(performances, 0.0, 1.0)


def _distance(sample: int, values: Floats, mask: Bools, spacing: Floats) -> float:
    """Return the distance from the pixels outside and, as one source, all mass inside."""
    from scipy.spatial.distance import cdist

    magnitude = np.abs(values) / np.abs(values).max()
    outside, marked = np.argwhere((magnitude > 0) & ~mask), np.argwhere(mask)
    if not len(outside):
        return 0.0
    inside, rounding = magnitude[mask].sum(), ROUNDING * spacing.max()
    if kernels_enabled() and len(outside) * len(marked) > FEW_PAIRS:
        check_exact_size(mask.shape, len(outside) * len(marked))
        bounds = _bounds_of_large(np.where(mask, 0.0, magnitude), mask / len(marked), float(inside), spacing)
        check_proven(np.array([sample]), np.array([bounds]), rounding)
        return bounds[1]
    if len(outside) * len(marked) > _MOST_PAIRS:
        raise ValueError(
            f"fni_emd: got {len(outside):,} pixels outside and {len(marked):,} in the ground truth, expected at most "
            f"{_MOST_PAIRS:,} pairs. Resize maps and masks to 64×64, or use emd_perf(exact=False)."
        )
    supply = np.append(magnitude[tuple(outside.T)], inside)
    costs = np.zeros((len(marked), len(supply)))  # fewer rows than columns, which POT solves faster
    costs[:, :-1] = cdist(marked * spacing, outside * spacing)
    try:
        bounds = solve_with_pot(np.full(len(marked), 1 / len(marked)), supply / supply.sum(), costs)
    except TransportError as error:
        raise TransportError(f"Map {sample}: {error}") from error
    check_proven(np.array([sample]), np.array([bounds]), rounding)
    return bounds[1]


def _bounds_of_large(outside: Floats, target: Floats, inside: float, spacing: Floats) -> Bounds:
    """Return bounds without the matrix of all pairs; without mass inside it is the plain earth mover's distance."""
    from xaibench.kernels.emd import emd_with_free_mass  # loads numba

    total = outside.sum() + inside
    if inside <= _LEAST_INSIDE * total:
        return wasserstein(outside / outside.sum(), target, spacing)
    return emd_with_free_mass(outside / total, target, spacing=spacing.tolist())


def _largest(mask: Bools, spacing: Floats) -> float:
    """Return the largest mean distance of a pixel outside to the ground truth; 0 if there is none."""
    from scipy.spatial.distance import cdist

    outside, marked = np.argwhere(~mask) * spacing, np.argwhere(mask) * spacing
    if not len(outside) or not len(marked):
        return 0.0
    chunks = (outside[start : start + _CHUNK] for start in range(0, len(outside), _CHUNK))
    return max(float(cdist(chunk, marked).mean(1).max()) for chunk in chunks)
