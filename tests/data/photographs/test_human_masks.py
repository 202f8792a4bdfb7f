import csv
import json
import logging
import pickle

import numpy as np
import pytest
from generators.tables import SIDE, blob, write_table
from refusals import refused

from xaibench.data.annotated import DataFileError, MissingDataError
from xaibench.data.photographs.human_masks import HumanMasks, list_tables, parse_mask


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "attention_label"


def read(masks):
    return {row.name: masks.read(number, None) for number, row in enumerate(masks.rows)}


def drawn(count, seed=0):
    rng = np.random.default_rng(seed)
    return [(f"{number}.jpg", blob(rng)) for number in range(count)]


def test_masks_come_back_as_they_were_written(folder):
    rows = drawn(3)
    write_table(folder / "a.csv", rows, check=False)
    masks = HumanMasks(folder, ["x"])
    for name, mask in rows:
        assert np.array_equal(read(masks)[name], mask)
    back = pickle.loads(pickle.dumps(masks))
    assert np.array_equal(back.read(2, None), rows[2][1])


def test_only_what_was_checked_as_good_counts(folder, caplog):
    (_, one), (_, two) = drawn(2)
    write_table(folder / "a.csv", [("1", one, "bad"), ("2", two, "Good "), ("3", one, ""), ("4", two)])
    with caplog.at_level(logging.INFO, "xaibench"):
        assert set(read(HumanMasks(folder, ["x"]))) == {"2", "4"}
    assert "2 rows whose img_check is not 'good'" in caplog.text


def test_kinds_are_never_mixed(folder):
    (name, one), (_, two) = drawn(2)
    write_table(folder / "x_factual.csv", [(name, one)])
    write_table(folder / "x_CounterFactual.csv", [(name, two)])
    assert np.array_equal(read(HumanMasks(folder, ["x"]))[name], one)
    assert np.array_equal(read(HumanMasks(folder, ["x"], counterfactual=True))[name], two)
    assert len(HumanMasks(folder, ["x"]).rows) == 1


def test_a_kind_that_is_not_there_is_missed(folder):
    write_table(folder / "factual.csv", drawn(1))
    refused(MissingDataError, "'counterfactual'", lambda: HumanMasks(folder, ["x"], counterfactual=True))
    (folder / "factual.csv").rename(folder / "counterfactual.csv")
    refused(MissingDataError, "'counterfactual'", lambda: HumanMasks(folder, ["x"]))


GOOD = json.dumps(np.eye(SIDE, dtype=int).tolist())


@pytest.mark.parametrize(
    ("attention", "reason"),
    [
        (GOOD[:-1], "not a list of equally long lists"),
        ("", "not a list of equally long lists"),
        ("[[0, 1], [0]]", "not a list of equally long lists"),
        ("[" * 100_000, "not a list of equally long lists"),
        (GOOD.replace("1", "2", 1), "0 and 1"),
        (GOOD.replace("1", "0.5", 1), "0 and 1"),
        (GOOD.replace("1", "NaN", 1), "0 and 1"),
        ("[[0, 1], [1, 255]]", "0 and 1"),
        ("[0, 1]", "has shape [2]"),
        ("[[]]", "0 and 1"),
        ("{}", "not a list of equally long lists"),
    ],
)
def test_a_broken_row_is_named_and_the_others_are_kept(folder, caplog, attention, reason):
    (name, mask), last = drawn(2)
    write_table(folder / "a.csv", [(name, mask), ("broken", attention), last], check=False)
    for _ in range(2):  # read, and from the cache
        caplog.clear()
        assert set(read(HumanMasks(folder, ["x"]))) == {name, last[0]}
        assert "a.csv: malformed rows, left out: 1: line 3 (" in caplog.text
        assert reason in caplog.text


@pytest.mark.parametrize("line", ['broken,"[[0, 1', "broken", "broken,a,b", ',"[[0]]"', "broken,[[0,1],[1,0]]"])
def test_a_broken_line_loses_no_other(folder, caplog, line):
    rows = drawn(3)
    write_table(folder / "a.csv", rows, check=False)
    text = (folder / "a.csv").read_text().splitlines()
    (folder / "a.csv").write_text("\n".join([*text[:2], line, *text[2:]]) + "\n")
    assert set(read(HumanMasks(folder, ["x"]))) == {name for name, _ in rows}
    assert "line 3 (" in caplog.text


def test_an_open_quote_at_the_end_is_named(folder, caplog):
    rows = drawn(2)
    write_table(folder / "a.csv", rows, check=False)
    text = (folder / "a.csv").read_text()
    (folder / "a.csv").write_text(text[:-1000])
    assert set(read(HumanMasks(folder, ["x"]))) == {"0.jpg"}
    assert "line 3 (its quotes are not closed)" in caplog.text


def test_masks_may_be_written_over_many_lines(folder):
    rows = drawn(2)
    folder.mkdir()
    with open(folder / "a.csv", "w", newline="") as stream:
        table = csv.writer(stream)
        table.writerow(["img_idx", "attention"])
        for name, mask in rows:
            table.writerow([name, json.dumps(mask.astype(int).tolist()).replace("], ", "],\n ")])
    masks = HumanMasks(folder, ["x"])
    assert [row.where for row in masks.rows] == ["a.csv:2", f"a.csv:{2 + SIDE}"]
    for name, mask in rows:
        assert np.array_equal(read(masks)[name], mask)


def test_columns_may_be_in_any_order_and_more_than_needed(folder):
    (name, mask) = drawn(1)[0]
    folder.mkdir()
    with open(folder / "a.csv", "w", newline="", encoding="utf-8-sig") as stream:
        table = csv.writer(stream)
        table.writerow(["", "Attention", "IMG_IDX "])
        table.writerow(["0", json.dumps(mask.astype(int).tolist()), name])
    assert np.array_equal(read(HumanMasks(folder, ["x"]))[name], mask)


@pytest.mark.parametrize("text", ["", "img_idx,mask\n", "a;b\n"])
def test_a_table_without_the_columns_is_named(folder, text):
    folder.mkdir()
    (folder / "a.csv").write_text(text)
    refused(DataFileError, "a.csv", lambda: HumanMasks(folder, ["x"]))


@pytest.mark.parametrize(
    ("tables", "labels"),
    [
        (["cat.csv", "cattle_attention.csv"], ["cat", "cattle"]),
        (["cat-factual.csv", "wild_cat-factual.csv"], ["cat", "wild cat"]),
        (["train.csv", "val.csv"], [None, None]),
        (["train.csv"], [None]),
        (["cat_train.csv", "cattle.csv"], [None, None]),
    ],
)
def test_tables_named_after_classes_are_of_them(folder, tables, labels):
    for table in tables:
        write_table(folder / table, drawn(1))
    masks = HumanMasks(folder, ["cat", "cattle", "wild cat", "train"])
    assert [row.label for row in masks.rows] == labels


def test_a_row_may_name_its_class(folder):
    write_table(folder / "a.csv", [("cat/1.jpg", drawn(1)[0][1]), ("elsewhere\\2.jpg", drawn(1)[0][1])])
    rows = HumanMasks(folder, ["cat", "dog"]).rows
    assert [(row.name, row.label) for row in rows] == [("1.jpg", "cat"), ("2.jpg", None)]


def test_a_cache_that_cannot_be_written_says_so(folder, monkeypatch):
    def full(path):
        raise OSError(28, "No space left on device", str(path))

    write_table(folder / "a.csv", drawn(1))
    monkeypatch.setattr("xaibench.data.photographs.human_masks.atomic_file", full)
    refused(OSError, "a.csv", lambda: HumanMasks(folder, ["x"]))


def test_tables_are_listed_without_junk(folder):
    write_table(folder / "a.CSV", drawn(1))
    (folder / "._a.csv").write_bytes(b"\0")
    (folder / "notes.txt").write_text("x")
    assert [file.name for file in list_tables(folder)] == ["a.CSV"]


@pytest.mark.parametrize(
    "text",
    ["[[0,1],[1,0]]", "[[0, 1], [1, 0]]", "[[0.0, 1.0], [1, 0]]", "[[false,true],[true,false]]", " [[0,1],\n[1,0]]\n"],
)
def test_all_spellings_of_a_mask_are_read(text):
    assert parse_mask(text).tolist() == [[False, True], [True, False]]


@pytest.mark.parametrize(
    "text", ["[[0,1],[1,/]]", "[[0,1],[1;0]]", "[[0,1,],[1,0,]]", "[[0,1]]]]", "[[01,1],[1,0]]", f"[[0,{'9' * 400}]]"]
)
def test_nearly_a_mask_is_refused(text):
    refused(ValueError, "attention", parse_mask, text)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
def test_tables_in_the_encodings_of_excel_are_read(folder, encoding):
    rows = [("größe.jpg", drawn(1)[0][1])]
    write_table(folder / "a.csv", rows, check=False)
    (folder / "a.csv").write_bytes((folder / "a.csv").read_bytes().decode().encode(encoding))
    assert np.array_equal(read(HumanMasks(folder, ["x"]))["größe.jpg"], rows[0][1])
