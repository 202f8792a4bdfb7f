"""XAI-TRIS: tetrominoes and tetracubes on noise, with ground truth known by construction.

Clark, Wilming and Haufe (2023), *XAI-TRIS: Non-linear image benchmarks for evaluating false positive post-hoc
attribution of feature importance*, arXiv 2306.12816. With the patterns A (smoothed, cut to their support) and the
backgrounds E of all N samples, and Frobenius norms over the whole data set,

* LIN, RIGID, XOR (equation 1):  ``x = alpha·A/‖A‖ + (1 − alpha)·E/‖E‖``
* MULT (equation 2):             ``x = (1 − alpha·a)·η``, with a and η not normalized. The text of the paper divides
  a by ‖A‖, which would make its effect negligible; the released code normalizes the factors afterwards, which only
  rescales.

Finally, the whole data set is divided by its largest absolute value, so that x is in [−1, 1].

The sets of 16×16×16 voxels are ours: the same scenarios with tetracubes (:mod:`.shapes`) on white or correlated noise.
Their signal-to-noise ratios were chosen so that the published networks classify 80 to 100 % of the test samples, as in
the paper.
"""

from __future__ import annotations

import itertools
import logging
import math
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, partial
from types import SimpleNamespace
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from xaibench.benchmarks.xai_tris.noise import BACKGROUNDS, BLOCK, CORR_SIGMA, Background, fill_noise, layout_rng
from xaibench.benchmarks.xai_tris.pattern_mixture import PatternMixture
from xaibench.benchmarks.xai_tris.patterns import (
    SCENARIOS,
    SIZES,
    Patterns,
    Scenario,
    Size,
    image_sides,
    smoothing_matrix,
)
from xaibench.benchmarks.xai_tris.photo_backgrounds import assign_backgrounds, describe_repetition, image_backgrounds
from xaibench.benchmarks.xai_tris.published_accuracy import CITATION, paper_accuracy, paper_alpha
from xaibench.core.checks import ParameterError, check_count
from xaibench.data.base import Dataset, Split
from xaibench.data.disk.splits import check_fractions, stratified_split
from xaibench.registry.info import DatasetInfo

_LOGGER = logging.getLogger("xaibench")
_N_SAMPLES = {8: 10_000, 16: 5_000, 64: 40_000}
_SPLIT = {8: (0.8, 0.1, 0.1), 16: (0.8, 0.1, 0.1), 64: (0.9, 0.05, 0.05)}
#: Signal-to-noise ratios of the volumes, which the paper does not have.
_VOLUME_ALPHA = {
    ("lin", "white"): 0.05,
    ("lin", "corr"): 0.02,
    ("mult", "white"): 0.7,
    ("mult", "corr"): 0.2,
    ("rigid", "white"): 0.4,
    ("rigid", "corr"): 0.2,
    ("xor", "white"): 0.2,
    ("xor", "corr"): 0.15,
}
_BATCH_SIZE = 512

_R = TypeVar("_R")


@dataclass(frozen=True)
class Tetromino:
    """An XAI-TRIS data set; call it to generate samples.

    The same parameters give bit-identical samples on every machine, regardless of ``workers`` and ``chunk_size``. The
    global random state is neither used nor changed.

    Args:
        scenario: ``"lin"``, ``"mult"``, ``"rigid"`` or ``"xor"``.
        background: ``"white"``, ``"corr"`` or ``"imagenet"``.
        size: Pixels along each axis: 8 or 64 of images, 16 of volumes (which have no ``"imagenet"``).

    Example:
        >>> data = Tetromino("xor", "corr", 8)(seed=1, n_samples=200)
        >>> data
        Dataset('xai-tris/xor-corr-8x8', train=160, val=20, test=20, seed=1, alpha=0.15, n_samples=200, \
split=(0.8, 0.1, 0.1))
        >>> image, mask, target = data.test[0]
        >>> image.shape, int(mask.sum())
        (torch.Size([1, 8, 8]), 8)
    """

    scenario: Scenario
    background: Background
    size: Size

    @cached_property
    def info(self) -> DatasetInfo:
        """Info record of the data set."""
        images = self.background == "imagenet"
        return DatasetInfo(
            name=f"xai-tris/{self.scenario}-{self.background}-{'x'.join(map(str, image_sides(self.size)))}",
            classes=Patterns(self.scenario, self.size).classes,
            image_shape=(1, *image_sides(self.size)),
            citation=CITATION,
            license="the license of your background images" if images else "generated, no license needed",
            how_to_get="Give a folder of images as images_dir=: ImageNet-1k validation (as in the paper) or PASS."
            if images
            else "",
            subset=self.scenario,
            variant=self.background,
            truth="data",
            known_distribution=self._is_known,
            revision=3 if images else 2,
        )

    def __call__(
        self,
        *,
        seed: int = 0,
        alpha: float | None = None,
        n_samples: int | None = None,
        split: Sequence[float] | None = None,
        layout: int = 0,
        images_dir: str | os.PathLike[str] | None = None,
        cache_dir: str | os.PathLike[str] | None = None,
        workers: int | None = None,
        chunk_size: int = 256,
    ) -> Dataset:
        """Generate the data set.

        Args:
            seed: Non-negative; determines every sample.
            alpha: Signal-to-noise ratio in [0, 1]; None = the value of the paper for this data set, or ours for a set
                of volumes.
            n_samples: Number of samples over all splits; None = as in the paper (10,000 at 8×8, 40,000 at 64×64), and
                5,000 volumes. The norms are computed over all of them.
            split: Fractions of train, validation and test; None = as in the paper (80/10/10 at 8×8, 90/5/5 at 64×64),
                and 80/10/10 of volumes. Stratified by class, or for XOR by sign pair.
            layout: Positions and orientations of the shapes in LIN, MULT and XOR: 0 = as in the paper; a positive
                integer = others, which are the same on every machine
                (:func:`xaibench.benchmarks.xai_tris.shapes.fixed_placements`). Neither split nor noise depends on
                it. No effect in RIGID, whose placements are random in every layout.
            images_dir: IMAGENET only: folder of background images, searched recursively. If it has fewer than
                ``n_samples`` images, they are repeated, each within one split; ``note`` states how often, and samples
                with the same image are a group (``groups`` of a split).
            cache_dir: IMAGENET only: folder of the cache for preprocessed images; None = ``$XAIBENCH_CACHE`` or
                ``~/.cache/xaibench``.
            workers: Number of threads; None = one per usable CPU, at most 8.
            chunk_size: Number of samples that a thread processes at a time, rounded up to multiples of 128; limits the
                working memory.

        Returns:
            The data set, with images ``[N, 1, size, size]``, or volumes ``[N, 1, size, size, size]``, in [−1, 1].

        Raises:
            ValueError: If a parameter is out of range, ``alpha`` is None but the paper has no value for this data set,
                or the folder has fewer usable images than splits, or too many that cannot be read.
        """
        alpha = self._check_alpha(alpha)
        n_samples = _N_SAMPLES[self.size] if n_samples is None else n_samples
        fractions = check_fractions(_SPLIT[self.size] if split is None else split)
        if workers is None:  # os.sched_getaffinity does not exist on every platform
            workers = min(8, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
        check_count("seed", seed, least=0)
        check_count("n_samples", n_samples)
        check_count("workers", workers)
        check_count("chunk_size", chunk_size)
        check_count("layout", layout, least=0)
        if self.background == "imagenet" and images_dir is None:
            raise ValueError(f"{self.info.name} needs photographs as backgrounds. {self.info.how_to_get}")
        if self.background != "imagenet" and images_dir is not None:
            raise ValueError(f"{self.info.name} has a generated background; images_dir= is for the imagenet sets.")
        patterns = Patterns(self.scenario, self.size, 0 if self.scenario == "rigid" else int(layout))
        rng = layout_rng(seed)
        cases = np.arange(n_samples) % patterns.cases
        parts = stratified_split(cases, fractions, rng)
        cases = cases[np.concatenate(parts)]
        # Not np.empty: NumPy requests huge pages, and touching them first can cost more than all the arithmetic.
        images = torch.empty((n_samples, *patterns.sides)).numpy()
        background_of, note = np.arange(n_samples), ""
        fill_background: Callable[[int, NDArray[np.float32]], None] = partial(fill_noise, self.background, seed)
        if images_dir is not None:
            photographs, left_out = image_backgrounds(
                images_dir, n_samples, self.size, seed=seed, cache_dir=cache_dir, workers=workers
            )
            background_of = assign_backgrounds(len(photographs), [len(part) for part in parts])
            note = " ".join(filter(None, (describe_repetition(len(photographs), n_samples), left_out)))
            fill_background = partial(_fill_photographs, photographs, background_of)
        work = _ChunkedWork(n_samples, workers, chunk_size)
        masks = torch.empty(images.shape, dtype=torch.bool).numpy()
        scaling = _compose_images(images, masks, patterns, patterns.draw(cases, rng), alpha, fill_background, work)

        bounds = np.cumsum([0, *(len(part) for part in parts)])
        targets = patterns.targets(cases)
        train, val, test = (
            Split(
                torch.from_numpy(images[first:last, None]),
                torch.from_numpy(masks[first:last]),
                torch.from_numpy(targets[first:last]),
                groups=background_of[first:last] if note else None,
                groups_by="background photographs",
            )
            for first, last in itertools.pairwise(bounds)
        )
        parameters = {"seed": int(seed), "alpha": alpha, "n_samples": int(n_samples), "split": fractions}
        # Published checksums are of the parameters, which lack the layout of the paper.
        if patterns.layout:
            parameters["layout"] = patterns.layout
        if images_dir is not None:
            parameters["images_dir"] = os.fspath(images_dir)
        if note:
            _LOGGER.warning("%s: %s", self.info.name, note)
        known = partial(self._make_distribution, patterns, alpha, scaling) if self._is_known else None
        return Dataset(train, val, test, self.info, parameters, _BATCH_SIZE, note, known)

    def published_accuracy(self, model: str, parameters: Mapping[str, Any]) -> float | None:
        """Return the published mean test accuracy of a network in percent.

        Args:
            model: Name of the network.
            parameters: Parameters of the data set, as in :attr:`xaibench.data.Dataset.parameters`.

        Returns:
            The accuracy; None if there is none for the network, or if ``alpha`` or ``layout`` is not the published one.
        """
        published = (paper_alpha(self.scenario, self.background, self.size), 0)
        if (parameters.get("alpha"), parameters.get("layout", 0)) != published:
            return None
        return paper_accuracy(self.scenario, self.background, self.size, model)

    @property
    def _is_known(self) -> bool:
        """Whether the distribution of an image is available.

        It is not for photographs, nor for large images of RIGID: the table of 24,168 patterns at 64×64 would take 800
        MB, and that of 105,456 rotated and moved shapes at 16×16×16 (43,940 different patterns) 3.5 GB.
        """
        return self.background != "imagenet" and (self.scenario != "rigid" or self.size == 8)

    def _make_distribution(self, patterns: Patterns, alpha: float, scaling: _Scaling) -> PatternMixture:
        """Return the distribution of one image with unknown pattern (:mod:`.pattern_mixture`)."""
        table, where = patterns.render(np.arange(patterns.kinds))
        table = table[where]
        means, scales = scaling.scaled(patterns.scenario, alpha, table)
        smoothing = np.eye(self.size)
        if self.background == "corr":
            smoothing = smoothing_matrix(self.size, CORR_SIGMA[self.size])
        return PatternMixture(means, scales, smoothing, np.full(len(table), 1 / len(table)))

    def _check_alpha(self, alpha: float | None) -> float:
        if alpha is None and self.size == 16:
            alpha = _VOLUME_ALPHA[self.scenario, self.background]
        elif alpha is None:
            alpha = paper_alpha(self.scenario, self.background, self.size)
        if alpha is None:
            raise ValueError(
                f"{self.info.name}: the paper has no signal-to-noise ratio for this data set; give alpha= in [0, 1]."
            )
        if not isinstance(alpha, int | float | np.number) or not 0 <= alpha <= 1:
            raise ParameterError(f"alpha={alpha!r}: expected a signal-to-noise ratio in [0, 1].", parameter="alpha")
        return float(alpha)


@dataclass(frozen=True)
class _ChunkedWork:
    """Processes the samples in chunks of whole blocks, in threads (NumPy releases the interpreter lock)."""

    n_samples: int
    workers: int
    chunk_size: int

    def map(self, function: Callable[[int, int], _R]) -> list[_R]:
        """Call ``function(start, stop)`` for every chunk, and return the results in the order of the samples."""
        step = -(-self.chunk_size // BLOCK) * BLOCK
        spans = [(start, min(start + step, self.n_samples)) for start in range(0, self.n_samples, step)]
        if self.workers == 1:
            return [function(*span) for span in spans]
        with ThreadPoolExecutor(self.workers) as pool:
            return list(pool.map(lambda span: function(*span), spans))


@dataclass(frozen=True)
class _Scaling:
    """Scaling of a whole data set: ``‖A‖``, ``‖E‖`` and the largest absolute value."""

    pattern_norm: float
    background_norm: float
    largest: float

    def scaled(
        self, scenario: Scenario, alpha: float, table: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the scaled patterns ``[K, *sides]`` that are added to images, and the factor of the noise."""
        if scenario == "mult":
            return np.zeros_like(table), (1 - alpha * table) / self.largest
        noise = (1 - alpha) / self.background_norm / self.largest
        return alpha / self.pattern_norm / self.largest * table, np.full_like(table, noise)


def _compose_images(
    images: NDArray[np.float32],
    masks: NDArray[np.bool_],
    patterns: Patterns,
    kinds: NDArray[np.int64],
    alpha: float,
    fill_background: Callable[[int, NDArray[np.float32]], None],
    work: _ChunkedWork,
) -> _Scaling:
    """Fill ``images`` and ``masks`` in three passes: backgrounds and norms; sum or product; division by the maximum."""

    def fill(start: int, stop: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        fill_background(start, images[start:stop])
        table, where = patterns.render(kinds[start:stop])
        np.take(patterns.truth(table), where, axis=0, out=masks[start:stop], mode="clip")
        return sum_squares(table)[where], sum_squares(images[start:stop])

    # fsum is exact, so the norms do not depend on the chunks.
    squares = zip(*work.map(fill), strict=True)
    pattern_norm, background_norm = (math.sqrt(math.fsum(itertools.chain.from_iterable(parts))) for parts in squares)
    if background_norm == 0:
        raise ValueError("All background images are constant, so that the background has norm 0. Give other images.")

    def combine(start: int, stop: int) -> float:
        part = images[start:stop]
        table, where = patterns.render(kinds[start:stop])
        if patterns.scenario == "mult":
            part *= (1 - alpha * table).astype(np.float32)[where]
        else:
            part *= np.float32((1 - alpha) / background_norm)
            part += (alpha / pattern_norm * table).astype(np.float32)[where]
        return float(max(part.max(), -part.min()))

    largest = np.float32(max(work.map(combine)))

    def rescale(start: int, stop: int) -> None:
        images[start:stop] /= largest

    work.map(rescale)
    return _Scaling(pattern_norm, background_norm, float(largest))


def _fill_photographs(
    photographs: NDArray[np.float32], background_of: NDArray[np.int64], start: int, out: NDArray[np.float32]
) -> None:
    """Write the backgrounds of the samples from ``start`` on into ``out``."""
    np.take(photographs, background_of[start : start + len(out)], axis=0, out=out, mode="clip")


def sum_squares(values: NDArray[np.floating]) -> NDArray[np.float64]:
    """Return the sum of squares of each sample ``[N, ...]`` in float64, added in a fixed order by halves."""
    squares = values.astype(np.float64).reshape(len(values), -1)
    squares *= squares
    while squares.shape[1] > 1:  # a power of two, for all sizes
        half = squares.shape[1] // 2
        squares = squares[:, :half] + squares[:, half:]
    return squares[:, 0]


#: The data sets, by the names in the table of data sets.
SETS = SimpleNamespace(
    **{
        f"{scenario}_{background}_{'x'.join(map(str, image_sides(size)))}": Tetromino(scenario, background, size)
        for scenario in SCENARIOS
        for background in BACKGROUNDS
        for size in SIZES
        if (background, size) != ("imagenet", 16)
    }
)
