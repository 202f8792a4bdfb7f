"""Building an index part by part, with several processes, so that it can be stopped and goes on where it was."""

from __future__ import annotations

import logging
import multiprocessing
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from xaibench.core.atomic_files import whole_file
from xaibench.data.disk.file_readers import DataFileError, MissingDataError
from xaibench.data.disk.kept_arrays import DAMAGE

_LOGGER = logging.getLogger("xaibench")

#: What is kept of one part.
Arrays: TypeAlias = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class Part:
    """One part of a set, such as a patient, that is built by itself.

    Attributes:
        name: As users know it.
        kept: The file that it becomes, named so that it changes when what it is built from does.
        arguments: What the builder is called with.
    """

    name: str
    kept: Path
    arguments: tuple[Any, ...]


def build_parts(
    parts: Sequence[Part],
    build: Callable[..., Arrays],
    *,
    workers: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> list[Part]:
    """Build the parts whose files are not there yet. A part that cannot be built is named in a warning.

    Each file appears whole or not at all; a part is built anew by whoever finds its file missing, so two processes that
    build at once do the same work twice and no harm. A script that asks for more than one worker needs the usual
    ``if __name__ == "__main__":``.

    Args:
        parts: All of them.
        build: ``build(*part.arguments)``, a function of a module, returns what is kept of a part.
        workers: Processes.
        progress: ``progress(done, total)``, those counted in that were there already.

    Returns:
        The parts that are there, in order.

    Raises:
        DataFileError: If not one of them could be built; tells of the first.
        OSError: If the cache cannot be written, or its disk is full.
        ValueError: For less than one worker.
    """
    if workers < 1:
        raise ValueError(f"workers={workers!r}: expected 1 or more.")
    missing = [part for part in parts if not part.kept.exists()]
    report = progress or (lambda done, total: None)
    there = len(parts) - len(missing)
    report(there, len(parts))
    failed: dict[Path, str] = {}
    if workers == 1 or len(missing) < 2:
        for done, part in enumerate(missing, there + 1):
            if (error := _build_part(part, build)) is not None:
                failed[part.kept] = error
            report(done, len(parts))
    else:
        with ProcessPoolExecutor(min(workers, len(missing)), mp_context=_context(build)) as pool:
            futures = {pool.submit(_build_part, part, build): part for part in missing}
            try:
                for done, future in enumerate(as_completed(futures), there + 1):
                    if (error := future.result()) is not None:
                        failed[futures[future].kept] = error
                    report(done, len(parts))
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
    return _without(parts, failed)


def load_part(part: Part, build: Callable[..., Arrays], *names: str) -> dict[str, NDArray[Any]]:
    """As :func:`load_arrays`, but a damaged file is built anew.

    Raises:
        DataFileError: If that is not possible.
        OSError: If the cache cannot be written.
    """
    try:
        return load_arrays(part.kept, *names)
    except DataFileError as error:
        _LOGGER.warning("%s", error)
        build_parts([part], build)
        return load_arrays(part.kept, *names)


def load_arrays(kept: Path, *names: str) -> dict[str, NDArray[Any]]:
    """The arrays of these names (all, without a name) in the file of a part; no others are read.

    Raises:
        DataFileError: If the file is damaged or gone. It is removed, so that the next opening builds it anew.
    """
    try:
        with np.load(kept, allow_pickle=False) as archive:
            return {name: archive[name] for name in names or archive.files}
    except DAMAGE as error:
        kept.unlink(missing_ok=True)
        raise DataFileError(f"{kept}, a file of the cache, is damaged ({error}); it is made anew.") from error


def _context(build: Callable[..., Arrays]) -> multiprocessing.context.BaseContext:
    """How workers start: never as a fork of this process, which may have threads (torch's) and would hang."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([build.__module__])  # imported once, not by every worker
    return context


def _build_part(part: Part, build: Callable[..., Arrays]) -> str | None:
    """Why the part could not be built; None if it is there."""
    try:
        arrays = build(*part.arguments)
    except (DataFileError, MissingDataError) as error:
        return str(error)
    try:
        with whole_file(part.kept) as stream:
            np.savez_compressed(stream, **cast("dict[str, Any]", arrays))
    except OSError as error:
        raise OSError(
            error.errno, f"{part.kept} cannot be kept ({error}); make room, or set XAIBENCH_CACHE to another folder."
        ) from error
    return None


def _without(parts: Sequence[Part], failed: Mapping[Path, str]) -> list[Part]:
    for part in parts:
        if part.kept in failed:
            _LOGGER.warning("%s is left out: %s", part.name, failed[part.kept])
    there = [part for part in parts if part.kept not in failed]
    if failed and not there:
        raise DataFileError(f"None of {len(parts)} could be read; the first: {next(iter(failed.values()))}")
    if failed:
        _LOGGER.warning("%d of %d could not be read and are left out; they are tried again.", len(failed), len(parts))
    return there
