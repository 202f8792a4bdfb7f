"""What the explainers share: their interface, the channel reduction, and how many rows one forward pass takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from typing import Literal, Protocol, TypeAlias, get_args

import torch
from torch import Tensor, nn

from xaibench.core.checks import check_choice, check_count
from xaibench.core.compute.row_memory import default_rows

#: How the attributions of the channels become one map (see :func:`reduce_channels`).
Channels: TypeAlias = Literal["sum", "abs_sum", "max_abs"]


class Explainer(Protocol):
    """Anything that can be called as ``explainer(model, images, targets) -> maps``.

    ``model`` maps images ``[N, C, H, W]`` to ``[N, K]``, of which column ``targets[i]`` is what is explained of sample
    ``i``; maps are ``[N, H, W]``, signed, bigger magnitude = more important. :func:`xaibench.explain` takes care of
    the rest: it chooses the explained output, the device and the precision, and gives the model back unharmed.

    An explainer that must be fitted first has ``fit(model, loader)``, which returns the fitted explainer, and
    ``fitted``, whether it is.
    """

    def __call__(self, model: nn.Module, images: Tensor, targets: Tensor, /) -> Tensor:
        """Explain what the model says of each image.

        Args:
            model: From images ``[N, C, H, W]`` to ``[N, K]``, of which a column is explained.
            images: ``[N, C, H, W]``, on the model's device and in its precision.
            targets: ``[N]`` int64, the column of each sample.

        Returns:
            Maps ``[N, H, W]``, signed; bigger magnitude = more important.
        """
        ...


class UnsupportedModelError(ValueError):
    """The explainer cannot treat this network; the message names the layer and says what would work."""


@dataclass(frozen=True, kw_only=True)
class Attribution:
    """The parameters that every explainer with channels has.

    Attributes:
        channels: How the attributions of the channels become one map, see :func:`reduce_channels`.
        batch_size: Rows in one forward pass; ``None`` chooses by the size of the images. It bounds the memory and
            changes the maps by no more than rounding.
    """

    channels: Channels = "sum"
    batch_size: int | None = None

    def __post_init__(self) -> None:
        check_choice("channels", self.channels, get_args(Channels), owner=type(self).__name__)
        for field in fields(self):
            value = getattr(self, field.name)
            if value is None and field.default is None:
                continue
            if field.name.startswith("n_") or field.name == "batch_size":
                check_count(field.name, value, owner=type(self).__name__)

    def rows(self, images: Tensor) -> int:
        """How many rows one forward pass takes.

        Args:
            images: ``[N, C, H, W]``, of which the size and the device count.

        Returns:
            ``batch_size``, or what suits them; at least 1.
        """
        return self.batch_size or default_rows(images, least=1)

    def by_chunk(
        self, attribute: Callable[[Tensor, Tensor], Tensor], images: Tensor, targets: Tensor, rows_per_image: int = 1
    ) -> Tensor:
        """Compute attributions over a chunk of the images at a time, and reduce their channels.

        Args:
            attribute: From images ``[n, C, H, W]`` and targets ``[n]`` to attributions ``[n, C, H, W]``.
            images: ``[N, C, H, W]``.
            targets: ``[N]``.
            rows_per_image: Rows that ``attribute`` needs in one pass for each image.

        Returns:
            Maps ``[N, H, W]``.
        """
        chunk = max(1, self.rows(images) // rows_per_image)
        parts = [attribute(x, y) for x, y in chunks(chunk, images, targets)]
        return reduce_channels(torch.cat(parts), self.channels)


def reduce_channels(attributions: Tensor, how: Channels) -> Tensor:
    """One map from the attributions of the channels.

    Args:
        attributions: ``[N, C, H, W]``.
        how: ``"sum"``: the signed sum (what an additive attribution means for the pixel); ``"abs_sum"``: the sum of the
            magnitudes; ``"max_abs"``: the value of largest magnitude, with its sign (Simonyan et al. 2014 take its
            magnitude). A single channel is returned as it is, with its sign, whatever ``how``.

    Returns:
        ``[N, H, W]``.

    Raises:
        ValueError: For another ``how``.

    Example:
        >>> import torch
        >>> attributions = torch.tensor([1.0, -3.0, 1.0]).reshape(1, 3, 1, 1)
        >>> [reduce_channels(attributions, how).item() for how in ("sum", "abs_sum", "max_abs")]
        [-1.0, 5.0, -3.0]
    """
    if attributions.shape[1] == 1:
        return attributions.squeeze(1)
    if how == "sum":
        return attributions.sum(1)
    if how == "abs_sum":
        return attributions.abs().sum(1)
    if how == "max_abs":
        return attributions.gather(1, attributions.abs().argmax(1, keepdim=True)).squeeze(1)
    raise ValueError(f"channels={how!r}: expected one of {', '.join(map(repr, get_args(Channels)))}.")


def blocks(samples: int, steps: int, rows: int, *, across: bool = False) -> Iterator[tuple[slice, slice]]:
    """Cut a grid of ``samples`` times ``steps`` forward rows into blocks of at most ``rows``.

    Whole samples as long as one fits, because then what is summed over the steps is summed in one go. Or ``across``, as
    many samples as fit: each draws its random numbers in their order, so that a GPU, which is sooner done with a block
    than they are drawn, needs many that draw side by side.

    Example:
        >>> [(s.start, s.stop, k.start, k.stop) for s, k in blocks(samples=2, steps=3, rows=2)]
        [(0, 1, 0, 2), (0, 1, 2, 3), (1, 2, 0, 2), (1, 2, 2, 3)]
        >>> [(s.start, s.stop, k.start, k.stop) for s, k in blocks(samples=2, steps=3, rows=2, across=True)]
        [(0, 2, 0, 1), (0, 2, 1, 2), (0, 2, 2, 3)]
    """
    per_block = max(1, min(samples, rows) if across else rows // max(1, steps))
    per_step = max(1, rows // per_block) if across else rows
    for first in range(0, samples, per_block):
        for step in range(0, steps, per_step):
            yield slice(first, min(first + per_block, samples)), slice(step, min(step + per_step, steps))


def chunks(size: int, *tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Cut tensors of equal length into views of at most ``size``, together."""
    for start in range(0, len(tensors[0]), size):
        yield tuple(tensor[start : start + size] for tensor in tensors)


def target_gradient(model: nn.Module, images: Tensor, targets: Tensor) -> Tensor:
    """The gradient ``[N, C, H, W]`` of each sample's target output by its image.

    Raises:
        UnsupportedModelError: If the output does not depend on the images through differentiable operations.
    """
    with torch.enable_grad():
        images = images.detach().requires_grad_()
        outputs = model(images).gather(1, targets[:, None])
        if not outputs.requires_grad:
            raise UnsupportedModelError(
                "The output of the model has no gradient by the images. Use an explainer that only "
                "perturbs the images (pfi, shapley_sampling, kernel_shap, lime)."
            )
        return torch.autograd.grad(outputs.sum(), images)[0]


def target_output(model: nn.Module, images: Tensor, targets: Tensor) -> Tensor:
    """Each sample's target output ``[N]``, without gradients."""
    with torch.no_grad():
        return torch.as_tensor(model(images)).gather(1, targets[:, None]).squeeze(1)
