"""Pictures of images, maps and slices of volumes, for the pages, the figures, the run folder and the leaderboard."""

from __future__ import annotations

import base64
import functools
import io
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from PIL import Image


Floats: TypeAlias = NDArray[np.floating[Any]]
Levels: TypeAlias = NDArray[np.uint8]

#: Content of a picture: an image, a mask, or a map without or with its sign.
PictureKind: TypeAlias = Literal["image", "mask", "map", "signed"]
_COLOR_MAPS = {"image": "gray", "mask": "gray", "map": "inferno", "signed": "RdBu_r"}
#: Quantile of a map's magnitudes that gets the strongest color; with the maximum, one pixel could darken all others.
TOP = 0.995
#: In maps with more pixels than this, the brightest level is the quantile :data:`TOP`.
MANY_PIXELS = 1024
#: Longest side in pixels of the levels of a map.
MAP_SIDE = 64
#: Largest side of a picture that is encoded losslessly.
LOSSLESS_SIDE = 16


@functools.cache  # matplotlib copies a color map that is looked up, and a page draws ten thousand maps
def _color_map(name: str) -> Any:
    import matplotlib

    return matplotlib.colormaps[name]


@functools.cache
def palette() -> Levels:
    """Return ``[256, 3]``, the color of each level of a map; read-only."""
    colors = np.ascontiguousarray(_color_map("inferno")(np.arange(256), bytes=True)[:, :3])
    colors.flags.writeable = False
    return colors


def color_picture(array: Floats, kind: PictureKind) -> Levels:
    """Render an image, mask or map in color.

    Args:
        array: ``[H, W]``.
        kind: ``"image"`` (gray, zero is mid-gray, scaled by the largest magnitude), ``"mask"`` (white = important),
            ``"map"`` (magnitude, scaled from zero to its own maximum) or ``"signed"`` (negative blue, positive red).

    Returns:
        ``[H, W, 3]``. Without a finite value, or for an all-zero map, the color of zero.
    """
    array = np.nan_to_num(array, posinf=0.0, neginf=0.0)
    scaled = array / (np.abs(array).max() or 1.0)
    scaled = (scaled + 1) / 2 if kind in ("image", "signed") else np.abs(scaled)
    return np.asarray(_color_map(_COLOR_MAPS[kind])(scaled, bytes=True)[..., :3], dtype=np.uint8)


def fit(array: NDArray[Any], side: int, *, enlarge: bool = False) -> NDArray[Any]:
    """Reduce ``[H, W]`` or ``[H, W, 3]`` by area means so that its longer side is ``side``.

    Args:
        array: uint8 or float32; other floats are converted.
        side: Longer side in pixels.
        enlarge: Enlarge smaller arrays, by repeating pixels; otherwise they are returned as they are.

    Example:
        >>> fit(np.arange(16.0).reshape(4, 4), side=2)
        array([[ 2.5,  4.5],
               [10.5, 12.5]], dtype=float32)
    """
    longest = max(array.shape[:2])
    if longest == side or (longest < side and not enlarge):
        return array
    from PIL import Image

    height, width = (max(round(length * side / longest), 1) for length in array.shape[:2])
    method = Image.Resampling.BOX if longest > side else Image.Resampling.NEAREST
    picture = Image.fromarray(array if array.dtype == np.uint8 else array.astype(np.float32))
    return np.asarray(picture.resize((width, height), method))


def levels(magnitude: Floats, side: int = MAP_SIDE) -> Levels:
    """Return ``[h, w]`` levels from the map's smallest to its largest magnitude; 0 everywhere for a constant map."""
    return scale_levels(np.asarray(fit(magnitude.astype(np.float32), side), dtype=np.float64))


def scale_levels(magnitude: Floats) -> Levels:
    """Return the levels of magnitudes ``[...]`` as they are, without reducing them."""
    low, top = magnitude.min(), magnitude.max()
    if magnitude.size > MANY_PIXELS and (quantile := np.quantile(magnitude, TOP)) > low:
        top = quantile
    shares = (magnitude - low) / ((top - low) or 1.0)
    return np.asarray(np.rint(255 * np.clip(shares, 0, 1)), dtype=np.uint8)


def data_uri(picture: Levels | NDArray[np.bool_] | Image.Image, kind: str, **options: Any) -> str:
    """Encode a picture as a ``data:`` address, in a format of Pillow (``"png"``, ``"webp"``, ``"jpeg"``)."""
    from PIL import Image

    buffer = io.BytesIO()
    (Image.fromarray(picture) if isinstance(picture, np.ndarray) else picture).save(buffer, format=kind, **options)
    return f"data:image/{kind};base64," + base64.b64encode(buffer.getvalue()).decode("ascii")


def picture_uri(colors: Levels, quality: int = 75) -> str:
    """Encode ``[H, W]`` or ``[H, W, 3]`` as a ``data:`` address: lossless PNG if it is small, otherwise WebP."""
    if colors.ndim == 3 and (colors == colors[..., :1]).all():
        colors = np.ascontiguousarray(colors[..., 0])
    if len(colors) <= LOSSLESS_SIDE:
        return data_uri(colors, "png", optimize=True)
    return data_uri(colors, "webp", quality=quality, method=4)


_T = TypeVar("_T", bound=np.generic)


def heaviest_slices(mass: NDArray[Any], *, middle: bool = False) -> tuple[int, ...]:
    """Return the slice along each axis with the largest sum; the first one if several are equal.

    Args:
        mass: ``[D, H, W]``, such as the magnitude of a map or a mask.
        middle: Return the middle one of several equal slices, for masks of simple shapes.

    Returns:
        One index per axis.

    Example:
        >>> mass = np.zeros((3, 4, 5))
        >>> mass[:, 2, 3:] = 1
        >>> heaviest_slices(mass), heaviest_slices(mass, middle=True)
        ((0, 2, 3), (1, 2, 3))
    """
    axes = range(mass.ndim)
    sums = [mass.sum(axis=tuple(other for other in axes if other != axis)) for axis in axes]
    equal = [np.flatnonzero(one == one.max()) for one in sums]
    return tuple(int(numbers[(len(numbers) - 1) // 2 if middle else 0]) for numbers in equal)


def cut_slices(volume: NDArray[_T], slices: tuple[int, ...]) -> tuple[NDArray[_T], NDArray[_T], NDArray[_T]]:
    """Return three orthogonal slices of a volume.

    Args:
        volume: ``[D, H, W, ...]``.
        slices: Slice d, row h and column w, where the volume is cut.

    Returns:
        Slice d ``[H, W, ...]``; column w ``[H, D, ...]``, which belongs to its right; and row h ``[D, W, ...]``, which
        belongs below.
    """
    d, h, w = slices
    return volume[d], volume[:, :, w].swapaxes(0, 1), volume[:, h]


def name_slices(slices: tuple[int, ...]) -> list[str]:
    """Name three orthogonal slices by their axes.

    Example:
        >>> name_slices((7, 30, 12))
        ['slice d = 7', 'row h = 30', 'column w = 12']
    """
    return [f"{name} = {number}" for name, number in zip(("slice d", "row h", "column w"), slices, strict=True)]
