import shutil
import threading

import pytest
from generators.download_server import Server
from generators.painted import Painted, PaintedSet

from xaibench.data.disk import downloads


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    """The cache folder of xaibench, which is empty."""
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("XAIBENCH_CACHE", str(folder))
    return folder


@pytest.fixture
def painted():
    return Painted


@pytest.fixture
def painted_set(tmp_path):
    """``painted_set(source)``: the set and a root in which it lies."""
    (tmp_path / "painted").mkdir()
    (tmp_path / "painted" / "list.txt").touch()
    return lambda source=None: (PaintedSet(source), tmp_path)


@pytest.fixture(scope="module")
def written(request, tmp_path_factory):
    """A tiny tree of the data set that the file is about, in its official layout."""
    (case,) = request.module.CASES.values()
    case.write(root := tmp_path_factory.mktemp("written"))
    return root


@pytest.fixture
def root(written, tmp_path):
    """A copy of ``written``, to be changed."""
    return shutil.copytree(written, tmp_path, dirs_exist_ok=True)


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(downloads, "_PAUSE", 0)
    with Server() as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server
        server.shutdown()
