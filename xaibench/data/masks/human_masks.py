"""Human annotations in the tables ``attention_label/*.csv`` of Saliency-Bench and of the data sets it includes.

A row is an image. ``img_idx`` is its file name, with or without suffix. ``attention`` is the mask as a JSON list of
lists of 0 and 1 (or 0 and 255) of any size, stretched to the image. If there is a column ``img_check``, only rows with
``good`` are used. A table with ``counterfactual`` in its name marks pixels that must not matter for the class, all
others mark pixels that should; the two kinds are never mixed. A row has 150 kB of text and a table hundreds of
megabytes. Each table is therefore read once and cached as packed bits, 6 kB per mask, from which single masks are read.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from xaibench.compute.fork_server import worker_context
from xaibench.data.disk.file_readers import DataFileError, MissingDataError, to_nfc
from xaibench.data.disk.image_lists import MaskRow, warn_about
from xaibench.data.masks.mask_tables import is_kept, read_bits, read_table

_LOGGER = logging.getLogger("xaibench")

#: Name of the folder of the tables.
TABLE_FOLDER = "attention_label"


class HumanMasks:
    """The masks of one kind in a folder of tables (implements :class:`~xaibench.data.disk.image_lists.Masks`).

    Args:
        folder: The folder of the tables.
        classes: All classes of the data set. If there is one table per class, named after it (``cat.csv``,
            ``wild_cat-factual.csv``), its rows belong to that class, as does a row that begins with ``cat/``.
        counterfactual: Use the masks of pixels that must not matter.

    Attributes:
        rows: Metadata of each mask.

    Raises:
        MissingDataError: If the folder has no table of this kind.
        DataFileError: If a table lacks a column or cannot be read. A malformed row is logged and left out.
    """

    def __init__(self, folder: Path, classes: Sequence[str], *, counterfactual: bool = False) -> None:
        tables = list_tables(folder, counterfactual=counterfactual)
        if not tables:
            wanted = "with 'counterfactual' in its name" if counterfactual else "(without 'counterfactual' in its name)"
            raise MissingDataError(f"{folder} has no *.csv {wanted}: this data set has no such masks.")
        labels = _find_table_classes(tables, classes)
        self.rows: list[MaskRow] = []
        self._places: list[tuple[Path, int, tuple[int, int]]] = []
        for table, label in zip(tables, labels, strict=True):
            packed = read_table(table)
            warn_about(f"{table}: malformed rows, left out", packed.broken)
            if packed.rejected:
                _LOGGER.info("%s: %d rows whose img_check is not 'good' are left out.", table, packed.rejected)
            for name, line in zip(packed.names, packed.lines, strict=True):
                self.rows.append(_make_row(name, f"{table.name}:{line}", label, classes))
            self._places += packed.places

    def read(self, row: int, image: Path, frame: int | None = None) -> NDArray[np.bool_]:
        """Read a mask ``[h, w]``, True = important. It covers the whole image, but may differ from it in size.

        Raises:
            DataFileError: If the file has several images, since a row names a file.
        """
        if frame is not None:
            raise DataFileError(
                f"{image} has several images, but {self.rows[row].where} has one mask for it; give a mask file instead "
                "of a table, with one mask per image."
            )
        return read_bits(*self._places[row])


def list_tables(folder: Path, *, counterfactual: bool | None = None) -> list[Path]:
    """Return the sorted tables of a folder, of one kind or (None) of both, without hidden files."""
    tables = sorted(file for file in folder.glob("*") if file.suffix.lower() == ".csv" and file.name[0] != ".")
    return [file for file in tables if counterfactual in (None, "counterfactual" in file.name.casefold())]


def prepare_masks(folder: Path, *, workers: int = 1, progress: Callable[[int, int], None] | None = None) -> None:
    """Read the tables of a folder that are not cached yet, with ``workers`` processes.

    Raises:
        DataFileError: If a table lacks a column or cannot be read.
        OSError: If the cache is not writable.
        ValueError: If ``workers`` is below 1.
    """
    if workers < 1:
        raise ValueError(f"workers={workers!r}: expected 1 or more.")
    tables = list_tables(folder)
    missing = [table for table in tables if not is_kept(table)]
    report = progress or (lambda done, total: None)
    done = len(tables) - len(missing)
    report(done, len(tables))
    if workers == 1 or len(missing) < 2:
        for number, table in enumerate(missing, done + 1):
            read_table(table)
            report(number, len(tables))
        return
    with ProcessPoolExecutor(min(workers, len(missing)), mp_context=worker_context(__name__)) as pool:
        futures = [pool.submit(read_table, table) for table in missing]
        try:
            for number, future in enumerate(as_completed(futures), done + 1):
                future.result()
                report(number, len(tables))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _make_row(name: str, where: str, label: str | None, classes: Sequence[str]) -> MaskRow:
    folder, _, file = name.rpartition("/")
    parent = folder.rpartition("/")[2]
    named = next((one for one in classes if to_nfc(one) == to_nfc(parent)), label)
    return MaskRow(file, named, where)


def _find_table_classes(tables: Sequence[Path], classes: Sequence[str]) -> list[str | None]:
    """Return the class of each table if every table is named after exactly one class, otherwise None for all.

    A single table covers the whole data set. So do ``train.csv``, ``val.csv`` and ``test.csv``, although ``train`` may
    be a class. Whole words are compared: ``cattle.csv`` is not a table of the class ``cat``.
    """
    labels = [_find_class(table.stem, classes) for table in tables]
    return [None] * len(tables) if len(tables) < 2 or None in labels else labels


def _find_class(name: str, classes: Sequence[str]) -> str | None:
    words = _split_words(name)
    named = []
    for label in classes:
        wanted = _split_words(label)
        starts = range(len(words) - len(wanted) + 1)
        if wanted and any(words[start : start + len(wanted)] == wanted for start in starts):
            named.append(label)
    longest = max((len(_split_words(label)) for label in named), default=0)
    named = [label for label in named if len(_split_words(label)) == longest]
    return named[0] if len(named) == 1 else None


def _split_words(name: str) -> list[str]:
    return re.findall(r"\w+", to_nfc(name).casefold().replace("_", " "))
