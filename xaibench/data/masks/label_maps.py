"""Label maps of a whole set, held as runs of equal labels.

Drawings of objects are long runs of the same label: a map of 500×375 pixels is some 2,000 of them, ten kilobytes. So
all 2,913 maps of PASCAL VOC stand in memory (some 35 MB), and the mask of a class is made in microseconds, where
decoding its PNG takes a third of a millisecond.
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

from xaibench.data.disk.file_readers import DataFileError, MissingDataError
from xaibench.data.disk.image_files import read_indices
from xaibench.data.disk.image_lists import warn_of
from xaibench.data.disk.kept_arrays import keep, read_kept

_LOGGER = logging.getLogger("xaibench")
#: The runs of a map that cannot be used.
_NOTHING = (np.empty(0, dtype=np.uint32), np.empty(0, dtype=np.uint8))


@dataclass(frozen=True, eq=False)
class LabelMaps:
    """``N`` label maps, each in reading order as runs ``(length, label)``.

    Attributes:
        shapes: ``[N, 2]`` int64 height and width.
        starts: ``[N + 1]`` int64: map ``i`` is the runs from ``starts[i]`` up to ``starts[i + 1]``.
        lengths: ``[runs]`` uint32.
        labels: ``[runs]`` uint8.
        shown: ``[N, 256]`` bool: whether map ``i`` has a pixel of a label.
        broken: ``[B]`` why maps could not be read, each with its file; such a map is 0×0 and shows nothing.

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
        """From maps ``[h, w]``, none of them empty."""
        return cls._joined([_runs(labels) for labels in maps], [labels.shape for labels in maps])

    @classmethod
    def _joined(
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
        """``[h, w]``: where map ``number`` has ``label``."""
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
    """The label maps of palette or grey PNG files, from the cache where it has them.

    A cache that is damaged is made anew; one that cannot be written is a warning, not an error. So is a map that is
    missing, cannot be read, has colours where labels are expected, an unknown label, or another size than its image:
    they are counted and named.

    Args:
        masks: The files.
        images: The image of each, whose size it must have; None = it is not there.
        known: The labels that may be in them.
        cached: The file that keeps them; its name must change when the masks do.
        workers: Threads that decode.
        progress: Called with the number of maps that are done, and of all.

    Raises:
        DataFileError: If not one can be used; tells of the first.
    """
    maps = read_kept(cached, lambda arrays: _checked(arrays, len(masks)))
    if maps is None:
        maps = _read_all(masks, images, known, cached, workers, progress)
        if len(maps.broken) == len(masks) > 0:
            raise DataFileError(f"None of {len(masks)} label maps can be used; the first: {maps.broken[0]}")
        keep(cached, "The label maps", vars(maps))
    elif progress is not None:
        progress(len(masks), len(masks))
    warn_of("label maps that cannot be used, left out", maps.broken.tolist())
    return maps


def _read_all(
    masks: Sequence[Path],
    images: Sequence[Path | None],
    known: Collection[int],
    cached: Path,
    workers: int,
    progress: Callable[[int, int], None] | None,
) -> LabelMaps:
    _LOGGER.info("Reading %d label maps; they are kept in %s.", len(masks), cached.parent)
    allowed = np.isin(np.arange(256), list(known))
    runs, shapes, broken = [], [], []
    with ThreadPoolExecutor(workers) as pool:
        for one, shape, reason in pool.map(lambda mask, image: _read(mask, image, allowed), masks, images):
            runs.append(one)
            shapes.append(shape)
            broken += [reason] if reason else []
            if progress is not None:
                progress(len(runs), len(masks))
    return LabelMaps._joined(runs, shapes, broken)


def _read(
    mask: Path, image: Path | None, allowed: NDArray[np.bool_]
) -> tuple[tuple[NDArray[np.uint32], NDArray[np.uint8]], tuple[int, ...], str]:
    """The runs of a map, its shape, and why it cannot be used."""
    try:
        labels = read_indices(mask, like=image)
    except (DataFileError, MissingDataError) as error:
        return _NOTHING, (0, 0), str(error)
    lengths, found = _runs(labels)
    if allowed[found].all():
        return (lengths, found), labels.shape, ""
    strange = sorted(set(found[~allowed[found]].tolist()))
    return _NOTHING, (0, 0), f"{mask} has the label(s) {strange}, which the set does not know; get the file anew."


def _runs(labels: NDArray[np.uint8]) -> tuple[NDArray[np.uint32], NDArray[np.uint8]]:
    flat = labels.ravel()
    ends = np.append(np.flatnonzero(flat[1:] != flat[:-1]) + 1, flat.size)
    return np.diff(ends, prepend=0).astype(np.uint32), flat[ends - 1]


def _checked(arrays: Mapping[str, NDArray[Any]], count: int) -> LabelMaps:
    maps = LabelMaps(**{one.name: arrays[one.name] for one in fields(LabelMaps)})
    if len(maps) != count:
        raise ValueError(f"holds {len(maps)} maps")
    return maps
