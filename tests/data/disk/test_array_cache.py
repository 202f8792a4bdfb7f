import errno
import pickle

import numpy as np
import pytest

from xaibench.data.disk.cache_folders import read_cached, write_cached


def read(file):
    return read_cached(file, lambda arrays: arrays["x"].tolist())


def test_what_is_kept_is_read_back(tmp_path, caplog):
    write_cached(tmp_path / "new" / "a.npz", "The numbers", {"x": np.arange(3)})
    assert read(tmp_path / "new" / "a.npz") == [0, 1, 2]
    assert read(tmp_path / "gone.npz") is None
    assert caplog.text == ""


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", pickle.dumps([1])], ids=["empty", "cut", "pickle"])
def test_a_damaged_file_is_a_warning(tmp_path, caplog, content):
    (tmp_path / "a.npz").write_bytes(content)
    assert read(tmp_path / "a.npz") is None
    assert "a.npz is damaged" in caplog.text


def test_arrays_that_are_not_what_they_should_be_are_damage(tmp_path, caplog):
    write_cached(tmp_path / "a.npz", "The numbers", {"y": np.arange(3)})
    assert read(tmp_path / "a.npz") is None
    assert "a.npz is damaged" in caplog.text


def test_a_flipped_bit_is_noticed(tmp_path, caplog):
    write_cached(tmp_path / "a.npz", "The numbers", {"x": np.arange(1000)})
    content = bytearray((tmp_path / "a.npz").read_bytes())
    content[len(content) // 2] ^= 1
    (tmp_path / "a.npz").write_bytes(content)
    assert read(tmp_path / "a.npz") is None
    assert "a.npz is damaged" in caplog.text


def test_a_full_disk_is_a_warning_and_leaves_nothing(tmp_path, caplog, monkeypatch):
    def full(stream, **arrays):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(np, "savez", full)
    write_cached(tmp_path / "a.npz", "The numbers", {"x": np.arange(3)})
    assert "The numbers could not be cached in" in caplog.text
    assert list(tmp_path.iterdir()) == []
