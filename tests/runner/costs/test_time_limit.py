"""A time limit interrupts code that does not check the time."""

import signal
import threading
import time

import pytest

from xaibench.runner.costs.time_limit import time_limit


def test_an_endless_block_is_left_and_the_handler_is_restored():
    before, steps = signal.getsignal(signal.SIGALRM), 0
    with time_limit(0.05):
        while True:
            try:
                steps += 1
                time.sleep(0.001)
            except Exception:  # jobs turn errors into outcomes
                pytest.fail("the limit is no error of the job")
    assert steps
    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_an_import_is_finished_first(tmp_path, monkeypatch):
    """An interrupted import would leave a module without some of its names."""
    source = (
        "import time\nend = time.monotonic() + 0.2\nwhile time.monotonic() < end:\n    time.sleep(0.001)\ndone = True\n"
    )
    (tmp_path / "slow_to_import.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    with time_limit(0.02):
        import slow_to_import

        while True:
            time.sleep(0.001)
    assert slow_to_import.done


def test_a_fast_block_is_not_interrupted_and_errors_pass():
    with pytest.raises(ZeroDivisionError), time_limit(60.0):
        _ = 1 / 0
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_other_threads_have_no_timer():
    seen = []

    def work():
        with time_limit(60.0):
            seen.append(signal.getitimer(signal.ITIMER_REAL))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [(0.0, 0.0)]
