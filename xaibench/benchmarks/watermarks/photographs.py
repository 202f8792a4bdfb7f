"""Watermarks on your own photographs of two classes: ``watermarks:DIR``."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from xaibench.benchmarks.watermarks.regimes import (
    CITATION,
    LEAST_SIDE,
    PREVALENCE,
    REGIMES,
    Regime,
    banner_mask,
    paired_split,
    training_split,
)
from xaibench.core.checks import check_choice, check_count
from xaibench.data.base import Dataset
from xaibench.data.disk.damaged_files import leave_out_damaged
from xaibench.data.disk.splits import check_fractions
from xaibench.data.photographs.image_folder import Photographs
from xaibench.registry.info import DatasetInfo

_SPLIT = (0.7, 0.15, 0.15)
_SIZE = 128


class WatermarkedPhotographs:
    """Photographs with a watermark: ``WatermarkedPhotographs("~/pets")``, by name ``"watermarks:~/pets"``.

    Departures from the paper: photographs are read as by ``photographs:DIR`` and not rescaled to the range [0, 1] one
    by one, and the watermark has other letters.

    Args:
        directory: Photographs of two classes (:class:`~xaibench.data.photographs.image_folder.Photographs`).

    Attributes:
        info: Info record of the data set, with the classes of the photographs.

    Raises:
        MissingDataError: If the folder has no photographs.
        ValueError: If they are not of two classes.
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self._photographs = Photographs(directory)
        classes = self._photographs.info.classes
        if len(classes) != 2:
            raise ValueError(
                f"watermarks:{os.fspath(directory)} has {len(classes)} classes, expected 2: the watermark tells one of "
                "two classes in the regime 'confounder'. Give a folder with two subfolders of photographs."
            )
        self.info = DatasetInfo(
            f"watermarks:{os.fspath(directory)}",
            classes=classes,
            image_shape=(3, _SIZE, _SIZE),
            citation=CITATION,
            license="the license of your photographs",
            truth="data",
        )

    def sizes(self, parameters: Mapping[str, Any]) -> tuple[int, int, int]:
        """Return the number of samples for given parameters, without reading an image.

        Args:
            parameters: Parameters of :meth:`__call__`.

        Returns:
            Number of training, validation and test samples.
        """
        found = self._photographs(size=LEAST_SIDE, splits=tuple(parameters.get("split", _SPLIT)))
        return len(found.train), len(found.val), 2 * len(found.test)

    def __call__(
        self,
        *,
        regime: Regime = "confounder",
        seed: int = 0,
        size: int = _SIZE,
        inverted: bool = False,
        opacity: float = 0.8,
        split: Sequence[float] = _SPLIT,
    ) -> Dataset:
        """Read the photographs into memory, and put the watermark on some of them.

        Args:
            regime: ``"confounder"``, ``"suppressor"`` or ``"none"``, as for the generated sets.
            seed: Decides the splits and which training images have the watermark.
            size: Height and width in pixels, at least 32.
            inverted: Whether intensities are inverted (1 - x).
            opacity: Opacity of the watermark, in (0, 1].
            split: Fractions of train, validation and test.

        Returns:
            The data set, with images ``[N, 3, size, size]`` in [0, 1], and test images in pairs
            (:class:`~xaibench.benchmarks.watermarks.regimes.PairedSplit`).

        Raises:
            ValueError: If a parameter is out of range.
        """
        check_choice("regime", regime, REGIMES)
        check_count("size", size, least=LEAST_SIDE)
        photographs = self._photographs(seed=seed, size=size, splits=check_fractions(split))
        read, _, _, note = leave_out_damaged(photographs)
        mask, rng = banner_mask(size), np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(2,)))
        train, val = (
            training_split(
                images.double().numpy(),
                targets.numpy(),
                mask,
                rng,
                prevalence=PREVALENCE[regime],
                opacity=opacity,
                inverted=inverted,
            )
            for images, _, targets in (read.train[:], read.val[:])
        )
        images, _, targets = read.test[:]
        shown = paired_split(images.double().numpy(), targets.numpy(), mask, opacity=opacity, inverted=inverted)
        parameters = {"regime": regime, "seed": seed, "size": size, "inverted": inverted, "opacity": float(opacity)}
        return Dataset(train, val, shown, self.info, parameters | {"split": tuple(split)}, note=note)
