"""XAI-TRIS: tetrominoes on noise, with the ground truth known by construction.

Clark, Wilming and Haufe (2023), *XAI-TRIS: Non-linear image benchmarks for evaluating false positive post-hoc
attribution of feature importance*, arXiv 2306.12816. With the patterns A (smoothed, cut to their support) and the
backgrounds E of all N samples, and the Frobenius norm taken over the whole set,

* LIN, RIGID, XOR (equation 1):  ``x = alpha·A/‖A‖ + (1 − alpha)·E/‖E‖``
* MULT (equation 2):             ``x = (1 − alpha·a)·η``, with a and η as they are. The paper's text divides a by ‖A‖,
  which would all but erase it; the released code normalises the product's factors afterwards, which only rescales.

and at the end the whole set is divided by its largest absolute value, so that x lies in [−1, 1].
"""

from __future__ import annotations

import itertools
import logging
import math
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from xaibench.core.checks import check_count
from xaibench.core.part_info import DatasetInfo
from xaibench.data.dataset import Dataset, Split
from xaibench.data.stratified_splits import check_fractions, stratified_split
from xaibench.data.xai_tris.noise import BACKGROUNDS, BLOCK, CORR_SIGMA, Background, fill_noise, layout_rng
from xaibench.data.xai_tris.paper_cells import CITATION, paper_alpha
from xaibench.data.xai_tris.pattern_mixture import PatternMixture
from xaibench.data.xai_tris.patterns import SCENARIOS, SIZES, Patterns, Scenario, Size, smoothing_matrix
from xaibench.data.xai_tris.photo_backgrounds import background_of_each, image_backgrounds, said_of_backgrounds

_LOGGER = logging.getLogger("xaibench")
_N_SAMPLES = {8: 10_000, 64: 40_000}
_SPLIT = {8: (0.8, 0.1, 0.1), 64: (0.9, 0.05, 0.05)}
_BATCH_SIZE = 512

_R = TypeVar("_R")


@dataclass(frozen=True)
class Tetromino:
    """One of the XAI-TRIS sets; call it to generate samples.

    The same parameters give the same bits, whatever ``workers`` and ``chunk_size`` are; no global random state is read
    or changed.

    Args:
        scenario: ``"lin"``, ``"mult"``, ``"rigid"`` or ``"xor"``.
        background: ``"white"``, ``"corr"`` or ``"imagenet"``.
        size: Side of the images, 8 or 64.

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
        """Name, classes, shape, citation and licence."""
        images = self.background == "imagenet"
        return DatasetInfo(
            name=f"xai-tris/{self.scenario}-{self.background}-{self.size}x{self.size}",
            classes=Patterns(self.scenario, self.size).classes,
            image_shape=(1, self.size, self.size),
            citation=CITATION,
            licence="that of the background images you give" if images else "generated here: free of any licence",
            how_to_get="Give images_dir=, a folder of images: ImageNet-1k validation (the paper's) or PASS."
            if images
            else "",
            scenario=self.scenario,
            background=self.background,
            truth="data",
            known_distribution=self._is_known,
            revision=2 if images else 1,
        )

    def __call__(
        self,
        *,
        seed: int = 0,
        alpha: float | None = None,
        n_samples: int | None = None,
        split: Sequence[float] | None = None,
        images_dir: str | os.PathLike[str] | None = None,
        cache_dir: str | os.PathLike[str] | None = None,
        workers: int | None = None,
        chunk_size: int = 256,
    ) -> Dataset:
        """Generate the set.

        Args:
            seed: Non-negative; fixes every sample.
            alpha: Signal-to-noise ratio in [0, 1]; None = the paper's for this set.
            n_samples: Number of samples over all splits; None = the paper's (10,000 at 8×8, 40,000 at 64×64). The norms
                run over all of them.
            split: Fractions of train, validation and test; None = the paper's (80/10/10 at 8×8, 90/5/5 at 64×64).
                Stratified by class, for XOR by sign pair.
            images_dir: IMAGENET only: the folder of background images, searched with its subfolders. Where it has
                fewer than ``n_samples``, images are repeated, each within one split; the set says how often, and
                samples of one image are a group (``groups`` of a split).
            cache_dir: IMAGENET only: where the prepared images are kept; None = ``$XAIBENCH_CACHE`` or
                ``~/.cache/xaibench``.
            workers: Threads; None = one for every usable processor, 8 at most.
            chunk_size: Samples that a thread works on at a time, rounded up to whole blocks of 128; bounds the working
                memory.

        Returns:
            The set, images ``[N, 1, size, size]`` in [−1, 1].

        Raises:
            ValueError: If a parameter is out of its range, the paper names no alpha for this set and none is given, or
                the folder has not one usable image for each split, or unreadable ones.
        """
        alpha = self._alpha(alpha)
        n_samples = _N_SAMPLES[self.size] if n_samples is None else n_samples
        fractions = check_fractions(_SPLIT[self.size] if split is None else split)
        workers = min(8, _usable_processors()) if workers is None else workers
        check_count("seed", seed, least=0)
        check_count("n_samples", n_samples)
        check_count("workers", workers)
        check_count("chunk_size", chunk_size)
        self._check_images_dir(images_dir)
        patterns = Patterns(self.scenario, self.size)
        rng = layout_rng(seed)
        cases = np.arange(n_samples) % patterns.cases
        parts = stratified_split(cases, fractions, rng)
        cases = cases[np.concatenate(parts)]
        # Not np.empty: NumPy asks for huge pages, whose first touch can cost more than all the arithmetic.
        images = torch.empty((n_samples, self.size, self.size)).numpy()
        under, said = np.arange(n_samples), ""
        lay_background: Callable[[int, NDArray[np.float32]], None] = partial(fill_noise, self.background, seed)
        if images_dir is not None:
            photographs = image_backgrounds(
                images_dir, n_samples, self.size, seed=seed, cache_dir=cache_dir, workers=workers
            )
            under = background_of_each(len(photographs), [len(part) for part in parts])
            said = said_of_backgrounds(len(photographs), n_samples)
            lay_background = partial(_fill_photographs, photographs, under)
        work = _Work(n_samples, workers, chunk_size)
        masks = torch.empty(images.shape, dtype=torch.bool).numpy()
        scaling = _compose(images, masks, patterns, patterns.draw(cases, rng), alpha, lay_background, work)

        bounds = np.cumsum([0, *(len(part) for part in parts)])
        targets = patterns.targets(cases)
        train, val, test = (
            Split(
                torch.from_numpy(images[first:last, None]),
                torch.from_numpy(masks[first:last]),
                torch.from_numpy(targets[first:last]),
                groups=under[first:last] if said else None,
            )
            for first, last in itertools.pairwise(bounds)
        )
        parameters = {"seed": int(seed), "alpha": alpha, "n_samples": int(n_samples), "split": fractions}
        if images_dir is not None:
            parameters["images_dir"] = os.fspath(images_dir)
        if said:
            _LOGGER.warning("%s: %s", self.info.name, said)
        known = partial(self._distribution, patterns, alpha, scaling) if self._is_known else None
        return Dataset(train, val, test, self.info, parameters, _BATCH_SIZE, said, known)

    @property
    def _is_known(self) -> bool:
        """Whether it is known what an image was drawn from.

        Not of photographs; and of RIGID at 64×64 the table of its 24,168 patterns would take 800 MB.
        """
        return self.background != "imagenet" and (self.scenario, self.size) != ("rigid", 64)

    def _distribution(self, patterns: Patterns, alpha: float, scaling: _Scaling) -> PatternMixture:
        """What one image was drawn from, its pattern unknown: see :mod:`.pattern_mixture`."""
        table, where = patterns.render(np.arange(patterns.kinds))
        table = table[where]
        means, scales = scaling.scaled(patterns.scenario, alpha, table)
        smoothing = np.eye(self.size)
        if self.background == "corr":  # in float32, as the noise was smoothed
            smoothing = smoothing_matrix(self.size, CORR_SIGMA[self.size]).astype(np.float32).astype(np.float64)
        return PatternMixture(means, scales, smoothing, np.full(len(table), 1 / len(table)))

    def _alpha(self, alpha: float | None) -> float:
        if alpha is None:
            alpha = paper_alpha(self.scenario, self.background, self.size)
        if alpha is None:
            raise ValueError(
                f"{self.info.name}: the paper names no signal-to-noise ratio for this set; give alpha= in [0, 1]."
            )
        if not isinstance(alpha, int | float | np.number) or not 0 <= alpha <= 1:
            raise ValueError(f"alpha={alpha!r}: expected a signal-to-noise ratio in [0, 1].")
        return float(alpha)

    def _check_images_dir(self, images_dir: str | os.PathLike[str] | None) -> None:
        if self.background == "imagenet" and images_dir is None:
            raise ValueError(f"{self.info.name} lays the patterns on photographs. {self.info.how_to_get}")
        if self.background != "imagenet" and images_dir is not None:
            raise ValueError(f"{self.info.name} has a generated background; images_dir= is for the imagenet sets.")


@dataclass(frozen=True)
class _Work:
    """How the samples are shared out: in chunks of whole blocks, over threads (NumPy releases the interpreter lock)."""

    n_samples: int
    workers: int
    chunk_size: int

    def each(self, function: Callable[[int, int], _R]) -> list[_R]:
        """``function(start, stop)`` of every chunk, results in the order of the samples."""
        step = -(-self.chunk_size // BLOCK) * BLOCK
        spans = [(start, min(start + step, self.n_samples)) for start in range(0, self.n_samples, step)]
        if self.workers == 1:
            return [function(*span) for span in spans]
        with ThreadPoolExecutor(self.workers) as pool:
            return list(pool.map(lambda span: function(*span), spans))


@dataclass(frozen=True)
class _Scaling:
    """What a whole set is scaled by: ``‖A‖``, ``‖E‖`` and its largest value."""

    pattern_norm: float
    background_norm: float
    largest: float

    def scaled(
        self, scenario: Scenario, alpha: float, table: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Of patterns ``[K, size, size]`` what they add to an image, and what they multiply its noise by."""
        if scenario == "mult":
            return np.zeros_like(table), (1 - alpha * table) / self.largest
        noise = (1 - alpha) / self.background_norm / self.largest
        return alpha / self.pattern_norm / self.largest * table, np.full_like(table, noise)


def _compose(
    images: NDArray[np.float32],
    masks: NDArray[np.bool_],
    patterns: Patterns,
    kinds: NDArray[np.int64],
    alpha: float,
    lay_background: Callable[[int, NDArray[np.float32]], None],
    work: _Work,
) -> _Scaling:
    """Fill ``images`` and ``masks`` in three passes: backgrounds and norms, the sum or product, the division."""

    def lay_out(start: int, stop: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        lay_background(start, images[start:stop])
        table, where = patterns.render(kinds[start:stop])
        np.take(patterns.truth(table), where, axis=0, out=masks[start:stop], mode="clip")
        return _squares(table)[where], _squares(images[start:stop])

    # fsum is exact, so how the samples were shared out cannot show in the norms.
    squares = zip(*work.each(lay_out), strict=True)
    pattern_norm, background_norm = (math.sqrt(math.fsum(itertools.chain.from_iterable(parts))) for parts in squares)
    if background_norm == 0:
        raise ValueError(
            "Every background image is of one grey: there is nothing to lay the patterns on. Give other images."
        )

    def combine(start: int, stop: int) -> float:
        part = images[start:stop]
        table, where = patterns.render(kinds[start:stop])
        if patterns.scenario == "mult":
            part *= (1 - alpha * table).astype(np.float32)[where]
        else:
            part *= np.float32((1 - alpha) / background_norm)
            part += (alpha / pattern_norm * table).astype(np.float32)[where]
        return float(max(part.max(), -part.min()))

    largest = np.float32(max(work.each(combine)))

    def rescale(start: int, stop: int) -> None:
        images[start:stop] /= largest

    work.each(rescale)
    return _Scaling(pattern_norm, background_norm, float(largest))


def _fill_photographs(
    photographs: NDArray[np.float32], under: NDArray[np.int64], start: int, out: NDArray[np.float32]
) -> None:
    """The backgrounds of the samples from ``start`` on."""
    np.take(photographs, under[start : start + len(out)], axis=0, out=out, mode="clip")


def _usable_processors() -> int:
    # Not every platform tells which processors a process may use.
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _squares(values: NDArray[np.floating]) -> NDArray[np.float64]:
    """Sum of squares of each sample, added up in float64."""
    flat = values.reshape(len(values), -1)
    return np.asarray(np.einsum("nd,nd->n", flat, flat, dtype=np.float64))


_SETS = {
    f"{scenario}_{background}_{size}x{size}": Tetromino(scenario, background, size)
    for scenario in SCENARIOS
    for background in BACKGROUNDS
    for size in SIZES
}


def __getattr__(name: str) -> Tetromino:
    """``lin_white_8x8`` … ``xor_imagenet_64x64``: the sets, as attributes that the registry can name."""
    if name in _SETS:
        return _SETS[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_SETS])
