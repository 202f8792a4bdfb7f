"""The generated watermark sets: ``watermarks/confounder``, ``watermarks/none-inverted`` and so on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from xaibench.benchmarks.watermarks.regimes import (
    CITATION,
    PREVALENCE,
    REGIMES,
    Regime,
    banner_mask,
    paired_split,
    training_split,
)
from xaibench.core.checks import check_count
from xaibench.data.base import Dataset
from xaibench.data.disk.splits import check_fractions, stratified_split
from xaibench.registry.info import DatasetInfo

#: Streams of random numbers of a data set seed.
_LAYOUT, _IMAGES, _WATERMARKS = range(3)


@dataclass(frozen=True)
class WatermarkedTextures:
    """Stripes on noise with a translucent watermark; call it to generate samples.

    The task is to tell horizontal from vertical stripes. The regime decides which *training and validation* images have
    the watermark. The test images of a seed are the same in all regimes: each one with and without the watermark
    (:class:`~xaibench.benchmarks.watermarks.regimes.PairedSplit`). The mask of every image is the region of
    the watermark. The same parameters give bit-identical samples on every machine.

    Departures from the paper, whose images are 9,600 photographs of cats and dogs (128×128, in color): generated gray
    images of 64×64 pixels, and another watermark.

    Attributes:
        regime: ``"confounder"`` (the watermark tells the class), ``"suppressor"`` (it is noise), or ``"none"`` (it is
            never in training).
        inverted: Whether intensities are inverted (1 - x), so that the watermark is dark.

    Example:
        >>> data = WatermarkedTextures("confounder")(seed=0, n_samples=100)
        >>> data
        Dataset('watermarks/confounder', train=70, val=15, test=30, seed=0, n_samples=100, opacity=0.8, \
split=(0.7, 0.15, 0.15))
        >>> data.test.ids[:2], data.test.groups[:2].tolist()
        (['0-watermarked', '0-plain'], [0, 0])
        >>> changed = data.test.watermarked != data.test.plain
        >>> bool((changed.any(0).any(0) == data.test.masks[0]).all())
        True
    """

    regime: Regime
    inverted: bool = False

    @property
    def info(self) -> DatasetInfo:
        """Info record of the data set."""
        return DatasetInfo(
            name=f"watermarks/{self.regime}{'-inverted' if self.inverted else ''}",
            classes=CLASSES,
            image_shape=(1, SIDE, SIDE),
            citation=CITATION,
            license="generated, no license needed",
            subset=self.regime,
            variant="inverted" if self.inverted else "bright",
            truth="data",
        )

    def __call__(
        self,
        *,
        seed: int = 0,
        n_samples: int = 1000,
        opacity: float = 0.8,
        split: Sequence[float] = (0.7, 0.15, 0.15),
    ) -> Dataset:
        """Generate the data set.

        Args:
            seed: Non-negative; determines every sample.
            n_samples: Number of images, half of each class. Test images are samples twice, with and without watermark.
            opacity: Opacity of the watermark, in (0, 1].
            split: Fractions of train, validation and test, stratified by class.

        Returns:
            The data set, with images ``[N, 1, 64, 64]`` in [0, 1].

        Raises:
            ValueError: If a parameter is out of range.
        """
        fractions = check_fractions(split)
        check_count("seed", seed, least=0)
        check_count("n_samples", n_samples)
        streams = [np.random.SeedSequence(seed, spawn_key=(stream,)) for stream in (_LAYOUT, _IMAGES, _WATERMARKS)]
        targets = np.arange(n_samples) % 2
        images = striped_images(targets, streams[_IMAGES])[:, None]
        mask, rng = banner_mask(SIDE), np.random.default_rng(streams[_WATERMARKS])
        train, val, test = stratified_split(targets, fractions, np.random.default_rng(streams[_LAYOUT]))
        told, checked = (
            training_split(
                images[indices],
                targets[indices],
                mask,
                rng,
                prevalence=PREVALENCE[self.regime],
                opacity=opacity,
                inverted=self.inverted,
            )
            for indices in (train, val)
        )
        shown = paired_split(images[test], targets[test], mask, opacity=opacity, inverted=self.inverted)
        parameters = {"seed": seed, "n_samples": n_samples, "opacity": float(opacity), "split": fractions}
        return Dataset(told, checked, shown, self.info, parameters)


#: Name below ``watermarks/`` -> data set.
SETS = {
    f"{regime}{'-inverted' if inverted else ''}": WatermarkedTextures(regime, inverted)
    for inverted in (False, True)
    for regime in REGIMES
}


def __getattr__(name: str) -> WatermarkedTextures:
    """Return ``confounder`` … ``none_inverted``, the data sets as attributes for the registry."""
    if (data_set := SETS.get(name.replace("_", "-"))) is not None:
        return data_set
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


#: Class names in the order of their index.
CLASSES = ("horizontal", "vertical")
#: Height and width of an image.
SIDE = 64
#: Gray levels of an image.
LEVELS = 256

#: Height and width of the patch with the stripes.
_PATCH = 28
#: Two bright and two dark rows or columns alternate.
_STRIPE = 2
#: The stripes are at most so many gray levels above or below the noise, so that some images are hard to classify.
_CONTRAST = 28
#: Weights of the filter of the noise, along rows and columns.
_FILTER = (1, 4, 6, 4, 1)
_PASSES = 4
#: The smoothed noise is multiplied by this number, which gives it a standard deviation of about 41 gray levels.
_GAIN = 4


def striped_images(targets: NDArray[np.int64], seed: np.random.SeedSequence) -> NDArray[np.float64]:
    """Generate one image per target: stripes at a random position, of random phase and contrast, on smooth noise.

    Args:
        targets: ``[N]``, 0 = horizontal stripes, 1 = vertical stripes.
        seed: Determines every image.

    Returns:
        ``[N, 64, 64]``, multiples of 1/256 in [0, 1).

    Example:
        >>> images = striped_images(np.array([0, 1]), np.random.SeedSequence(0))
        >>> images.shape, bool((images * 256 % 1 == 0).all())
        ((2, 64, 64), True)
    """
    images = np.empty((len(targets), SIDE, SIDE))
    for number, (target, image_seed) in enumerate(zip(targets, seed.spawn(len(targets)), strict=True)):
        words = np.random.Philox(image_seed).random_raw(SIDE * SIDE // 8 + 1)
        levels = _smooth_noise(words[:-1])
        row, column, phase, contrast = (int(words[-1] >> np.uint64(shift)) & 0xFFFF for shift in (0, 16, 32, 48))
        row, column = row % (SIDE - _PATCH + 1), column % (SIDE - _PATCH + 1)
        bright = (np.arange(_PATCH) + phase) // _STRIPE % 2
        stripes = contrast % (_CONTRAST + 1) * (2 * bright - 1)
        levels[row : row + _PATCH, column : column + _PATCH] += stripes if target else stripes[:, None]
        images[number] = np.clip(levels, 0, LEVELS - 1) / LEVELS
    return images


def _smooth_noise(words: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Return smooth noise ``[64, 64]`` around the middle gray level, from random words of 8 bytes."""
    noise = words.astype("<u8").view(np.uint8).astype(np.int64).reshape(SIDE, SIDE)
    for _ in range(_PASSES):
        for axis in (0, 1):
            noise = np.sum([weight * np.roll(noise, shift - 2, axis) for shift, weight in enumerate(_FILTER)], axis=0)
    total = sum(_FILTER) ** (2 * _PASSES)
    # The mean of a byte is 127.5, so the noise is centered exactly.
    centered = 2 * noise - (LEVELS - 1) * total
    levels: NDArray[np.int64] = centered * _GAIN // (2 * total) + LEVELS // 2
    return levels
