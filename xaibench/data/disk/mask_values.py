"""Which pixels of a mask file are important: decided by the values, regardless of the file format.

Masks that were never compressed with loss have few values, in regions with sharp borders (0 and 255, labels, palette
indices), and every value other than 0 is important. Lossy compression, resizing and blurring add values around 0 and at
the borders; such masks are cut at half of their largest value, and so are heat maps.
"""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from xaibench.data.disk.file_readers import DataFileError

_LOGGER = logging.getLogger("xaibench")
#: A mask with at most this number of different values, including 0, has labels.
_LABELS_AT_MOST = 3
#: Values below this number are labels if there are at most _SMALL_LABELS_AT_MOST. White is 255 or more.
_WHITE_AT_LEAST = 128
_SMALL_LABELS_AT_MOST = 16
#: Values from this share of the largest one on are not between 0 and the largest value.
_NEAR_LARGEST = 15 / 16
#: Half of the steps between neighboring pixels are at least this share of the largest value if these are labels. In
#: JPEG and WebP files of quality 20 to 95 and in heat maps they are below 0.07, in label maps above 0.4.
_LABEL_STEP = 0.1
#: Value of pixels that belong to no class in PASCAL VOC, Cityscapes and ADE20K, whose classes are smaller numbers.
_IGNORED = 255
_CLASSES_BELOW = 64
#: Smallest value that can be important in a JPEG file, whose black is not exactly 0.
_JPEG_BLACK = 16
#: Sources and kinds of messages that were logged.
_LOGGED: set[tuple[str, str]] = set()


def read_mask_picture(picture: Image.Image, name: str, source: str) -> NDArray[np.bool_]:
    """Return the important pixels ``[h, w]`` of a mask that is a picture.

    Palette indices are labels if the first color is black; otherwise the palette only stores colors. In masks with
    colors, all colors other than black are important, unless they are transparent.

    Args:
        picture: A decoded picture of any mode.
        name: The file, for error messages.
        source: The folder or table of the masks, for messages that are logged once per source.

    Returns:
        True = important.

    Raises:
        DataFileError: If the mask has NaN or infinite values.
    """
    palette = (picture.getpalette() if picture.mode == "P" else None) or []
    is_colored = any(palette[:3]) or picture.mode not in ("1", "L", "P", "I", "I;16", "I;16B", "F")
    values = np.asarray(picture.convert("RGBA") if is_colored else picture)
    brightness = values[..., :3].max(axis=2) * (values[..., 3] / 255) if is_colored else values
    marked = mark_values(brightness, name, source, is_jpeg=picture.format == "JPEG")
    if not marked.any() and (values != values[0, 0]).any():
        _log_once(
            source,
            "empty",
            f"{name} is an empty mask, although its pixels are not all equal: those that are not black are transparent "
            "or too dark. If it shows something important, draw that in white.",
        )
    return marked


def mark_values(values: NDArray[Any], name: str, source: str, *, is_jpeg: bool = False) -> NDArray[np.bool_]:
    """Return the important pixels of a mask, given the values in its file.

    Every value other than 0 is important, with two exceptions, which are logged once per source:

    * If the values vary like those of a lossy or resized picture, or of a heat map, the pixels of at least half of the
      largest value are important.
    * 255 next to labels below 64 marks pixels that belong to no class, and is not important.

    Args:
        values: ``[..., h, w]`` numbers.
        name: The file, for error messages.
        source: The folder or table of the masks, for messages that are logged once per source.
        is_jpeg: Whether the file is a JPEG, whose values are never exact.

    Returns:
        ``[..., h, w]``, True = important.

    Raises:
        DataFileError: If there are NaN or infinite values.

    Example:
        >>> mark_values(np.array([[0, 7], [2, 0]]), "labels.png", "masks").tolist()
        [[False, True], [True, False]]
    """
    if not np.isfinite(values).all():
        raise DataFileError(f"{name} is a mask with NaN or infinite values; expected 0 for unimportant pixels.")
    marked: NDArray[np.bool_] = values != 0
    if values.dtype == np.bool_ or not marked.any():
        return marked
    levels = np.unique(values[marked])
    largest = float(max(abs(levels[0].item()), abs(levels[-1].item())))
    if is_jpeg or not _has_labels(values, len(levels) + 1, largest):
        bright: NDArray[np.bool_] = np.abs(values.astype(np.float64)) >= max(largest / 2, _JPEG_BLACK if is_jpeg else 0)
        if (bright != marked).any():
            _log_once(
                source,
                "cut",
                f"{name}: the values of this mask vary like those of a lossy or resized picture ({len(levels)} values "
                f"from {levels[0]:g} to {levels[-1]:g} besides 0), so its pixels of at least half of the largest value "
                "are important. Save masks with the values 0 and 255 as PNG.",
            )
        return bright
    if levels[-1] == _IGNORED and len(levels) > 1 and levels[0] > 0 and levels[-2] < _CLASSES_BELOW:
        _log_once(
            source,
            "ignored",
            f"{name}: the value 255 next to the labels {', '.join(f'{level:g}' for level in levels[:-1])} marks pixels "
            "that belong to no class, as in PASCAL VOC, so they are not important. If they are, give them a label "
            "below 255.",
        )
        marked[values == _IGNORED] = False
    return marked


def _has_labels(values: NDArray[Any], n_values: int, largest: float) -> bool:
    if n_values <= _LABELS_AT_MOST or (n_values <= _SMALL_LABELS_AT_MOST and 1 < largest < _WHITE_AT_LEAST):
        return True
    strength = np.abs(values.astype(np.float64))
    between = (strength > 0) & (strength < largest * _NEAR_LARGEST)
    if not between.any():
        return True  # such as 0 and 240 to 255
    down, right = np.diff(strength, axis=-2), np.diff(strength, axis=-1)
    equal = (down[..., :-1] == 0) & (right[..., :-1, :] == 0) & (right[..., 1:, :] == 0)  # 2×2 pixels
    in_region = np.zeros_like(between)
    for rows in (slice(None, -1), slice(1, None)):
        for columns in (slice(None, -1), slice(1, None)):
            in_region[..., rows, columns] |= equal
    if in_region[between].mean() < 0.5:
        return False
    steps = np.abs(np.concatenate([down[down != 0], right[right != 0]]))
    return bool(np.median(steps) >= _LABEL_STEP * largest)


def _log_once(source: str, kind: str, message: str) -> None:
    if (source, kind) not in _LOGGED:
        _LOGGED.add((source, kind))
        _LOGGER.warning("%s Further masks of %s are read in the same way without a message.", message, source)
