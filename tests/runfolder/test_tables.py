"""The schema of the run folder: reading and writing, errors for invalid files, and no second list of columns."""

import ast
import dataclasses
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import xaibench
from xaibench.runfolder import tables
from xaibench.runfolder.tables import ACCURACY, FAILURES, JOBS, SAMPLES, SCORES, TABLES, TRAININGS, RunFolderError

ROOT = Path(xaibench.__file__).parent
VALUES = {"str": 'a, "b"\nc', "int": 3, "float": 0.25, "bool": True}


def row(table, **changed):
    return {name: VALUES[kind] for name, kind in table.columns.items()} | changed


def write_scores(folder, **changed):
    frame = pd.DataFrame([row(SCORES, **changed)])
    frame.to_parquet(folder / SCORES.name)
    return folder


@pytest.mark.parametrize("table", [one for one in TABLES if one.name.endswith(".csv")], ids=lambda one: one.stem)
def test_what_is_written_as_text_is_read_back(table, tmp_path):
    (tmp_path / table.name).write_bytes(table.to_csv([row(table), row(table)]))
    found = table.read(tmp_path)
    assert list(found.columns) == list(table.columns)
    assert found.to_dict("records") == [row(table)] * 2
    numpy = {"str": "O", "int": "i", "float": "f", "bool": "b"}
    assert all(found[name].dtype.kind in ("O", numpy[kind]) for name, kind in table.columns.items() if kind != "str")


@pytest.mark.parametrize("table", TABLES, ids=lambda one: one.stem)
def test_without_a_file_there_are_all_columns_and_no_row(table, tmp_path):
    found = table.read(tmp_path)
    assert list(found.columns) == list(table.columns)
    assert len(found) == 0


@pytest.mark.parametrize("table", [ACCURACY, FAILURES, SAMPLES, TRAININGS], ids=lambda one: one.stem)
def test_a_missing_column_is_named_unless_a_folder_may_lack_it(table, tmp_path):
    for name in table.columns:
        kept = [each for each in table.columns if each != name]
        pd.DataFrame([row(table)])[kept].to_csv(tmp_path / table.name, index=False)
        if name in table.optional:
            assert table.read(tmp_path)[name].replace("", np.nan).isna().all()
            continue
        with pytest.raises(RunFolderError, match=rf"lacks the columns {name}; it has {kept[0]}, .*Run the suite again"):
            table.read(tmp_path)


def test_a_missing_column_of_the_scores_is_named(tmp_path):
    write_scores(tmp_path)
    frame = pd.read_parquet(tmp_path / SCORES.name).drop(columns=["seed", "value"])
    frame.to_parquet(tmp_path / SCORES.name)
    with pytest.raises(RunFolderError, match=r"scores\.parquet lacks the columns seed, value; it has dataset"):
        SCORES.read(tmp_path)
    assert SCORES.read(tmp_path, ["dataset", "sample"])["sample"].tolist() == [3]


def test_scores_of_a_folder_from_before_the_kinds_of_truth_are_of_none_that_is_known(tmp_path):
    write_scores(tmp_path)
    frame = pd.read_parquet(tmp_path / SCORES.name)
    frame.drop(columns=["truth"]).to_parquet(tmp_path / SCORES.name)
    found = SCORES.read(tmp_path)
    assert list(found) == list(SCORES.columns)
    assert found["truth"].cat.categories.tolist() == [""]
    assert found["truth"].tolist() == [""]
    assert SCORES.read(tmp_path, ["truth", "metric"])["truth"].tolist() == [""]


@pytest.mark.parametrize(
    ("kind", "dtype"), [("str", "category"), ("int", "Int64"), ("float", "float64"), ("bool", "boolean")]
)
def test_an_optional_column_that_a_parquet_file_lacks_is_filled_with_missing_values(kind, dtype, tmp_path):
    older = tables.TableSchema("t.parquet", "older version", {"n": "int"})
    pd.DataFrame({"n": [1, 2]}).to_parquet(tmp_path / older.name)
    newer = dataclasses.replace(older, columns={"n": "int", "added": kind}, optional=frozenset({"added"}))
    found = newer.read(tmp_path)
    assert found["n"].tolist() == [1, 2]
    assert found["added"].dtype.name == dtype
    assert (found["added"] == "").all() if kind == "str" else found["added"].isna().all()


@pytest.mark.parametrize(
    ("column", "value", "got"),
    [("seed", "one", "string"), ("value", "0.5", "string"), ("correct", 1, "int64"), ("sample", 0.5, "double")],
)
def test_a_column_of_the_scores_that_holds_something_else_is_named(tmp_path, column, value, got):
    write_scores(tmp_path, **{column: value})
    with pytest.raises(RunFolderError, match=rf"has (large_)?{got} in its column {column}; expected .*Run the suite"):
        SCORES.read(tmp_path)


@pytest.mark.parametrize(("column", "value"), [("seed", "one"), ("seed", "0.5"), ("val_loss", "x"), ("explained", "2")])
def test_a_column_of_text_that_holds_something_else_is_named(tmp_path, column, value):
    (tmp_path / TRAININGS.name).write_bytes(TRAININGS.to_csv([row(TRAININGS), row(TRAININGS, **{column: value})]))
    with pytest.raises(RunFolderError, match=rf"has '{value}' in its column {column}; expected .*Run the suite"):
        TRAININGS.read(tmp_path)


def test_what_is_not_known_is_missing(tmp_path):
    unknown = row(ACCURACY, paper="", difference="", alpha="", learned="", std=float("nan"))
    (tmp_path / ACCURACY.name).write_bytes(ACCURACY.to_csv([unknown, row(ACCURACY)]))
    found = ACCURACY.read(tmp_path)
    assert found.isna().sum().to_dict() == dict.fromkeys(ACCURACY.columns, 0) | dict.fromkeys(
        ("paper", "difference", "alpha", "learned", "std"), 1
    )
    assert str(found["learned"].dtype) == "Int64"


def test_a_line_that_a_crash_cut_short_is_left_out_of_the_jobs_alone(tmp_path):
    plain = dict.fromkeys(JOBS.text, "x")
    whole = JOBS.to_csv([row(JOBS, **plain | {"stage": stage}) for stage in ("data", "train", "score")])
    for cut in range(2, len(whole.splitlines()[-1])):
        (tmp_path / JOBS.name).write_bytes(whole[:-cut])
        assert JOBS.read(tmp_path)["stage"].tolist() == ["data", "train"]
        assert JOBS.read(tmp_path)["failed"].dtype == bool


def test_a_row_with_a_key_that_is_no_column_is_refused():
    with pytest.raises(ValueError, match="fields not in fieldnames"):
        FAILURES.to_csv([row(FAILURES, reason="disk")])


def typed_again(text):
    """Return the tables whose columns are mostly repeated in a list of names in ``text``; rows do not count."""
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Tuple | ast.List | ast.Set):
            names = {each.value for each in ast.walk(node) if isinstance(each, ast.Constant)}
            found += [table.stem for table in TABLES if len(names & set(table.columns)) > 0.75 * len(table.columns)]
    return found


def test_no_list_of_columns_is_typed_a_second_time():
    files = [path for room in ("runner", "report", "hub", "leaderboard", "cli") for path in (ROOT / room).rglob("*.py")]
    found = {str(path.relative_to(ROOT)): typed_again(path.read_text(encoding="utf-8")) for path in files}
    assert {name: names for name, names in found.items() if names} == {}
    assert len(files) > 40
    for table in TABLES:
        first, *rest = table.columns
        assert table.stem in typed_again(f"COLUMNS = (*({first!r},), *{rest!r})")
        assert typed_again(f"row = {dict(table.columns)!r}") == []


def test_names_of_files_are_written_once():
    """No other module contains the file name of a table."""
    names = {table.name for table in TABLES} | {"parts.json", "environment.json", "samples.safetensors"}
    found = []
    for path in [path for room in ("runner", "report", "hub", "leaderboard") for path in (ROOT / room).rglob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and node.value in names:
                found.append(f"{path.relative_to(ROOT)}:{node.lineno} {node.value}")
    assert found == []


def test_every_table_says_what_it_holds():
    assert all(table.what and table.optional <= set(table.columns) for table in TABLES)
    assert len({table.stem for table in TABLES}) == len(TABLES)
    assert tables.KEYS[:3] == tables.CELL


def test_text_that_is_not_utf8_is_damage(tmp_path):
    buffers = [None, pa.py_buffer(np.array([0, 2], "<i4").tobytes()), pa.py_buffer(b"\xc9A")]
    text = pa.Array.from_buffers(pa.string(), 1, buffers)
    known = tables.TableSchema("t.parquet", "text", {"name": "str"})
    pq.write_table(pa.table({"name": text.dictionary_encode()}), tmp_path / known.name)
    with pytest.raises(RunFolderError, match=r"t\.parquet"):
        known.read(tmp_path)
