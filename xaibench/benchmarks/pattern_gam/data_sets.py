"""The data sets of PatternGAM: LIN, MULT and XOR of XAI-TRIS at 8×8 pixels, with and without distractors.

Without distractors, they equal the sets of XAI-TRIS (:mod:`xaibench.benchmarks.xai_tris.tetrominoes`) with other
signal-to-noise ratios. With distractors (*DIST*), two columns of 6×2 pixels, which contain the positions of T and of L,
are added or subtracted with a random sign each, independent of the class: a pixel of the ground truth is then disturbed
together with its neighbors, which a network can use to remove the disturbance. With the patterns S, the distractors D
and the noise E of all samples, and Frobenius norms over the whole data set,

* LIN, XOR:  ``x = alpha·S/‖S‖ + distractor·D/‖D‖ + (1 − alpha − distractor)·E/‖E‖``
* MULT:      ``x = (1 − alpha·s)·(1 − distractor·d)·η``, not normalized

Finally, the whole data set is divided by its largest absolute value, so that x is in [−1, 1].

Clark et al.: Correcting misinterpretations of additive models, NeurIPS 2025. Positions, sizes and weights are those of
the configuration that its code repository names for the printed table (``data_config``, with the 3×2 rectangles of its
generator, two on top of each other for each sign).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from types import SimpleNamespace
from typing import Final, Literal, TypeAlias, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from xaibench.benchmarks.xai_tris.noise import distractor_rng, fill_noise, layout_rng
from xaibench.benchmarks.xai_tris.patterns import Patterns
from xaibench.benchmarks.xai_tris.tetrominoes import Tetromino, sum_squares
from xaibench.core.checks import check_count
from xaibench.data.base import Dataset, Split
from xaibench.data.disk.splits import check_fractions, stratified_split
from xaibench.registry.info import DatasetInfo

CITATION = "B. Clark et al.: Correcting misinterpretations of additive models. NeurIPS (2025)."

Scenario: TypeAlias = Literal["lin", "mult", "xor"]
Noise: TypeAlias = Literal["white", "corr"]
SCENARIOS: tuple[Scenario, ...] = get_args(Scenario)
NOISES: tuple[Noise, ...] = get_args(Noise)

_SIZE: Final = 8
_SPLIT = (0.8, 0.1, 0.1)
_BATCH_SIZE = 512
#: Weight of the signal without distractors.
_ALPHA = {
    ("lin", "white"): 0.2,
    ("lin", "corr"): 0.1,
    ("mult", "white"): 0.6,
    ("mult", "corr"): 0.4,
    ("xor", "white"): 0.3,
    ("xor", "corr"): 0.3,
}
#: Weights of the signal and of the distractors.
_DIST = {
    ("lin", "white"): (0.2, 0.4),
    ("lin", "corr"): (0.05, 0.475),
    ("mult", "white"): (0.6, 0.2),
    ("mult", "corr"): (0.4, 0.3),
    ("xor", "white"): (0.2, 0.4),
    ("xor", "corr"): (0.2, 0.4),
}
#: Rows and columns of the two distractors.
_ROWS, _COLUMNS = slice(1, 7), (slice(1, 3), slice(5, 7))


@dataclass(frozen=True)
class PatternGAMSet:
    """A data set of PatternGAM; call it to generate samples.

    The same parameters give bit-identical samples on every machine.

    Args:
        scenario: ``"lin"``, ``"mult"`` or ``"xor"``.
        noise: ``"white"`` or ``"corr"``.
        distractors: Whether there are distractors.

    Example:
        >>> data = PatternGAMSet("lin", "white", distractors=True)(seed=1, n_samples=200)
        >>> data
        Dataset('pattern-gam/lin-dist-white', train=160, val=20, test=20, seed=1, alpha=0.2, distractor=0.4, \
n_samples=200, split=(0.8, 0.1, 0.1))
        >>> image, mask, target = data.test[0]
        >>> image.shape, int(mask.sum())
        (torch.Size([1, 8, 8]), 8)
    """

    scenario: Scenario
    noise: Noise
    distractors: bool

    @cached_property
    def info(self) -> DatasetInfo:
        """Info record of the data set."""
        variant = f"dist-{self.noise}" if self.distractors else f"plain-{self.noise}"
        return DatasetInfo(
            name=f"pattern-gam/{self.scenario}-{variant.removeprefix('plain-')}",
            classes=Patterns(self.scenario, _SIZE).classes,
            image_shape=(1, _SIZE, _SIZE),
            citation=CITATION,
            license="generated, no license needed",
            subset=self.scenario,
            variant=variant,
            truth="data",
        )

    def __call__(
        self,
        *,
        seed: int = 0,
        alpha: float | None = None,
        distractor: float | None = None,
        n_samples: int = 10_000,
        split: Sequence[float] | None = None,
    ) -> Dataset:
        """Generate the data set.

        Args:
            seed: Non-negative; determines every sample.
            alpha: Weight of the signal in [0, 1]; None = the value of the paper.
            distractor: Weight of the distractors, in [0, 1 − ``alpha``] for LIN and XOR; None = the value of the paper.
                Only for the sets with distractors.
            n_samples: Number of samples over all splits.
            split: Fractions of train, validation and test; None = 80/10/10. Stratified by class, or for XOR by sign
                pair.

        Returns:
            The data set, with images ``[N, 1, 8, 8]`` in [−1, 1]. Masks are the positions of T and L, as in XAI-TRIS.

        Raises:
            ValueError: If a parameter is out of range, or ``distractor`` is given for a set without distractors.
        """
        if not self.distractors:
            if distractor is not None:
                raise ValueError(
                    f"{self.info.name} has no distractors, got distractor={distractor!r}. Use "
                    f"'pattern-gam/{self.scenario}-dist-{self.noise}'."
                )
            alpha = _ALPHA[self.scenario, self.noise] if alpha is None else alpha
            plain = Tetromino(self.scenario, self.noise, _SIZE)
            data = plain(seed=seed, alpha=alpha, n_samples=n_samples, split=split)
            return dataclasses.replace(data, info=self.info)
        check_count("seed", seed, least=0)
        check_count("n_samples", n_samples)
        weights = self._check_weights(alpha, distractor)
        fractions = check_fractions(_SPLIT if split is None else split)
        parameters = {
            "seed": int(seed),
            "alpha": weights[0],
            "distractor": weights[1],
            "n_samples": int(n_samples),
            "split": fractions,
        }
        train, val, test = self._generate(seed, n_samples, fractions, *weights)
        return Dataset(train, val, test, self.info, parameters, _BATCH_SIZE)

    def _check_weights(self, alpha: float | None, distractor: float | None) -> tuple[float, float]:
        signal, disturbance = _DIST[self.scenario, self.noise]
        signal = signal if alpha is None else alpha
        disturbance = disturbance if distractor is None else distractor
        most = 1.0 if self.scenario == "mult" else 1.0 - signal
        if not (0 <= signal <= 1 and 0 <= disturbance <= most):
            raise ValueError(
                f"{self.info.name}: got alpha={signal!r} and distractor={disturbance!r}; expected alpha in [0, 1] and "
                f"distractor in [0, {most:g}]."
            )
        return float(signal), float(disturbance)

    def _generate(
        self, seed: int, n_samples: int, fractions: tuple[float, ...], alpha: float, distractor: float
    ) -> list[Split]:
        patterns = Patterns(self.scenario, _SIZE)
        rng = layout_rng(seed)
        cases = np.arange(n_samples) % patterns.cases
        parts = stratified_split(cases, fractions, rng)
        cases = cases[np.concatenate(parts)]
        table, where = patterns.render(patterns.draw(cases, rng))
        signs = distractor_rng(seed).integers(4, size=n_samples)
        images = np.empty((n_samples, _SIZE, _SIZE), np.float32)
        fill_noise(self.noise, seed, 0, images)
        self._compose(images, table, where, signs, (alpha, distractor))
        images /= np.abs(images).max()
        masks, targets = patterns.truth(table)[where], patterns.targets(cases)
        ends = np.cumsum([len(part) for part in parts])[:-1]
        pieces = zip(*(np.split(each, ends) for each in (images[:, None], masks, targets)), strict=True)
        return [Split(*(torch.from_numpy(np.ascontiguousarray(each)) for each in piece)) for piece in pieces]

    def _compose(
        self,
        images: NDArray[np.float32],
        table: NDArray[np.float64],
        where: NDArray[np.int64],
        signs: NDArray[np.int64],
        weights: tuple[float, float],
    ) -> None:
        """Combine the noise in ``images`` with the patterns and the distractors, in place."""
        alpha, distractor = weights
        shapes = distractor_shapes()
        if self.scenario == "mult":
            images *= (1 - alpha * table).astype(np.float32)[where]
            images *= (1 - distractor * shapes).astype(np.float32)[signs]
            return
        # fsum is exact, so the norms are the same on every machine.
        norms = (
            math.sqrt(math.fsum(each))
            for each in (sum_squares(table)[where], sum_squares(shapes)[signs], sum_squares(images))
        )
        signal, disturbance, noise = norms
        images *= np.float32((1 - alpha - distractor) / noise)
        images += (alpha / signal * table).astype(np.float32)[where]
        images += (distractor / disturbance * shapes).astype(np.float32)[signs]


def distractor_shapes() -> NDArray[np.float64]:
    """Return the four distractors, ``[4, 8, 8]`` in -1, 0 and 1: all pairs of signs of the left and the right column.

    Example:
        >>> distractor_shapes()[1, 1]
        array([ 0., -1., -1.,  0.,  0.,  1.,  1.,  0.])
    """
    shapes = np.zeros((4, _SIZE, _SIZE))
    for number, (left, right) in enumerate([(-1, -1), (-1, 1), (1, -1), (1, 1)]):
        shapes[number, _ROWS, _COLUMNS[0]] = left
        shapes[number, _ROWS, _COLUMNS[1]] = right
    return shapes


#: The data sets, by the names in the table of data sets.
SETS = SimpleNamespace(
    **{
        f"{scenario}_{'dist_' if distractors else ''}{noise}": PatternGAMSet(scenario, noise, distractors)
        for scenario in SCENARIOS
        for distractors in (False, True)
        for noise in NOISES
    }
)
