import gzip
import io
import lzma
import stat
import tarfile
import tracemalloc
import zipfile
import zlib
from concurrent.futures import ThreadPoolExecutor

import pytest

from xaibench.data.annotated import DataFileError, MissingDataError
from xaibench.data.disk import archives as module
from xaibench.data.disk.archives import unpack

CONTENT = {"set/images/1.jpg": b"one" * 9000, "set/list.txt": b"1\n", "set/empty/": None, "top.txt": b"top"}


def write_zip(file, content=CONTENT):
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in content.items():
            archive.writestr(name, data or b"")


def write_tar(file, content=CONTENT, mode="w", **member):
    with tarfile.open(file, mode) as archive:
        for name, data in content.items():
            info = tarfile.TarInfo(name)
            info.type = tarfile.DIRTYPE if data is None else tarfile.REGTYPE
            info.size = len(data or b"")
            for key, value in member.items():
                setattr(info, key, value)
            archive.addfile(info, io.BytesIO(data or b""))


WRITERS = {
    "zip": write_zip,
    "tar": write_tar,
    "tar.gz": lambda file, content=CONTENT: write_tar(file, content, "w:gz"),
    "tar.xz": lambda file, content=CONTENT: write_tar(file, content, "w:xz"),
}
every_kind = pytest.mark.parametrize("kind", WRITERS)


def lying(folder):
    """What is in a folder, hidden files and folders included."""
    return {
        path.relative_to(folder).as_posix() + ("/" if path.is_dir() else ""): path.read_bytes()
        if path.is_file()
        else None
        for path in folder.rglob("*")
    }


ALL = {**CONTENT, "set/": None, "set/images/": None}


@every_kind
def test_everything_is_unpacked_and_nothing_else_is_left(kind, tmp_path):
    # The content says what an archive is, not its suffix.
    WRITERS[kind](tmp_path / "download")
    unpack(tmp_path / "download", tmp_path / "new" / "root")
    assert lying(tmp_path / "new" / "root") == ALL


def test_names_that_begin_with_a_dot_and_a_slash(tmp_path):
    write_tar(tmp_path / "a.tar", {"./": None, "./set/": None, "./set/list.txt": b"1\n"})
    unpack(tmp_path / "a.tar", tmp_path / "root")
    assert lying(tmp_path / "root") == {"set/": None, "set/list.txt": b"1\n"}


@every_kind
def test_folders_are_merged_and_files_replaced(kind, tmp_path):
    root = tmp_path / "root"
    (root / "set" / "images").mkdir(parents=True)
    (root / "set" / "images" / "1.jpg").write_bytes(b"half")
    (root / "set" / "own.txt").write_bytes(b"mine")
    WRITERS[kind](tmp_path / "download")
    unpack(tmp_path / "download", root)
    assert lying(root) == {**ALL, "set/own.txt": b"mine"}


@every_kind
@pytest.mark.parametrize(
    "name", ["../outside.txt", "set/../../outside.txt", "/outside.txt", "..\\outside.txt", "C:\\outside.txt"]
)
def test_names_outside_the_folder_are_refused(kind, name, tmp_path):
    WRITERS[kind](tmp_path / "download", {"set/fine.txt": b"fine", name: b"evil"})
    with pytest.raises(DataFileError, match=r"download contains .*outside\.txt'.*unsafe"):
        unpack(tmp_path / "download", tmp_path / "deep" / "root")
    assert lying(tmp_path / "deep") == {"root/": None}
    assert not (tmp_path / "outside.txt").exists()


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE])
def test_links_and_devices_in_a_tar_are_refused(kind, tmp_path):
    write_tar(tmp_path / "a.tar", {"set/link": b""}, type=kind, linkname="/etc/passwd")
    with pytest.raises(
        DataFileError, match=r"a\.tar contains a link, a device or a sparse file, 'set/link', which is unsafe"
    ):
        unpack(tmp_path / "a.tar", tmp_path / "root")
    assert lying(tmp_path / "root") == {}


def test_links_in_a_zip_are_refused(tmp_path):
    link = zipfile.ZipInfo("set/link")
    link.create_system = 3
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr(link, "/etc/passwd")
    with pytest.raises(DataFileError, match=r"a\.zip contains a link or a device, 'set/link', which is unsafe"):
        unpack(tmp_path / "a.zip", tmp_path / "root")
    assert lying(tmp_path / "root") == {}


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME])
def test_a_name_of_gigabytes_asks_for_no_memory(kind, tmp_path):
    header = tarfile.TarInfo("set/list.txt")
    header.type, header.size = kind, 3 << 30
    (tmp_path / "a.tar.gz").write_bytes(gzip.compress(header.tobuf(tarfile.GNU_FORMAT) + bytes(2048)))
    tracemalloc.start()
    with pytest.raises(
        DataFileError, match=r"a\.tar\.gz is not a complete .* \(A name has a stated length of 3,221,225,472 bytes\)"
    ):
        unpack(tmp_path / "a.tar.gz", tmp_path / "root")
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 5e6


def greedy():
    """An xz file that wants a dictionary of 4 GB: that is one byte of its first block's head, which has a checksum."""
    content = bytearray(lzma.compress(bytes(2048), format=lzma.FORMAT_XZ))
    end = 12 + 4 * (content[12] + 1)
    content[16] = 40
    content[end - 4 : end] = zlib.crc32(content[12 : end - 4]).to_bytes(4, "little")
    return bytes(content)


@pytest.mark.parametrize("content", [b"\x1b" + b"\xff" * 60, greedy()], ids=["old", "xz"])
def test_a_dictionary_of_gigabytes_asks_for_no_memory(content, tmp_path):
    (tmp_path / "a.tar").write_bytes(content)
    tracemalloc.start()
    with pytest.raises(DataFileError, match=r"a\.tar is not a complete zip or tar archive"):
        unpack(tmp_path / "a.tar", tmp_path / "root")
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 5e6


@every_kind
@pytest.mark.parametrize("share", [0.2, 0.6, 0.9])
def test_a_truncated_archive_leaves_nothing(kind, share, tmp_path):
    noise = bytes((7 * n * n + n // 3) % 251 for n in range(200_000))
    file = tmp_path / "download"
    WRITERS[kind](file, {"set/a": noise, "set/b": noise[::-1], "set/c": noise[1::2]})
    file.write_bytes(file.read_bytes()[: int(share * file.stat().st_size)])
    with pytest.raises(DataFileError, match=r"download (is not a complete zip or tar archive|cannot be read)"):
        unpack(file, tmp_path / "root")
    assert lying(tmp_path / "root") == {}


def test_a_zip_with_a_wrong_byte_is_named(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("a", b"some content")
    (tmp_path / "a.zip").write_bytes((tmp_path / "a.zip").read_bytes().replace(b"some content", b"some c0ntent"))
    with pytest.raises(DataFileError, match=r"a\.zip is not a complete zip or tar archive \(Bad CRC"):
        unpack(tmp_path / "a.zip", tmp_path / "root")


def test_what_is_no_archive_is_named(tmp_path):
    (tmp_path / "a.zip").write_text("<html>404</html>")
    with pytest.raises(DataFileError, match=r"a\.zip is not a complete zip or tar archive"):
        unpack(tmp_path / "a.zip", tmp_path / "root")
    with pytest.raises(MissingDataError, match=r"b\.zip is missing"):
        unpack(tmp_path / "b.zip", tmp_path / "root")


@every_kind
def test_a_full_disk_is_said_and_leaves_nothing(kind, tmp_path, monkeypatch):
    def full(place, chunks):
        raise OSError(28, "No space left on device")

    WRITERS[kind](tmp_path / "download")
    monkeypatch.setattr(module, "_write_member", full)
    with pytest.raises(OSError, match=r"The disk of .*root is full"):
        unpack(tmp_path / "download", tmp_path / "root")
    assert lying(tmp_path / "root") == {}


def test_a_stopped_unpacking_leaves_nothing_that_looks_whole(tmp_path, monkeypatch):
    written = []

    def stop(place, chunks):
        if len(written) == 2:
            raise KeyboardInterrupt
        written.append(place)
        write(place, chunks)

    write = module._write_member
    write_zip(tmp_path / "a.zip")
    monkeypatch.setattr(module, "_write_member", stop)
    with pytest.raises(KeyboardInterrupt):
        unpack(tmp_path / "a.zip", tmp_path / "root")
    assert len(written) == 2
    assert lying(tmp_path / "root") == {}


def test_several_at_once(tmp_path):
    write_tar(tmp_path / "a.tar", {f"set/{n % 5}/{n}.txt": b"x" * n for n in range(300)})
    with ThreadPoolExecutor(4) as pool:
        done = [pool.submit(unpack, tmp_path / "a.tar", tmp_path / "root") for _ in range(8)]
    assert [one.exception() for one in done] == [None] * 8
    files = {path.name: path.stat().st_size for path in (tmp_path / "root").rglob("*") if path.is_file()}
    assert files == {f"{n}.txt": n for n in range(300)}
    assert [path.name for path in (tmp_path / "root").iterdir()] == ["set"]


def test_every_flipped_bit_of_a_compressed_tar_is_found(tmp_path):
    """The checksum stands behind the last byte that tar asks for."""
    whole, found = tmp_path / "whole.tar.gz", tmp_path / "flipped.tar.gz"
    write_tar(whole, {"a.bin": bytes(range(256)) * 4}, "w:gz")
    data = whole.read_bytes()
    unnoticed = []
    for place in range(10, len(data)):  # behind the kind of the file and its time
        flipped = bytearray(data)
        flipped[place] ^= 1 << place % 8
        found.write_bytes(flipped)
        root = tmp_path / "root" / str(place)
        try:
            unpack(found, root)
        except DataFileError:
            assert lying(root) == {}
        else:
            unnoticed.append((place, lying(root) == {"a.bin": bytes(range(256)) * 4}))
    assert all(same for _, same in unnoticed)
    assert len(unnoticed) < 24, "its own name, and bits that fill up a byte, which no checksum covers"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("", "may be outside the folder"),
        (".", "may be outside the folder"),
        ("./", "may be outside the folder"),
        ("/".join(["d"] * 2000), r"a name of 3999 characters in 2000 folders"),
        ("n" * 1100, r"a name of 1100 characters in 1 folders"),
    ],
)
def test_names_that_no_sound_archive_has_are_refused(name, message, tmp_path):
    write_tar(tmp_path / "a.tar", {"before.txt": b"1"} | {name: b"2"})
    with pytest.raises(DataFileError, match=message):
        unpack(tmp_path / "a.tar", tmp_path / "root")
    assert lying(tmp_path / "root") == {}


def test_a_sparse_file_is_refused(tmp_path):
    write_tar(tmp_path / "a.tar", {"one.bin": b""}, sparse=None, type=tarfile.GNUTYPE_SPARSE)
    with pytest.raises(DataFileError, match=r"a sparse file, 'one\.bin', which is unsafe|not a complete zip or tar"):
        unpack(tmp_path / "a.tar", tmp_path / "root")


@every_kind
def test_an_archive_that_holds_many_times_its_size_is_refused(kind, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_MIN_LIMIT", 1 << 16)
    WRITERS[kind](tmp_path / "bomb", {"zeros.bin": bytes(1 << 22)})
    if kind == "tar":
        unpack(tmp_path / "bomb", tmp_path / "root")
        return
    with pytest.raises(DataFileError, match="unpacks to more than 100 times its size, which is unsafe"):
        unpack(tmp_path / "bomb", tmp_path / "root")
    assert lying(tmp_path / "root") == {}
