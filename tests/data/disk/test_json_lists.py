import json
import tracemalloc

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from refusals import refused

from xaibench.data.photographs import coco_gender as json_lists
from xaibench.data.photographs.coco_gender import read_items

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    lists=st.fixed_dictionaries({"a": st.lists(VALUES, max_size=4), "b": st.lists(VALUES, max_size=4)}),
    others=st.dictionaries(st.text(max_size=4).filter(lambda name: name not in "ab"), VALUES, max_size=3),
    indent=st.sampled_from([None, 0, 3]),
    chunk=st.integers(1, 9),
    whole=st.booleans(),
)
def test_items_are_those_of_the_json_module_wherever_the_text_is_cut(
    tmp_path, monkeypatch, lists, others, indent, chunk, whole
):
    monkeypatch.setattr(json_lists, "_CHUNK", chunk)
    path = tmp_path / "a.json"
    path.write_text(json.dumps(others | lists, indent=indent, ensure_ascii=whole), encoding="utf-8")
    expected = [(name, item) for name, items in lists.items() for item in items]
    assert list(read_items(path, "a", "b")) == expected


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "after 0 characters"),
        ("[1]", "after 0 characters"),
        ('{"a": [1 2]}', "after 9 characters"),
        ('{"a": [1,]}', "after 9 characters"),
        ('{"a": [1], }', "after 11 characters"),
        ('{"a": 3}', "after 6 characters"),
        ('{"a" [3]}', "after 5 characters"),
        ('{"a": [{"b": 1', "after 7 characters"),
        ('{"a": [1]', "after 9 characters"),
        ('{"a": [1]} x', "after 11 characters"),
    ],
)
@pytest.mark.parametrize("chunk", [1, 5, 2**20])
def test_what_is_broken_is_said_with_its_place(tmp_path, monkeypatch, text, said, chunk):
    monkeypatch.setattr(json_lists, "_CHUNK", chunk)
    (tmp_path / "a.json").write_text(text)
    refused(ValueError, said, lambda: list(read_items(tmp_path / "a.json", "a")))


def test_a_list_that_is_not_there_is_named(tmp_path):
    (tmp_path / "a.json").write_text('{"a": [1], "c": {"b": [2]}}')
    refused(KeyError, "'b'", lambda: list(read_items(tmp_path / "a.json", "a", "b")))


def test_one_item_is_in_memory_at_a_time(tmp_path, monkeypatch):
    monkeypatch.setattr(json_lists, "_CHUNK", 2**12)
    path = tmp_path / "a.json"
    path.write_text(json.dumps({"a": [{"caption": "word " * 10, "id": number} for number in range(20_000)]}))
    tracemalloc.start()
    count = sum(1 for _ in read_items(path, "a"))
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 20_000
    assert most < 100_000 < path.stat().st_size / 10


def test_an_item_of_any_length_is_no_reason_to_read_all(tmp_path, monkeypatch):
    monkeypatch.setattr(json_lists, "_CHUNK", 2**6)
    monkeypatch.setattr(json_lists, "_MAX_ITEM", 2**12)
    (tmp_path / "a.json").write_text('{"a": ["' + "x" * 100_000)
    tracemalloc.start()
    refused(ValueError, "after 7 characters", lambda: list(read_items(tmp_path / "a.json", "a")))
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 60_000
