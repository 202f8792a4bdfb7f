"""Networks that read some pixels only, so that the others provably cannot matter.

What a network *can* use is then known, whatever it was trained to do: a map that marks a pixel outside is wrong about
the network, not about the data.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn
from torch.nn import functional

from xaibench.core.compute.model_probe import check_module
from xaibench.core.part_info import ModelInfo
from xaibench.models.building import build, drawn_seed
from xaibench.models.model_table import MODELS


class Blind(nn.Module):
    """A network that is given the visible pixels of an image, and zeros for all others; made by :func:`blind`.

    The pixels are *picked out* and laid onto zeros. Nothing is multiplied by a mask, which relevance would pass
    through unharmed and an explainer could take for a layer: no operation ever reads the other pixels.

    Attributes:
        network: The network behind.
        visible: ``[H, W]`` bool, ``True`` = read.
        explain_dtype: That of the network, if it states one.
    """

    visible: Tensor
    _picked: Tensor
    _back: Tensor

    def __init__(self, network: nn.Module, visible: Tensor) -> None:
        super().__init__()
        self.network = network
        self.explain_dtype: torch.dtype | None = getattr(network, "explain_dtype", None)
        picked = visible.flatten().nonzero().flatten()
        # Every pixel comes from its place among the picked ones, or from the zero that is appended to them.
        back = torch.full((visible.numel(),), len(picked))
        back[picked] = torch.arange(len(picked))
        for name, tensor in (("visible", visible), ("_picked", picked), ("_back", back)):
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
                f"images are {list(images.shape)}, but of this network the visible pixels of "
                f"{list(self.visible.shape)} are known; give images of that height and width."
            )
        read = functional.pad(images.flatten(2).index_select(2, self._picked), (0, 1))
        logits: Tensor = self.network(read.index_select(2, self._back).reshape(images.shape))
        return logits

    def extra_repr(self) -> str:
        """What ``print(model)`` shows.

        Returns:
            How many pixels it reads.
        """
        return f"visible={len(self._picked)} of {self.visible.numel()} pixels"


def blind(network: nn.Module, visible: ArrayLike | Tensor) -> Blind:
    """A copy of a network that provably reads some pixels only.

    Train it as any other (:func:`xaibench.models.fit`): it learns from what it can see. The pixels outside have exactly
    no effect on its outputs, and its outputs have exactly zero gradient by them, in any precision.

    Args:
        network: Any, from images ``[N, C, H, W]`` to logits ``[N, K]``; it is copied, and left as it is.
        visible: ``[H, W]``, bool or only 0 and 1, the same for all images and channels; some pixel must be visible.

    Returns:
        The network, with ``.visible``.

    Raises:
        TypeError: If the network is no module.
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
    if seen.ndim != 2 or not bool(((seen == 0) | (seen == 1)).all()) or not bool(seen.any()):
        raise ValueError(
            f"visible: got {seen.dtype} {list(seen.shape)} with {int((seen == 1).sum())} ones, expected a mask [H, W] "
            "of booleans, or of 0 and 1, that is true somewhere."
        )
    return Blind(copy.deepcopy(network), seen == 1)


@dataclass(frozen=True)
class BlindNetwork:
    """What :func:`blind` makes of a network that is known by name, before its training: ``"blind:cnn"``.

    Which pixels it reads is a parameter, so that it is known without the network's weights.

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
        """What tables print."""
        of = getattr(MODELS.resolve(self.blinded), "info", None) or ModelInfo(self.blinded)
        return ModelInfo(f"{of.label}, blinded", of.citation, of.revision)

    def visible(
        self,
        in_shape: tuple[int, int, int],
        *,
        rows: Sequence[int] | None = None,
        columns: Sequence[int] | None = None,
        network: Mapping[str, Any] | None = None,
    ) -> Tensor:
        """The pixels that the network reads.

        Args:
            in_shape: ``(C, H, W)``.
            rows: As in a call; so are the others.
            columns: Likewise.
            network: Likewise; they decide nothing here.

        Returns:
            ``[H, W]`` bool, ``True`` = read.

        Raises:
            ValueError: If rows or columns are no span of the image.
        """
        seen = torch.zeros(in_shape[1:], dtype=torch.bool)
        spans = [_span(*one) for one in (("rows", rows, in_shape[1]), ("columns", columns, in_shape[2]))]
        seen[spans[0], spans[1]] = True
        return seen

    def __call__(
        self,
        in_shape: tuple[int, int, int],
        num_classes: int,
        *,
        rows: Sequence[int] | None = None,
        columns: Sequence[int] | None = None,
        network: Mapping[str, Any] | None = None,
    ) -> nn.Module:
        """The network, to be trained as any other.

        Args:
            in_shape: ``(C, H, W)``.
            num_classes: Number of logits.
            rows: The first that it reads, and the one after the last; None = all.
            columns: Likewise.
            network: Parameters of the network.

        Returns:
            From images ``[N, C, H, W]`` to logits ``[N, num_classes]``; a :class:`Blind`.

        Raises:
            ValueError: If rows or columns are no span of the image, or the network refuses shape or classes.
        """
        seen = self.visible(in_shape, rows=rows, columns=columns)
        return blind(build(self.blinded, in_shape, num_classes, seed=drawn_seed(), **(network or {})), seen)


def _span(name: str, given: Sequence[int] | None, length: int) -> slice:
    if given is None:
        return slice(0, length)
    if len(given) != 2 or not 0 <= given[0] < given[1] <= length:
        raise ValueError(
            f"{name} are {list(given)}; expected two numbers, the first that is read and the one after the last, from "
            f"0 to {length}."
        )
    return slice(*given)
