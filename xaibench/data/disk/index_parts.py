"""Building the index of a data set part by part, in several processes, so that it can be interrupted and resumed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from xaibench.compute.fork_server import worker_context
from xaibench.core.files import atomic_file
from xaibench.data.disk.array_cache import DAMAGED_FILE_ERRORS
from xaibench.data.disk.file_readers import DataFileError, MissingDataError

_LOGGER = logging.getLogger("xaibench")

#: The cached arrays of one part.
Arrays: TypeAlias = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class Part:
    """A part of a data set, such as a patient, that is indexed on its own.

    Attributes:
        name: Name for messages.
        kept: The cache file; its name contains a digest of the files that the part is built from.
        arguments: Arguments of the build function.
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
    """Build the parts whose cache file is missing. A part that cannot be built is left out with a warning.

    Files are written atomically. Two processes that build at the same time do the same work twice, which is harmless.

    Args:
        parts: All parts.
        build: ``build(*part.arguments)``, a module-level function that returns the arrays to cache.
        workers: Number of processes.
        progress: ``progress(done, total)``; parts that were cached already count as done.

    Returns:
        The parts that are cached, in order.

    Raises:
        DataFileError: If no part could be built; the message has the first error.
        OSError: If the cache is not writable or its disk is full.
        ValueError: If ``workers`` is below 1.
    """
    if workers < 1:
        raise ValueError(f"workers={workers!r}: expected 1 or more.")
    missing = [part for part in parts if not part.kept.exists()]
    report = progress or (lambda done, total: None)
    n_cached = len(parts) - len(missing)
    report(n_cached, len(parts))
    failed: dict[Path, str] = {}
    if workers == 1 or len(missing) < 2:
        for done, part in enumerate(missing, n_cached + 1):
            if (error := _build_part(part, build)) is not None:
                failed[part.kept] = error
            report(done, len(parts))
    else:
        with ProcessPoolExecutor(min(workers, len(missing)), mp_context=worker_context(build.__module__)) as pool:
            futures = {pool.submit(_build_part, part, build): part for part in missing}
            try:
                for done, future in enumerate(as_completed(futures), n_cached + 1):
                    if (error := future.result()) is not None:
                        failed[futures[future].kept] = error
                    report(done, len(parts))
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
    return _drop_failed(parts, failed)


def load_part(part: Part, build: Callable[..., Arrays], *names: str) -> dict[str, NDArray[Any]]:
    """Return the arrays of a part as :func:`load_arrays` does, and build a damaged part again.

    Raises:
        DataFileError: If the part cannot be built.
        OSError: If the cache is not writable.
    """
    try:
        return load_arrays(part.kept, *names)
    except DataFileError as error:
        _LOGGER.warning("%s", error)
        build_parts([part], build)
        return load_arrays(part.kept, *names)


def load_arrays(kept: Path, *names: str) -> dict[str, NDArray[Any]]:
    """Read the named arrays (all, if no name is given) from the cache file of a part.

    Raises:
        DataFileError: If the file is damaged or missing. It is removed, so that it is built again next time.
    """
    try:
        with np.load(kept, allow_pickle=False) as archive:
            return {name: archive[name] for name in names or archive.files}
    except DAMAGED_FILE_ERRORS as error:
        kept.unlink(missing_ok=True)
        raise DataFileError(f"The cache file {kept} is damaged ({error}); it is built again.") from error


def _build_part(part: Part, build: Callable[..., Arrays]) -> str | None:
    """Build and cache a part. Return an error message if that fails, otherwise None."""
    try:
        arrays = build(*part.arguments)
    except (DataFileError, MissingDataError) as error:
        return str(error)
    try:
        with atomic_file(part.kept) as stream:
            np.savez_compressed(stream, **cast("dict[str, Any]", arrays))
    except OSError as error:
        raise OSError(
            error.errno,
            f"{part.kept} cannot be written ({error}); free disk space, or set XAIBENCH_CACHE to another folder.",
        ) from error
    return None


def _drop_failed(parts: Sequence[Part], failed: Mapping[Path, str]) -> list[Part]:
    for part in parts:
        if part.kept in failed:
            _LOGGER.warning("%s is left out: %s", part.name, failed[part.kept])
    built = [part for part in parts if part.kept not in failed]
    if failed and not built:
        raise DataFileError(f"None of {len(parts)} could be read; the first error: {next(iter(failed.values()))}")
    if failed:
        _LOGGER.warning(
            "%d of %d could not be read and are left out; they are tried again next time.", len(failed), len(parts)
        )
    return built
