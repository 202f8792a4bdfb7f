import importlib.util
import logging
import sys
from pathlib import Path

import pytest
import torch
from refusals import refused

from xaibench.tensors.batching import BatchSize, default_batch_size


def test_larger_images_go_in_fewer_rows_and_a_gpu_takes_more():
    assert default_batch_size(torch.empty(1, 1, 8, 8)) == 2048
    assert default_batch_size(torch.empty(1, 3, 224, 224)) == 8
    assert default_batch_size(torch.empty(1, 3, 224, 224), least=1) == 1
    assert default_batch_size(torch.empty(1, 3, 224, 224, device="meta")) == 111


@pytest.mark.parametrize(("size", "count", "lengths"), [(3, 7, [3, 3, 1]), (3, 3, [3]), (8, 3, [3]), (3, 0, [])])
def test_parts_are_of_at_most_so_many_rows_and_cover_all(size, count, lengths):
    parts = BatchSize(size).slices(count)
    assert [part.stop - part.start for part in parts] == lengths
    assert [row for part in parts for row in range(count)[part]] == list(range(count))


def narrow(fits, seen):
    """Work in whose memory only so many rows fit."""

    def work(part):
        seen.append(part.stop - part.start)
        if part.stop - part.start > fits:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory.")
        return torch.arange(part.start, part.stop)

    return work


def test_rows_start_again_from_the_first():
    seen, undone = [], []

    def work(part):
        seen.append((part.start, part.stop))
        if part.stop - part.start > 2 and part.start > 0:
            raise torch.cuda.OutOfMemoryError
        return torch.arange(part.start, part.stop)

    rows = BatchSize(4)
    assert rows.each(7, work, again=lambda: undone.append(1)).tolist() == list(range(7))
    assert seen == [(0, 4), (4, 7), (0, 2), (2, 4), (4, 6), (6, 7)]
    assert (rows.size, len(undone)) == (2, 2)


def test_halving_begins_at_the_rows_there_are(caplog):
    seen = []
    rows = BatchSize(2048)
    with caplog.at_level(logging.WARNING, "xaibench"):
        assert rows.each(9, narrow(2, seen)).tolist() == list(range(9))
    assert seen == [9, 4, 2, 2, 2, 2, 1]
    assert [record.getMessage() for record in caplog.records] == [
        "Out of memory with 9 rows per pass; continuing with 4.",
        "Out of memory with 4 rows per pass; continuing with 2.",
    ]


def test_the_speed_script_of_a_gpu_counts_it():
    path = Path(__file__).parents[2] / "speed" / "gpu.py"
    if not path.exists():
        pytest.skip("the speed scripts are not part of an installation")
    pytest.importorskip("torchvision")
    spec = importlib.util.spec_from_file_location("benchmark_of_a_gpu", path)
    benchmark = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(benchmark)
    heard = benchmark.Heard()
    logging.getLogger("xaibench").addHandler(heard)
    try:
        BatchSize(4).each(4, narrow(2, []))
    finally:
        logging.getLogger("xaibench").removeHandler(heard)
    assert heard.count == 1


def test_what_was_too_many_once_is_not_tried_again():
    seen = []
    rows = BatchSize(8)
    rows.each(8, narrow(3, seen))
    assert rows.size == 2
    rows.each(8, narrow(3, seen))
    assert seen == [8, 4, 2, 2, 2, 2, 2, 2, 2, 2]


@pytest.mark.parametrize("count", [1, 5])
def test_a_single_row_that_does_not_fit_is_the_users_to_know(count):
    seen = []
    refused(torch.cuda.OutOfMemoryError, "CUDA out of memory", lambda: BatchSize(64).each(count, narrow(0, seen)))
    assert seen[-1] == 1
    assert len(seen) == len(set(seen))


def test_other_errors_are_not_tried_again():
    seen = []

    def work(part):
        seen.append(part)
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")

    refused(RuntimeError, "mat1 and mat2", lambda: BatchSize(4).each(8, work))
    assert len(seen) == 1
