import hashlib
import io
import tarfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from xaibench.data.annotated import DataFileError
from xaibench.data.disk import downloads as download
from xaibench.data.disk.downloads import DownloadError, fetch, fetch_archive

CONTENT = bytes((n * n + n // 7) % 253 for n in range(1_500_000))
MD5, SHA256 = hashlib.md5(CONTENT).hexdigest(), hashlib.sha256(CONTENT).hexdigest()


class Server(ThreadingHTTPServer):
    """Serves ``content`` under every path, ``cuts`` times broken off after so many bytes."""

    content = CONTENT
    ranges = True
    lengths = True
    cuts = ()
    status = None
    delay: threading.Event | None = None

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked = []
        self.cuts = []

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}/data/some%20set.tar"


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        server = self.server
        wanted = self.headers.get("Range")
        server.asked.append(wanted)
        if server.delay is not None:
            server.delay.wait(10)
        start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted and server.ranges else 0
        if server.status is not None or start >= len(server.content) > 0:
            self.send_error(server.status or 416)
            return
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(server.content) - 1}/{len(server.content)}")
        if server.lengths:
            self.send_header("Content-Length", str(len(server.content) - start))
        self.end_headers()
        body = server.content[start:]
        self.wfile.write(body[: server.cuts.pop(0)] if server.cuts else body)

    def log_message(self, *_):
        pass


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setattr(download, "_PAUSE", 0.0)
    monkeypatch.setattr(download, "_CHUNK", 1 << 14)
    with Server() as one:
        thread = threading.Thread(target=one.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield one
        one.shutdown()
        thread.join()


@pytest.fixture
def target(tmp_path):
    return tmp_path / "new" / "file.tar"


def names(target):
    return sorted(path.name for path in target.parent.iterdir())


@pytest.mark.parametrize("checksums", [{}, {"md5": MD5}, {"sha256": SHA256.upper()}, {"md5": MD5, "sha256": SHA256}])
def test_a_file_is_fetched_whole_and_alone(server, target, checksums):
    steps = []
    fetch(server.url, target, **checksums, progress=lambda done, total: steps.append((done, total)))
    assert target.read_bytes() == CONTENT
    assert names(target) == ["file.tar"]
    assert server.asked == [None]
    assert steps[-1] == (len(CONTENT), len(CONTENT))
    assert [done for done, _ in steps] == sorted({done for done, _ in steps})


def test_a_file_that_is_there_is_not_fetched_again(server, target):
    for checksums in ({"md5": MD5}, {"md5": MD5}, {}):
        fetch(server.url, target, **checksums)
    assert len(server.asked) == 1


def test_a_file_with_another_checksum_is_replaced(server, target):
    target.parent.mkdir()
    target.write_bytes(b"an older version")
    fetch(server.url, target, md5=MD5)
    assert target.read_bytes() == CONTENT


def test_a_cut_connection_is_taken_up_where_it_broke(server, target):
    server.cuts = [400_000, 300_000, 1, 200_000]
    fetch(server.url, target, md5=MD5)
    assert target.read_bytes() == CONTENT
    assert server.asked == [None, "bytes=400000-", "bytes=700000-", "bytes=700001-", "bytes=900001-"]


@pytest.mark.parametrize("given", [{}, {"md5": MD5}])
def test_without_ranges_or_checksum_it_starts_anew(server, target, given):
    server.ranges = not given
    server.cuts = [400_000, 500_000]
    fetch(server.url, target, **given)
    assert target.read_bytes() == CONTENT
    assert server.asked == ([None, "bytes=400000-", "bytes=500000-"] if given else [None] * 3)


def test_the_next_call_goes_on(server, target):
    server.cuts = [600_000, 0, 0, 0]
    with pytest.raises(DownloadError, match=r"some%20set\.tar cannot be downloaded: .*600,000 bytes were received"):
        fetch(server.url, target, md5=MD5)
    assert not target.exists()
    fetch(server.url, target, md5=MD5)
    assert server.asked[-1] == "bytes=600000-"
    assert target.read_bytes() == CONTENT
    assert names(target) == ["file.tar"]


def test_a_file_that_is_always_cut_is_given_up(server, target):
    server.cuts = [1000] * 20
    with pytest.raises(DownloadError, match=r"cannot be downloaded: the connection was closed before the end\.$"):
        fetch(server.url, target)
    assert names(target) == []
    assert len(server.asked) == 3


def test_a_part_that_is_longer_than_the_file_is_dropped(server, target):
    target.parent.mkdir()
    target.with_name(".file.tar.partial").write_bytes(b"x" * (len(CONTENT) + 5))
    fetch(server.url, target, md5=MD5)
    assert server.asked == [f"bytes={len(CONTENT) + 5}-", None]
    assert target.read_bytes() == CONTENT


@pytest.mark.parametrize(("name", "right"), [("md5", MD5), ("sha256", SHA256)])
def test_a_wrong_checksum_says_both_and_leaves_nothing(server, target, name, right):
    wrong = right[::-1]
    with pytest.raises(
        DataFileError, match=rf"some%20set\.tar has the {name} {right}, expected {wrong}; the file was removed"
    ):
        fetch(server.url, target, **{name: wrong})
    assert names(target) == []


def test_a_server_that_does_not_tell_the_length(server, target):
    server.lengths = False
    steps = []
    fetch(server.url, target, md5=MD5, progress=lambda done, total: steps.append((done, total)))
    assert target.read_bytes() == CONTENT
    assert all(done == total for done, total in steps)


@pytest.mark.parametrize("status", [404, 403, 500])
def test_a_refusal_is_said(server, target, status):
    server.status = status
    with pytest.raises(DownloadError, match=rf"some%20set\.tar cannot be downloaded: the server returned {status}"):
        fetch(server.url, target, md5=MD5)
    assert names(target) == []


def test_a_server_that_is_not_there_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(download, "_PAUSE", 0.0)
    with Server() as gone:
        url = gone.url
    with pytest.raises(DownloadError, match=r"some%20set\.tar cannot be downloaded: .*refused"):
        fetch(url, tmp_path / "file")


def test_other_kinds_of_addresses_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"url='file:///etc/passwd': expected an address that begins with http"):
        fetch("file:///etc/passwd", tmp_path / "file")


def test_a_full_disk_is_said(server, target, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(download, "_receive", full)
    with pytest.raises(OSError, match=r"The disk of .*new is full; make room"):
        fetch(server.url, target, md5=MD5)
    assert names(target) == []


def test_a_second_one_waits_for_the_first(server, target):
    server.delay = threading.Event()
    errors = []

    def run():
        try:
            fetch(server.url, target, md5=MD5)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    while not server.asked:
        pass
    server.delay.set()
    for thread in threads:
        thread.join(30)
    assert errors == []
    assert len(server.asked) == 1
    assert target.read_bytes() == CONTENT
    assert names(target) == ["file.tar"]


def test_an_archive_is_fetched_and_unpacked(server, tmp_path):
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        info = tarfile.TarInfo("set/list.txt")
        info.size = 5
        archive.addfile(info, io.BytesIO(b"12345"))
    server.content = packed.getvalue()
    for _ in range(2):
        fetch_archive(server.url, tmp_path / "root", md5=hashlib.md5(server.content).hexdigest())
        assert (tmp_path / "root" / "set" / "list.txt").read_bytes() == b"12345"
    assert sorted(path.name for path in (tmp_path / "root").iterdir()) == ["set", "some set.tar"]
    assert len(server.asked) == 1


def test_a_server_that_gives_a_byte_a_try_is_given_up(server, target):
    server.cuts = [1] * 50
    with pytest.raises(DownloadError, match="; 3 bytes were received"):
        fetch(server.url, target, md5=MD5)
    assert len(server.asked) == 3


def test_a_server_that_always_says_416_is_given_up(server, target):
    server.status = 416
    with pytest.raises(DownloadError, match="the file on the server is shorter"):
        fetch(server.url, target, md5=MD5)
    assert len(server.asked) == 3


def test_tries_come_to_an_end_though_each_gains(server, target, monkeypatch):
    monkeypatch.setattr(download, "_MAX_REQUESTS", 5)
    server.cuts = [100_000] * 9
    with pytest.raises(DownloadError, match="; 500,000 bytes were received"):
        fetch(server.url, target, md5=MD5)


def test_a_length_that_is_no_number_is_said(server, target, monkeypatch):
    plain = Handler.send_header
    monkeypatch.setattr(
        Handler,
        "send_header",
        lambda self, name, value: plain(self, name, "ten" if name == "Content-Length" else value),
    )
    with pytest.raises(DownloadError, match="the server states 'ten' as its length"):
        fetch(server.url, target)


@pytest.mark.parametrize("name", ["..%2F..%2Fevil.zip", "%2Fevil.zip", "a%5Cb.zip", "%2E%2E", "a%00b"])
def test_the_name_of_an_address_never_leaves_the_folder(tmp_path, name):
    with pytest.raises(ValueError, match="expected an address that ends in a file name"):
        fetch_archive(f"http://127.0.0.1:1/data/{name}", tmp_path / "root")
    assert not list(tmp_path.iterdir())


def test_a_file_without_a_checksum_is_warned_of(server, tmp_path, caplog):
    server.content = archive = _tar()
    with caplog.at_level("WARNING", logger="xaibench"):
        fetch_archive(server.url, tmp_path, md5=hashlib.md5(archive).hexdigest())
        assert caplog.text == ""
        fetch_archive(server.url, tmp_path / "other")
    assert "is not verified, because no checksum is known" in caplog.text


def _tar():
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("empty.txt"), io.BytesIO())
    return stream.getvalue()
