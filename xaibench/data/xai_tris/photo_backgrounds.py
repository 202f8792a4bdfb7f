"""Photographs as backgrounds: any folder of images, prepared once and kept as an array.

The paper takes the validation images of ImageNet-1k and names PASS as a stand-in whose licence is clean. An image's
shorter side is scaled to the size of the set, the middle is cropped, grey is 0.299 R + 0.587 G + 0.114 B, and the
image's own mean is subtracted.
"""

from __future__ import annotations

import hashlib
import itertools
import logging
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from xaibench.data.disk.cache_folders import default_cache_dir
from xaibench.data.disk.file_readers import BoundedFile
from xaibench.data.disk.image_files import is_image
from xaibench.data.disk.kept_arrays import keep, read_kept
from xaibench.data.xai_tris.noise import images_rng

_LOGGER = logging.getLogger("xaibench")

_GREY = np.array([0.299, 0.587, 0.114])
#: Bumped when images are prepared otherwise, so that no cache of the old way is taken.
_REVISION = 2
#: Files handed to the workers at a time: enough to keep them busy, few enough to stop soon after the last one needed.
_BATCH = 256


def image_backgrounds(
    images_dir: str | os.PathLike[str],
    n_samples: int,
    size: int,
    *,
    seed: int,
    cache_dir: str | os.PathLike[str] | None = None,
    workers: int = 1,
) -> NDArray[np.float32]:
    """Backgrounds from a folder of images.

    The seed puts the files in an order; the first ``n_samples`` of them that are large enough are taken. They are read
    one after another, and the result is kept in the cache under a key of the folder's listing (names, sizes, times),
    the seed, the number and the size. A cache that cannot be written is a warning, not an error.

    Args:
        images_dir: Folder, searched with its subfolders; hidden files are passed over.
        n_samples: Number of images.
        size: Side of the result. Images with a shorter side below it are skipped.
        seed: Fixes choice and order.
        cache_dir: None = ``$XAIBENCH_CACHE`` or ``~/.cache/xaibench``.
        workers: Threads that decode.

    Returns:
        ``[n_samples, size, size]``, each image with mean 0, in [−255, 255].

    Raises:
        ValueError: If the folder is none, holds too few usable images, or images that cannot be read (named).
    """
    root = Path(images_dir)
    if not root.is_dir():
        raise ValueError(f"images_dir={os.fspath(images_dir)!r} is no folder; give a folder of images.")
    files = _list_images(root)
    folder = Path(cache_dir) if cache_dir is not None else default_cache_dir()
    cached = folder / f"backgrounds-{_key(root, files, n_samples, size, seed)}.npz"
    pixels = read_kept(cached, lambda arrays: _pixels(arrays, (n_samples, size, size)))
    if pixels is None:
        pixels = _prepare(root, files, n_samples, size, seed, workers)
        keep(cached, "The backgrounds", {"pixels": pixels})
    return pixels


def prepare_image(image: Image.Image, size: int) -> NDArray[np.float32]:
    """One image to a grey square of mean 0, ``[size, size]``; scaled bicubically with antialiasing.

    As in the released code, which takes Pillow's default; bilinear scaling would lower the gradients by some 14 %.

    Example:
        >>> prepare_image(Image.new("RGB", (100, 80), "red"), 64).shape
        (64, 64)
    """
    image = image.convert("RGB")
    width, height = (max(size, round(side * size / min(image.size))) for side in image.size)
    image = image.resize((width, height), Image.Resampling.BICUBIC)
    left, top = (width - size) // 2, (height - size) // 2
    grey = np.asarray(image.crop((left, top, left + size, top + size)), dtype=np.float64) @ _GREY
    return np.asarray(grey - grey.mean(), dtype=np.float32)


def _list_images(root: Path) -> list[Path]:
    found: list[Path] = []
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if not name.startswith(".")]
        found += [Path(folder, name) for name in names if is_image(name)]
    return sorted(found)


def _key(root: Path, files: Sequence[Path], n_samples: int, size: int, seed: int) -> str:
    digest = hashlib.sha256(f"{_REVISION} {n_samples} {size} {seed} {root.resolve()}".encode())
    for file in files:
        state = file.stat()
        digest.update(f"\n{file.relative_to(root).as_posix()} {state.st_size} {state.st_mtime_ns}".encode())
    return digest.hexdigest()[:32]


def _prepare(
    root: Path, files: Sequence[Path], n_samples: int, size: int, seed: int, workers: int
) -> NDArray[np.float32]:
    order = iter([files[index] for index in images_rng(seed).permutation(len(files))])
    pixels = np.empty((n_samples, size, size), dtype=np.float32)
    count, small, unreadable = 0, 0, []
    with ThreadPoolExecutor(workers) as pool:
        while count < n_samples and (batch := list(itertools.islice(order, _BATCH))):
            for file, prepared in zip(batch, pool.map(lambda file: _open(file, size), batch), strict=True):
                if isinstance(prepared, str):
                    unreadable.append(f"{file.relative_to(root).as_posix()} ({prepared})")
                elif prepared is None:
                    small += 1
                elif count < n_samples:
                    pixels[count] = prepared
                    count += 1
    if unreadable:
        more = f" and {len(unreadable) - 5} more" if len(unreadable) > 5 else ""
        raise ValueError(
            f"{root} holds images that cannot be read: {'; '.join(unreadable[:5])}{more}. Remove or replace them."
        )
    if count < n_samples:
        raise ValueError(
            f"{root} holds {count} usable images ({len(files)} image files, {small} of them smaller than {size} px), "
            f"but n_samples={n_samples} are wanted; give a larger folder, or n_samples={count} at most."
        )
    if small:
        _LOGGER.info("Skipped %d images smaller than %d px.", small, size)
    return pixels


def _open(file: Path, size: int) -> NDArray[np.float32] | str | None:
    """The prepared image; None if it is too small; why, if it cannot be read."""
    try:
        with BoundedFile(file) as stream, Image.open(stream) as image:
            return None if min(image.size) < size else prepare_image(image, size)
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        # Pillow's plug-ins raise all of these on damaged files, SyntaxError included. Its own text ends in the path.
        return str(error).split(" <")[0] or type(error).__name__


def _pixels(arrays: Mapping[str, NDArray[Any]], shape: tuple[int, ...]) -> NDArray[np.float32]:
    pixels: NDArray[np.float32] = arrays["pixels"]
    if pixels.shape != shape or pixels.dtype != np.float32:
        raise ValueError(f"holds {pixels.dtype} {list(pixels.shape)}")
    return pixels
