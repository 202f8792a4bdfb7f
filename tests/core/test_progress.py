"""Progress bars: where they are shown, and the warning before a long computation."""

import io
import re
import sys
import time
import warnings

import pytest

from xaibench.cli.terminal import count_bar, progress_bars
from xaibench.core import progress as module
from xaibench.core.progress import ProgressBar


class Terminal(io.StringIO):
    def isatty(self):
        return True


def use_terminal(monkeypatch):
    """Replace stderr. Not a fixture: pytest replaces stderr itself between the fixtures and the test."""
    monkeypatch.setattr(sys, "stderr", Terminal())
    return sys.stderr


@pytest.fixture
def without_delay(monkeypatch):
    monkeypatch.setattr(module, "DELAY", 0.0)


def test_a_fast_loop_shows_no_bar(monkeypatch):
    terminal = use_terminal(monkeypatch)
    with ProgressBar("quick", 3, "map") as bar:
        for _ in range(3):
            bar.advance()
    assert terminal.getvalue() == ""


def test_a_slow_loop_shows_a_bar_that_counts_from_the_start(without_delay, monkeypatch):
    terminal = use_terminal(monkeypatch)
    with ProgressBar("RISE", 4, "row", keep=True) as bar:
        bar.advance(2)
        bar.advance(2)
    assert "100%" in terminal.getvalue()
    assert "4/4" in terminal.getvalue()


def test_a_notebook_shows_a_bar(without_delay, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "ipykernel", module)
    assert module.shows_bars()


def test_a_log_stays_empty(capsys, without_delay):
    with ProgressBar("train", 4, "job") as bar:
        for _ in range(4):
            bar.advance()
    with progress_bars() as show:
        show("train", 1, 2)
        show("train", 2, 2)
    with count_bar("downloading") as show:
        show(1, 2)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("way", ["argument", "variable"])
def test_bars_and_warnings_can_be_turned_off(without_delay, monkeypatch, way):
    terminal = use_terminal(monkeypatch)
    monkeypatch.setattr(module, "WARN_BEYOND", 0.0)
    if way == "variable":
        monkeypatch.setenv("TQDM_DISABLE", "1")
    with (
        warnings.catch_warnings(action="error"),
        ProgressBar("RISE", 4, "row", shown=way == "variable", advice="Fewer rows.") as bar,
    ):
        bar.advance()
    assert terminal.getvalue() == ""


@pytest.fixture
def clock(monkeypatch):
    """A clock that stands still until it is set."""
    now = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    return now


def test_a_long_computation_warns_once_with_advice(clock):
    message = r"RISE takes about 6 min 40 s .*\(8000 rows\)\. Fewer rows: N below"
    with ProgressBar("RISE", lambda: 8000, "row", advice="Fewer rows: N below 4000.") as bar:
        with warnings.catch_warnings(action="error"):
            for seconds in (2.0, 4.0):
                clock[0] = seconds
                bar.advance(40)
        clock[0] = 10.0
        with pytest.warns(UserWarning, match=message):
            bar.advance(120)
        with warnings.catch_warnings(action="error"):
            bar.advance(40)


def test_the_warm_up_is_not_extrapolated(clock):
    """The first batch compiles for 30 s, the others take 1 s each."""
    with ProgressBar("evaluate", 100, "batch", advice="Fewer.") as bar, warnings.catch_warnings(action="error"):
        for number in range(10):
            clock[0] = 30.0 + number
            bar.advance()


def test_an_unknown_total_is_shown_as_a_count(without_delay, monkeypatch):
    terminal = use_terminal(monkeypatch)
    with ProgressBar("mine", None, "row", keep=True, advice="Fewer rows.") as bar:
        bar.advance(7)
    assert "7row" in terminal.getvalue()


def test_stages_count_jobs(monkeypatch):
    terminal = use_terminal(monkeypatch)
    with progress_bars() as show:
        show("train", 6, 30)
        time.sleep(0.15)
        show("train", 30, 30)
        show("score", 1, 2)
    drawn = terminal.getvalue()
    assert re.search(r"train: .*30/30 \[00:00<00:00", drawn)
    assert re.search(r"score: .*1/2", drawn)
