import pytest
import torch
from refusals import refused
from torch import nn

from xaibench.explainers import UnsupportedModelError, build, explain, reduce_channels
from xaibench.explainers.base import blocks, chunks
from xaibench.models import Wrapped


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


class Overwriting(nn.Module):
    """Computes a sigmoid and overwrites it, which torch needs for the gradient."""

    def __init__(self):
        super().__init__()
        self.conv, self.last = nn.Conv2d(1, 2, 3), nn.Linear(2, 2)

    def forward(self, x):
        y = self.conv(x).sigmoid()
        y.mul_(2.0)
        return self.last((y * y).mean((2, 3)))


def detached():
    return Wrapped(nn.Linear(16, 2), lambda last, x: last(x.detach().flatten(1)))


@pytest.mark.parametrize("network", [Overwriting, detached])
@pytest.mark.parametrize("explainer", ["agop", "pattern_net"])
def test_fitting_names_the_network(explainer, network):
    refused(UnsupportedModelError, "", lambda: build(explainer).fit(network(), [torch.rand(4, 1, 4, 4)]))


def fit_agop(model, images):
    return build("agop").fit(model, [images])


def explain_by_saliency(model, images):
    return explain("saliency", model, images, 0)


@pytest.mark.parametrize(("name", "call"), [("AGOP.fit", fit_agop), ("Saliency", explain_by_saliency)])
def test_the_message_has_explainer_and_network(name, call):
    refused(UnsupportedModelError, name, call, Overwriting(), torch.rand(2, 1, 4, 4))
    refused(UnsupportedModelError, "Overwriting", call, Overwriting(), torch.rand(2, 1, 4, 4))


def test_fitting_leaves_images_that_the_network_overwrites():
    images = torch.rand(4, 1, 4, 4)
    before = images.clone()
    layers = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8, 2))
    build("pattern_net").fit(Wrapped(layers, lambda layers, x: layers(x.sub_(0.5))), [images])
    assert torch.equal(images, before)
