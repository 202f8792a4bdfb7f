"""Networks that read only some pixels, so that all other pixels provably have no effect.

It is thus known what a network *can* use, regardless of its training: a map that highlights other pixels is wrong about
the network, not about the data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn
from torch.nn import functional

from xaibench.models.building import build, drawn_seed
from xaibench.models.registered import MODELS
from xaibench.network.lending import copy_network
from xaibench.network.outputs import check_module
from xaibench.registry.info import ModelInfo


class Blind(nn.Module):
    """A network that receives the visible pixels of an image, and zeros for all others; made by :func:`blind`.

    The pixels are *selected* and scattered into zeros. They are not multiplied by a mask: relevance would propagate
    through a product, and an explainer could treat it as a layer. No operation ever reads the other pixels.

    Attributes:
        network: The wrapped network.
        visible: ``[H, W]`` bool, ``True`` = read.
        explain_dtype: That of the network, if it has one.
    """

    visible: Tensor
    _selected: Tensor
    _sources: Tensor

    def __init__(self, network: nn.Module, visible: Tensor) -> None:
        super().__init__()
        self.network = network
        self.explain_dtype: torch.dtype | None = getattr(network, "explain_dtype", None)
        selected = visible.flatten().nonzero().flatten()
        # Every pixel is taken from its position among the selected ones, or from the zero that is appended to them.
        sources = torch.full((visible.numel(),), len(selected))
        sources[selected] = torch.arange(len(selected))
        for name, tensor in (("visible", visible), ("_selected", selected), ("_sources", sources)):
            self.register_buffer(name, tensor, persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        """Classify images.

        Args:
            images: ``[N, C, H, W]``, of the height and width of ``visible``.

        Returns:
            Logits ``[N, K]``.

        Raises:
            ValueError: If the images are of another height and width.
        """
        if images.shape[2:] != self.visible.shape:
            raise ValueError(
                f"images are {list(images.shape)}, but the visible pixels of this network are defined for "
                f"{list(self.visible.shape)}; give images of that size."
            )
        read = functional.pad(images.flatten(2).index_select(2, self._selected), (0, 1))
        logits: Tensor = self.network(read.index_select(2, self._sources).reshape(images.shape))
        return logits

    def extra_repr(self) -> str:
        """Return the text that ``print(model)`` shows.

        Returns:
            Number of visible pixels.
        """
        return f"visible={len(self._selected)} of {self.visible.numel()} pixels"


def blind(network: nn.Module, visible: ArrayLike | Tensor) -> Blind:
    """Return a copy of a network that provably reads only some pixels.

    Train it like any other network (:func:`xaibench.models.fit`); it learns from what it can see. The other pixels have
    exactly no effect on its outputs, and the gradient of its outputs by them is exactly zero, in any precision.

    Args:
        network: Any network from images ``[N, C, H, W]`` to logits ``[N, K]``; it is copied and not changed.
        visible: ``[H, W]`` (volumes: ``[D, H, W]``), bool or 0 and 1, the same for all images and channels; at least
            one pixel must be visible.

    Returns:
        The network, with ``.visible``.

    Raises:
        TypeError: If the network is not a module.
        ValueError: If ``visible`` is not ``[H, W]``, not binary, or false everywhere.

    Example:
        >>> import numpy as np
        >>> left = np.zeros((8, 8), bool)
        >>> left[:, :4] = True
        >>> model = blind(nn.Sequential(nn.Flatten(), nn.Linear(64, 2)), left)
        >>> images = torch.rand(1, 1, 8, 8)
        >>> changed = images.clone()
        >>> changed[..., 4:] = torch.inf
        >>> bool((model(images) == model(changed)).all())
        True
    """
    check_module(network)
    seen = torch.as_tensor(np.asarray(visible) if not isinstance(visible, Tensor) else visible).detach().cpu()
    if seen.ndim not in (2, 3) or not bool(((seen == 0) | (seen == 1)).all()) or not bool(seen.any()):
        raise ValueError(
            f"visible: got {seen.dtype} {list(seen.shape)} with {int((seen == 1).sum())} ones, expected a mask [H, W] "
            "or [D, H, W] of booleans, or of 0 and 1, that is true somewhere."
        )
    return Blind(copy_network(network), seen == 1)


@dataclass(frozen=True)
class BlindNetwork:
    """Factory of blind networks by name, such as ``"blind:cnn"``, to be trained.

    The visible pixels are a parameter, so that they are known without the network's weights.

    Attributes:
        blinded: Name of the network (:func:`xaibench.models.build`).

    Example:
        >>> model = BlindNetwork("cnn")((1, 8, 8), 2, columns=(0, 4))
        >>> int(model.visible.sum()), bool(model.visible[:, :4].all())
        (32, True)
    """

    blinded: str

    @property
    def info(self) -> ModelInfo:
        """Metadata for tables."""
        of = getattr(MODELS.resolve(self.blinded), "info", None) or ModelInfo(self.blinded)
        return ModelInfo(f"{of.label}, blinded", of.citation, of.revision)

    def visible(
        self,
        in_shape: tuple[int, ...],
        *,
        rows: Sequence[int] | None = None,
        columns: Sequence[int] | None = None,
        network: Mapping[str, Any] | None = None,
    ) -> Tensor:
        """Return the pixels that the network reads.

        Args:
            in_shape: ``(C, H, W)``.
            rows: As in a call.
            columns: As in a call.
            network: As in a call; has no effect here.

        Returns:
            ``[H, W]`` bool, ``True`` = read; ``[D, H, W]`` for volumes, with the same rows and columns in each slice.

        Raises:
            ValueError: If rows or columns are not a range within the image.
        """
        seen = torch.zeros(in_shape[1:], dtype=torch.bool)
        spans = [_parse_range(*one) for one in (("rows", rows, in_shape[-2]), ("columns", columns, in_shape[-1]))]
        seen[..., spans[0], spans[1]] = True
        return seen

    def __call__(
        self,
        in_shape: tuple[int, ...],
        num_classes: int,
        *,
        rows: Sequence[int] | None = None,
        columns: Sequence[int] | None = None,
        network: Mapping[str, Any] | None = None,
    ) -> nn.Module:
        """Build the network, to be trained.

        Args:
            in_shape: ``(C, H, W)``.
            num_classes: Number of logits.
            rows: The first row that it reads, and the one after the last; None = all.
            columns: The first column that it reads, and the one after the last; None = all.
            network: Parameters of the network.

        Returns:
            From images ``[N, C, H, W]`` to logits ``[N, num_classes]``; a :class:`Blind`.

        Raises:
            ValueError: If rows or columns are not a range within the image, or the network refuses shape or classes.
        """
        seen = self.visible(in_shape, rows=rows, columns=columns)
        return blind(build(self.blinded, in_shape, num_classes, seed=drawn_seed(), **(network or {})), seen)


def _parse_range(name: str, ends: Sequence[int] | None, length: int) -> slice:
    if ends is None:
        return slice(0, length)
    if len(ends) != 2 or not 0 <= ends[0] < ends[1] <= length:
        raise ValueError(
            f"{name} are {list(ends)}; expected two numbers from 0 to {length}: the first that is read and the one "
            "after the last."
        )
    return slice(*ends)
