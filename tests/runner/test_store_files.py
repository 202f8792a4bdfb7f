"""File access of the store: a folder, fsspec URLs and an object store behave in the same way."""

import os

import pytest
import torch

from xaibench.runner import run
from xaibench.runner.store import CorruptResultError, Store
from xaibench.runner.store_files import RemoteFiles, StoreError, files_at


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
    with pytest.raises(FileNotFoundError):
        files.read("a/one")
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
    with pytest.raises(CorruptResultError, match="data/k"):
        store.load_tensors("data", "k")
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
    with pytest.raises(StoreError, match="s3://nowhere/run/data/k"):
        store.save_tensors("data", "k", {}, {})
    with pytest.raises(OSError, match="s3://nowhere/run/data/k"):
        store.load_meta("data", "k")
    with pytest.raises(StoreError, match="s3://nowhere/run"):
        store.keys("data")


def test_a_run_on_an_object_store_has_the_same_tables(bucket, tiny_suite, tiny_run, tmp_path):
    result = run(tiny_suite, tmp_path / "run", engine="serial", store=f"{bucket}/{tmp_path.name}")
    assert result.failures == {}
    for name in ("scores.parquet", "accuracy.csv", "trainings.csv", "failures.csv", "samples.safetensors"):
        assert (result.folder / name).read_bytes() == (tiny_run / name).read_bytes()
    assert not (result.folder / "store").exists()


def test_a_store_of_no_known_kind_says_so(tmp_path):
    with pytest.raises(StoreError, match="Cannot reach the store nowhere://x: Protocol not known: nowhere"):
        Store("nowhere://x").has("data", "k")
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"Cannot read the store .*file: Not a directory; choose another folder"):
        Store(tmp_path / "file").keys("data")
