"""Answers of a sandboxed process are checked in every field."""

import contextlib
import json
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xaibench.leaderboard.sandbox.protocol import Answer, SandboxError, parse_answer, printable
from xaibench.leaderboard.sandbox.system_calls import filter_program, is_supported


def answer(body=b"", **fields):
    return parse_answer(json.dumps(fields).encode(), body)


@pytest.mark.parametrize("shape", [(2, 2, 2), (2, 1, 2, 2)])
def test_maps_are_read(shape):
    maps = np.arange(8.0).reshape(shape)
    found = answer(maps.tobytes(), shape=list(shape), dtype="float64", refused=[])
    assert np.array_equal(found.maps, maps)
    assert found.maps.flags.writeable
    assert answer(fits=True) == Answer(fits=True)


@pytest.mark.parametrize(
    ("header", "said"),
    [
        (b"not json", "not JSON"),
        (b"[" * 60000, "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"[1]", "fields"),
        (b"null", "fields"),
        (b'{"fits": 1}', "wrong type"),
        (b'{"error": ["x"]}', "wrong type"),
        (b'{"other": 1}', "not known"),
        (b'{"refused": [1]}', "wrong type"),
        (b'{"shape": [2, 2, 2], "dtype": "object"}', "maps of object"),
        (b'{"shape": [2, 2, 2]}', "maps of None"),
        (b'{"shape": [2, 2], "dtype": "float64"}', "another shape"),
        (b'{"shape": [2, 2, -2], "dtype": "float64"}', "another shape"),
        (b'{"shape": [true, 2, 2], "dtype": "float64"}', "another shape"),
        (b'{"shape": [2, 2, 1e9], "dtype": "float64"}', "another shape"),
        (b'{"shape": [2, 2, 2], "dtype": "float64"}', "another number of values"),
    ],
)
def test_everything_else_is_refused(header, said):
    with pytest.raises(SandboxError, match=said):
        parse_answer(header, b"12345678")


@given(st.binary(max_size=200), st.binary(max_size=64))
def test_no_answer_raises_another_error(header, body):
    with contextlib.suppress(SandboxError):
        parse_answer(header, body)


@given(st.text())
def test_shown_text_has_no_control_characters(text):
    assert printable(text).isprintable()
    assert len(printable(text, 10)) <= 100


@pytest.mark.skipif(not is_supported(), reason="no filter for this machine")
def test_the_filter_jumps_within_itself():
    program = filter_program()
    lines = list(struct.iter_unpack("=HBBI", program))
    assert lines[-1][0] == 0x06
    for place, (code, if_true, if_false, _) in enumerate(lines):
        assert code in (0x20, 0x15, 0x35, 0x45, 0x06)
        assert place + 1 + max(if_true, if_false) < len(lines) or code == 0x06
    assert len(filter_program(allow_memory_files=True)) == len(program) - 16
