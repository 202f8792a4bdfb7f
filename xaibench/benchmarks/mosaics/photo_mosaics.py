"""Data set of mosaics of labeled photographs that a network classifies with confidence."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import Tensor

from xaibench.benchmarks.mosaics.image_grids import make_mosaics, select_confident
from xaibench.component.info import DatasetInfo
from xaibench.core.checks import check_count
from xaibench.data.base import Dataset, Split
from xaibench.data.disk.damaged_files import leave_out, leave_out_damaged
from xaibench.data.photographs.image_folder import Photographs

#: Photographs loaded and classified at a time.
_BATCH_SIZE = 32
_CITATION = "Rao, Böhle, Schiele: Towards Better Understanding Attribution Methods, CVPR 2022, arXiv 2205.10435"


class PhotoMosaics:
    """Mosaics of the photographs in a folder: ``PhotoMosaics("~/photographs")``, by name ``"mosaic:~/photographs"``.

    Args:
        directory: Labeled photographs (:class:`xaibench.data.photographs.image_folder.Photographs`).

    Attributes:
        info: Info record of the data set, with the classes of the photographs.

    Raises:
        MissingDataError: If the folder has no photographs.
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self._photographs = Photographs(directory)
        self.info = DatasetInfo(
            f"mosaic:{os.fspath(directory)}",
            classes=self._photographs.info.classes,
            image_shape=(3, 224, 224),
            citation=_CITATION,
            license="the license of your photographs",
            truth="use",
        )

    def sizes(self, parameters: Mapping[str, int]) -> tuple[int, int, int]:
        """Return the number of samples for given parameters.

        Args:
            parameters: Parameters of :meth:`__call__`.

        Returns:
            Number of training, validation and test samples.
        """
        count = parameters.get("count", 25)
        return count, 0, count * int(parameters.get("side", 2)) ** 2

    def __call__(
        self,
        *,
        network: Callable[[Tensor], Tensor] | None = None,
        seed: int = 0,
        side: int = 2,
        size: int = 224,
        count: int = 25,
        least: float = 0.9,
        among: int = 1000,
        disconnected: bool = False,
    ) -> Dataset:
        """Select the photographs that a network classifies with confidence, and combine them into mosaics.

        Args:
            network: Maps photographs ``[n, 3, h, w]`` in [0, 1], of the size of a cell, to logits ``[n, K]`` of the
                classes of the data set, in evaluation mode.
            seed: Seed of the order of the photographs and of the mosaics.
            side: Number of cells per row and column.
            size: Height and width of the mosaic in pixels; a multiple of ``side``.
            count: Number of mosaics. Each gives one sample per cell.
            least: Minimum probability of the class of a photograph.
            among: Maximum number of photographs to classify.
            disconnected: Number the targets as the outputs of :func:`xaibench.benchmarks.disconnected`, for *DiFull*,
                where every cell has its own copy of the network. If False, as the outputs of the network, for *GridPG*.

        Returns:
            The data set. The test samples are the mosaics, grouped by mosaic. ``train`` has other
            mosaics of the same photographs, for explainers that need fitting; ``val`` is empty.

        Raises:
            TypeError: If ``network`` is None.
            ValueError: If too few classes have confidently classified photographs, or a parameter is out of range.
        """
        if network is None:
            raise TypeError(f"{self.info.name}: network is None, expected a network that classifies the photographs.")
        for name, number in (("side", side), ("size", size), ("count", count), ("among", among)):
            check_count(name, number)
        if size % side:
            raise ValueError(f"size={size} with side={side}: expected a size that is a multiple of side.")
        images, targets, tried, left_out = self._select_photographs(network, seed, size // side, least, among)
        shown, classes = len(set(targets.tolist())), self.info.classes
        if shown < side**2:
            raise ValueError(
                f"{self.info.name}: the network assigns {len(targets)} of {tried} photographs, of {shown} classes, to "
                f"their class with a probability of at least {least:g}; expected {side**2} classes, one per cell. Give "
                "more photographs, a network trained on these classes, a smaller side or a smaller least."
            )
        test = make_mosaics(images, targets, side=side, count=count, seed=seed)
        # Every training mosaic once: explainers that need fitting do not use the cell.
        again = int(np.random.default_rng([seed, 1]).integers(2**31))
        other = make_mosaics(images, targets, side=side, count=count, seed=again)
        numbers, names = test.targets, classes
        if disconnected:
            numbers = test.cells * len(classes) + test.targets
            names = tuple(f"{name}, cell {cell + 1}" for cell in range(side**2) for name in classes)
        info = dataclasses.replace(self.info, classes=names, image_shape=(3, size, size))
        return Dataset(
            Split(*other[:: side**2]),
            Split(*test[:0]),
            Split(test.images, test.masks, numbers, groups=test.groups, groups_by=test.groups_by),
            info,
            {"seed": seed, "side": side, "size": size, "count": count, "least": least, "disconnected": disconnected},
            note=f"mosaics of {len(targets)} photographs of {shown} classes, selected from {tried} because the network "
            f"assigns them to their class with a probability of at least {least:g}{'. ' * bool(left_out)}{left_out}",
        )

    def _select_photographs(
        self, network: Callable[[Tensor], Tensor], seed: int, size: int, least: float, among: int
    ) -> tuple[Tensor, Tensor, int, str]:
        """Return the confidently classified photographs, their classes, how many were classified, and what was not."""
        photographs = self._photographs(seed=seed, size=size, splits=(0.0, 0.0, 1.0))
        few = leave_out(photographs, {"test": range(among, len(photographs.test))})
        read, _, _, left_out = leave_out_damaged(few)
        split, tried = read.test, len(read.test)
        images, targets = [], []
        for start in range(0, tried, _BATCH_SIZE):
            shown, _, labels = split[start : min(start + _BATCH_SIZE, tried)]
            sure = select_confident(network, shown, labels, least)
            images.append(shown[sure])
            targets.append(labels[sure])
        return torch.cat(images), torch.cat(targets), tried, left_out
