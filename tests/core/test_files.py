import errno
import os
import stat

import pytest
from refusals import refused

from xaibench.core.files import atomic_file, atomic_path, check_regular, name_folder_if_disk_full


def by_stream(path, data, fail=None):
    with atomic_file(path) as stream:
        stream.write(data[:2])
        if fail:
            raise fail
        stream.write(data[2:])


def by_path(path, data, fail=None):
    with atomic_path(path) as partial:
        partial.write_bytes(data[:2] if fail else data)
        if fail:
            raise fail


every_way = pytest.mark.parametrize("write", [by_stream, by_path])


@every_way
def test_the_file_is_there_when_the_block_has_ended(write, tmp_path):
    write(tmp_path / "maps.npz", b"whole")
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("maps.npz", b"whole")]


@every_way
@pytest.mark.parametrize("fail", [ValueError("halfway"), KeyboardInterrupt(), SystemExit(1)], ids=repr)
@pytest.mark.parametrize("before", [None, b"the old one"])
def test_a_block_that_fails_leaves_what_was_there(write, fail, before, tmp_path):
    path = tmp_path / "maps.npz"
    if before:
        path.write_bytes(before)
    refused(type(fail), "", write, path, b"whole", fail)
    assert [one.read_bytes() for one in tmp_path.iterdir()] == ([before] if before else [])


@every_way
def test_an_older_file_is_replaced_at_once(write, tmp_path):
    path = tmp_path / "maps.npz"
    path.write_bytes(b"the old one")
    with open(path, "rb") as reader:
        write(path, b"whole")
        assert reader.read() == b"the old one"
    assert path.read_bytes() == b"whole"


@every_way
def test_file_and_folder_are_on_the_disk_before_and_after_the_rename(write, tmp_path, monkeypatch):
    events, fsync, replace = [], os.fsync, os.replace

    def synced(handle):
        events.append("folder" if stat.S_ISDIR(os.fstat(handle).st_mode) else f"{os.fstat(handle).st_size} bytes")
        fsync(handle)

    def replaced(old, new):
        events.append("rename")
        replace(old, new)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", replaced)
    write(tmp_path / "maps.npz", b"whole")
    assert events == ["5 bytes", "rename", "folder"]


@pytest.mark.parametrize("whole", [atomic_file, atomic_path])
def test_what_can_be_made_again_is_not_waited_for(whole, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda handle: pytest.fail("synced"))
    with whole(tmp_path / "score", durable=False) as place:
        place.write(b"whole") if whole is atomic_file else place.write_bytes(b"whole")
    assert [one.read_bytes() for one in tmp_path.iterdir()] == [b"whole"]


@every_way
def test_a_folder_that_cannot_be_synced_is_no_error(write, tmp_path, monkeypatch):
    real = os.fsync

    def fsync(handle):
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            raise OSError(errno.EINVAL, "Invalid argument")
        real(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    write(tmp_path / "maps.npz", b"whole")
    assert (tmp_path / "maps.npz").read_bytes() == b"whole"


@every_way
def test_a_disk_that_fills_up_is_an_error_and_leaves_nothing(write, tmp_path, monkeypatch):
    def full(handle):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    refused(OSError, ("No space left on device: ", "maps.npz'"), lambda: write(tmp_path / "maps.npz", b"whole"))
    assert list(tmp_path.iterdir()) == []


@every_way
def test_a_folder_that_is_not_there_is_an_error(write, tmp_path):
    refused(FileNotFoundError, "", lambda: write(tmp_path / "no" / "maps.npz", b"whole"))


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_named(number, tmp_path):
    with (
        pytest.raises(OSError, match=f"The disk of {tmp_path} is full; make room on it") as raised,
        name_folder_if_disk_full(tmp_path),
    ):
        raise OSError(number, "No space left on device")
    assert raised.value.errno == number


def test_other_errors_of_a_disk_speak_for_themselves(tmp_path):
    with pytest.raises(OSError, match="Input/output error"), name_folder_if_disk_full(tmp_path):
        raise OSError(errno.EIO, "Input/output error")


def test_a_pipe_is_refused_before_it_is_read_forever(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    assert refused(OSError, "pipe", check_regular, tmp_path / "pipe").filename == str(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "missing"):
        check_regular(path)
