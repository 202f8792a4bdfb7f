import io
import pickle
import zipfile

import numpy as np
import pytest
from refusals import refused, refused_early

from xaibench.data.disk.file_readers import (
    DataFileError,
    MissingDataError,
    read_array_headers,
    read_arrays,
    read_lines,
    read_xml,
)


def test_a_missing_file_is_named(tmp_path):
    for read in (read_lines, read_xml):
        refused(MissingDataError, "gone.x", read, tmp_path / "gone.x")


def test_lines_are_stripped_and_blank_ones_left_out(tmp_path):
    (tmp_path / "l.txt").write_bytes(b"\xef\xbb\xbfone \r\n\r\n  two\n")
    assert read_lines(tmp_path / "l.txt") == ["one", "two"]
    (tmp_path / "l.txt").write_bytes(b"\xff\xfe\x00")
    refused(DataFileError, "l.txt", lambda: read_lines(tmp_path / "l.txt"))


ENTITIES = '<!DOCTYPE a [<!ENTITY x "lol"><!ENTITY y "&x;&x;">]><a>&y;</a>'
OUTSIDE = '<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/hostname">]><a>&x;</a>'


def test_xml_with_entities_cut_off_or_of_no_encoding_is_named(tmp_path):
    for text in (ENTITIES, OUTSIDE, "<a><b>", '<?xml version="1.0" encoding="utf-4711"?><a/>'):
        (tmp_path / "h.xml").write_text(text)
        refused(DataFileError, "h.xml", read_xml, tmp_path / "h.xml")
    (tmp_path / "h.xml").write_text("<a><b>1</b></a>")
    assert read_xml(tmp_path / "h.xml").findtext("b") == "1"


def header(shape, kind="<f4"):
    """The first bytes of an ``.npy`` file of this shape."""
    start = io.BytesIO()
    np.lib.format.write_array_header_1_0(start, {"descr": kind, "fortran_order": False, "shape": shape})
    return start.getvalue()


def zipped(*contents):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for number, content in enumerate(contents):
            archive.writestr(f"{number}.npy", content)
    return packed.getvalue()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (header((1000, 10_000, 1000)) + bytes(64), "XAIBENCH_MAX_GB"),
        (header((2**40, 2**40)) + bytes(64), "1099511627776×1099511627776"),
        (header((-4, 4)) + bytes(64), "[-4, 4]"),
        (header((4, 4), "|O") + pickle.dumps([]), "a.npz"),
        (zipped(header((1000, 10_000, 1000)) + bytes(64)), "XAIBENCH_MAX_GB"),
        (zipped(*[header((30_000, 20_000)) + bytes(64)] * 2), "4,800,000,000"),
        (zipped(header((40, 40)) + bytes(64)), "a.npz"),
        (zipped(b"no array"), "a.npz"),
        (b"PK\x03\x04", "a.npz"),
        (b"", "a.npz"),
    ],
)
def test_arrays_of_forged_or_damaged_files_are_refused_before_memory_is_taken(tmp_path, content, said):
    path = tmp_path / "a.npz"
    path.write_bytes(content)
    refused_early(DataFileError, said, read_arrays, path)


def test_the_limit_of_what_is_read_can_be_changed(tmp_path, monkeypatch):
    arrays = {"a": np.arange(6.0).reshape(2, 3), "b": np.ones(2, bool)}
    np.savez_compressed(tmp_path / "a.npz", **arrays)
    assert read_array_headers(tmp_path / "a.npz") == {name: (one.shape, one.dtype) for name, one in arrays.items()}
    read = read_arrays(tmp_path / "a.npz")
    assert all(np.array_equal(read[name], array) for name, array in arrays.items())
    monkeypatch.setenv("XAIBENCH_MAX_GB", "49e-9")
    refused(DataFileError, "50 bytes", read_arrays, tmp_path / "a.npz")
