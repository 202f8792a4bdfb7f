"""Download and unpacking of archives, from a server on this machine that breaks off, is silent or answers wrongly."""

import itertools
import subprocess
import sys
import threading
import time

import pytest
from refusals import refused

from xaibench.data.disk import downloads
from xaibench.data.disk.downloads import Archive, fetch_archives, one_process
from xaibench.data.disk.file_readers import DataFileError


def page(handler):
    """The login page of a hotel."""
    handler.send_response(200)
    handler.send_header("Content-Type", "text/html")
    handler.end_headers()
    handler.wfile.write(b"<html>Welcome")


def whole(handler):
    """Sends everything where a part was asked for."""
    handler.send(0)


def busy(handler):
    handler.send_error(503)


def silent(handler):
    handler.send(0, 100)
    handler.wfile.flush()
    time.sleep(1)


def elsewhere(handler):
    """Continues at another byte than it was asked for."""
    handler.send(5_000)


@pytest.fixture
def archive(server):
    return server.offer("set.tar", {"images/a.png": b"a" * 50_000, "images/deep/c.png": b"c"})


def files(root):
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*.png")}


UNPACKED = {"images/a.png": b"a" * 50_000, "images/deep/c.png": b"c"}


def test_archives_are_downloaded_once_and_unpacked_next_to_the_files_there(server, archive, tmp_path):
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "b.png").write_bytes(b"there")
    second = server.offer("masks.tar", {"masks/a.png": b"m"})
    for _ in range(2):
        fetch_archives([archive, second], tmp_path)
    assert files(tmp_path) == UNPACKED | {"images/b.png": b"there", "masks/a.png": b"m"}
    assert len(server.ranges) == 2
    assert {path.name for path in tmp_path.iterdir()} == {"images", "masks", "set.tar", "masks.tar"}


@pytest.mark.parametrize(
    ("answers", "requests"),
    [
        ([10_000, 20_000], 3),
        ([10_000, 0, 0, 0], 5),
        ([10_000, busy, 0], 4),
        ([10_000, whole], 2),
        ([10_000, elsewhere], 3),
        ([silent], 2),
    ],
    ids=["cut twice", "cut at once", "busy", "from the start again", "from elsewhere", "silent"],
)
def test_a_download_that_breaks_off_is_continued(server, archive, tmp_path, monkeypatch, answers, requests):
    monkeypatch.setattr(downloads, "_TIMEOUT", 0.3)
    server.answers = iter(answers)
    fetch_archives([archive], tmp_path)
    assert files(tmp_path) == UNPACKED
    assert len(server.ranges) == requests


@pytest.mark.parametrize("answer", [0, busy])
def test_a_server_that_sends_nothing_more_is_given_up_and_the_next_call_continues(server, archive, tmp_path, answer):
    server.answers = itertools.chain([10_000], itertools.repeat(answer, 4))
    refused(ConnectionError, "continues", lambda: fetch_archives([archive], tmp_path))
    assert (tmp_path / "set.tar.partial").stat().st_size == 10_000
    fetch_archives([archive], tmp_path)
    assert server.ranges[-1] == "bytes=10000-"
    assert files(tmp_path) == UNPACKED


def test_a_wrong_answer_is_refused_and_leaves_what_has_arrived(server, archive, tmp_path):
    (tmp_path / "set.tar.partial").write_bytes(server.files["set.tar"][:10_000])
    server.answers = iter([page])
    refused(DataFileError, "text/html", lambda: fetch_archives([archive], tmp_path))
    assert (tmp_path / "set.tar.partial").stat().st_size == 10_000
    server.files["set.tar"] += b"more"
    refused(DataFileError, str(archive.size), lambda: fetch_archives([archive], tmp_path))
    assert (tmp_path / "set.tar.partial").stat().st_size == 10_000


@pytest.mark.parametrize("names", [["../elsewhere.png"], ["a", "a/b.png"], ["/etc/a.png", "a/../../b.png"]])
def test_members_that_cannot_be_unpacked_safely_are_refused(server, tmp_path, names):
    hostile = server.offer("set.tar", dict.fromkeys(names, b"x"))
    refused(DataFileError, "set.tar", lambda: fetch_archives([hostile], tmp_path / "data"))
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["data", "set.tar"]


def test_a_file_with_another_checksum_is_deleted(server, archive, tmp_path):
    right, server.files["set.tar"] = server.files["set.tar"], b"x" * archive.size
    refused(DataFileError, archive.md5, lambda: fetch_archives([archive], tmp_path))
    assert not list(tmp_path.iterdir())
    server.files["set.tar"] = right
    (tmp_path / "set.tar").write_bytes(b"an older release")
    fetch_archives([archive], tmp_path)
    assert files(tmp_path) == UNPACKED


def test_a_missing_file_and_a_server_that_is_not_there_are_named(server, archive, tmp_path):
    missing = Archive(archive.url.replace("set.tar", "none.tar"), archive.md5, archive.size)
    refused(ConnectionError, "none.tar", lambda: fetch_archives([missing], tmp_path))
    assert len(server.ranges) == 1
    nowhere = Archive("http://127.0.0.1:9/set.tar", archive.md5, archive.size)
    refused(ConnectionError, "127.0.0.1:9", lambda: fetch_archives([nowhere], tmp_path))


def test_too_little_space_is_noticed_before_anything_is_asked_for(server, archive, tmp_path):
    large = Archive(archive.url, archive.md5, 10**18)
    refused(OSError, "XAIBENCH_DATA", lambda: fetch_archives([large], tmp_path))
    assert not server.ranges


@pytest.mark.parametrize("name", ["../outside.txt", "images/../../outside.txt"])
def test_a_member_outside_of_the_folder_is_refused(server, tmp_path, name):
    archive, root = server.offer("set.tar", {"images/a.png": b"a", name: b"x"}), tmp_path / "root"
    refused(DataFileError, "set.tar", lambda: fetch_archives([archive], root))
    assert not list(tmp_path.rglob("outside.txt"))
    assert [path.name for path in root.iterdir()] == ["set.tar"]


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").touch()

    def download():
        with one_process(tmp_path / "file" / "data", "set"):
            pass

    refused(OSError, "XAIBENCH_DATA", download)
    refused(OSError, str(tmp_path / "file" / "data"), download)


HOLD = """
import sys
from pathlib import Path
from xaibench.data.disk.downloads import one_process

with one_process(Path(sys.argv[1]), "set"):
    print("locked", flush=True)
    input()
"""


def test_one_process_downloads_while_another_waits(tmp_path, capsys):
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout.readline() == "locked\n"
        ended = threading.Event()
        threading.Timer(0.2, lambda: (ended.set(), other.stdin.write("\n"), other.stdin.flush())).start()
        with one_process(tmp_path, "set"):
            assert ended.is_set()
    assert "waiting" in capsys.readouterr().err
