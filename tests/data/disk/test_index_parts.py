import errno
import logging
import os

import numpy as np
import pytest
from refusals import refused

from xaibench.data.annotated import DataFileError
from xaibench.data.disk.cache_folders import IndexEntry, build_entries, load_arrays, load_entry


def squares(number):
    """What the parts of these tests are: those of 13 cannot be built."""
    if number == 13:
        raise DataFileError("thirteen.txt cannot be read")
    return {"squares": np.arange(number) ** 2, "words": np.array(["a", "bc"])}


def parts_of(folder, *numbers):
    return [IndexEntry(f"part {number}", folder / f"{number}.npz", (number,)) for number in numbers]


def test_every_part_is_built_once_and_counted(tmp_path):
    done = []
    parts = parts_of(tmp_path, 1, 2, 3)
    assert build_entries(parts[:1], squares) == parts[:1]
    before = parts[0].file.stat().st_mtime_ns
    assert build_entries(parts, squares, progress=lambda *counts: done.append(counts)) == parts
    assert parts[0].file.stat().st_mtime_ns == before
    assert done == [(1, 3), (2, 3), (3, 3)]
    assert load_arrays(parts[2].file, "squares")["squares"].tolist() == [0, 1, 4]
    assert set(load_arrays(parts[2].file)) == {"squares", "words"}
    assert sorted(os.listdir(tmp_path)) == ["1.npz", "2.npz", "3.npz"]


def test_a_broken_part_is_named_and_the_others_go_on(tmp_path, caplog):
    parts = parts_of(tmp_path, 1, 13, 3)
    with caplog.at_level(logging.WARNING, "xaibench"):
        assert build_entries(parts, squares) == [parts[0], parts[2]]
    assert "part 13 is left out: thirteen.txt cannot be read" in caplog.messages
    assert "1 of 3 could not be read and are left out; they are tried again next time." in caplog.messages
    refused(DataFileError, "thirteen.txt", lambda: build_entries(parts[1:2], squares))


def test_a_full_disk_leaves_nothing_half(tmp_path, monkeypatch):
    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    refused(OSError, "1.npz", lambda: build_entries(parts_of(tmp_path, 1), squares))
    assert os.listdir(tmp_path) == []


def test_a_stop_leaves_what_is_done(tmp_path):
    def stop(done, total):
        if done == 2:
            raise KeyboardInterrupt

    parts = parts_of(tmp_path, 1, 2, 3)
    refused(KeyboardInterrupt, "", lambda: build_entries(parts, squares, progress=stop))
    assert sorted(os.listdir(tmp_path)) == ["1.npz", "2.npz"]
    assert build_entries(parts, squares) == parts


@pytest.mark.parametrize("kept", [0, 30, -30])
def test_a_damaged_file_is_built_anew(tmp_path, kept, caplog):
    (part,) = build_entries(parts_of(tmp_path, 4), squares)
    part.file.write_bytes(part.file.read_bytes()[:kept])
    assert load_entry(part, squares)["squares"].tolist() == [0, 1, 4, 9]
    assert "4.npz is damaged" in caplog.text
    caplog.clear()
    assert load_entry(part, squares, "words")["words"].tolist() == ["a", "bc"]
    assert not caplog.text


def test_no_pickle_is_read_and_workers_are_at_least_one(tmp_path):
    (part,) = parts_of(tmp_path, 4)
    np.savez(part.file, squares=np.array([{"a": 1}], dtype=object))
    refused(DataFileError, "allow_pickle=", lambda: load_arrays(part.file))
    refused(ValueError, "workers=", lambda: build_entries(parts_of(tmp_path, 1), squares, workers=0))
