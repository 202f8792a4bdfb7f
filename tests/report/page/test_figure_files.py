"""Figures that a helper process draws are those of this process."""

import pickle
from concurrent.futures import BrokenExecutor, Executor, Future

import pytest
from refusals import refused
from report.conftest import FEW_CELLS, METRICS, draw_svg_only, write_run

from xaibench.report.page import write
from xaibench.report.page.figure_files import FigureWriter, compute_findings
from xaibench.scores.results import read_run


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_run(tmp_path_factory.mktemp("drawn") / "run", samples=6, cells=FEW_CELLS[1:2])


@pytest.fixture(scope="module")
def found(folder):
    run = read_run(folder)
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


def test_a_helper_changes_no_file(folder, tmp_path, monkeypatch):
    draw_svg_only(monkeypatch)
    helper = Slow()
    found = []
    for name, given in (("alone", None), ("helped", helper)):
        (tmp_path / name).mkdir()
        write.make_report(folder, tmp_path / name, given)
        files = (tmp_path / name).rglob("*.*")
        found.append({path.relative_to(tmp_path / name): path.read_bytes() for path in files})
    alone, helped = found
    assert helper.drawn == ["forest", "box-emd_perf"]
    assert alone == helped
    assert {file.name for file in alone} > {"forest.svg", "box-topk_precision.svg", "report.html"}


def test_a_writer_can_be_sent_to_another_process(found, tmp_path, monkeypatch):
    draw_svg_only(monkeypatch)
    writer = FigureWriter(*found, tmp_path)
    sent = pickle.loads(pickle.dumps(writer))
    for name in ("box-emd_perf", "maps-example", "ranks-emd_perf", "forest"):
        assert sent.write(name) == writer.write(name)


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
    boxes, ranks = ([f"{kind}-{metric}" for metric in METRICS] for kind in ("box", "ranks"))
    assert list(drawn) == [*boxes, "maps-example", "maps-global", *ranks]
    assert all(drawing.startswith("<svg") for drawing in drawn.values())


def test_an_error_of_the_helper_is_raised_here(found, tmp_path, monkeypatch):
    writer = FigureWriter(*found, tmp_path)
    begun = {"forest": Future()}
    begun["forest"].set_exception(OSError(28, "No space left on device"))
    monkeypatch.setattr(FigureWriter, "write", lambda self, name: None)
    refused(OSError, "No space left", writer.finish, begun)
