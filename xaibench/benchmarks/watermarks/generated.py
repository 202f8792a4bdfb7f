"""The generated watermark sets: ``watermarks/confounder``, ``watermarks/none-inverted`` and so on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from xaibench.benchmarks.watermarks.banner import banner_mask
from xaibench.benchmarks.watermarks.regimes import (
    CITATION,
    PREVALENCE,
    REGIMES,
    Regime,
)
from xaibench.benchmarks.watermarks.textures import CLASSES, SIDE, striped_images
from xaibench.benchmarks.watermarks.watermarked_splits import paired_split, training_split
from xaibench.component.info import DatasetInfo
from xaibench.core.checks import check_count
from xaibench.data.base import Dataset
from xaibench.data.stratified_splits import check_fractions, stratified_split

#: Streams of random numbers of a data set seed.
_LAYOUT, _IMAGES, _WATERMARKS = range(3)


@dataclass(frozen=True)
class WatermarkedTextures:
    """Stripes on noise with a translucent watermark; call it to generate samples.

    The task is to tell horizontal from vertical stripes. The regime decides which *training and validation* images have
    the watermark. The test images of a seed are the same in all regimes: each one with and without the watermark
    (:class:`~xaibench.benchmarks.watermarks.watermarked_splits.PairedSplit`). The mask of every image is the region of
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
                images[part],
                targets[part],
                mask,
                rng,
                prevalence=PREVALENCE[self.regime],
                opacity=opacity,
                inverted=self.inverted,
            )
            for part in (train, val)
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
    if (found := SETS.get(name.replace("_", "-"))) is not None:
        return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
