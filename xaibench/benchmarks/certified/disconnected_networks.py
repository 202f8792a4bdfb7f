"""Networks for mosaics of images in which each cell has its own copy of a network, so that other cells have no effect.

This is the setting *DiFull* of Rao, Böhle, Schiele: Towards Better Understanding Attribution Methods, CVPR 2022 (arXiv
2205.10435), Section 3.1: the cells of the grid are disconnected, in the head of the network, too. (In *GridPG* one
network sees the whole mosaic, as any network that accepts images of that size does.)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from xaibench.core.checks import check_count
from xaibench.models.building import as_it_comes, build, drawn_seed
from xaibench.models.registered import MODELS
from xaibench.network.lending import copy_network
from xaibench.network.outputs import check_module, check_plane
from xaibench.registry.info import ModelInfo


class Disconnected(nn.Module):
    """One copy of a network per cell of a mosaic; made by :func:`disconnected`.

    With K logits per cell, it returns the logits of all cells, one cell after another: column ``cell * K + k`` depends
    on that cell alone (:meth:`columns`). Explain the logit, since probabilities compare cells with each other.

    Attributes:
        cells: The copies, row by row of the mosaic.
        side: Cells along a side.
        sees_in_parts: True: no layer sees the whole mosaic, so no layer has a feature map of it.
        explain_dtype: That of the network, if it has one.
    """

    sees_in_parts = True

    def __init__(self, network: nn.Module, side: int) -> None:
        super().__init__()
        self.cells = nn.ModuleList(copy_network(network) for _ in range(side**2))
        self.side = side
        self.explain_dtype: torch.dtype | None = getattr(network, "explain_dtype", None)

    def forward(self, images: Tensor) -> Tensor:
        """Classify each cell.

        Args:
            images: Mosaics ``[N, C, side * h, side * w]``.

        Returns:
            Logits ``[N, side² * K]``.

        Raises:
            ValueError: If the images cannot be divided into that number of cells.
        """
        height, width = images.shape[2] // self.side, images.shape[3] // self.side
        if images.shape[2:] != (height * self.side, width * self.side):
            raise ValueError(
                f"images are {list(images.shape)}, which cannot be cut into {self.side}×{self.side} cells; give "
                f"mosaics whose sides are multiples of {self.side}."
            )
        corners = [(row * height, column * width) for row in range(self.side) for column in range(self.side)]
        cut = [images[:, :, top : top + height, left : left + width] for top, left in corners]
        return torch.cat([network(cell) for network, cell in zip(self.cells, cut, strict=True)], 1)

    def columns(self, cells: Tensor, targets: Tensor, classes: int) -> Tensor:
        """Return the output columns of given classes in given cells.

        Args:
            cells: ``[N]``, numbered row by row.
            targets: ``[N]``, classes of the network.
            classes: Number of classes of the network.

        Returns:
            ``[N]``, the targets to explain.
        """
        return cells * classes + targets


def disconnected(network: nn.Module, side: int = 2) -> Disconnected:
    """Return a network for mosaics of ``side`` × ``side`` images; each cell is classified by its own copy of a network.

    Args:
        network: From images ``[N, C, h, w]`` to logits ``[N, K]``; it is copied and not changed.
        side: Cells along a side of the mosaic.

    Returns:
        From mosaics ``[N, C, side * h, side * w]`` to logits ``[N, side² * K]``; each logit depends on one cell only.

    Raises:
        TypeError: If the network is not a module.
        ValueError: If ``side`` is not an integer >= 1.

    Example:
        >>> model = disconnected(nn.Sequential(nn.Flatten(), nn.Linear(16, 3)), side=2)
        >>> mosaic = torch.rand(1, 1, 8, 8)
        >>> changed = mosaic.clone()
        >>> changed[..., 4:] = 0  # the cells on the right
        >>> (model(mosaic) == model(changed)).reshape(4, 3).all(1).tolist()
        [True, False, True, False]
    """
    check_module(network)
    check_count("side", side)
    return Disconnected(network, side)


@dataclass(frozen=True)
class DisconnectedCopies:
    """Factory of disconnected networks by name, such as ``"disconnected:efficientnet_lite0"``.

    Attributes:
        copied: Name of the network (:func:`xaibench.models.build`).
    """

    copied: str

    @property
    def info(self) -> ModelInfo:
        """Metadata for tables."""
        of = getattr(MODELS.resolve(self.copied), "info", None) or ModelInfo(self.copied)
        return ModelInfo(f"{of.label}, a copy for each cell", of.citation, of.revision)

    def __call__(
        self,
        in_shape: tuple[int, ...],
        num_classes: int,
        *,
        side: int = 2,
        network: Mapping[str, Any] | None = None,
    ) -> nn.Module:
        """Build the copies, in evaluation mode; pretrained networks keep their pretrained last layer.

        Args:
            in_shape: ``(C, H, W)`` of the mosaics.
            num_classes: Number of outputs of all copies together.
            side: Cells along a side.
            network: Parameters of the network.

        Returns:
            From mosaics ``[N, C, H, W]`` to logits ``[N, num_classes]``; a :class:`Disconnected`.

        Raises:
            ValueError: If height, width or outputs cannot be divided among the cells, or the network refuses its share.
        """
        check_count("side", side)
        check_plane(f"disconnected:{self.copied}", in_shape)
        channels, height, width = in_shape
        if height % side or width % side or num_classes % side**2:
            raise ValueError(
                f"disconnected:{self.copied}: in_shape is {tuple(in_shape)} and num_classes {num_classes}, expected "
                f"sides that are multiples of {side} and outputs that are a multiple of {side**2}; use mosaics of "
                f"{side}×{side} cells, or another side."
            )
        shape = (channels, height // side, width // side)
        stated = as_it_comes(self.copied, network or {})
        network_of_one = build(self.copied, shape, num_classes // side**2, seed=drawn_seed(), **stated)
        return disconnected(network_of_one, side).eval()
