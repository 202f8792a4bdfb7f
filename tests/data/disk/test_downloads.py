"""Download and unpacking of archives, from a server on this machine."""

import functools
import hashlib
import http.server
import io
import tarfile
import threading

import pytest
from refusals import refused

from xaibench.data.disk.downloads import fetch_archive
from xaibench.data.disk.file_readers import DataFileError


@pytest.fixture
def offer(tmp_path, monkeypatch):
    """A function that offers an archive of these members, and returns its address and its checksum."""

    monkeypatch.setenv("no_proxy", "*")
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=tmp_path / "server")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()

    def write(members):
        file = tmp_path / "server" / "set.tar.gz"
        file.parent.mkdir(exist_ok=True)
        with tarfile.open(file, "w:gz") as archive:
            for name, content in members.items():
                member = tarfile.TarInfo(name)
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
        url = f"http://127.0.0.1:{server.server_port}/set.tar.gz"
        return {"url": url, "md5": hashlib.md5(file.read_bytes()).hexdigest()}

    yield write
    server.shutdown()
    server.server_close()


def test_an_archive_is_downloaded_and_unpacked_next_to_the_files_there(offer, tmp_path):
    root = tmp_path / "root"
    (root / "images").mkdir(parents=True)
    (root / "images" / "b.png").write_bytes(b"there")
    offered = offer({"images/a.png": b"a", "images/deep/c.png": b"c"})
    fetch_archive(root=root, **offered)
    fetch_archive(root=root, **offered)
    files = {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*.png")}
    assert files == {"images/a.png": b"a", "images/b.png": b"there", "images/deep/c.png": b"c"}
    assert sorted(path.name for path in root.iterdir()) == ["images", "set.tar.gz"]


@pytest.mark.parametrize("name", ["../outside.txt", "images/../../outside.txt"])
def test_a_member_outside_of_the_folder_is_refused(offer, tmp_path, name):
    offered = offer({"images/a.png": b"a", name: b"x"})
    refused(DataFileError, "set.tar.gz", lambda: fetch_archive(root=tmp_path / "root", **offered))
    assert not list(tmp_path.rglob("outside.txt"))
    assert [path.name for path in (tmp_path / "root").iterdir()] == ["set.tar.gz"]


def test_another_checksum_and_a_server_without_the_file(offer, tmp_path):
    url, root = offer({"images/a.png": b"a"})["url"], tmp_path / "root"
    refused(DataFileError, "set.tar.gz", lambda: fetch_archive(url, root, md5="0" * 32))
    assert not (root / "images").exists()
    missing = url.replace("set.tar.gz", "none.tar")
    refused(ConnectionError, "none.tar", lambda: fetch_archive(missing, root, md5="0" * 32))
