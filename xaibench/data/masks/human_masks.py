"""Masks that people drew, as the tables ``attention_label/*.csv`` of Saliency-Bench and of the sets it took over.

A row is an image: ``img_idx`` its file name, with or without suffix, ``attention`` the mask as a JSON list of lists of
0 and 1 (or 0 and 255) of any size, which stretches over the whole image, and perhaps ``img_check``, of which only
``good`` counts. A table with ``counterfactual`` in its name marks what must not matter for the class, every other what
should; the two are never mixed. A row is 150 kB of text, a table hundreds of megabytes, so each is read once and kept
in the cache as bits, 6 kB a mask, from where single masks are read.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from xaibench.data.disk.file_readers import MissingDataError, composed
from xaibench.data.disk.image_lists import MaskRow, warn_of
from xaibench.data.masks.mask_tables import is_kept, read_bits, read_table

_LOGGER = logging.getLogger("xaibench")

#: The folder of the tables.
FOLDER = "attention_label"


class HumanMasks:
    """The masks of one kind in a folder of tables, read one by one (a :class:`~xaibench.data.disk.image_lists.Masks`).

    Args:
        folder: The folder of the tables.
        classes: All classes of the set. Where there is a table for each class, named after it (``cat.csv``,
            ``wild_cat-factual.csv``), its rows are of that class alone; so is a row that begins with ``cat/``.
        counterfactual: Take the masks of what must not matter instead of those of what should.

    Attributes:
        rows: What each mask is of.

    Raises:
        MissingDataError: If there is no table of this kind.
        DataFileError: If a table lacks a column or cannot be read. A single row that is broken is logged and left out.
    """

    def __init__(self, folder: Path, classes: Sequence[str], *, counterfactual: bool = False) -> None:
        tables = list_tables(folder, counterfactual=counterfactual)
        if not tables:
            wanted = "with 'counterfactual' in its name" if counterfactual else "(without 'counterfactual' in its name)"
            raise MissingDataError(f"{folder} holds no *.csv {wanted}: there are no such masks of this set.")
        labels = _classes_of_tables(tables, classes)
        self.rows: list[MaskRow] = []
        self._places: list[tuple[Path, int, tuple[int, int]]] = []
        for table, label in zip(tables, labels, strict=True):
            packed = read_table(table)
            warn_of(f"{table}: broken rows, left out", packed.broken)
            if packed.rejected:
                _LOGGER.info("%s: %d rows whose img_check is not 'good' are left out.", table, packed.rejected)
            for name, line in zip(packed.names, packed.lines, strict=True):
                self.rows.append(_row(name, f"{table.name}:{line}", label, classes))
            self._places += packed.places

    def read(self, row: int, image: Path) -> NDArray[np.bool_]:
        """``[h, w]``, True = important; it stretches over the whole image, whatever the image's size."""
        return read_bits(*self._places[row])


def list_tables(folder: Path, *, counterfactual: bool | None = None) -> list[Path]:
    """The tables of a folder, sorted, of one kind or (None) of both; hidden files are passed over."""
    tables = sorted(file for file in folder.glob("*") if file.suffix.lower() == ".csv" and file.name[0] != ".")
    return [file for file in tables if counterfactual in (None, "counterfactual" in file.name.casefold())]


def prepare_masks(folder: Path, *, workers: int = 1, progress: Callable[[int, int], None] | None = None) -> None:
    """Read the tables of a folder that are not in the cache yet, several at a time with ``workers`` processes.

    Raises:
        DataFileError: If a table lacks a column or cannot be read.
        OSError: If the cache cannot be written.
        ValueError: For less than one worker.
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
    # Fresh processes, not forked ones: a fork of a process with threads, as torch has, may hang.
    with ProcessPoolExecutor(min(workers, len(missing)), mp_context=get_context("spawn")) as pool:
        futures = [pool.submit(read_table, table) for table in missing]
        try:
            for number, future in enumerate(as_completed(futures), done + 1):
                future.result()
                report(number, len(tables))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _row(name: str, where: str, label: str | None, classes: Sequence[str]) -> MaskRow:
    folder, _, file = name.rpartition("/")
    parent = folder.rpartition("/")[2]
    named = next((one for one in classes if composed(one) == composed(parent)), label)
    return MaskRow(file, named, where)


def _classes_of_tables(tables: Sequence[Path], classes: Sequence[str]) -> list[str | None]:
    """The class of each table, where every one is named after a class and none after two; else None for all.

    A single table is the whole set's, and so are ``train.csv``, ``val.csv``, ``test.csv``, though ``train`` may be a
    class. Whole words count: ``cattle.csv`` is not of the class ``cat``.
    """
    labels = [_class_of(table.stem, classes) for table in tables]
    return [None] * len(tables) if len(tables) < 2 or None in labels else labels


def _class_of(name: str, classes: Sequence[str]) -> str | None:
    words = _words(name)
    named = []
    for label in classes:
        wanted = _words(label)
        starts = range(len(words) - len(wanted) + 1)
        if wanted and any(words[start : start + len(wanted)] == wanted for start in starts):
            named.append(label)
    longest = max((len(_words(label)) for label in named), default=0)
    named = [label for label in named if len(_words(label)) == longest]
    return named[0] if len(named) == 1 else None


def _words(name: str) -> list[str]:
    return re.findall(r"\w+", composed(name).casefold().replace("_", " "))
