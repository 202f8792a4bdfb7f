"""Characters in a run folder that cannot be displayed are replaced by escape codes; others are not changed."""

import json
import xml.dom.minidom

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xaibench.runfolder.descriptions import PARTS, read_parts
from xaibench.runfolder.sanitize import sanitize_text
from xaibench.runfolder.schema import FAILURES, SCORES


@given(st.text(st.characters(codec=None)))
def test_whatever_comes_can_be_written_as_xml(text):
    shown = sanitize_text(text)
    escaped = shown.replace("&", "&amp;").replace("<", "&lt;")
    read = xml.dom.minidom.parseString(f"<p>{escaped}</p>".encode()).documentElement
    assert "".join(node.data for node in read.childNodes) == shown.replace("\r\n", "\n").replace("\r", "\n")


@given(st.text(st.characters(exclude_categories=("Cc", "Cs", "Cn"))))
def test_ordinary_text_stays(text):
    assert sanitize_text(text) == text


@pytest.mark.parametrize("names", [["a\0", "b"], ["a\0", "a\\x00"]])
def test_scores_with_such_names_are_read(tmp_path, names):
    row = {name: {"str": "x", "bool": True}.get(kind, 0) for name, kind in SCORES.columns.items()}
    table = pd.DataFrame([row | {"metric": name, "value": 0.5} for name in names])
    table.to_parquet(tmp_path / SCORES.name)
    read = SCORES.read(tmp_path)["metric"]
    assert list(read) == [sanitize_text(name) for name in names]
    assert isinstance(read.dtype, pd.CategoricalDtype)


def test_so_are_other_tables_and_words(tmp_path):
    (tmp_path / FAILURES.name).write_text("job,stage,error\nj,score,\x1b[31mred\n")
    (tmp_path / PARTS).write_text(json.dumps({"title": "a\ud800", "metrics": {"m\0": {"label": "\x07"}}}))
    assert list(FAILURES.read(tmp_path)["error"]) == ["\\x1b[31mred"]
    parts = read_parts(tmp_path)
    assert (parts.title, parts.metrics["m\\x00"].label) == ("a\\ud800", "\\x07")
