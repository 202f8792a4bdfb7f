"""Tables of a run folder: their names, columns and column types, functions to write and read them, and its location.

The report writes ``SUMMARY`` and ``COMPARISONS``; the runner writes all others.
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal, TypeAlias, cast

from xaibench.core.files import check_regular
from xaibench.runfolder.sanitize import quote_formula, sanitize_text, unquote_formula

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa


#: Type of a column. Missing values are empty strings, or ``nan`` for floats.
ColumnType: TypeAlias = Literal["str", "int", "float", "bool"]

_ARROW = {"str": "string", "int": "int64", "float": "float64", "bool": "bool"}
_LABELS = {"str": "text", "int": "integers", "float": "numbers", "bool": "True or False"}
_BOOLS = {"True": True, "1": True, "False": False, "0": False}


class RunFolderError(ValueError):
    """A file of a run folder is missing or damaged; the message contains the file and what to do."""


def damaged_file(file: Path, error: object) -> RunFolderError:
    """Return the error for a file that cannot be read."""
    return RunFolderError(f"{file} cannot be read ({error}). Run the suite again to write this file again.")


@dataclass(frozen=True)
class TableSchema:
    """A table of a run folder.

    Attributes:
        name: File name, with the suffix ``.csv`` or ``.parquet``.
        what: Short description.
        columns: Column types by name, in the order of the file.
        optional: Columns that a folder may lack. They are read as missing values: ``""`` for text, ``nan`` or ``NA``
            for numbers and booleans.
        formerly: Columns of Parquet files that had another name, which now means something else. The old column is
            read under the new name if the file lacks the new one.
        cut_short: Whether a crash may leave an incomplete line; lines that cannot be parsed are then skipped.
    """

    name: str
    what: str
    columns: Mapping[str, ColumnType]
    optional: frozenset[str] = frozenset()
    formerly: Mapping[str, str] = field(default_factory=dict)
    cut_short: bool = False

    @property
    def stem(self) -> str:
        """The file name without the suffix."""
        return self.name.partition(".")[0]

    @property
    def text(self) -> tuple[str, ...]:
        """The names of the text columns."""
        return tuple(name for name, kind in self.columns.items() if kind == "str")

    def arrow_schema(self) -> pa.Schema:
        """Return the columns as a pyarrow schema."""
        import pyarrow as pa

        return pa.schema([(name, pa.type_for_alias(_ARROW[kind])) for name, kind in self.columns.items()])

    def to_csv(self, rows: Iterable[Mapping[str, Any]] | pd.DataFrame) -> bytes:
        """Return the content of the file. Texts that a spreadsheet would run as formulas are quoted.

        Raises:
            ValueError: If a row has a key that is not a column; other columns of a frame are left out.
        """
        if hasattr(rows, "columns"):
            frame: Any = rows
            return frame_to_csv(frame[list(self.columns)])
        text = io.StringIO()
        writer = csv.DictWriter(text, list(self.columns), lineterminator="\n")
        writer.writeheader()
        writer.writerows({name: quote_formula(value) for name, value in row.items()} for row in rows)
        return text.getvalue().encode()

    def read(self, folder: Path, columns: Sequence[str] | None = None) -> pd.DataFrame:
        """Read the table from a run folder; without rows if the file does not exist.

        Args:
            folder: The run folder.
            columns: The columns to read; by default all, including additional ones of a CSV file.

        Returns:
            Text columns as strings, or as categories from Parquet files, since large suites have tens of millions of
            rows (an empty string is a missing value); other columns in numpy types, nullable if values are missing.

        Raises:
            RunFolderError: If the file is damaged, or a column is missing or has the wrong type.
        """
        file = folder / self.name
        if not file.exists():
            return self.empty(columns)
        check_regular(file)
        if file.suffix == ".parquet":
            return self._read_parquet(file, columns)
        with file.open("rb") as stream:
            return self.parse_csv(stream, file, columns)

    def empty(self, columns: Sequence[str] | None = None) -> pd.DataFrame:
        """Return the table without rows.

        Args:
            columns: As in :meth:`read`.
        """
        return self._convert(Path(self.name), self._no_rows(), columns)

    def _no_rows(self) -> pd.DataFrame:
        import pandas as pd

        return pd.DataFrame(columns=list(self.columns), dtype=str)

    def parse_csv(self, stream: IO[bytes] | IO[str], file: Path, columns: Sequence[str] | None = None) -> pd.DataFrame:
        """Parse the table from CSV, as :meth:`read` does.

        Args:
            stream: The table.
            file: The file of the table, for error messages.
            columns: As in :meth:`read`.
        """
        import pandas as pd
        from pandas.errors import EmptyDataError

        lines: Literal["skip", "error"] = "skip" if self.cut_short else "error"
        try:
            table = pd.read_csv(stream, dtype=str, keep_default_na=False, on_bad_lines=lines)
        except EmptyDataError:
            table = self._no_rows()
        except (ValueError, UnicodeError) as error:
            raise damaged_file(file, error) from error
        return self._convert(file, table.fillna("") if len(table) else self._no_rows(), columns)

    def _convert(self, file: Path, table: pd.DataFrame, columns: Sequence[str] | None) -> pd.DataFrame:
        """Convert the columns of a table of strings to their types."""
        import pandas as pd

        self._check_names(file, list(table))
        converted: dict[str, Any] = {}
        for name, kind in self.columns.items():
            texts = table[name] if name in table else pd.Series("", index=table.index, dtype=str)
            converted[name] = texts.map(unquote_formula).map(sanitize_text) if kind == "str" else _parse(texts, kind)
        typed = table.assign(**converted)[[*self.columns, *(name for name in table if name not in self.columns)]]
        invalid = {name: _find_invalid(table[name], typed[name]) for name in self.columns if name in table}
        for name, where in invalid.items():
            if where.any() and not self.cut_short:
                raise _type_error(file, name, repr(table[name][where].iloc[0]), self.columns[name])
        if self.cut_short:
            # Skip incomplete lines, which lack their last entries.
            required = [name for name, kind in self.columns.items() if kind != "str"]
            typed = typed[typed[required].notna().all(axis=1)].reset_index(drop=True)
            typed = typed.astype({name: "bool" for name in required if self.columns[name] == "bool"})
        return typed if columns is None else typed[list(columns)]

    def _read_parquet(self, file: Path, columns: Sequence[str] | None) -> pd.DataFrame:
        import pyarrow.parquet as pq

        requested = list(self.columns if columns is None else columns)
        try:
            with file.open("rb") as stream:
                schema = pq.read_schema(stream)
            stored = self.stored_columns(schema.names)
            self._check_names(file, list(stored), requested)
            present = [name for name in requested if name in stored]
            text = [name for name in present if self.columns[name] == "str"]
            for name in present:
                if not _has_type(schema.field(stored[name]).type, self.columns[name]):
                    raise _type_error(file, name, str(schema.field(stored[name]).type), self.columns[name])
            with file.open("rb") as stream:
                table = pq.read_table(stream, columns=[stored[name] for name in present], read_dictionary=text)
            frame: pd.DataFrame = table.rename_columns(present).to_pandas()
        except RunFolderError:
            raise
        except Exception as error:  # pyarrow raises OSError, ArrowInvalid and others for a damaged file
            raise damaged_file(file, error) from error
        for name in text:
            values = frame[name].astype("category")
            names = {one: sanitize_text(one) for one in values.cat.categories}
            changed = any(shown != one for one, shown in names.items())
            frame[name] = values.map(names).astype("category") if changed else values
        frame = frame.astype({name: _ARROW[self.columns[name]] for name in present if name not in text})
        for name in requested:
            if name not in present:
                frame[name] = missing_values(frame.index, self.columns[name])
        return frame[requested]

    def stored_columns(self, names: Sequence[str]) -> dict[str, str]:
        """Return the column of a file that holds each column of the table, from the names of the file's columns."""
        old = {name: was for name, was in self.formerly.items() if name not in names and was in names}
        return {name: name for name in names if name not in old.values()} | old

    def _check_names(self, file: Path, there: Sequence[object], wanted: Iterable[str] | None = None) -> None:
        wanted = self.columns if wanted is None else wanted
        if missing := [name for name in wanted if name not in there and name not in self.optional]:
            raise RunFolderError(
                f"{file} lacks the columns {', '.join(missing)}; it has {', '.join(map(str, there))}. "
                "Run the suite again to write this file again."
            )


def frame_to_csv(frame: pd.DataFrame) -> bytes:
    """Return a frame as CSV, in which texts that a spreadsheet would run as formulas are quoted."""
    import pandas as pd

    texts = [name for name in frame if not pd.api.types.is_numeric_dtype(frame[name].dtype)]
    quoted = frame.assign(**{str(name): frame[name].astype(object).map(quote_formula) for name in texts})
    return quoted.to_csv(index=False, lineterminator="\n").encode()


def missing_values(index: pd.Index, kind: ColumnType) -> pd.Series:
    """Return an optional column that a file lacks.

    Args:
        index: Index of the column.
        kind: Its type.
    """
    import pandas as pd

    if kind == "str":
        return pd.Series("", index=index, dtype=pd.CategoricalDtype([""]))
    if kind == "float":
        return pd.Series(float("nan"), index=index, dtype="float64")
    return pd.Series(pd.NA, index=index, dtype="Int64" if kind == "int" else "boolean")


def _type_error(file: Path, name: str, got: str, kind: ColumnType) -> RunFolderError:
    return RunFolderError(
        f"{file} has {got} in its column {name}; expected {_LABELS[kind]}. "
        "Run the suite again to write this file again."
    )


def _parse(texts: pd.Series, kind: ColumnType) -> pd.Series:
    """Convert strings to numbers or booleans; invalid ones become missing values."""
    import pandas as pd

    if kind == "bool":
        bools = texts.map(_BOOLS)
        return bools.astype(bool if bools.notna().all() else "boolean")
    numbers = pd.to_numeric(texts, errors="coerce")
    if kind == "float":
        return numbers.astype("float64")
    numbers = numbers.where(numbers == numbers.round())
    return numbers.astype("int64" if numbers.notna().all() else "Int64")


def _find_invalid(texts: pd.Series, parsed: pd.Series) -> pd.Series:
    missing = parsed.isna()
    # Comparing strings is slow, and most columns have no missing values.
    return missing & ~texts.str.strip().str.lower().isin(("", "nan")) if missing.any() else missing


def _has_type(stored: pa.DataType, kind: ColumnType) -> bool:
    import pyarrow.types as types

    if types.is_dictionary(stored):
        stored = stored.value_type
    if kind == "str":
        return bool(types.is_string(stored) or types.is_large_string(stored) or types.is_null(stored))
    if kind == "bool":
        return bool(types.is_boolean(stored))
    return bool(types.is_integer(stored) or (kind == "float" and types.is_floating(stored)))


#: Columns that identify a cell, and a group of scores within it.
CELL = ("subset", "variant", "model")
KEYS = (*CELL, "explainer", "metric")

SCORES = TableSchema(
    "scores.parquet",
    "one row per sample and metric",
    {
        **{"dataset": "str", "subset": "str", "variant": "str", "model": "str", "seed": "int"},
        **{"explainer": "str", "sample": "int", "correct": "bool", "metric": "str", "value": "float"},
        **{"higher_is_better": "bool", "reason": "str", "data_seed": "int", "truth": "str", "scored": "bool"},
    },
    # Folders of older versions lack the kind of truth (core/truth_kinds.py). Their column `correct` is what is now
    # `scored`: whether the sample counts. What the network answered is not known.
    optional=frozenset({"truth", "correct"}),
    formerly={"scored": "correct"},
)
SHARES = TableSchema(
    "shares.parquet",
    "shares of each map's mass: on the mask, off the mask but used by the network, off the mask and not used",
    {
        **{"dataset": "str", "subset": "str", "variant": "str", "model": "str", "seed": "int"},
        **{"data_seed": "int", "reference": "str", "explainer": "str", "sample": "int", "correct": "bool"},
        **dict.fromkeys(("on_truth", "relied_on", "not_relied_on"), "float"),
        "scored": "bool",
    },
    optional=frozenset({"correct"}),
    formerly={"scored": "correct"},
)
TRAININGS = TableSchema(
    "trainings.csv",
    "every training",
    {
        **{"subset": "str", "variant": "str", "model": "str", "data_seed": "int", "seed": "int"},
        **{"network_seed": "int", "best_epoch": "int", "val_loss": "float", "val_accuracy": "float"},
        **{"test_accuracy": "float", "published": "bool", "explained": "bool", "left_out": "bool"},
        **{"dataset": "str", "alpha": "float"},
    },
    optional=frozenset(
        {"data_seed", "network_seed", "best_epoch", "val_loss", "val_accuracy", "published", "explained", "left_out"}
        | {"dataset", "alpha"}
    ),
)
#: Scores of the classifier on the test samples in percent: means over the classes, and over the trainings.
CLASSIFICATION = ("precision", "recall", "f1")
ACCURACY = TableSchema(
    "accuracy.csv",
    "test accuracies in percent with the published ones, other scores of the classifier, and numbers of samples",
    {
        **{"subset": "str", "variant": "str", "model": "str", "alpha": "float", "trainings": "int"},
        **{"mean": "float", "std": "float", "best": "float", "learned": "int", "paper": "float"},
        **{"difference": "float", "test_samples": "int", "explained": "int", "scored": "int"},
        **{"low": "float", "high": "float"},
        **dict.fromkeys(CLASSIFICATION, "float"),
    },
    optional=frozenset(
        {"alpha", "trainings", "std", "best", "learned", "paper", "difference", "test_samples", "explained", "scored"}
        | {"low", "high", *CLASSIFICATION}
    ),
)
FAILURES = TableSchema("failures.csv", "failed jobs with their errors", {"job": "str", "stage": "str", "error": "str"})
SAMPLES = TableSchema(
    "samples.csv",
    "ids, groups and files of samples, for data sets on disk or with groups",
    {
        **{"dataset": "str", "data_seed": "int", "sample": "int"},
        **{"id": "str", "group": "int", "file": "str"},
    },
    optional=frozenset({"id", "group", "file"}),
)
IMAGES = TableSchema(
    "images.parquet",
    "a hash of each explained image, which identifies the same image in other runs",
    {"dataset": "str", "data_seed": "int", "sample": "int", "image": "int"},
)
CURVES = TableSchema(
    "curves.parquet",
    "mean curves of insertion and deletion, with quartiles over the samples",
    {
        **{"dataset": "str", "model": "str", "explainer": "str", "metric": "str", "fraction": "float"},
        **{"mean": "float", "low": "float", "high": "float", "n": "int"},
    },
)
#: One row per attempt: a job that was run again has several rows.
JOBS = TableSchema(
    "jobs.csv",
    "time and memory of every job",
    {
        **{"stage": "str", "key": "str", "dataset": "str", "data_seed": "int", "model": "str"},
        **{"explainer": "str", "metric": "str", "seconds": "float", "cpu_seconds": "float"},
        **{"peak_mb": "float", "worker": "str", "failed": "bool"},
    },
    cut_short=True,
)

#: Columns of the summary: descriptive statistics per group of scores, and statistical inference.
DESCRIBED: Mapping[str, ColumnType] = {
    **dict.fromkeys(KEYS, "str"),
    **{"n": "int", "n_valid": "int"},
    **dict.fromkeys(("mean", "std", "min", "q25", "median", "q75", "max"), "float"),
    **{"higher_is_better": "bool", "rank": "float", "control": "bool", "above_controls": "bool"},
}
INFERRED: Mapping[str, ColumnType] = {
    **{"low": "float", "high": "float", "sample_rank": "float", "n_ranked": "int", "p_controls": "float"},
    **{"beats_controls": "bool", "better_than": "int", "worse_than": "int", "compared_with": "int"},
}
SUMMARY = TableSchema(
    "summary.csv",
    "means, medians, quartiles and ranks per data set, network, explainer and metric",
    {**DESCRIBED, **INFERRED},
)
COMPARISONS = TableSchema(
    "comparisons.csv",
    "every pair of methods, in each cell and over all cells that both have (subset, variant and model are all): "
    "difference with its 95 % interval, p, p after Holm's correction, degrees of freedom",
    {
        **dict.fromkeys((*CELL, "metric", "first", "second"), "str"),
        **dict.fromkeys(("difference", "low", "high", "p", "p_holm", "df"), "float"),
        **{"n_valid": "int", "n_groups": "int"},
    },
    optional=frozenset({"low", "high", "df", "n_valid", "n_groups"}),  # the last two are missing over all cells
)

#: All tables, the most important first.
TABLES = (SUMMARY, SCORES, SHARES, COMPARISONS, ACCURACY, TRAININGS, CURVES, SAMPLES, IMAGES, JOBS, FAILURES)


def resolve_location(folder: str | os.PathLike[str]) -> Path:
    """Return a path object for a run folder.

    Args:
        folder: A path, or a URL such as ``"s3://bucket/run"``. Of remote files, only the required parts are read, such
            as some columns of a table.

    Returns:
        A :class:`~pathlib.Path`, or for a URL an object with the same interface.

    Raises:
        ImportError: If it is a URL and ``universal-pathlib`` is not installed.
        ValueError: If fsspec does not support the URL.
    """
    if isinstance(folder, Path) or "://" not in str(folder):
        return cast("Path", folder) if not isinstance(folder, str) else Path(folder)
    try:
        from upath import UPath
    except ImportError as error:
        raise ImportError(
            f'{folder} is a URL; reading it needs universal-pathlib: pip install "xaibench[remote]", and the fsspec '
            "package for its protocol, such as s3fs."
        ) from error
    return cast("Path", UPath(str(folder)))
