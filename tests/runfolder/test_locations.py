"""A run folder at a URL is read remotely and gives the same results as on disk."""

import sys
from pathlib import Path

import pandas as pd
import pytest
from report.conftest import FEW_CELLS, draw_svg_only, write_run

from xaibench.report import write_report
from xaibench.runfolder.locations import resolve_location
from xaibench.runfolder.sample_file import read_samples
from xaibench.runfolder.schema import RunFolderError
from xaibench.scores.results import read_run
from xaibench.scores.run_comparison import compare_runs


@pytest.fixture
def local(tmp_path):
    return write_run(tmp_path / "run", cells=FEW_CELLS)


@pytest.fixture
def address(local):
    """The same run in fsspec's in-memory file system."""
    fsspec = pytest.importorskip("fsspec")
    pytest.importorskip("upath")
    there = fsspec.filesystem("memory")
    there.put(str(local), "/runs/one", recursive=True)
    yield "memory://runs/one"
    there.rm("/runs", recursive=True)


def test_what_is_read_from_an_address_is_what_lies_there(local, address):
    here, there = read_run(local), read_run(address)
    pd.testing.assert_frame_equal(here.scores, there.scores)
    pd.testing.assert_frame_equal(here.jobs, there.jobs)
    assert (here.title, here.environment, here.suite_toml) == (there.title, there.environment, there.suite_toml)
    assert len(read_samples(resolve_location(address))) == len(read_samples(local)) > 0


def test_a_page_of_a_run_at_an_address_is_written_elsewhere(local, address, tmp_path, monkeypatch):
    draw_svg_only(monkeypatch)
    with pytest.raises(RunFolderError, match="say into which folder the report goes: --out FOLDER"):
        write_report(address)
    page = write_report(address, tmp_path / "page")
    assert page == tmp_path / "page" / "report.html"
    assert page.read_bytes() == write_report(local).read_bytes()
    assert sorted(path.name for path in (tmp_path / "page").iterdir()) == [
        *("comparisons.csv", "figures", "report.html", "summary.csv", "tables"),
    ]


def test_runs_at_addresses_are_compared(local, address):
    assert (compare_runs([local, address])["difference"] == 0).all()


def test_a_path_stays_one(tmp_path, monkeypatch):
    assert resolve_location(tmp_path) is tmp_path
    assert resolve_location("runs/one") == Path("runs/one")
    monkeypatch.setitem(sys.modules, "upath", None)
    with pytest.raises(ImportError, match=r'needs universal-pathlib: pip install "xaibench\[remote\]"'):
        resolve_location("s3://bucket/run")
