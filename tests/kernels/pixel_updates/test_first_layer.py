import copy
import functools

import pretend_device
import pytest
import torch
from pretend_device import pretended
from torch import nn

import xaibench as xb
from xaibench.explainers import ExplainedOutput
from xaibench.explainers.perturbation.shapley_sampling import ShapleySampling
from xaibench.kernels.pixel_updates.first_layer import FlatLinear
from xaibench.kernels.pixel_updates.incremental_passes import IncrementalPasses
from xaibench.tensors import batching


class Network(nn.Module):
    """A linear layer on the flattened image, a tanh, a linear layer; plus what else a test adds."""

    def __init__(self, forward=None):
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.first, self.last = nn.Linear(64, 8).double(), nn.Linear(8, 2).double()
        self.different = forward

    def rest(self, hidden):
        return self.last(hidden.tanh())

    def forward(self, x):
        return self.different(self, x) if self.different else self.rest(self.first(x.flatten(1)))


def bright(x):
    return (x[:, :1, 3, 3] > 0.1).to(x) * x.new_tensor([1.0, -1.0])


# The layer is there, but is not all that the output depends on, or not on the flattened image.
OTHERS = {
    "skip": lambda net, x: net.rest(net.first(x.flatten(1))) + 1e-6 * x.flatten(1)[:, :2],
    "threshold": lambda net, x: net.rest(net.first(x.flatten(1))) + bright(x),
    "twice": lambda net, x: net.rest(net.first(x.flatten(1)) + net.first(x.flatten(1).flip(1))),
    "shifted": lambda net, x: net.rest(net.first(x.flatten(1) - 1)),
    "transposed": lambda net, x: net.rest(net.first(x.mT.flatten(1))),
    "functional": lambda net, x: net.rest(nn.functional.linear(x.flatten(1), net.first.weight)),
    "by_sample": lambda net, x: net.rest(torch.cat([net.first(row.flatten(1)) for row in x.split(1)])),
}


def plain_passes(monkeypatch, *arguments, **parameters):
    with monkeypatch.context() as patch:
        patch.setattr(FlatLinear, "find", lambda *_: None)
        patch.setattr(IncrementalPasses, "find", lambda *_: None)
        return ShapleySampling(**parameters)(*arguments)


@pytest.fixture
def rows(monkeypatch):
    """Rows that each linear layer multiplies."""
    taken, forward = {}, nn.Linear.forward

    def count(layer, x):
        taken[layer] = taken.get(layer, 0) + len(x)
        return forward(layer, x)

    monkeypatch.setattr(nn.Linear, "forward", count)
    return taken


@pytest.mark.parametrize("batch_size", [None, 5, 64, 200])
def test_the_maps_are_those_of_plain_passes(mlp, images, targets, batch_size, monkeypatch):
    x, parameters = images.double(), {"n_samples": 3, "baseline": 0.3, "batch_size": batch_size}
    model = ExplainedOutput(mlp.double().eval())
    expected = plain_passes(monkeypatch, model, x, targets, **parameters)
    maps = ShapleySampling(**parameters)(model, x, targets)
    torch.testing.assert_close(maps, expected, rtol=0, atol=1e-12 * expected.abs().max().item())


def test_in_single_precision_too(images, targets, rows, monkeypatch):
    model = Network().float()
    expected = plain_passes(monkeypatch, model, images, targets, n_samples=2)
    rows.clear()
    maps = ShapleySampling(n_samples=2)(model, images, targets)
    assert rows[model.first] < rows[model.last] / 10
    torch.testing.assert_close(maps, expected, rtol=0, atol=1e-5 * expected.abs().max().item())


def test_the_layer_multiplies_the_ends_of_the_blocks_only(images, targets, rows):
    model = Network()
    ShapleySampling(n_samples=3)(model, images.double(), targets)
    # To look at the layers, to find this one, at the baseline, and before and after the one block of 7 images in each
    # permutation.
    assert rows[model.first] == 1 + 1 + 1 + 3 * 7 * 2
    assert rows[model.last] == rows[model.first] + 3 * 7 * 64


def test_regions_of_several_values_take_plain_passes(images, targets, rows):
    model = Network()
    ShapleySampling(n_samples=2, feature_mask="grid", cell_size=4)(model, images.double(), targets)
    assert rows[model.first] == rows[model.last] == 1 + 1 + 2 * 7 * 4  # one looks at the layers


@pytest.mark.parametrize("kind", OTHERS)
@pytest.mark.parametrize("batch_size", [None, 7])
def test_where_the_output_depends_on_more_the_passes_are_plain(kind, batch_size, images, targets, monkeypatch):
    arguments = Network(OTHERS[kind]), images.double(), targets
    expected = plain_passes(monkeypatch, *arguments, n_samples=2, batch_size=batch_size)
    maps = ShapleySampling(n_samples=2, batch_size=batch_size)(*arguments)
    torch.testing.assert_close(maps, expected, rtol=0, atol=1e-12 * expected.abs().max().item())


def test_layers_that_do_more_than_the_product_are_not_taken(images):
    class Scaled(nn.Linear):
        def forward(self, x):
            return 2 * super().forward(x)

    image = images[:1].double()
    assert FlatLinear.find(Network(), image) is not None
    hooked, own, subclass = Network(), Network(), Network()
    hooked.first.register_forward_hook(lambda layer, inputs, output: 2 * output)
    own.first.forward = lambda x: 2 * nn.Linear.forward(own.first, x)
    subclass.first = Scaled(64, 8).double()
    for model in (hooked, own, subclass, Network().half()):
        assert FlatLinear.find(model, image) is None


@pytest.mark.parametrize("call", [1, 2, 3, 4])
def test_an_error_in_any_pass_leaves_the_layer_as_it_was(call, images, targets):
    calls = []

    def failing(net, x):
        calls.append(x)
        hidden = net.first(x.flatten(1))
        if len(calls) == call:
            raise RuntimeError("out of memory")
        return net.rest(hidden)

    model = Network(failing)
    before = dict(vars(model.first))
    with pytest.raises(RuntimeError, match="out of memory"):
        ShapleySampling(n_samples=1)(model, images.double(), targets)
    assert vars(model.first) == before


@pytest.mark.skipif(not pretend_device.available(), reason="this torch has no devices written in Python")
def test_on_an_accelerator_many_images_share_a_pass(monkeypatch):
    """As many rows as fit into the memory of a pass of images: the host waits as often for six images as for two."""
    monkeypatch.setattr(batching, "_GPU_VALUES", 64 * 64)  # one image of 64 steps per pass
    network = Network().float().eval()
    waits = []
    for count in (2, 6):
        images = torch.randn(count, 1, 8, 8, generator=torch.Generator().manual_seed(0))
        call = functools.partial(xb.explain, "shapley_sampling", images=images, targets=[0] * count, n_samples=1)
        expected = call(model=network, device="cpu")
        with pretended() as seen:
            found = call(model=copy.deepcopy(network).to("pretend"), device="pretend")
            waits.append(seen.synchronizations)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)
    assert waits[0] == waits[1]
