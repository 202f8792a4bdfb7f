import pytest
from generators.painted import Painted, PaintedSet


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


@pytest.fixture
def root(request, tmp_path):
    """A tiny tree of the data set that the file is about, in its official layout."""
    (case,) = request.module.CASES.values()
    case.write(tmp_path)
    return tmp_path
