"""Mosaics of labeled images for the grid pointing game, and the data set of mosaics of photographs.

A mosaic is a grid of images of different classes. Each of its classes is explained once, and its attribution should be
inside its own cell (:func:`xaibench.metrics.grid_pointing`). Böhle, Fritz, Schiele: Convolutional Dynamic Alignment
Networks for Interpretable Classifications, CVPR 2021 (arXiv 2104.00032); Rao, Böhle, Schiele: Towards Better
Understanding Attribution Methods, CVPR 2022 (arXiv 2205.10435), Section 3.1.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from xaibench.core.checks import check_count
from xaibench.data.base import Dataset, Split
from xaibench.data.disk.damaged_files import leave_out, leave_out_damaged
from xaibench.data.photographs.image_folder import Photographs
from xaibench.registry.info import DatasetInfo

#: Batch size of the forward passes.
_BATCH_SIZE = 32


class MosaicSplit(Split):
    """Mosaics, each repeated once per cell, with that cell as the mask and its class as the target.

    The samples of one mosaic are a group.

    Attributes:
        cells: ``[N]`` int64 number of the cell, row by row.
    """

    def __init__(
        self, images: Tensor, masks: Tensor, targets: Tensor, cells: Tensor, groups: NDArray[np.int64]
    ) -> None:
        super().__init__(images, masks, targets, groups=groups, groups_by="mosaics")
        self.cells = cells


def make_mosaics(images: Tensor, targets: Tensor, *, side: int = 2, count: int = 100, seed: int = 0) -> MosaicSplit:
    """Build random mosaics of ``side`` × ``side`` images of different classes.

    Args:
        images: ``[N, C, h, w]`` float32, images that the network classifies with confidence (:func:`select_confident`).
        targets: ``[N]`` class indices, with at least ``side²`` different classes.
        side: Number of cells per row and column; 2 or 3 in the paper.
        count: Number of mosaics. An image may be part of several.
        seed: Seed of the random choice.

    Returns:
        ``count * side²`` samples ``[C, side * h, side * w]``: every mosaic once per cell.

    Raises:
        ValueError: If there are fewer classes than cells, or a parameter is out of range.

    Example:
        >>> split = make_mosaics(torch.rand(6, 3, 4, 4), torch.tensor([0, 1, 2, 3, 4, 4]), count=5)
        >>> split.images.shape, int(split.masks[0].sum()), split.cells[:4].tolist()
        (torch.Size([20, 3, 8, 8]), 16, [0, 1, 2, 3])
    """
    check_count("side", side)
    check_count("count", count)
    check_count("seed", seed, least=0)
    rng, cells = np.random.default_rng(seed), side**2
    labels = targets.cpu().numpy()
    classes = np.unique(labels)
    if len(classes) < cells:
        raise ValueError(
            f"targets have {len(classes)} different classes, expected at least {cells}: one per cell of "
            f"{side}×{side}. Give images of more classes, or a smaller side."
        )
    drawn = rng.permuted(np.tile(classes, (count, 1)), axis=1)[:, :cells]
    chosen = torch.from_numpy(np.array([[rng.choice(np.flatnonzero(labels == one)) for one in row] for row in drawn]))
    height, width = images.shape[2:]
    laid = images[chosen].reshape(count, side, side, *images.shape[1:])  # [count, row, column, C, h, w]
    whole = laid.permute(0, 3, 1, 4, 2, 5).reshape(count, images.shape[1], side * height, side * width)
    cell = torch.eye(cells, dtype=torch.bool).reshape(cells, side, 1, side, 1)
    masks = cell.expand(cells, side, height, side, width).reshape(cells, side * height, side * width)
    return MosaicSplit(
        whole.repeat_interleave(cells, 0),
        masks.repeat(count, 1, 1),
        targets.cpu()[chosen].flatten(),
        torch.arange(cells).repeat(count),
        np.repeat(np.arange(count), cells),
    )


def select_confident(model: Callable[[Tensor], Tensor], images: Tensor, targets: Tensor, least: float = 0.9) -> Tensor:
    """Return which images a network assigns to their class with at least a given probability.

    For other images it is not known where the network should look. Rao et al. (2022) use the images with the highest
    confidence.

    Args:
        model: Maps images ``[n, C, h, w]`` to logits ``[n, K]``, in evaluation mode.
        images: ``[N, C, h, w]``.
        targets: ``[N]`` class indices.
        least: Minimum probability of the target, in (0, 1].

    Returns:
        ``[N]`` bool.

    Raises:
        ValueError: If ``least`` is not in (0, 1].

    Example:
        >>> logits = lambda images: torch.tensor([[5.0, 0.0], [0.1, 0.0], [0.0, 5.0]])
        >>> select_confident(logits, torch.zeros(3, 1, 2, 2), torch.tensor([0, 0, 0])).tolist()
        [True, False, False]
    """
    if not 0 < least <= 1:
        raise ValueError(f"least={least!r}: expected a probability in (0, 1].")
    with torch.inference_mode():
        shares = torch.cat([model(batch).double().softmax(1).cpu() for batch in torch.split(images, _BATCH_SIZE)])
    return shares.gather(1, targets.cpu()[:, None])[:, 0] >= least


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
