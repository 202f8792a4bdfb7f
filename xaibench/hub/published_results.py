"""Load results of runs from the Hugging Face Hub."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from xaibench.data.disk.file_readers import MissingDataError, wrap_file_errors
from xaibench.data.exchange.hub_sets import HubAddress, download_snapshot
from xaibench.hub.run_upload import TEXTS
from xaibench.runfolder.tables import TABLES

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False)
class Results:
    """Results of an uploaded run.

    Attributes:
        folder: Folder in the cache of ``huggingface_hub``: a run folder without images and maps, which ``xaibench
            compare`` accepts.
        tables: ``"scores"``, ``"summary"`` and other tables, with the columns of the run folder's files.
    """

    folder: Path
    tables: Mapping[str, pd.DataFrame]

    @property
    def scores(self) -> pd.DataFrame:
        """One row per sample and metric."""
        return self.tables["scores"]

    def __repr__(self) -> str:
        rows = ", ".join(f"{name}: {len(table):,} rows" for name, table in self.tables.items())
        return f"Results({rows})"


def load_results(address: str) -> Results:
    """Load the results of a run that was uploaded by ``xaibench push``.

    Args:
        address: ``"hf://owner/name"``, or ``"hf://owner/name@revision"``.

    Returns:
        Scores, other tables of the run, and the folder they were read from.

    Raises:
        ValueError: If the address is malformed.
        MissingDataError: If the repository does not exist or is not accessible, holds no results, or the Hub cannot be
            reached and the results are not in the cache.
        DataFileError: If a table is damaged.
    """
    import pyarrow.parquet as pq

    place, names = HubAddress.parse(address), [table.stem for table in TABLES]
    folder = download_snapshot(place, [*(f"{name}.parquet" for name in names), *TEXTS])
    tables: dict[str, pd.DataFrame] = {}
    for name in names:
        file = folder / f"{name}.parquet"
        if file.exists():
            with wrap_file_errors(file):
                tables[name] = pq.read_table(file).to_pandas()
    if "scores" not in tables:
        raise MissingDataError(
            f"{place} holds no results of a run: expected scores.parquet. Data sets are loaded with xaibench.load."
        )
    return Results(folder, tables)
