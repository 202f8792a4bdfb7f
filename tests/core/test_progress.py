"""What is said of how far something has come: to whom, when, and what to do where it takes long."""

import io
import re
import sys
import time
import warnings

import pytest

from xaibench.cli.terminal import progress_bars
from xaibench.core import progress as module
from xaibench.core.progress import Progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


def at_a_terminal(monkeypatch):
    """Not a fixture: between those and the test pytest takes stderr for itself."""
    monkeypatch.setattr(sys, "stderr", Terminal())
    return sys.stderr


@pytest.fixture
def at_once(monkeypatch):
    for name in ("SOON", "FIRST_LINE", "LINES"):
        monkeypatch.setattr(module, name, 0.0)


def test_nothing_is_said_of_what_takes_no_time(monkeypatch):
    terminal = at_a_terminal(monkeypatch)
    with Progress("quick", 3, "map") as progress:
        for _ in range(3):
            progress.advance()
    assert terminal.getvalue() == ""


def test_a_bar_comes_before_the_first_step_is_done(monkeypatch):
    terminal = at_a_terminal(monkeypatch)
    monkeypatch.setattr(module, "SOON", 0.01)
    with Progress("RISE", 8000, "row"):
        end = time.monotonic() + 5
        while "0/8000" not in terminal.getvalue() and time.monotonic() < end:
            time.sleep(0.01)
        assert "RISE:   0%|" in terminal.getvalue()


def test_a_bar_counts_from_the_start(at_once, monkeypatch):
    terminal = at_a_terminal(monkeypatch)
    with Progress("RISE", 4, "row", stays=True) as progress:
        progress.advance(2)
        progress.advance(2)
    assert "100%" in terminal.getvalue()
    assert "4/4" in terminal.getvalue()


def test_a_log_has_plain_lines(capsys, at_once):
    with Progress("   train", 4, "job") as progress:
        for _ in range(4):
            progress.advance()
    said = capsys.readouterr().err
    lines = said.splitlines()
    assert lines[0] == "train: 1 of 4 jobs, about 0 s left"
    assert lines[1:] == [
        "train: 2 of 4 jobs, about 0 s left",
        "train: 3 of 4 jobs, about 0 s left",
        "train: 4 jobs in 0 s",
    ]
    assert all(character.isprintable() or character == "\n" for character in said)


def test_a_log_has_no_line_for_every_step(capsys, monkeypatch):
    monkeypatch.setattr(module, "SOON", 0.0)
    with Progress("train", 100, "job") as progress:
        for _ in range(100):
            progress.advance()
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("way", ["argument", "variable"])
def test_it_can_be_turned_off(at_once, monkeypatch, way):
    terminal = at_a_terminal(monkeypatch)
    monkeypatch.setattr(module, "LONG", 0.0)
    if way == "variable":
        monkeypatch.setenv("TQDM_DISABLE", "1")
    with Progress("RISE", 4, "row", shown=way == "variable") as progress:
        progress.advance()
    assert terminal.getvalue() == ""


def test_a_long_time_is_said_beforehand_once_with_what_to_do(at_once, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: clock[0])
    message = r"RISE takes about 6 min 40 s .*\(8000 rows\)\. Fewer rows: N below"
    with Progress("RISE", lambda: 8000, "row", advice="Fewer rows: N below 4000.") as progress:
        clock[0] = 2.0
        with pytest.warns(UserWarning, match=message):
            progress.advance(40)
        with warnings.catch_warnings(action="error"):
            progress.advance(40)


@pytest.mark.parametrize("share", [None, 0.1])
def test_the_first_of_many_steps_promise_nothing(capsys, at_once, share):
    """A stage whose first jobs wait for another one has no pace yet; without advice there is no warning."""
    clock = [0.0]
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings(action="error"):
        patch.setattr(module.time, "monotonic", lambda: clock[0])
        with Progress("score", 156, "job") as progress:
            clock[0] = 42.0
            progress.advance(2, share)
            clock[0] = 52.0
            progress.advance(11, share and 13 / 156)
    first, second, _ = capsys.readouterr().err.splitlines()
    assert first == "score: 2 of 156 jobs in 42 s"
    assert second == "score: 13 of 156 jobs, about 9 min 32 s left"


def test_what_is_left_goes_by_the_work_where_steps_are_not_alike(capsys, at_once):
    clock = [0.0]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module.time, "monotonic", lambda: clock[0])
        with Progress("train", 30, "job") as progress:
            for seconds, steps, share in [(1.0, 6, 0.0), (60.0, 1, 0.01), (600.0, 3, 0.5), (1200.0, 20, 1.0)]:
                clock[0] = seconds
                progress.advance(steps, share)
    assert capsys.readouterr().err.splitlines() == [
        "train: 6 of 30 jobs in 1 s",  # found, as an earlier run had left them
        "train: 7 of 30 jobs, about 1 h 39 min left",
        "train: 10 of 30 jobs, about 10 min 0 s left",
        "train: 30 jobs in 20 min 0 s",
    ]


def test_a_stage_that_waited_for_another_goes_by_its_own_pace(capsys, at_once):
    clock = [0.0]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module.time, "monotonic", lambda: clock[0])
        with Progress("explain", 494, "job") as progress:
            for seconds, steps, share in [(1900.0, 1, 0.001), (1960.0, 180, 0.101), (2260.0, 313, 1.0)]:
                clock[0] = seconds
                progress.advance(steps, share)
    said = capsys.readouterr().err.splitlines()
    assert said[:2] == [
        "explain: 1 of 494 jobs in 31 min 40 s",  # most of which the trainings took
        "explain: 181 of 494 jobs, about 8 min 59 s left",
    ]


def test_a_bar_that_is_drawn_again_keeps_the_share(monkeypatch):
    terminal = at_a_terminal(monkeypatch)
    monkeypatch.setattr(module, "SOON", 0.05)
    with Progress("train", 30, "job", options={"mininterval": 0, "miniters": 1}) as progress:
        progress.advance(6, 0.0)
        end = time.monotonic() + 5
        while "6/30" not in terminal.getvalue() and time.monotonic() < end:
            time.sleep(0.01)
    assert "6/30" in terminal.getvalue()
    assert "job/s" not in terminal.getvalue().partition("6/30")[2]


def test_so_does_a_bar(at_once, monkeypatch):
    terminal = at_a_terminal(monkeypatch)
    clock = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: clock[0])
    with Progress("train", 30, "job", options={"mininterval": 0, "miniters": 1}) as progress:
        for seconds, steps, share in [(60.0, 6, 0.0), (120.0, 1, 0.25), (480.0, 23, 1.0)]:
            clock[0] = seconds
            progress.advance(steps, share)
    drawn = terminal.getvalue()
    assert re.search(r" 6/30 \[\d\d:\d\d<\?\]", drawn)  # what went by is of tqdm's own clock
    assert re.search(r" 7/30 \[\d\d:\d\d<06:00\]", drawn)
    assert "30/30" in drawn


def test_what_nobody_can_count_is_still_shown(capsys, at_once):
    with Progress("mine", None, "row") as progress:
        progress.advance(7)
    assert "mine: 7 rows in 0 s" in capsys.readouterr().err


def test_the_time_of_a_stage_is_its_own(monkeypatch, capsys):
    """From the first result of the stage before it to its own last, however long the run goes on."""
    clock = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    with progress_bars() as show:
        for seconds, stage, done in [
            (20, "data", 1),
            (60, "data", 2),
            (90, "train", 1),
            (70, "train", 2),
            (500, "", 0),
        ]:
            clock[0] += seconds
            if stage:
                show(stage, done, 2, done / 2)
    said = capsys.readouterr().err.splitlines()
    assert "data: 2 jobs in 1 min 20 s" in said
    assert "train: 2 jobs in 3 min 40 s" in said
