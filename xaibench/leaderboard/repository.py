"""Open a results repository from a folder or from the Hugging Face Hub."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from xaibench.data.exchange.hub_sets import HubAddress, download_snapshot
from xaibench.leaderboard.manifest import ResultError


@contextlib.contextmanager
def open_repository(address: str | os.PathLike[str]) -> Iterator[Path]:
    """Open a results repository for reading.

    Args:
        address: A folder, or a data set of the Hub: ``"hf://owner/name"`` or ``"hf://owner/name@revision"``.

    Yields:
        The folder; for the Hub a temporary copy, which is deleted at the end.

    Raises:
        ValueError: If the Hub address is malformed.
        MissingDataError: If the repository does not exist or is not accessible, or the Hub cannot be reached and the
            repository is not in the cache.
    """
    if not str(address).startswith("hf:"):
        yield Path(address)
        return
    kept = download_snapshot(HubAddress.parse(str(address)), ["*"])
    with tempfile.TemporaryDirectory(prefix="xaibench-results-") as place:
        # The files are links into a cache, which are not allowed in a result.
        copy = Path(shutil.copytree(kept, Path(place) / "results"))
        try:
            yield copy
        except ResultError as error:  # name the address instead of the copy
            raise ResultError(str(error).replace(str(copy), str(address))) from error
