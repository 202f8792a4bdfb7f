"""Label maps of a whole data set, run-length encoded.

A label map of 500×375 pixels has about 2,000 runs, ten kilobytes. All 2,913 maps of PASCAL VOC therefore fit into
memory (about 35 MB), and the mask of a class takes microseconds, whereas decoding its PNG takes a third of a
millisecond.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xaibench.data.disk.cache_folders import read_cached, write_cached
from xaibench.data.disk.file_readers import DataFileError, MissingDataError
from xaibench.data.disk.image_files import read_indices
from xaibench.data.disk.image_lists import warn_about

_LOGGER = logging.getLogger("xaibench")
#: Runs of a map that cannot be used.
_NO_RUNS = (np.empty(0, dtype=np.uint32), np.empty(0, dtype=np.uint8))


@dataclass(frozen=True, eq=False)
class LabelMaps:
    """``N`` label maps, each as runs ``(length, label)`` in row-major order.

    Attributes:
        shapes: ``[N, 2]`` int64 height and width.
        starts: ``[N + 1]`` int64: map ``i`` has the runs from ``starts[i]`` to ``starts[i + 1]`` (exclusive).
        lengths: ``[runs]`` uint32.
        labels: ``[runs]`` uint8.
        shown: ``[N, 256]`` bool: whether map ``i`` has a pixel of a label.
        broken: ``[B]`` error messages of the maps that could not be read; such a map has size 0×0.

    Example:
        >>> maps = LabelMaps.of([np.array([[0, 0, 7], [7, 7, 0]], dtype=np.uint8)])
        >>> maps.lengths.tolist(), maps.labels.tolist()
        ([2, 3, 1], [0, 7, 0])
        >>> maps.where(0, 7).astype(int).tolist()
        [[0, 0, 1], [1, 1, 0]]
    """

    shapes: NDArray[np.int64]
    starts: NDArray[np.int64]
    lengths: NDArray[np.uint32]
    labels: NDArray[np.uint8]
    shown: NDArray[np.bool_]
    broken: NDArray[np.str_] = field(default_factory=lambda: np.empty(0, dtype=np.str_))

    @classmethod
    def of(cls, maps: Sequence[NDArray[np.uint8]]) -> LabelMaps:
        """Encode maps ``[h, w]``, none of them empty."""
        return cls._concatenate([_encode_runs(labels) for labels in maps], [labels.shape for labels in maps])

    @classmethod
    def _concatenate(
        cls,
        runs: Sequence[tuple[NDArray[np.uint32], NDArray[np.uint8]]],
        shapes: Sequence[tuple[int, ...]],
        broken: Sequence[str] = (),
    ) -> LabelMaps:
        counts = np.array([len(lengths) for lengths, _ in runs], dtype=np.int64)
        shown = np.zeros((len(runs), 256), dtype=np.bool_)
        for row, (_, labels) in zip(shown, runs, strict=True):
            row[labels] = True
        return cls(
            shapes=np.array(shapes, dtype=np.int64).reshape(-1, 2),
            starts=np.append(0, counts.cumsum()).astype(np.int64),
            lengths=np.concatenate([lengths for lengths, _ in runs] or [np.empty(0, np.uint32)]),
            labels=np.concatenate([labels for _, labels in runs] or [np.empty(0, np.uint8)]),
            shown=shown,
            broken=np.array(broken, dtype=np.str_),
        )

    def __len__(self) -> int:
        return len(self.shapes)

    def where(self, number: int, label: int) -> NDArray[np.bool_]:
        """Return the mask ``[h, w]`` of the pixels of map ``number`` with ``label``."""
        runs = slice(self.starts[number], self.starts[number + 1])
        return np.repeat(self.labels[runs] == label, self.lengths[runs]).reshape(self.shapes[number])


def read_label_maps(
    masks: Sequence[Path],
    images: Sequence[Path | None],
    known: Collection[int],
    *,
    cached: Path,
    workers: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> LabelMaps:
    """Read the label maps of palette or gray PNG files, or their cached copy.

    A damaged cache is built again. It is a warning, not an error, if the cache is not writable, or if a map is missing,
    cannot be read, has colors instead of labels, has an unknown label, or differs in size from its image.

    Args:
        masks: The label map files.
        images: The image of each map, which must have the same size; None = the image is missing.
        known: The allowed labels.
        cached: The cache file; its name must change when the masks do.
        workers: Number of threads.
        progress: Called with the number of maps read so far and their total.

    Raises:
        DataFileError: If no map can be used; the message has the first error.
    """
    maps = read_cached(cached, lambda arrays: _maps_from_cache(arrays, len(masks)))
    if maps is None:
        maps = _read_all(masks, images, known, cached, workers, progress)
        if len(maps.broken) == len(masks) > 0:
            raise DataFileError(f"None of {len(masks)} label maps can be used; the first error: {maps.broken[0]}")
        write_cached(cached, "The label maps", vars(maps))
    elif progress is not None:
        progress(len(masks), len(masks))
    warn_about("label maps that cannot be used, left out", maps.broken.tolist())
    return maps


def _read_all(
    masks: Sequence[Path],
    images: Sequence[Path | None],
    known: Collection[int],
    cached: Path,
    workers: int,
    progress: Callable[[int, int], None] | None,
) -> LabelMaps:
    _LOGGER.info("Reading %d label maps; they are cached in %s.", len(masks), cached.parent)
    allowed = np.isin(np.arange(256), list(known))
    runs, shapes, broken = [], [], []
    with ThreadPoolExecutor(workers) as pool:
        for one, shape, reason in pool.map(lambda mask, image: _read_map(mask, image, allowed), masks, images):
            runs.append(one)
            shapes.append(shape)
            broken += [reason] if reason else []
            if progress is not None:
                progress(len(runs), len(masks))
    return LabelMaps._concatenate(runs, shapes, broken)


def _read_map(
    mask: Path, image: Path | None, allowed: NDArray[np.bool_]
) -> tuple[tuple[NDArray[np.uint32], NDArray[np.uint8]], tuple[int, ...], str]:
    """Return the runs of a map, its shape, and an error message if it cannot be used."""
    try:
        labels = read_indices(mask, like=image)
    except (DataFileError, MissingDataError) as error:
        return _NO_RUNS, (0, 0), str(error)
    lengths, found = _encode_runs(labels)
    if allowed[found].all():
        return (lengths, found), labels.shape, ""
    strange = sorted(set(found[~allowed[found]].tolist()))
    return _NO_RUNS, (0, 0), f"{mask} has the label(s) {strange}, which the data set does not have; get the file again."


def _encode_runs(labels: NDArray[np.uint8]) -> tuple[NDArray[np.uint32], NDArray[np.uint8]]:
    flat = labels.ravel()
    ends = np.append(np.flatnonzero(flat[1:] != flat[:-1]) + 1, flat.size)
    return np.diff(ends, prepend=0).astype(np.uint32), flat[ends - 1]


def _maps_from_cache(arrays: Mapping[str, NDArray[Any]], count: int) -> LabelMaps:
    maps = LabelMaps(**{one.name: arrays[one.name] for one in fields(LabelMaps)})
    if len(maps) != count:
        raise ValueError(f"it has {len(maps)} maps")
    return maps
