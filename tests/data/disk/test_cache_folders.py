import os
from pathlib import Path

import numpy as np
import pytest

from xaibench.data.disk import cache_folders
from xaibench.data.disk.cache_folders import cache_folder, digest_folder


@pytest.fixture
def no_cache(tmp_path, monkeypatch):
    """A cache that cannot be made: a file is in its way."""
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XAIBENCH_CACHE", str(tmp_path / "file" / "cache"))
    cache_folders._spare_folder.cache_clear()
    return tmp_path / "file" / "cache"


def test_a_cache_that_cannot_be_made_is_a_warning_and_work_goes_on(no_cache, tmp_path, caplog):
    place = cache_folder("set", tmp_path)
    (place / "built").write_text("here")
    assert (cache_folder("set", tmp_path) / "built").read_text() == "here"
    cache_folder("other", tmp_path)
    (warning,) = caplog.messages
    assert warning.startswith(f"The cache {no_cache} is not writable (Not a directory)")
    assert "Set XAIBENCH_CACHE to a writable folder." in warning


def test_what_others_built_is_used_where_it_cannot_be_written(tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("XAIBENCH_CACHE", str(tmp_path / "cache"))
    shared = cache_folder("set", tmp_path)
    (shared / "old").write_text("theirs")
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != shared)
    cache_folders._spare_folder.cache_clear()
    for _ in range(2):
        place = cache_folder("set", tmp_path)
        assert place != shared
        assert (place / "old").read_text() == "theirs"
    (place / "new").write_text("ours")
    assert [file.name for file in shared.iterdir()] == ["old"]
    assert "Permission denied" in caplog.text


def test_a_stamp_knows_every_file_below(tmp_path):
    def now():
        return digest_folder(tmp_path, (".dcm", ".xml"))

    deep = tmp_path / "study" / "series"
    deep.mkdir(parents=True)
    seen = [now()]
    (deep / "1.DCM").write_bytes(b"abc")
    seen.append(now())
    os.utime(deep / "1.DCM", ns=(5, 5))
    seen.append(now())
    (deep / "1.DCM").write_bytes(b"abcd")
    os.utime(deep / "1.DCM", ns=(5, 5))
    seen.append(now())
    (deep / "1.DCM").rename(tmp_path / "1.dcm")
    seen.append(now())
    assert len(set(seen)) == len(seen)
    for name in ("._1.dcm", "notes.txt"):
        (tmp_path / name).write_bytes(b"")
    (tmp_path / "gone.dcm").symlink_to(tmp_path / "nowhere")
    assert now() == seen[-1] == digest_folder(tmp_path, (".dcm", ".xml"))
    assert digest_folder(tmp_path / "none", ".dcm") == digest_folder(tmp_path / "nothing", ".dcm")


def test_sets_are_built_without_a_cache(no_cache, tmp_path, caplog):
    from generators.gender import write

    from xaibench.data import load

    expected = {sample.id: sample.mask for sample in write(tmp_path / "data")}
    split = load("gender", root=tmp_path / "data", size=16, splits=(0, 0, 1)).test
    assert set(split.ids) == set(expected)
    assert np.array_equal(split.source.mask(split.indices[0]), expected[split.ids[0]])
    assert caplog.text.count("XAIBENCH_CACHE") == 1
