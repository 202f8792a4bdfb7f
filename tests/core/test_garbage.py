import gc

import pytest

from xaibench.core.garbage import collect_rarely


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
