"""The watermark: a translucent banner with letters, blended into an image at a fixed position."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from xaibench.core.checks import check_count

#: The letters M, A, R and K in dots; each is 5 wide and 7 high.
_LETTERS = (
    ("#...#", "##.##", "#.#.#", "#...#", "#...#", "#...#", "#...#"),
    (".###.", "#...#", "#...#", "#####", "#...#", "#...#", "#...#"),
    ("####.", "#...#", "#...#", "####.", "#.#..", "#..#.", "#...#"),
    ("#...#", "#..#.", "#.#..", "##...", "#.#..", "#..#.", "#...#"),
)
#: The banner in dots: 4 letters side by side, each with an empty margin, 32 wide and 11 high.
_DOTS = np.zeros((11, 32), dtype=bool)
for _number, _letter in enumerate(_LETTERS):
    _DOTS[2:9, 8 * _number + 1 : 8 * _number + 6] = [[dot == "#" for dot in row] for row in _letter]

#: Smallest side of an image, at which a dot of the banner is a pixel.
LEAST_SIDE = 32


def banner_mask(side: int) -> NDArray[np.bool_]:
    """Return the pixels of the watermark in a square image: letters at the top, over the whole width.

    Args:
        side: Height and width of the image, at least 32.

    Returns:
        ``[side, side]``, ``True`` = a pixel of a letter.

    Raises:
        ValueError: If the image is smaller than the banner.

    Example:
        >>> mask = banner_mask(64)
        >>> int(mask.sum()), int(mask.any(1).nonzero()[0].max())
        (268, 17)
    """
    check_count("side", side, least=LEAST_SIDE)
    dots = np.arange(side) * LEAST_SIDE // side
    mask = np.zeros((side, side), dtype=bool)
    inside = dots < len(_DOTS)
    mask[inside] = _DOTS[dots[inside]][:, dots]
    return mask


def blend(images: NDArray[np.float64], mask: NDArray[np.bool_], opacity: float) -> NDArray[np.float64]:
    r"""Blend a white watermark into images: :math:`(1 - a)\,x + a` at its pixels, with opacity :math:`a`.

    Args:
        images: ``[..., H, W]`` in [0, 1].
        mask: ``[H, W]``, the pixels of the watermark.
        opacity: In (0, 1]; 1 hides what is behind the letters.

    Returns:
        Images of the same shape; pixels outside of the mask are unchanged.

    Raises:
        ValueError: If the opacity is out of range.
    """
    if not 0 < opacity <= 1:
        raise ValueError(f"opacity={opacity!r}: expected a number in (0, 1]; 0 would leave no watermark.")
    return np.where(mask, (1 - opacity) * images + opacity, images)
