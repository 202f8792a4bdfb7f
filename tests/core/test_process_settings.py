import gc
import threading
import warnings

import pytest

from xaibench.core.process_settings import SharedSetting, collect_rarely, ignored_warnings


def in_thread(work):
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def test_the_setting_holds_until_the_last_thread_leaves():
    states = []
    setting = SharedSetting(lambda: states.append("changed") or (lambda: states.append("restored")))
    setting.__enter__()
    in_thread(setting.__enter__)
    setting.__exit__()
    assert states == ["changed"]
    in_thread(setting.__exit__)
    assert states == ["changed", "restored"]


def test_warnings_are_hidden_in_overlapping_blocks_and_the_filters_come_back():
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        before, setting = list(warnings.filters), ignored_warnings("noise")
        setting.__enter__()
        in_thread(setting.__enter__)
        setting.__exit__()
        warnings.warn("noise of a solver", stacklevel=1)
        in_thread(setting.__exit__)
        assert warnings.filters == before
        warnings.warn("noise afterwards", stacklevel=1)
    assert [str(each.message) for each in shown] == ["noise afterwards"]


def collections():
    return sum(generation["collections"] for generation in gc.get_stats())


def test_a_block_collects_rarely_and_the_settings_come_back():
    before = gc.get_threshold()
    with collect_rarely():
        count = collections()
        kept = [[] for _ in range(50_000)]
        assert collections() == count
        assert gc.isenabled()
    assert gc.get_threshold() == before
    with pytest.raises(IndexError), collect_rarely():
        kept.pop(len(kept))
    assert gc.get_threshold() == before
