"""Photographs as backgrounds: any folder of images, prepared once and kept as an array.

The paper takes the validation images of ImageNet-1k and names PASS as a stand-in whose licence is clean. An image's
shorter side is scaled to the size of the set, the middle is cropped, grey is 0.299 R + 0.587 G + 0.114 B, and the
image's own mean is subtracted. Where there are fewer images than samples, images are repeated, each within one split.
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

    The seed puts the files in an order; the first ``n_samples`` of them that are large enough are taken, or all of them
    where there are fewer. They are read
    one after another, and the result is kept in the cache under a key of the folder's listing (names, sizes, times),
    the seed, the number and the size. A cache that cannot be written is a warning, not an error.

    Args:
        images_dir: Folder, searched with its subfolders; hidden files are passed over.
        n_samples: Number of images, at most.
        size: Side of the result. Images with a shorter side below it are skipped.
        seed: Fixes choice and order.
        cache_dir: None = ``$XAIBENCH_CACHE`` or ``~/.cache/xaibench``.
        workers: Threads that decode.

    Returns:
        ``[n, size, size]``, n <= n_samples, each image with mean 0, in [−255, 255].

    Raises:
        ValueError: If the folder is none, holds no usable image, or images that cannot be read (named).
    """
    root = Path(images_dir)
    if not root.is_dir():
        raise ValueError(f"images_dir={os.fspath(images_dir)!r} is no folder; give a folder of images.")
    files = _list_images(root)
    folder = Path(cache_dir) if cache_dir is not None else default_cache_dir()
    cached = folder / f"backgrounds-{_key(root, files, n_samples, size, seed)}.npz"
    pixels = read_kept(cached, lambda arrays: _pixels(arrays, n_samples, size))
    if pixels is None:
        pixels = _prepare(root, files, n_samples, size, seed, workers)
        keep(cached, "The backgrounds", {"pixels": pixels})
    return pixels


def background_of_each(images: int, sizes: Sequence[int]) -> NDArray[np.int64]:
    """Which image lies under each sample.

    Where there are fewer images than samples, each split has images of its own, in proportion to its size, and takes
    them in turns: no background of a test sample was seen in training.

    Args:
        images: How many there are.
        sizes: Samples of each split.

    Returns:
        ``[sum(sizes)]`` numbers of images.

    Raises:
        ValueError: If there is not one image for each split.

    Example:
        >>> background_of_each(4, (5, 2, 1))
        array([0, 1, 0, 1, 0, 2, 2, 3])
    """
    if images >= sum(sizes):
        return np.arange(sum(sizes))
    filled = [number for number, size in enumerate(sizes) if size]
    if images < len(filled):
        raise ValueError(f"{images} usable images for {len(filled)} splits: expected one for each at least; give more.")
    shares = [min(size, 1) for size in sizes]
    for _ in range(images - len(filled)):  # the next one to whom has the most samples for each of its images
        shares[max(filled, key=lambda number: sizes[number] / shares[number])] += 1
    starts = [sum(shares[:number]) for number in range(len(sizes))]
    turns = [starts[number] + np.arange(sizes[number]) % shares[number] for number in filled]
    return np.concatenate(turns)


def said_of_backgrounds(images: int, samples: int) -> str:
    """How often images are repeated, in a sentence; nothing where none is.

    Example:
        >>> said_of_backgrounds(1000, 40000)[:79]
        '1,000 photographs lie under 40,000 samples: each is repeated 40 times on averag'
    """
    if images >= samples:
        return ""
    return (
        f"{images:,} photographs lie under {samples:,} samples: each is repeated {samples / images:.3g} times on "
        "average, all within one split. The paper had 50,000 photographs and repeated none."
    )


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
    pixels = np.empty((min(n_samples, len(files)), size, size), dtype=np.float32)
    count, small, unreadable = 0, 0, []
    with ThreadPoolExecutor(workers) as pool:
        while count < n_samples and (batch := list(itertools.islice(order, _BATCH))):
            for file, prepared in zip(batch, pool.map(lambda file: _open(file, size), batch), strict=True):
                if isinstance(prepared, str):
                    unreadable.append(f"{file.relative_to(root).as_posix()} ({prepared})")
                elif prepared is None:
                    small += 1
                elif count < len(pixels):
                    pixels[count] = prepared
                    count += 1
    if unreadable:
        more = f" and {len(unreadable) - 5} more" if len(unreadable) > 5 else ""
        raise ValueError(
            f"{root} holds images that cannot be read: {'; '.join(unreadable[:5])}{more}. Remove or replace them."
        )
    if count == 0:
        raise ValueError(
            f"{root} holds no usable image ({len(files)} image files, {small} of them smaller than {size} px); "
            "expected photographs of at least that size: give another folder."
        )
    if small:
        _LOGGER.info("Skipped %d images smaller than %d px.", small, size)
    return pixels[:count]


def _open(file: Path, size: int) -> NDArray[np.float32] | str | None:
    """The prepared image; None if it is too small; why, if it cannot be read."""
    try:
        with BoundedFile(file) as stream, Image.open(stream) as image:
            return None if min(image.size) < size else prepare_image(image, size)
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        # Pillow's plug-ins raise all of these on damaged files, SyntaxError included. Its own text ends in the path.
        return str(error).split(" <")[0] or type(error).__name__


def _pixels(arrays: Mapping[str, NDArray[Any]], n_samples: int, size: int) -> NDArray[np.float32]:
    pixels: NDArray[np.float32] = arrays["pixels"]
    fits = pixels.shape[1:] == (size, size) and 0 < len(pixels) <= n_samples
    if not fits or pixels.dtype != np.float32:
        raise ValueError(f"holds {pixels.dtype} {list(pixels.shape)}")
    return pixels
