"""Photographs as backgrounds of the IMAGENET sets: any folder of images, preprocessed once and cached as an array.

The paper uses the validation images of ImageNet-1k and names PASS as an alternative without license problems. The
shorter side of an image is resized to the size of the data set, the image is center-cropped and converted to gray
(0.299 R + 0.587 G + 0.114 B), and its mean is subtracted. If there are fewer images than samples, images are repeated,
each within one split.
"""

from __future__ import annotations

import functools
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

from xaibench.benchmarks.xai_tris.noise import images_rng
from xaibench.core.files import default_cache_dir
from xaibench.data.disk.cache_folders import read_cached, write_cached
from xaibench.data.disk.damaged_files import describe_damaged
from xaibench.data.disk.file_readers import IMAGE_FORMATS, BoundedFile
from xaibench.data.disk.image_files import is_image

_LOGGER = logging.getLogger("xaibench")

#: Weights of red, green and blue, in thousandths, so that sums are exact.
_GRAY_WEIGHTS = (299, 587, 114)
#: Part of the cache key; increased when the preprocessing changes.
_REVISION = 4
#: Files submitted to the workers at a time: enough to keep them busy, few enough to stop soon after the last one.
_BATCH_SIZE = 256


def image_backgrounds(
    images_dir: str | os.PathLike[str],
    n_samples: int,
    size: int,
    *,
    seed: int,
    cache_dir: str | os.PathLike[str] | None = None,
    workers: int = 1,
) -> tuple[NDArray[np.float32], str]:
    """Return backgrounds from a folder of images.

    The files are shuffled with the seed, and the first ``n_samples`` that are large enough are used, or all if there
    are fewer. The result is cached under a key of the file list (names, sizes, times), the seed, the number and the
    size. A cache that is not writable is a warning, not an error.

    Args:
        images_dir: Folder of images, searched recursively; hidden files are ignored.
        n_samples: Maximum number of images.
        size: Height and width of the result. Images with a shorter side are skipped.
        seed: Determines the choice and order of the images.
        cache_dir: None = ``$XAIBENCH_CACHE`` or ``~/.cache/xaibench``.
        workers: Number of threads.

    Returns:
        ``[n, size, size]`` with n <= n_samples, each image with mean 0, in [−255, 255]; and a sentence on how many
        images cannot be read and were left out, or an empty string. The log names them.

    Raises:
        DataFileError: If more than 5 % of the images cannot be read.
        ValueError: If the folder does not exist or has no usable image.
    """
    root = Path(images_dir)
    if not root.is_dir():
        raise ValueError(f"images_dir={os.fspath(images_dir)!r} is not a folder; give a folder of images.")
    files = _list_images(root)
    folder = Path(cache_dir) if cache_dir is not None else default_cache_dir()
    cached = folder / f"backgrounds-{_cache_key(root, files, n_samples, size, seed)}.npz"
    found = read_cached(cached, lambda arrays: _from_cache(arrays, n_samples, size))
    if found is None:
        found = _prepare_images(root, files, n_samples, size, seed, workers)
        write_cached(cached, "The backgrounds", {"pixels": found[0], "left_out": np.array(found[1])})
    return found


def assign_backgrounds(images: int, sizes: Sequence[int]) -> NDArray[np.int64]:
    """Return the number of the background image of each sample.

    If there are fewer images than samples, they are divided between the splits in proportion to the split sizes and
    repeated in turn within a split. No background of a test sample therefore occurs in training.

    Args:
        images: Number of images.
        sizes: Number of samples of each split.

    Returns:
        ``[sum(sizes)]`` numbers of images.

    Raises:
        ValueError: If there are fewer images than splits.

    Example:
        >>> assign_backgrounds(4, (5, 2, 1))
        array([0, 1, 0, 1, 0, 2, 2, 3])
    """
    if images >= sum(sizes):
        return np.arange(sum(sizes))
    filled = [number for number, size in enumerate(sizes) if size]
    if images < len(filled):
        raise ValueError(f"{images} usable images for {len(filled)} splits: expected at least one per split; add more.")
    shares = [min(size, 1) for size in sizes]
    for _ in range(images - len(filled)):  # the next image goes to the split with the most samples per image
        shares[max(filled, key=lambda number: sizes[number] / shares[number])] += 1
    starts = [sum(shares[:number]) for number in range(len(sizes))]
    turns = [starts[number] + np.arange(sizes[number]) % shares[number] for number in filled]
    return np.concatenate(turns)


def describe_repetition(images: int, samples: int) -> str:
    """Return a sentence on how often images are repeated; empty if they are not.

    Example:
        >>> describe_repetition(1000, 40000)[:72]
        '1,000 photographs are the backgrounds of 40,000 samples: each is used 40'
    """
    if images >= samples:
        return ""
    return (
        f"{images:,} photographs are the backgrounds of {samples:,} samples: each is used {samples / images:.3g} times "
        "on average, always within one split. The paper had 50,000 photographs and repeated none."
    )


def prepare_image(image: Image.Image, size: int) -> NDArray[np.float32]:
    """Convert an image to a gray square ``[size, size]`` with mean 0, resized bicubically with antialiasing.

    The released code uses bicubic interpolation, Pillow's default; bilinear would reduce the gradients by about 14 %.

    Example:
        >>> prepare_image(Image.new("RGB", (100, 80), "red"), 64).shape
        (64, 64)
    """
    image = image.convert("RGB")
    width, height = (max(size, round(side * size / min(image.size))) for side in image.size)
    image = image.resize((width, height), Image.Resampling.BICUBIC)
    left, top = (width - size) // 2, (height - size) // 2
    colors = np.asarray(image.crop((left, top, left + size, top + size)), dtype=np.int64)
    red, green, blue = (weight * colors[..., channel] for channel, weight in enumerate(_GRAY_WEIGHTS))
    gray = red + green + blue
    return np.asarray((gray * gray.size - gray.sum()) / (1000 * gray.size), dtype=np.float32)


@functools.cache
def hash_photographs(images_dir: str | os.PathLike[str]) -> str:
    """Return a hash of the names and sizes of the images in a folder, but not of its path; nothing is opened."""
    root = Path(images_dir)
    listed = [f"{file.relative_to(root).as_posix()} {file.stat().st_size}" for file in _list_images(root)]
    return hashlib.sha256("\n".join(listed).encode()).hexdigest()[:12]


def _list_images(root: Path) -> list[Path]:
    found: list[Path] = []
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if not name.startswith(".")]
        found += [Path(folder, name) for name in names if is_image(name)]
    return sorted(found)


def _cache_key(root: Path, files: Sequence[Path], n_samples: int, size: int, seed: int) -> str:
    digest = hashlib.sha256(f"{_REVISION} {n_samples} {size} {seed} {root.resolve()}".encode())
    for file in files:
        state = file.stat()
        digest.update(f"\n{file.relative_to(root).as_posix()} {state.st_size} {state.st_mtime_ns}".encode())
    return digest.hexdigest()[:32]


def _prepare_images(
    root: Path, files: Sequence[Path], n_samples: int, size: int, seed: int, workers: int
) -> tuple[NDArray[np.float32], str]:
    order = iter([files[index] for index in images_rng(seed).permutation(len(files))])
    pixels = np.empty((min(n_samples, len(files)), size, size), dtype=np.float32)
    count, small, tried, damaged = 0, 0, 0, dict[str, str]()
    with ThreadPoolExecutor(workers) as pool:
        while count < n_samples and (batch := list(itertools.islice(order, _BATCH_SIZE))):
            tried += len(batch)
            for file, prepared in zip(batch, pool.map(lambda file: _read_image(file, size), batch), strict=True):
                if isinstance(prepared, str):
                    damaged[file.relative_to(root).as_posix()] = f"{file}: {prepared}."
                elif prepared is None:
                    small += 1
                elif count < len(pixels):
                    pixels[count] = prepared
                    count += 1
    left_out, named = describe_damaged(damaged, tried)
    if named:
        _LOGGER.warning("%s: %s", root, named)
    if count == 0:
        raise ValueError(
            f"{root} has no usable image ({len(files)} image files, {small} of them smaller than {size} px); expected "
            "photographs of at least that size. Give another folder."
        )
    if small:
        _LOGGER.info("Skipped %d images smaller than %d px.", small, size)
    return pixels[:count], left_out


def _read_image(file: Path, size: int) -> NDArray[np.float32] | str | None:
    """Return the prepared image, None if it is too small, or an error message if it cannot be read."""
    try:
        with BoundedFile(file) as stream, Image.open(stream, formats=IMAGE_FORMATS) as image:
            return None if min(image.size) < size else prepare_image(image, size)
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        # Pillow's plugins raise all of these for damaged files, even SyntaxError. Its own messages end with the path.
        return str(error).split(" <")[0] or type(error).__name__


def _from_cache(arrays: Mapping[str, NDArray[Any]], n_samples: int, size: int) -> tuple[NDArray[np.float32], str]:
    pixels: NDArray[np.float32] = arrays["pixels"]
    fits = pixels.shape[1:] == (size, size) and 0 < len(pixels) <= n_samples
    if not fits or pixels.dtype != np.float32:
        raise ValueError(f"it has {pixels.dtype} {list(pixels.shape)}")
    return pixels, str(arrays["left_out"])
