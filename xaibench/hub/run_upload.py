"""Prepare the upload of a run: tables as Parquet, and the card."""

from __future__ import annotations

import itertools
import os
import tomllib
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from xaibench.core.files import atomic_file
from xaibench.data import DATASETS
from xaibench.hub.card_text import strip_folders
from xaibench.hub.license import check_license_name
from xaibench.hub.run_scorecard import render_run_card
from xaibench.report.read.results import read_run
from xaibench.runfolder.descriptions import ENVIRONMENT, PARTS, SUITE
from xaibench.runfolder.tables import TABLES, RunFolderError, TableSchema

#: Text files that a report of the run requires.
TEXTS = (PARTS, ENVIRONMENT, SUITE)

#: Columns with names of machines or of the user's files.
_PRIVATE_COLUMNS = ("worker", "file")


def prepare_run(
    run: str | os.PathLike[str],
    folder: str | os.PathLike[str],
    *,
    license: str | None = None,
    repo: str = "OWNER/NAME",
) -> Path:
    """Write the files of an upload: tables as Parquet, suite, versions, and the card ``README.md``.

    Images, masks and maps are not included. Machine names and local folders are removed, as are sample names of data
    sets that are not registered (``folder:DIR``).

    Args:
        run: Folder written by ``xaibench run``.
        folder: Target folder, which should contain nothing else.
        license: License of the results, as an identifier of the Hub; None = not stated.
        repo: Repository of the upload, for the card.

    Returns:
        The folder.

    Raises:
        RunFolderError: If ``run`` is not a run folder, or one of its files is damaged.
        LicenseError: If the license name is malformed.
        OSError: If the folder cannot be written.
    """
    check_license_name(license)
    source, target = Path(run), Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    read = read_run(source)
    open_sets = _registered_sets(read.suite_toml)
    rows: dict[str, int] = {}
    for table in TABLES:
        parts = (_remove_private(part, open_sets) for part in _read_parts(source, table))
        if count := _write_parquet(target / f"{table.stem}.parquet", parts):
            rows[table.stem] = count
    for name in TEXTS:
        if (source / name).exists():
            text = strip_folders((source / name).read_text(encoding="utf-8"))
            with atomic_file(target / name) as stream:
                stream.write(text.encode())
    with atomic_file(target / "README.md") as stream:
        stream.write(render_run_card(read, rows, license, repo).encode())
    return target


def _write_parquet(file: Path, parts: Iterator[pa.Table]) -> int:
    """Write a table in parts and return its number of rows. An empty table, which the Hub cannot show, has no file."""
    first = next(parts, None)
    if first is None:
        return 0
    rows = 0
    with (
        atomic_file(file) as stream,
        pq.ParquetWriter(
            stream, first.schema, compression="zstd", write_page_index=True, write_page_checksum=True
        ) as writer,
    ):
        for part in itertools.chain([first], parts):
            writer.write_table(part)
            rows += len(part)
    return rows


def _read_parts(folder: Path, table: TableSchema) -> Iterator[pa.Table]:
    """Yield a table of a run folder by row groups; nothing if it is missing or empty."""
    parquet, text = folder / f"{table.stem}.parquet", folder / f"{table.stem}.csv"
    file = parquet if parquet.exists() else text
    try:
        if file == parquet:
            with pq.ParquetFile(parquet) as opened:
                groups = (opened.read_row_group(number) for number in range(opened.num_row_groups))
                yield from (group.replace_schema_metadata() for group in groups if len(group))
        elif text.exists() and text.stat().st_size:
            options = pyarrow.csv.ConvertOptions(column_types=dict.fromkeys(table.text, pa.string()))
            parsing = pyarrow.csv.ParseOptions(newlines_in_values=True)
            rows = pyarrow.csv.read_csv(text, parse_options=parsing, convert_options=options)
            if len(rows):
                yield rows
    except (OSError, pa.ArrowException) as error:
        raise RunFolderError(f"{file} cannot be read ({error}). Run the suite again to write it.") from error


def _registered_sets(suite: str) -> set[str]:
    """Return the table names of a suite's registered data sets, the only ones whose sample names are published."""
    try:
        cells: list[Mapping[str, Any]] = tomllib.loads(suite).get("cells", [])
        named = [(str(cell.get("label") or name), str(name)) for cell in cells for name in cell.get("datasets", [])]
    except (tomllib.TOMLDecodeError, AttributeError, TypeError):
        return set()
    closed = {shown for shown, name in named if DATASETS.canonical(name) not in DATASETS}
    return {shown for shown, _ in named} - closed


def _remove_private(table: pa.Table, open_sets: Collection[str]) -> pa.Table:
    """Remove private columns, names and folders from a table."""
    if "id" in table.column_names:
        told = pc.is_in(table["dataset"], pa.array(sorted(open_sets), pa.string()))
        shown = pc.if_else(told, table["id"], pa.scalar(None, pa.string()))
        table = table.set_column(table.column_names.index("id"), "id", shown)
    table = table.drop_columns([name for name in _PRIVATE_COLUMNS if name in table.column_names])
    for place, name in enumerate(table.column_names):
        column = table[name]
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            table = table.set_column(place, name, _strip_folders_in_column(column))
    return table


def _strip_folders_in_column(column: pa.ChunkedArray) -> pa.ChunkedArray:
    texts = column.unique().to_pylist()
    changed = {text: strip_folders(text) for text in texts if text is not None}
    if all(before == after for before, after in changed.items()):
        return column
    return pa.chunked_array([pa.array([changed.get(text) for text in column.to_pylist()], column.type)])
