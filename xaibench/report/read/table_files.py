"""The files of a run folder, and plain words for what is wrong with one."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas as pd
from pandas.errors import EmptyDataError


class RunFolderError(ValueError):
    """A folder that cannot be reported on; the message says which file is missing or damaged, and what to do."""


def damaged(file: Path, error: object) -> RunFolderError:
    """The error for a file that cannot be read."""
    return RunFolderError(f"{file} cannot be read ({error}). Run the suite again: it writes this file anew.")


def with_columns(file: Path, table: pd.DataFrame, columns: Iterable[str]) -> pd.DataFrame:
    """The table, if it has these columns or no row.

    Raises:
        RunFolderError: If it lacks one.
    """
    if missing := [name for name in columns if len(table) and name not in table]:
        raise RunFolderError(f"{file} lacks the columns {', '.join(missing)}; it has {', '.join(map(str, table))}.")
    return table


def read_csv(file: Path, text: Iterable[str] = (), *, cut_short: bool = False) -> pd.DataFrame:
    """A table; empty where there is no file.

    Args:
        file: Where.
        text: Columns to keep as text.
        cut_short: Leave out lines with too many entries, as a crash while writing leaves them.

    Raises:
        RunFolderError: If it cannot be read.
    """
    if not file.exists():
        return pd.DataFrame()
    try:
        return pd.read_csv(file, dtype=dict.fromkeys(text, str), on_bad_lines="skip" if cut_short else "error")
    except EmptyDataError:
        return pd.DataFrame()
    except (ValueError, UnicodeError) as error:
        raise damaged(file, error) from error


def read_json(file: Path) -> dict[str, Any]:
    """An object; empty where there is no file.

    Raises:
        RunFolderError: If it cannot be read.
    """
    if not file.exists():
        return {}
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise damaged(file, error) from error
    if not isinstance(content, dict):
        raise damaged(file, f"expected a JSON object, got {type(content).__name__}")
    return content
