"""Figures that a helper process draws are those of this process."""

import pickle
from concurrent.futures import BrokenExecutor, Executor, Future

import pytest
from report.conftest import draw_svg_only

from xaibench.report.page import write
from xaibench.report.page.figure_files import FigureWriter
from xaibench.report.page.findings import compute_findings
from xaibench.report.read.results import read_run


@pytest.fixture(scope="module")
def found(few_cells_run):
    run = read_run(few_cells_run)
    return run, compute_findings(run)


class Slow(Executor):
    """Has drawn two figures when this process has done everything else."""

    def __init__(self):
        self.drawn = []

    def submit(self, work, /, *given):
        future = Future()
        if len(self.drawn) < 2:
            future.set_result(work(*given))
            self.drawn += [name for name in given if isinstance(name, str)]
        return future


def test_a_helper_changes_no_file(few_cells_run, tmp_path, monkeypatch):
    draw_svg_only(monkeypatch)
    helper = Slow()
    for folder, given in (("alone", None), ("helped", helper)):
        (tmp_path / folder).mkdir()
        write.make_report(few_cells_run, tmp_path / folder, given)
    alone, helped = (
        {path.relative_to(tmp_path / folder): path.read_bytes() for path in (tmp_path / folder).rglob("*.*")}
        for folder in ("alone", "helped")
    )
    assert helper.drawn == ["forest", "box-emd_perf"]
    assert alone == helped
    assert {file.name for file in alone} > {"forest.svg", "box-topk_precision.svg", "report.html"}


def test_a_writer_can_be_sent_to_another_process(found, tmp_path, monkeypatch):
    draw_svg_only(monkeypatch)
    writer = FigureWriter(*found, tmp_path)
    for name in ("box-emd_perf", "maps-example", "ranks-emd_perf", "forest"):
        assert pickle.loads(pickle.dumps(writer)).write(name) == writer.write(name)


class Broken(Executor):
    """Its process was killed after the first figure."""

    def submit(self, work, /, *given):
        future = Future()
        if given == ("forest",):
            future.set_result("drawn before")
        else:
            future.set_exception(BrokenExecutor("killed"))
        return future


def test_what_a_killed_helper_did_not_draw_is_drawn_here(found, tmp_path, monkeypatch):
    draw_svg_only(monkeypatch)
    writer = FigureWriter(*found, tmp_path / "figures")
    drawn = writer.finish(writer.begin(Broken()))
    assert drawn.pop("forest") == "drawn before"
    assert list(drawn) == list(writer.finish())[1:]
    assert all(drawing.startswith("<svg") for drawing in drawn.values())


def test_an_error_of_the_helper_is_raised_here(found, tmp_path, monkeypatch):
    writer = FigureWriter(*found, tmp_path)
    begun = {"forest": Future()}
    begun["forest"].set_exception(OSError(28, "No space left on device"))
    monkeypatch.setattr(FigureWriter, "write", lambda self, name: None)
    with pytest.raises(OSError, match="No space left"):
        writer.finish(begun)
