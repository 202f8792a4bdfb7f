"""The options of DataLoader that `loading` passes on."""

import pytest
import torch
from refusals import refused

import xaibench as xb

SET = {"name": "xai-tris/lin-white-8x8", "n_samples": 100, "verbose": False, "batch_size": 32}


def targets(loader):
    return [batch[2] for batch in loader]


def test_the_order_can_be_left_and_the_last_batch_left_out():
    data = xb.load(SET["name"], n_samples=100)
    train, val, _ = xb.loading(**SET, shuffle=False, drop_last=True)
    assert torch.equal(torch.cat(targets(train)), data.train.targets[:64])
    assert len(torch.cat(targets(val))) == len(data.val)  # all of what is scored


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_are_pinned_where_there_is_a_gpu(workers):
    train, *_ = xb.loading(**SET, num_workers=workers, pin_memory=True)
    assert train.pin_memory == torch.cuda.is_available()
    assert all(batch.is_pinned() == torch.cuda.is_available() for batch in targets(train))


def test_as_many_batches_are_read_ahead_as_are_asked_for(monkeypatch):
    train, *_ = xb.loading(**SET | {"batch_size": 4}, num_workers=2, prefetch_factor=1, shuffle=False)
    read = []
    monkeypatch.setattr(train, "_read_batch", lambda indices: read.append(indices) or tuple(torch.zeros(3, 1)))
    next(iter(train))
    assert len(read) <= 3
    refused(ValueError, "prefetch_factor=", lambda: xb.loading(**SET, prefetch_factor=3))


def test_other_options_say_how_they_are_given():
    refused(TypeError, "'timeout'", lambda: xb.loading(**SET, timeout=3))
