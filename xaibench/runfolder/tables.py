"""The tables of a run folder: their names, columns and what a column holds; writing and reading them.

The runner writes all but the last two, which the report adds.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from xaibench.runfolder.legible_text import legible

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

#: What a column holds: text, whole numbers, numbers (``nan`` or empty: not known), or true and false.
Kind: TypeAlias = Literal["text", "whole", "number", "truth"]

_ARROW = {"text": "string", "whole": "int64", "number": "float64", "truth": "bool"}
_WORDS = {"text": "text", "whole": "whole numbers", "number": "numbers", "truth": "True or False"}
_TRUTHS = {"True": True, "1": True, "False": False, "0": False}


class RunFolderError(ValueError):
    """A folder that cannot be reported on; the message says which file is missing or damaged, and what to do."""


def damaged(file: Path, error: object) -> RunFolderError:
    """The error for a file that cannot be read."""
    return RunFolderError(f"{file} cannot be read ({error}). Run the suite again: it writes this file anew.")


@dataclass(frozen=True)
class Table:
    """A table of a run folder.

    Attributes:
        name: Of the file, with its suffix: ``.csv`` or ``.parquet``.
        what: What it holds, in a few words.
        columns: Name to what it holds, in the order of the file.
        optional: Columns that a folder may lack; they are read as not known.
        cut_short: Whether a crash may leave half a line: what does not parse is then left out, and no error.
    """

    name: str
    what: str
    columns: Mapping[str, Kind]
    optional: frozenset[str] = frozenset()
    cut_short: bool = False

    @property
    def stem(self) -> str:
        """Its name without the suffix."""
        return self.name.partition(".")[0]

    @property
    def text(self) -> tuple[str, ...]:
        """The columns that hold text."""
        return tuple(name for name, kind in self.columns.items() if kind == "text")

    def arrow_schema(self) -> pa.Schema:
        """The columns as pyarrow has them."""
        import pyarrow as pa

        return pa.schema([(name, pa.type_for_alias(_ARROW[kind])) for name, kind in self.columns.items()])

    def to_csv(self, rows: Iterable[Mapping[str, Any]]) -> bytes:
        """The content of the file.

        Raises:
            ValueError: If a row has a key that is no column.
        """
        text = io.StringIO()
        writer = csv.DictWriter(text, list(self.columns), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        return text.getvalue().encode()

    def read(self, folder: Path, columns: Sequence[str] | None = None) -> pd.DataFrame:
        """The table of a run folder; no rows where there is no file.

        Args:
            folder: The run folder.
            columns: Only these; default all, and whatever else stands in a file of text.

        Returns:
            Text as it stands (empty: not known), of a Parquet file as categories, since large suites have tens of
            millions of rows; whole numbers, numbers and truths as numpy has them, nullable where some are not known.

        Raises:
            RunFolderError: If the file is damaged, or a column is missing or holds something else.
        """
        file = folder / self.name
        if not file.exists():
            return self._typed(file, self._nothing(), columns)
        return self._read_parquet(file, columns) if file.suffix == ".parquet" else self._read_csv(file, columns)

    def _nothing(self) -> pd.DataFrame:
        import pandas as pd

        return pd.DataFrame(columns=list(self.columns), dtype=str)

    def _read_csv(self, file: Path, columns: Sequence[str] | None) -> pd.DataFrame:
        import pandas as pd
        from pandas.errors import EmptyDataError

        lines: Literal["skip", "error"] = "skip" if self.cut_short else "error"
        try:
            with file.open("rb") as stream:
                table = pd.read_csv(stream, dtype=str, keep_default_na=False, on_bad_lines=lines)
        except EmptyDataError:
            table = self._nothing()
        except (ValueError, UnicodeError) as error:
            raise damaged(file, error) from error
        return self._typed(file, table.fillna("") if len(table) else self._nothing(), columns)

    def _typed(self, file: Path, table: pd.DataFrame, columns: Sequence[str] | None) -> pd.DataFrame:
        """A table of texts with every column as what it holds."""
        import pandas as pd

        self._check_names(file, list(table))
        found: dict[str, Any] = {}
        for name, kind in self.columns.items():
            texts = table[name] if name in table else pd.Series("", index=table.index, dtype=str)
            found[name] = texts.map(legible) if kind == "text" else _parsed(texts, kind)
        typed = table.assign(**found)[[*self.columns, *(name for name in table if name not in self.columns)]]
        wrong = {name: _unparsed(table[name], typed[name]) for name in self.columns if name in table}
        for name, where in wrong.items():
            if where.any() and not self.cut_short:
                raise _unlike(file, name, repr(table[name][where].iloc[0]), self.columns[name])
        if self.cut_short:
            # A line that ends early lacks its last entries, whatever they are.
            whole = [name for name, kind in self.columns.items() if kind != "text"]
            typed = typed[typed[whole].notna().all(axis=1)].reset_index(drop=True)
            typed = typed.astype({name: "bool" for name in whole if self.columns[name] == "truth"})
        return typed if columns is None else typed[list(columns)]

    def _read_parquet(self, file: Path, columns: Sequence[str] | None) -> pd.DataFrame:
        import pandas as pd
        import pyarrow.parquet as pq

        asked = list(self.columns if columns is None else columns)
        try:
            with file.open("rb") as stream:
                schema = pq.read_schema(stream)
            self._check_names(file, schema.names, asked)
            wanted = [name for name in asked if name in schema.names]
            text = [name for name in wanted if self.columns[name] == "text"]
            for name in wanted:
                if not _fits(schema.field(name).type, self.columns[name]):
                    raise _unlike(file, name, str(schema.field(name).type), self.columns[name])
            with file.open("rb") as stream:
                table = pq.read_table(stream, columns=wanted, read_dictionary=text)
        except RunFolderError:
            raise
        except Exception as error:  # pyarrow raises OSError, ArrowInvalid and others for a damaged file
            raise damaged(file, error) from error
        frame: pd.DataFrame = table.to_pandas()
        for name in text:
            found = frame[name].astype("category")
            names = {one: legible(one) for one in found.cat.categories}
            changed = any(shown != one for one, shown in names.items())
            frame[name] = found.map(names).astype("category") if changed else found
        frame = frame.astype({name: _ARROW[self.columns[name]] for name in wanted if name not in text})
        for name in asked:
            if name not in wanted:  # text: a number of a Parquet file is never optional
                frame[name] = pd.Series("", index=frame.index, dtype=pd.CategoricalDtype([""]))
        return frame[asked]

    def _check_names(self, file: Path, there: Sequence[object], wanted: Iterable[str] | None = None) -> None:
        wanted = self.columns if wanted is None else wanted
        if missing := [name for name in wanted if name not in there and name not in self.optional]:
            raise RunFolderError(
                f"{file} lacks the columns {', '.join(missing)}; it has {', '.join(map(str, there))}. "
                "Run the suite again: it writes this file anew."
            )


def _unlike(file: Path, name: str, got: str, kind: Kind) -> RunFolderError:
    return RunFolderError(
        f"{file} has {got} in its column {name}; expected {_WORDS[kind]}. "
        "Run the suite again: it writes this file anew."
    )


def _parsed(texts: pd.Series, kind: Kind) -> pd.Series:
    """Texts as numbers or truths; missing where they are not."""
    import pandas as pd

    if kind == "truth":
        truths = texts.map(_TRUTHS)
        return truths.astype(bool if truths.notna().all() else "boolean")
    numbers = pd.to_numeric(texts, errors="coerce")
    if kind == "number":
        return numbers.astype("float64")
    numbers = numbers.where(numbers == numbers.round())
    return numbers.astype("int64" if numbers.notna().all() else "Int64")


def _unparsed(texts: pd.Series, parsed: pd.Series) -> pd.Series:
    missing = parsed.isna()
    # Most columns are whole, and looking at texts takes longer than all else.
    return missing & ~texts.str.strip().str.lower().isin(("", "nan")) if missing.any() else missing


def _fits(there: pa.DataType, kind: Kind) -> bool:
    import pyarrow.types as types

    if types.is_dictionary(there):
        there = there.value_type
    if kind == "text":
        return bool(types.is_string(there) or types.is_large_string(there) or types.is_null(there))
    if kind == "truth":
        return bool(types.is_boolean(there))
    return bool(types.is_integer(there) or (kind == "number" and types.is_floating(there)))


#: What identifies a cell, and within it a group of scores.
CELL = ("scenario", "background", "model")
KEYS = (*CELL, "explainer", "metric")

SCORES = Table(
    "scores.parquet",
    "a row for each sample and metric",
    {
        **{"dataset": "text", "scenario": "text", "background": "text", "model": "text", "seed": "whole"},
        **{"explainer": "text", "sample": "whole", "correct": "truth", "metric": "text", "value": "number"},
        **{"higher_is_better": "truth", "reason": "text", "data_seed": "whole", "truth": "text"},
    },
    optional=frozenset({"truth"}),  # of which kind (core/truths.py); folders of before do not say
)
SHARES = Table(
    "shares.parquet",
    "whose doing the mass of each map is: on the truth, beside it with the network, beside it without",
    {
        **{"dataset": "text", "scenario": "text", "background": "text", "model": "text", "seed": "whole"},
        **{"data_seed": "whole", "reference": "text", "explainer": "text", "sample": "whole", "correct": "truth"},
        **dict.fromkeys(("on_truth", "relied_on", "not_relied_on"), "number"),
    },
)
TRAININGS = Table(
    "trainings.csv",
    "every single training",
    {
        **{"scenario": "text", "background": "text", "model": "text", "data_seed": "whole", "seed": "whole"},
        **{"network_seed": "whole", "best_epoch": "whole", "val_loss": "number", "val_accuracy": "number"},
        **{"test_accuracy": "number", "explained": "truth"},
    },
    optional=frozenset({"data_seed", "network_seed", "best_epoch", "val_loss", "val_accuracy", "explained"}),
)
ACCURACY = Table(
    "accuracy.csv",
    "test accuracies in percent, beside the publication's",
    {
        **{"scenario": "text", "background": "text", "model": "text", "alpha": "number", "trainings": "whole"},
        **{"mean": "number", "std": "number", "best": "number", "learned": "whole", "paper": "number"},
        **{"difference": "number", "test_samples": "whole"},
    },
    optional=frozenset({"alpha", "trainings", "std", "best", "learned", "paper", "difference", "test_samples"}),
)
FAILURES = Table("failures.csv", "jobs that failed, and why", {"job": "text", "stage": "text", "error": "text"})
SAMPLES = Table(
    "samples.csv",
    "who the samples are: of sets on disk, and of those with groups",
    {
        **{"dataset": "text", "data_seed": "whole", "sample": "whole"},
        **{"id": "text", "group": "whole", "file": "text"},
    },
    optional=frozenset({"id", "group", "file"}),
)
IMAGES = Table(
    "images.parquet",
    "a hash of each explained image, by which runs are paired",
    {"dataset": "text", "data_seed": "whole", "sample": "whole", "image": "whole"},
)
CURVES = Table(
    "curves.parquet",
    "mean curves of insertion and deletion, and the middle half of the samples around them",
    {
        **{"dataset": "text", "model": "text", "explainer": "text", "metric": "text", "fraction": "number"},
        **{"mean": "number", "low": "number", "high": "number", "n": "whole"},
    },
)
#: A job that was run again stands there again.
JOBS = Table(
    "jobs.csv",
    "what every job cost",
    {
        **{"stage": "text", "key": "text", "dataset": "text", "data_seed": "whole", "model": "text"},
        **{"explainer": "text", "metric": "text", "seconds": "number", "cpu_seconds": "number"},
        **{"peak_mb": "number", "worker": "text", "failed": "truth"},
    },
    cut_short=True,
)

#: What the summary says of each group of scores, and what can be concluded of it.
DESCRIBED: Mapping[str, Kind] = {
    **dict.fromkeys(KEYS, "text"),
    **{"n": "whole", "n_valid": "whole"},
    **dict.fromkeys(("mean", "std", "min", "q25", "median", "q75", "max"), "number"),
    **{"higher_is_better": "truth", "rank": "number", "control": "truth", "above_controls": "truth"},
}
INFERRED: Mapping[str, Kind] = {
    **{"low": "number", "high": "number", "sample_rank": "number", "n_ranked": "whole", "p_controls": "number"},
    **{"beats_controls": "truth", "better_than": "whole", "worse_than": "whole", "compared_with": "whole"},
}
SUMMARY = Table(
    "summary.csv",
    "means, medians, quartiles and ranks of each data set, network, explainer and metric",
    {**DESCRIBED, **INFERRED},
)
COMPARISONS = Table(
    "comparisons.csv",
    "every pair of methods: difference with its 95 % interval, p, p after Holm's correction, degrees of freedom",
    {
        **dict.fromkeys((*CELL, "metric", "first", "second"), "text"),
        **dict.fromkeys(("difference", "low", "high", "p", "p_holm", "freedom"), "number"),
        **{"n_valid": "whole", "n_groups": "whole"},
    },
    optional=frozenset({"low", "high", "freedom"}),
)

#: All of them, those to look at first in front.
TABLES = (SUMMARY, SCORES, SHARES, COMPARISONS, ACCURACY, TRAININGS, CURVES, SAMPLES, IMAGES, JOBS, FAILURES)
