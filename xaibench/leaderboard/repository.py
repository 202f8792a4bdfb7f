"""Where a results repository lies: in a folder, or on the Hub."""

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
    """A results repository as a folder to read from.

    Args:
        address: A folder, or ``"hf://owner/name"`` or ``"hf://owner/name@revision"``: a data set of the Hub.

    Yields:
        The folder; of one on the Hub a copy, which is gone afterwards.

    Raises:
        ValueError: For another address of the Hub.
        MissingDataError: If there is no such repository (or none that you may read), or the Hub cannot be reached and
            it was not loaded before.
    """
    if not str(address).startswith("hf:"):
        yield Path(address)
        return
    kept = download_snapshot(HubAddress.parse(str(address)), ["*"])
    with tempfile.TemporaryDirectory(prefix="xaibench-results-") as place:
        # Its files are links into a cache, and a result has none.
        copy = Path(shutil.copytree(kept, Path(place) / "results"))
        try:
            yield copy
        except ResultError as error:  # who gave an address knows no copy
            raise ResultError(str(error).replace(str(copy), str(address))) from error
