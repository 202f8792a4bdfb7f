import pytest
from refusals import refused

from xaibench.data.disk.file_readers import DataFileError, MissingDataError, read_lines, read_xml


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


@pytest.mark.parametrize("text", [ENTITIES, OUTSIDE], ids=["bomb", "file"])
def test_xml_with_entities_is_refused(tmp_path, text):
    (tmp_path / "e.xml").write_text(text)
    refused(DataFileError, "e.xml", lambda: read_xml(tmp_path / "e.xml"))


def test_xml_that_is_cut_off_or_of_no_encoding_is_named(tmp_path):
    (tmp_path / "h.xml").write_text("<a><b>")
    refused(DataFileError, "h.xml", lambda: read_xml(tmp_path / "h.xml"))
    (tmp_path / "h.xml").write_text("<a><b>1</b></a>")
    assert read_xml(tmp_path / "h.xml").findtext("b") == "1"
    (tmp_path / "a.xml").write_bytes(b'<?xml version="1.0" encoding="utf-4711"?><a/>')
    refused(DataFileError, "a.xml", lambda: read_xml(tmp_path / "a.xml"))
