"""Outputs that are carried along are those of plain passes, over every form of stage, and nothing else is carried."""

import copy

import pytest
import torch
from torch import nn

from xaibench.explainers import ExplainedOutput, explain
from xaibench.explainers.perturbation.occlusion import Occlusion
from xaibench.explainers.perturbation.pfi import PFI
from xaibench.explainers.perturbation.shapley_sampling import ShapleySampling
from xaibench.kernels.pixel_updates import incremental_passes
from xaibench.kernels.pixel_updates.incremental_passes import IncrementalPasses, Steps
from xaibench.models import build


def conv(*arguments, **parameters):
    return nn.Conv2d(*arguments, **parameters), nn.ReLU()


def end(inputs):
    return nn.Flatten(), nn.Linear(inputs, 3)


# Of images of two channels, 9×9.
NETWORKS = {
    "convolution": lambda: (*conv(2, 5, 3, padding=1), nn.MaxPool2d(2), *end(5 * 4 * 4)),
    "stride": lambda: (*conv(2, 3, 3, stride=2, padding=1), *conv(3, 6, (2, 3)), *end(6 * 4 * 3)),
    "pooled before ReLU": lambda: (nn.Conv2d(2, 4, 2), nn.MaxPool2d(2), nn.ReLU(), *end(4 * 4 * 4)),
    "no ReLU": lambda: (nn.Conv2d(2, 4, 2, bias=False), nn.MaxPool2d(2), nn.Conv2d(4, 4, 3), *end(4 * 2 * 2)),
    "windows that overlap": lambda: (*conv(2, 4, 1), nn.MaxPool2d(3, 2, 1), *end(4 * 5 * 5)),
    "average": lambda: (*conv(2, 4, 2), nn.AvgPool2d(3, 2, 1), nn.ReLU(), *end(4 * 4 * 4)),
    "mean": lambda: (nn.Conv2d(2, 4, 3), nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d(1), *end(4)),
    "average first": lambda: (nn.AvgPool2d(3), *conv(2, 4, 2, 1, 1), *end(4 * 4 * 4)),
    "linear": lambda: (nn.Flatten(), nn.Linear(162, 7), nn.ReLU(), nn.Dropout(), nn.Identity(), nn.Linear(7, 3)),
}

# What is not one layer after another, or a layer that is not known.
OTHERS = {
    "skip": lambda net, x: net[1:](net[0](x)) + 1e-6 * x.flatten(1)[:, :3],
    "function": lambda net, x: net[1:](net[0](x).relu()),
    "written to": lambda net, x: net[1:](net[0](x).mul_(2)),
    "other image": lambda net, x: net[:](x.mT),
    "end": lambda net, x: net[:](x) * 2,
    "twice": lambda net, x: net[:](x) + net[:](x),
}


class Network(nn.Sequential):
    """Layers one after another, or what a test does with them."""

    def __init__(self, *layers, forward=None):
        super().__init__(*layers)
        self.different = forward

    def __getitem__(self, index):
        return nn.Sequential(*list(self)[index]) if isinstance(index, slice) else super().__getitem__(index)

    def forward(self, x):
        return self.different(self, x) if self.different else super().forward(x)


def network(name="convolution", forward=None):
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return Network(*NETWORKS[name](), forward=forward).double().eval()


@pytest.fixture
def images():
    return torch.randn(5, 2, 9, 9, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def targets():
    return torch.tensor([0, 1, 2, 1, 0])


@pytest.fixture
def always(monkeypatch):
    """Small networks, whose steps are a large part of a pass, are carried too."""
    monkeypatch.setattr(incremental_passes, "MAX_RELATIVE_COST", 9)


def plainly(monkeypatch, explainer, *arguments):
    with monkeypatch.context() as patch:
        patch.setattr(IncrementalPasses, "find", lambda *_: None)
        return explainer(*arguments)


EXPLAINERS = {
    "shapley": ShapleySampling(n_samples=3, baseline=0.2),
    "shapley, cells": ShapleySampling(n_samples=2, feature_mask="grid", cell_size=2),
    "shapley, superpixels": ShapleySampling(n_samples=2, feature_mask="slic", n_segments=20),
    "pfi": PFI(group_size=3),
    "pfi, cells": PFI(feature_mask="grid", cell_size=2),
    "occlusion": Occlusion(window=1, baseline=0.1),
    "occlusion, windows": Occlusion(window=3, stride=2),
}


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("explainer", EXPLAINERS)
def test_the_maps_are_those_of_plain_passes(name, explainer, images, targets, monkeypatch, always):
    model, method = ExplainedOutput(network(name)), EXPLAINERS[explainer]
    assert IncrementalPasses.find(model, images, 1) is not None
    expected = plainly(monkeypatch, method, model, images, targets)
    rows = []
    model.register_forward_pre_hook(lambda _, given: rows.append(len(given[0])))
    maps = method(model, images, targets)
    torch.testing.assert_close(maps, expected, rtol=0, atol=1e-12)
    assert sum(rows) < 30, "whole passes were made"


@pytest.mark.parametrize("explainer", ["shapley, cells", "pfi", "occlusion, windows"])
def test_linear_networks_of_volumes_are_carried(explainer, images, targets, monkeypatch, always):
    model, method, volumes = ExplainedOutput(network("linear")), EXPLAINERS[explainer], images.reshape(5, 2, 3, 9, 3)
    assert IncrementalPasses.find(model, volumes, 1) is not None
    expected = plainly(monkeypatch, method, model, volumes, targets)
    torch.testing.assert_close(method(model, volumes, targets), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", ["cnn", "mlp"])
def test_a_permutation_of_a_large_image_ends_where_a_pass_does(name):
    model = ExplainedOutput(build(name, (1, 64, 64), 2, seed=0).double().eval(), "logit")
    image = torch.randn(1, 1, 64, 64, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    steps = Steps(torch.randperm(4096, generator=torch.Generator().manual_seed(1))[None], torch.arange(4097)[None])
    passes = IncrementalPasses.find(model, image, 1)
    with torch.no_grad():
        last = model(image)[:, 0]
    start, to = torch.zeros_like(image), image.flatten(1)[:, steps.which[0]]
    outputs = passes.outputs(start, steps, to, torch.tensor([0]), last, carry=True)
    assert abs(outputs[0, -1] - last).item() < 1e-12 * outputs.abs().max().item()
    for step in (0, 1000, 3000):
        row = start.flatten(1).index_copy(1, steps.which[0, : step + 1], to[:, : step + 1])
        with torch.no_grad():
            torch.testing.assert_close(outputs[:, step], model(row.view_as(image))[:, 0], rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_no_row_of_known_layers_is_not_carried(name, images, always):
    assert IncrementalPasses.find(network(forward=OTHERS[name]), images, 1) is None


def test_layers_that_do_more_than_their_class_are_not_carried(images, always):
    class Doubled(nn.ReLU):
        def forward(self, x):
            return 2 * super().forward(x)

    hooked, own, subclass, training = network(), network(), network(), network("linear").train()
    hooked[0].register_forward_hook(lambda layer, given, output: 2 * output)
    own[1].forward = lambda x: 2 * x
    subclass[1] = Doubled()
    unknown = [nn.Conv2d(2, 5, 3, padding=1, groups=g, dilation=d, padding_mode=mode) for g, d, mode in (
        (1, 1, "circular"), (1, 2, "zeros"))]  # fmt: skip
    others = [Network(layer.double(), nn.AdaptiveAvgPool2d(1), *end(5)).double().eval() for layer in unknown]
    pools = [
        nn.MaxPool2d(2, ceil_mode=True),
        nn.AdaptiveAvgPool2d(2),
        nn.AvgPool2d(3, padding=1, count_include_pad=False),
    ]
    others += [Network(nn.Conv2d(2, 5, 1), pool, nn.AdaptiveAvgPool2d(1), *end(5)).double().eval() for pool in pools]
    for model in (hooked, own, subclass, training, *others):
        with torch.no_grad():
            model(images)  # it runs
        assert IncrementalPasses.find(model, images, 1) is None
    assert IncrementalPasses.find(network().half(), images.half(), 1) is None
    assert IncrementalPasses.find(network().float(), images, 1) is None
    with torch.autocast("cpu"):
        assert IncrementalPasses.find(network(), images, 1) is None


def test_steps_that_change_much_take_plain_passes(images):
    assert IncrementalPasses.find(network(), images, 81) is None


@pytest.mark.parametrize("name", ["mlp", "cnn"])
def test_one_pixel_of_the_smallest_networks_is_carried(name):
    assert IncrementalPasses.find(build(name, (1, 8, 8), 2).double(), torch.zeros(2, 1, 8, 8).double(), 1)


def test_large_networks_take_plain_passes(images, always, monkeypatch):
    monkeypatch.setattr(incremental_passes, "MAX_WEIGHTS", 100)
    assert IncrementalPasses.find(network(), images, 1) is None


def test_where_the_last_row_is_another_the_passes_are_plain(images, targets, monkeypatch, always):
    """A network whose layers depend on the image in a way that the first one did not show."""

    def switching(net, x):
        return net[:](x) if len(x) == 1 and x.abs().max() < 5 else net[:-1](x) @ net[-1].weight.T

    images[1] *= 9
    for method in (ShapleySampling(n_samples=2), PFI(), Occlusion(window=1)):
        model = network(forward=switching)
        expected = plainly(monkeypatch, method, copy.deepcopy(model), images, targets)
        assert IncrementalPasses.find(model, images, 1) is not None
        torch.testing.assert_close(method(model, images, targets), expected, rtol=0, atol=1e-12)


def test_single_precision_too(images, targets, monkeypatch, always):
    model, x = network().float(), images.float()
    expected = plainly(monkeypatch, EXPLAINERS["shapley"], model, x, targets)
    maps = EXPLAINERS["shapley"](model, x, targets)
    assert maps.dtype == torch.float32
    torch.testing.assert_close(maps, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("explainer", EXPLAINERS)
def test_neither_threads_nor_memory_change_the_maps(explainer, images, targets, monkeypatch, always):
    model, method = ExplainedOutput(network()), EXPLAINERS[explainer]
    expected = method(model, images, targets)
    monkeypatch.setattr(incremental_passes, "_STEPS_PER_THREAD", 1)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    assert method(model, images, targets).equal(expected)
    monkeypatch.setattr(IncrementalPasses, "walks", lambda self, entries: 2)
    torch.testing.assert_close(method(model, images, targets), expected, rtol=0, atol=1e-14)


def test_in_inference_mode_the_passes_are_plain(images, targets, always):
    model, method = network(), EXPLAINERS["occlusion"]
    expected = method(model, images, targets)
    with torch.inference_mode():
        torch.testing.assert_close(method(model, images, targets), expected, rtol=0, atol=1e-12)
        made_here = images.clone()
    torch.testing.assert_close(method(model, made_here, targets), expected, rtol=0, atol=1e-12)


def test_compiled_networks_are_left_as_they_are(images, always):
    inside, place = network(), network()
    inside[0] = torch.compile(inside[0], backend="eager")
    place.compile(backend="eager")
    for model in (torch.compile(network(), backend="eager"), inside, place):
        assert IncrementalPasses.find(model, images, 1) is None


def test_one_relu_may_stand_in_several_places(images, targets, monkeypatch, always):
    relu = nn.ReLU()
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = Network(nn.Conv2d(2, 4, 3), relu, nn.Conv2d(4, 4, 3), relu, *end(100)).double().eval()
    assert len(IncrementalPasses.find(model, images, 1).stages) == 3
    expected = plainly(monkeypatch, EXPLAINERS["pfi"], model, images, targets)
    torch.testing.assert_close(EXPLAINERS["pfi"](model, images, targets), expected, rtol=0, atol=1e-12)


def test_the_front_door_gives_the_same(images, targets, monkeypatch, always):
    model, parameters = network(), {"n_samples": 2, "device": "cpu", "output": "margin"}
    maps = explain("shapley_sampling", model, images, targets, **parameters)
    expected = plainly(monkeypatch, lambda: explain("shapley_sampling", model, images, targets, **parameters))
    torch.testing.assert_close(maps, expected, rtol=0, atol=1e-11)
