"""Schema of the run folder: reading, writing, errors for invalid files, no second list of columns, and addresses."""

import dataclasses
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from report.conftest import FEW_CELLS, draw_svg_only, write_run

import xaibench
from xaibench.report import write_report
from xaibench.runfolder import schema as tables
from xaibench.runfolder.sample_file import read_samples
from xaibench.runfolder.schema import (
    ACCURACY,
    FAILURES,
    JOBS,
    SAMPLES,
    SCORES,
    TABLES,
    TRAININGS,
    RunFolderError,
    resolve_location,
)
from xaibench.scores.results import read_run
from xaibench.scores.run_comparison import compare_runs

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
    formula = row(table, **dict.fromkeys(table.text, "=cmd|' /C calc'!A0"))
    (tmp_path / table.name).write_bytes(table.to_csv([row(table), formula]))
    found = table.read(tmp_path)
    assert list(found.columns) == list(table.columns)
    assert found.to_dict("records") == [row(table), formula]
    texts = pd.read_csv(tmp_path / table.name, dtype=str)[list(table.text)]
    assert not texts.map(lambda text: text.startswith("=")).to_numpy().any()
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
        with pytest.raises(RunFolderError, match=name):
            table.read(tmp_path)


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


def text_that_is_not_utf8():
    buffers = [None, pa.py_buffer(np.array([0, 2], "<i4").tobytes()), pa.py_buffer(b"\xc9A")]
    return pa.Array.from_buffers(pa.string(), 1, buffers).dictionary_encode()


@pytest.mark.parametrize(
    ("table", "column", "value"),
    [
        *((SCORES, "seed", "one"), (SCORES, "value", "0.5"), (SCORES, "correct", 1), (SCORES, "sample", 0.5)),
        *((TRAININGS, "seed", "one"), (TRAININGS, "seed", "0.5"), (TRAININGS, "val_loss", "x")),
        *((TRAININGS, "explained", "2"), (SCORES, "seed", None), (SCORES, "metric", "not UTF-8")),
    ],
)
def test_a_damaged_column_is_named(tmp_path, table, column, value):
    if table is SCORES:
        rows = pa.Table.from_pandas(pd.DataFrame([row(SCORES, **{column: value})]))
        position = rows.column_names.index(column)
        if value is None:
            rows = rows.remove_column(position)
        elif value == "not UTF-8":
            rows = rows.set_column(position, column, text_that_is_not_utf8())
        pq.write_table(rows, tmp_path / SCORES.name)
    else:
        (tmp_path / table.name).write_bytes(table.to_csv([row(table), row(table, **{column: value})]))
    with pytest.raises(RunFolderError, match=column if value != "not UTF-8" else table.stem):
        table.read(tmp_path)


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


def test_every_table_says_what_it_holds():
    assert all(table.what and table.optional <= set(table.columns) for table in TABLES)
    assert len({table.stem for table in TABLES}) == len(TABLES)
    assert tables.KEYS[:3] == tables.CELL


@pytest.fixture
def local(tmp_path):
    return write_run(tmp_path / "run", cells=FEW_CELLS)


@pytest.fixture
def address(local):
    """The same run in fsspec's in-memory file system."""
    fsspec = pytest.importorskip("fsspec")
    pytest.importorskip("upath")
    there = fsspec.filesystem("memory")
    there.put(str(local), "/runs/one", recursive=True)
    yield "memory://runs/one"
    there.rm("/runs", recursive=True)


def test_what_is_read_from_an_address_is_what_lies_there(local, address):
    here, there = read_run(local), read_run(address)
    pd.testing.assert_frame_equal(here.scores, there.scores)
    pd.testing.assert_frame_equal(here.jobs, there.jobs)
    assert (here.title, here.environment, here.suite_toml) == (there.title, there.environment, there.suite_toml)
    assert len(read_samples(resolve_location(address))) == len(read_samples(local)) > 0


def test_a_page_of_a_run_at_an_address_is_written_elsewhere(local, address, tmp_path, monkeypatch):
    draw_svg_only(monkeypatch)
    with pytest.raises(RunFolderError, match="say into which folder the report goes: --out FOLDER"):
        write_report(address)
    page = write_report(address, tmp_path / "page")
    assert page == tmp_path / "page" / "report.html"
    assert page.read_bytes() == write_report(local).read_bytes()
    assert sorted(path.name for path in (tmp_path / "page").iterdir()) == [
        *("comparisons.csv", "figures", "report.html", "summary.csv", "tables"),
    ]


def test_runs_at_addresses_are_compared(local, address):
    assert (compare_runs([local, address])["difference"] == 0).all()


def test_a_path_stays_one(tmp_path, monkeypatch):
    assert resolve_location(tmp_path) is tmp_path
    assert resolve_location("runs/one") == Path("runs/one")
    monkeypatch.setitem(sys.modules, "upath", None)
    with pytest.raises(ImportError, match=r'needs universal-pathlib: pip install "xaibench\[remote\]"'):
        resolve_location("s3://bucket/run")
