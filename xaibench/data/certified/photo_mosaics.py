"""Mosaics of labelled photographs that a network is sure of, as a data set."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import Tensor

from xaibench.core.checks import check_count
from xaibench.core.part_info import DatasetInfo
from xaibench.data.certified.image_grids import mosaics, sure_of
from xaibench.data.dataset import Dataset, Split
from xaibench.data.photographs.labelled_photographs import Photographs

#: Photographs that are in memory at a time before they are chosen.
_ROWS = 32
_CITATION = "Rao, Böhle, Schiele: Towards Better Understanding Attribution Methods, CVPR 2022, arXiv 2205.10435"


class PhotoMosaics:
    """Mosaics of a folder's photographs: ``PhotoMosaics("~/photographs")``, by name ``"mosaic:~/photographs"``.

    Args:
        directory: Labelled photographs (:class:`xaibench.data.photographs.labelled_photographs.Photographs`).

    Attributes:
        info: What is known of the set; its classes are those of the photographs.

    Raises:
        MissingDataError: If it holds none.
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self._photographs = Photographs(directory)
        self.info = DatasetInfo(
            f"mosaic:{os.fspath(directory)}",
            classes=self._photographs.info.classes,
            image_shape=(3, 224, 224),
            citation=_CITATION,
            licence="that of your photographs",
            truth="use",
        )

    def sizes(self, parameters: Mapping[str, int]) -> tuple[int, int, int]:
        """How many samples there will be.

        Args:
            parameters: Those of a call.

        Returns:
            Of train, validation and test.
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
        """Choose the photographs that a network is sure of, and lay them into mosaics.

        Args:
            network: From photographs ``[n, 3, h, w]`` in [0, 1], of the size of a cell, to logits ``[n, K]`` of the
                set's classes, in evaluation mode.
            seed: Of the photographs that the network is asked about, and of the mosaics.
            side: Cells along a side.
            size: Pixels along a side of the whole mosaic; a multiple of ``side``.
            count: Mosaics; each is as many samples as it has cells.
            least: Smallest probability of its class with which the network must know a photograph.
            among: It is asked about so many photographs, or all there are.
            disconnected: Number the targets as the outputs of :func:`xaibench.models.disconnected`: for *DiFull*, where
                each cell goes through its own copy of the network. If False, as those of the network: for *GridPG*.

        Returns:
            The mosaics are the test samples, those of one mosaic a group; ``train`` holds other mosaics of the same
            photographs, for explainers that must be fitted, and ``val`` nothing.

        Raises:
            TypeError: If there is no network to ask.
            ValueError: If the network is sure of photographs of too few classes, or a parameter is out of its range.
        """
        if network is None:
            raise TypeError(f"{self.info.name}: network is None; expected one that is sure of some photographs.")
        for name, number in (("side", side), ("size", size), ("count", count), ("among", among)):
            check_count(name, number)
        if size % side:
            raise ValueError(f"size is {size} and side {side}; expected a size that is a multiple of side.")
        images, targets, asked = self._sure(network, seed, size // side, least, among)
        shown, classes = len(set(targets.tolist())), self.info.classes
        if shown < side**2:
            raise ValueError(
                f"{self.info.name}: of {asked} photographs the network puts {len(targets)}, of {shown} classes, in "
                f"their class with a probability of {least:g} or more; expected {side**2} classes, one for each cell. "
                "Give more photographs, a network that was trained on these classes, a smaller side or a smaller least."
            )
        test = mosaics(images, targets, side=side, count=count, seed=seed)
        # Each once: which of its cells is asked about makes no difference to who is fitted.
        again = int(np.random.default_rng([seed, 1]).integers(2**31))
        other = mosaics(images, targets, side=side, count=count, seed=again)
        numbers, names = test.targets, classes
        if disconnected:
            numbers = test.cells * len(classes) + test.targets
            names = tuple(f"{name}, cell {cell + 1}" for cell in range(side**2) for name in classes)
        info = dataclasses.replace(self.info, classes=names, image_shape=(3, size, size))
        return Dataset(
            Split(*other[:: side**2]),
            Split(*test[:0]),
            Split(test.images, test.masks, numbers, groups=test.groups),
            info,
            {"seed": seed, "side": side, "size": size, "count": count, "least": least, "disconnected": disconnected},
            note=f"mosaics of {len(targets)} photographs of {shown} classes, those of {asked} that the network puts in "
            f"their class with a probability of {least:g} or more",
        )

    def _sure(
        self, network: Callable[[Tensor], Tensor], seed: int, size: int, least: float, among: int
    ) -> tuple[Tensor, Tensor, int]:
        """The photographs that the network is sure of, their classes, and how many it was asked about."""
        split = self._photographs(seed=seed, size=size, splits=(0.0, 0.0, 1.0)).test
        asked = min(among, len(split))
        images, targets = [], []
        for start in range(0, asked, _ROWS):
            shown, _, labels = split[start : min(start + _ROWS, asked)]
            sure = sure_of(network, shown, labels, least)
            images.append(shown[sure])
            targets.append(labels[sure])
        return torch.cat(images), torch.cat(targets), asked
