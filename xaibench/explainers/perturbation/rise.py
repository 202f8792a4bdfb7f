"""RISE: the mean of random masks, weighted by the outputs for the masked images."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from xaibench.explainers.base import CheckedParameters, chunks
from xaibench.explainers.shared.layers import fastest_layout, forward_rows
from xaibench.explainers.shared.passes import Repeating
from xaibench.registry.info import ExplainerInfo
from xaibench.tensors.batching import BatchSize


@ExplainerInfo(
    "RISE",
    family="Perturbations",
    needs_gradient=False,
    citation="Petsiuk, Das, Saenko: Randomized Input Sampling for Explanation of Black-box Models. BMVC 2018.",
    exact_zero=False,
)
@dataclass(frozen=True, kw_only=True)
class RISE(Repeating, CheckedParameters):
    """Sum over i of f(x ⊙ M_i) M_i / (N p): equation 6 of the paper, with masks drawn as in its released code.

    N is ``n_masks`` and p is ``keep_probability``. The masks are the same for all images, as in the released code, and
    are created when they are needed (see :func:`random_masks`). Mask i depends on ``seed`` and i only, not on
    ``batch_size``, ``n_masks`` or the device. The sum is computed in float64, so ``batch_size`` changes the map only by
    rounding in the network. The map is nonnegative if the output is, and its level grows with the output: compare
    pixels within a map.

    Attributes:
        n_masks: Number of masks; 4000 for VGG16 and 8000 for ResNet50 in the paper.
        grid_size: Cells of the coarse grid along each side of the image.
        keep_probability: Probability that a cell is kept.
        seed: Seed of the masks.
        batch_size: Rows per forward pass; ``None``: chosen by the size of the images.
    """

    counted: ClassVar[str] = "n_masks"

    n_masks: int = 4000
    grid_size: int = 7
    keep_probability: float = 0.5
    seed: int = 0
    batch_size: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.keep_probability <= 1:
            raise ValueError(
                f"RISE(keep_probability={self.keep_probability!r}): expected a probability above 0, at most 1."
            )

    def __call__(self, model: nn.Module, images: Tensor, targets: Tensor) -> Tensor:
        """Return maps ``[N, H, W]``."""
        size = tuple(images.shape[2:])
        rows = forward_rows(images, self.batch_size)
        layout = fastest_layout(model, images)
        total = images.new_zeros((len(images), math.prod(size)), dtype=torch.float64)
        images = images.contiguous(memory_format=layout)
        with torch.inference_mode():
            for masks in self._batches(rows, size, images):
                weighed = masks.flatten(1).double()
                chunk = rows // len(masks)
                for x, y, out in chunks(chunk, images, targets, total):
                    masked = _masked(x, masks, layout)
                    scores = model(masked).gather(1, y.repeat_interleave(len(masks))[:, None])
                    out.addmm_(scores.double().reshape(len(x), -1), weighed)
        return (total / (self.n_masks * self.keep_probability)).to(images.dtype).reshape(-1, *size)

    def _batches(self, rows: int, size: tuple[int, ...], like: Tensor) -> Iterator[Tensor]:
        # All masks are drawn before the first pass, since a GPU would wait for every copy of numbers to it.
        rng = np.random.default_rng(self.seed)
        build = _mask_builder(rng, self.n_masks, size, self.grid_size, self.keep_probability, like)
        return map(build, BatchSize(rows).slices(self.n_masks))


def random_masks(
    rng: np.random.Generator,
    n: int,
    size: tuple[int, ...],
    grid_size: int = 7,
    keep_probability: float = 0.5,
    *,
    like: Tensor | None = None,
) -> Tensor:
    """Draw smooth random masks: a coarse binary grid, upsampled and cropped at a random offset (section 3.2).

    As in the released code, s × s cells (s is ``grid_size``), each 1 with probability ``keep_probability``, are
    upsampled bilinearly (the border is mirrored about the centers of its cells) to (s + 1)·ceil(H / s) by (s +
    1)·ceil(W / s). H × W pixels are cropped with an offset of less than a cell of ceil(H / s) by ceil(W / s). The
    generator draws one mask after another: n masks and then m are the same as n + m.

    For volumes, which the paper does not treat, all of this is done in three axes, with s × s × s cells. A volume of
    one slice has the masks of an image.

    Args:
        rng: Draws s² + 2 numbers per mask, or s³ + 3 for volumes.
        n: Number of masks.
        size: H and W, or D, H and W.
        grid_size: Cells along each side.
        keep_probability: Probability that a cell is kept.
        like: A tensor with the device and dtype of the masks; ``None``: float32 on the CPU.

    Returns:
        ``[n, H, W]``, in [0, 1]; the mean of each value is ``keep_probability``.

    Example:
        >>> random_masks(np.random.default_rng(0), 2, (4, 6), grid_size=1, keep_probability=1.0).unique().tolist()
        [1.0]
    """
    like = torch.empty(0) if like is None else like
    return _mask_builder(rng, n, size, grid_size, keep_probability, like)(slice(None))


def _mask_builder(
    rng: np.random.Generator, n: int, size: tuple[int, ...], grid_size: int, keep_probability: float, like: Tensor
) -> Callable[[slice], Tensor]:
    """Draw the numbers of n masks, and return a function that builds some of the masks."""
    if len(size) > 2 and size[0] == 1:
        build_image = _mask_builder(rng, n, size[1:], grid_size, keep_probability, like)
        return lambda part: build_image(part)[:, None]
    axes = len(size)
    numbers = rng.random((n, grid_size**axes + axes))
    cells = [math.ceil(side / grid_size) for side in size]
    grids = like.new_tensor(numbers[:, :-axes] < keep_probability).reshape(n, *[grid_size] * axes)
    shifts = torch.from_numpy((numbers[:, -axes:] * cells).astype(np.int64)).to(like.device)
    pixels = [torch.arange(side, device=like.device) for side in size]
    enlarge = [_enlarge(grid_size, (grid_size + 1) * cell).to(like) for cell in cells]

    def build(part: slice) -> Tensor:
        *slices, rows, columns = (
            matrix[shift[part, None] + pixel] for matrix, shift, pixel in zip(enlarge, shifts.T, pixels, strict=True)
        )
        masks = grids[part]
        for matrix in slices:  # one for a volume
            masks, rows, columns = torch.einsum("nds,nshw->ndhw", matrix, masks), rows[:, None], columns[:, None]
        return rows @ masks @ columns.mT

    return build


def _enlarge(cells: int, pixels: int) -> Tensor:
    """Return the matrix ``[pixels, cells]`` of linear interpolation, pixel centers at halves, border mirrored."""
    position = (torch.arange(pixels, dtype=torch.float64) + 0.5) * cells / pixels - 0.5
    lower = position.floor()
    matrix = torch.zeros(pixels, cells, dtype=torch.float64)
    for neighbor, weight in ((lower, lower + 1 - position), (lower + 1, position - lower)):
        inside = (cells - 1 - (cells - 1 - neighbor.abs()).abs()).clamp_min(0)
        matrix.scatter_add_(1, inside.long()[:, None], weight[:, None])
    return matrix


def _masked(images: Tensor, masks: Tensor, layout: torch.memory_format) -> Tensor:
    """Return every image under every mask, ``[n·m, C, H, W]``, directly in the given memory layout."""
    n, m = len(images), len(masks)
    rows = torch.empty((n * m, *images.shape[1:]), dtype=images.dtype, device=images.device, memory_format=layout)
    torch.mul(images[:, None], masks[:, None], out=rows.view(n, m, *rows.shape[1:]))
    return rows
