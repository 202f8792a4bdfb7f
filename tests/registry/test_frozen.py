"""Parameters as a value: any TOML table comes back as it was, and equal means written alike."""

import copy
import json
import math
import pickle
import tomllib

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from refusals import refused

from xaibench.registry.parameters import Frozen

moderate = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
SCALARS = st.one_of(st.text(), st.booleans(), st.integers(), st.floats(), st.datetimes(), st.dates(), st.times())
VALUES = st.recursive(SCALARS, lambda of: st.lists(of, max_size=4) | st.dictionaries(st.text(), of, max_size=4))
TABLES = st.dictionaries(st.text(), VALUES, max_size=5)


def same(a, b):
    """Equal to the type, the order of tables, the sign of zero, and nan."""
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[name], b[name]) for name in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, float):
        return (math.isnan(a) and math.isnan(b)) or (a == b and math.copysign(1, a) == math.copysign(1, b))
    return a == b


@moderate
@given(TABLES)
def test_any_table_comes_back(table):
    before = copy.deepcopy(table)
    frozen = Frozen(table)
    assert same(dict(frozen), before)
    assert same(dict(pickle.loads(pickle.dumps(frozen))), before)
    assert len(frozen) == len(before)


@moderate
@given(TABLES, TABLES)
def test_equal_means_the_same_table(one, other):
    a, b = Frozen(one), Frozen(other)
    assert (a == b) == same(one, other)
    assert a == Frozen(copy.deepcopy(one))
    assert hash(a) == hash(Frozen(copy.deepcopy(one))) == hash(pickle.loads(pickle.dumps(a)))
    keywords = [dict(sorted(table.items())) for table in (one, other)]
    assert (json.dumps(a.as_json()) == json.dumps(b.as_json())) == same(*keywords)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"a": 1}, {"a": 1.0}),
        ({"a": 1}, {"a": True}),
        ({"a": 0.0}, {"a": -0.0}),
        ({"a": "1"}, {"a": 1}),
        ({"a": {}}, {"a": []}),
        ({"a": {"b": 1}}, {"a": [["b", 1]]}),
        ({"a": {"table": [["b", 1]]}}, {"a": {"b": 1}}),
        ({"a": {"x": 1, "y": 2}}, {"a": {"y": 2, "x": 1}}),
        (*(tomllib.loads(f"a = {date}") for date in ("2024-01-01", '"2024-01-01"')),),
        (*(tomllib.loads(f"a = {date}") for date in ("2024-01-01T00:00:00", "2024-01-01T00:00:00Z")),),
    ],
)
def test_what_is_written_otherwise_is_another_value_with_another_key(one, other):
    assert Frozen(one) != Frozen(other)
    assert json.dumps(Frozen(one).as_json()) != json.dumps(Frozen(other).as_json())


def test_the_key_of_plain_parameters_is_what_it_always_was():
    frozen = Frozen({"seeds": [0, 1], "alpha": 0.5, "mode": "x", "on": True})
    assert json.dumps(frozen.as_json()) == '[["alpha", 0.5], ["mode", "x"], ["on", true], ["seeds", [0, 1]]]'
    assert Frozen().as_json() == []


def test_nothing_changes_it():
    table = {"rules": {"conv": "z+"}, "low": [0, [1]]}
    frozen = Frozen(table)
    before = hash(frozen), repr(frozen)
    table["rules"]["conv"] = "epsilon"
    table["low"][1].append(2)
    frozen["rules"]["conv"] = "epsilon"
    dict(frozen)["low"].append(3)
    pickle.loads(pickle.dumps(frozen))["low"].append(3)
    assert dict(frozen) == {"rules": {"conv": "z+"}, "low": [0, [1]]}
    assert (hash(frozen), repr(frozen)) == before
    with pytest.raises(TypeError, match="does not support item assignment"):
        frozen["low"] = 3


def test_it_is_handed_on_as_keyword_arguments():
    assert (lambda rules, low: (rules, low))(**Frozen({"low": (1, 2), "rules": {}})) == ({}, [1, 2])
    assert list(Frozen.keywords({"b": 1, "c": 1}, {"a": 0, "b": 2}).items()) == [("a", 0), ("b", 2), ("c", 1)]


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"a": {"b": [1, {3}]}}, "a.b[1] is set; expected a string, a number"),
        ({"a": np.zeros(3)}, "a is ndarray; expected"),
        ({"a": {1: 2}}, "a: the name 1 is int, expected a string"),
    ],
)
def test_what_no_toml_file_holds_is_refused(table, message):
    refused(TypeError, message, Frozen, table)
