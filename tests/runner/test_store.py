"""The store: results are complete or absent, and damaged files are detected and set aside."""

import errno
import os
from pathlib import Path

import pandas as pd
import pytest
import torch
from refusals import refused

from xaibench.runner import run
from xaibench.runner.store import CorruptResultError, RemoteFiles, Store, StoreError, files_at, write_atomic


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "store")


def test_tensors_come_back_as_they_were(store):
    kept = {"a": torch.randn(3, 4, dtype=torch.float64), "mask": torch.tensor([True, False]), "none": torch.empty(0, 2)}
    store.save_tensors("explain", "k", kept, {"n": [1, 2]})
    back, meta = store.load_tensors("explain", "k")
    assert meta == {"n": [1, 2]}
    assert back.keys() == kept.keys()
    for name in kept:
        assert back[name].dtype == kept[name].dtype
        assert torch.equal(back[name], kept[name])


def test_a_table_comes_back_as_it_was(store):
    table = pd.DataFrame({"sample": [0, 1], "value": [0.5, float("nan")], "reason": ["", "map is all zero"]})
    store.save_table("score", "k", table)
    pd.testing.assert_frame_equal(store.load_table("score", "k").to_pandas(), table)
    store.save_table("score", "again", table.copy())
    assert store.files.read("score/again.parquet") == store.files.read("score/k.parquet")


@pytest.mark.parametrize("damage", ["cut", "flip", "empty", "text"])
@pytest.mark.parametrize("stage", ["explain", "score"])
def test_a_damaged_file_is_set_aside_not_read(store, stage, damage):
    if stage == "score":
        store.save_table(stage, "k", pd.DataFrame({"value": [float(i) for i in range(500)]}))
        load = store.load_table
    else:
        store.save_tensors(stage, "k", {"maps": torch.arange(500.0)}, {})
        load = store.load_tensors
    path = store.root / store.name(stage, "k")
    data = bytearray(path.read_bytes())
    if damage == "flip":
        data[len(data) // 2 if stage == "explain" else 300] ^= 1
    path.write_bytes({"cut": data[:-100], "flip": data, "empty": b"", "text": b"no results here" * 9}[damage])
    refused(CorruptResultError, f"{path.name} is damaged", load, stage, "k")
    assert not store.has(stage, "k"), "so it will be computed again"
    assert len(list(path.parent.glob("k.*.corrupt-*"))) == 1, "and nothing is thrown away"


@pytest.mark.parametrize(
    ("number", "message"),
    [
        (errno.ENOSPC, ("No space is left to write ", "run the same command again")),
        (errno.EROFS, ("Cannot write ", "--out")),
    ],
)
def test_a_full_or_read_only_disk_leaves_nothing_half_written(tmp_path, number, message):
    def write_and_fail(path: Path) -> None:
        path.write_bytes(b"the first half")
        raise OSError(number, os.strerror(number))

    target = tmp_path / "result"
    target.write_bytes(b"the old result")
    refused(StoreError, message, write_atomic, target, write_and_fail)
    assert target.read_bytes() == b"the old result"
    assert [path.name for path in tmp_path.iterdir()] == ["result"]


def test_a_really_full_disk(tmp_path):
    # /dev/full answers every write with "No space is left", as a full disk does.
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    fill = lambda path: Path("/dev/full").write_bytes(b"x")  # noqa: E731
    refused(StoreError, "No space is left", write_atomic, tmp_path / "result", fill)
    assert list(tmp_path.iterdir()) == []


def test_all_damaged_files_are_set_aside_in_one_pass(store):
    for key in "abc":
        store.save_tensors("explain", key, {"maps": torch.arange(9.0)}, {})
        store.save_table("score", key, pd.DataFrame({"value": [1.0]}))
    for name in ("explain/a.safetensors", "explain/c.safetensors", "score/b.parquet"):
        store.files.write(name, store.files.read(name)[:-1] + b"?")
    store.set_aside_damaged()
    assert store.keys("explain") == {"b"}
    assert store.keys("score") == {"a", "c"}
    refused(FileNotFoundError, "", store.load_tensors, "explain", "missing")


def test_every_single_flipped_bit_is_found(store):
    store.save_table("score", "k", pd.DataFrame({"sample": [0, 1], "value": [0.5, float("nan")], "reason": ["", "x"]}))
    store.save_tensors("explain", "k", {"test.maps": torch.arange(4.0), "train.maps": torch.ones(2)}, {"n": 1})
    for name, load in (("score/k.parquet", store.load_table), ("explain/k.safetensors", store.load_tensors)):
        sound = store.files.read(name)
        for bit in range(0, 8 * len(sound), max(1, 8 * len(sound) // 500)):
            damaged = bytearray(sound)
            damaged[bit // 8] ^= 1 << bit % 8
            store.files.write(name, bytes(damaged))
            refused(CorruptResultError, name, load, name.split("/")[0], "k")
            assert not store.files.exists(name)


@pytest.fixture(scope="module")
def bucket():
    """An S3 server in this process."""
    server_module = pytest.importorskip("moto.server")
    pytest.importorskip("s3fs")
    server = server_module.ThreadedMotoServer(port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    wanted = {
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
    }
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    import s3fs

    s3fs.S3FileSystem.clear_instance_cache()
    s3fs.S3FileSystem().mkdir("bucket")
    yield "s3://bucket"
    for name, value in before.items():
        os.environ.pop(name) if value is None else os.environ.__setitem__(name, value)
    server.stop()


@pytest.fixture(params=["folder", "file", "memory", "s3"])
def root(request, tmp_path):
    if request.param == "s3":
        return f"{request.getfixturevalue('bucket')}/{tmp_path.name}"
    return {"folder": tmp_path, "file": f"file://{tmp_path}", "memory": f"memory://{tmp_path.name}"}[request.param]


def test_files_are_written_read_listed_and_removed(root):
    files = files_at(root)
    assert files.listing("a") == []
    assert not files.exists("a/one")
    refused(FileNotFoundError, "", files.read, "a/one")
    files.write("a/one", b"0123456789")
    files.write("a/two", b"abc")
    assert files.exists("a/one")
    assert files.read("a/one") == b"0123456789"
    assert set(files.listing("a")) == {"one", "two"}
    files.write("a/one", b"another")
    assert files.read("a/one") == b"another"
    files.rename("a/one", "a/three")
    files.remove("a/two")
    files.remove("a/two")
    assert set(files.listing("a")) == {"three"}


def test_results_come_back_and_damage_is_found(root):
    store = Store(root)
    kept = {
        "test.x": torch.arange(40_000.0),
        "train.x": torch.ones(3, 2, dtype=torch.bool),
        "test.none": torch.empty(0, 2),
    }
    store.save_tensors("data", "k", kept, {"n": [1, "é"]})
    back, meta = store.load_tensors("data", "k")
    assert meta == store.load_meta("data", "k") == {"n": [1, "é"]}
    assert {name: (t.dtype, t.tolist()) for name, t in back.items()} == {
        n: (t.dtype, t.tolist()) for n, t in kept.items()
    }
    assert store.keys("data") == {"k"}
    data = bytearray(store.files.read("data/k.safetensors"))
    data[-5000] ^= 1
    store.files.write("data/k.safetensors", bytes(data))
    refused(CorruptResultError, "data/k", store.load_tensors, "data", "k")
    assert store.keys("data") == set()
    assert any(".corrupt-" in name for name in store.files.listing("data"))


def test_a_store_that_cannot_be_reached_says_so(monkeypatch):
    class Broken:
        def __getattr__(self, name):
            def fail(*arguments, **options):
                raise RuntimeError("no credentials")

            return fail

    monkeypatch.setattr(RemoteFiles, "_resolve", lambda self, name: (Broken(), name))
    store = Store("s3://nowhere/run")
    refused(StoreError, "s3://nowhere/run/data/k", store.save_tensors, "data", "k", {}, {})
    refused(OSError, "s3://nowhere/run/data/k", store.load_meta, "data", "k")
    refused(StoreError, "s3://nowhere/run", store.keys, "data")


def test_a_run_on_an_object_store_has_the_same_tables(bucket, tiny_suite, tiny_run, tmp_path):
    result = run(tiny_suite, tmp_path / "run", engine="serial", store=f"{bucket}/{tmp_path.name}")
    assert result.failures == {}
    for name in ("scores.parquet", "accuracy.csv", "trainings.csv", "failures.csv", "samples.safetensors"):
        assert (result.folder / name).read_bytes() == (tiny_run / name).read_bytes()
    assert not (result.folder / "store").exists()


def test_a_store_of_no_known_kind_says_so(tmp_path):
    refused(StoreError, "nowhere://x: Protocol not known: nowhere", lambda: Store("nowhere://x").has("data", "k"))
    (tmp_path / "file").write_text("")
    refused(
        StoreError,
        ("Cannot read the store ", "file: Not a directory; choose another folder"),
        lambda: Store(tmp_path / "file").keys("data"),
    )
