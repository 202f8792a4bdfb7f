import pytest
import torch

from xaibench.explainers import reduce_channels
from xaibench.explainers.base import blocks, chunks


@pytest.mark.parametrize("samples", [1, 3, 10])
@pytest.mark.parametrize("steps", [1, 4, 50])
@pytest.mark.parametrize("rows", [1, 7, 60, 10_000])
def test_blocks_cover_the_grid_once_in_order_and_within_the_rows(samples, steps, rows):
    seen = []
    for sample, step in blocks(samples, steps, rows):
        size = (sample.stop - sample.start) * (step.stop - step.start)
        assert size <= rows
        seen += [(i, k) for i in range(sample.start, sample.stop) for k in range(step.start, step.stop)]
    assert seen == [(i, k) for i in range(samples) for k in range(steps)]
    across = list(blocks(samples, steps, rows, across=True))
    found = [(i, k) for some, of in across for i in range(some.start, some.stop) for k in range(of.start, of.stop)]
    assert sorted(found) == seen
    assert [k for i, k in found if i == samples - 1] == list(range(steps)), "the steps of a sample in their order"
    assert max((i.stop - i.start) * (k.stop - k.start) for i, k in across) <= rows
    assert across[0][0].stop == min(samples, rows), "as many samples as fit"


def test_chunks_cut_together():
    first, second = torch.arange(5), torch.arange(10).reshape(5, 2)
    parts = list(chunks(2, first, second))
    assert [len(a) for a, _ in parts] == [2, 2, 1]
    assert torch.cat([b for _, b in parts]).equal(second)


def test_a_single_channel_keeps_its_sign_whatever_the_reduction():
    values = torch.tensor([[[[-1.0, 2.0]]]])
    for how in ("sum", "abs_sum", "max_abs"):
        assert reduce_channels(values, how).tolist() == [[[-1.0, 2.0]]]


def test_channel_reductions_by_hand():
    values = torch.tensor([[[[1.0, -5.0]], [[-3.0, 5.5]]]])
    assert reduce_channels(values, "sum").tolist() == [[[-2.0, 0.5]]]
    assert reduce_channels(values, "abs_sum").tolist() == [[[4.0, 10.5]]]
    assert reduce_channels(values, "max_abs").tolist() == [[[-3.0, 5.5]]]
