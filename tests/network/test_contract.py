"""Networks that are not a deterministic function of one image are refused, and no others."""

import functools
import random
import threading
import warnings

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from refusals import refused
from torch import nn

import xaibench as xb
from xaibench.explainers import UnsupportedModelError, explain
from xaibench.models import Wrapped, build
from xaibench.network import contract as network_contract
from xaibench.network.contract import NetworkContractError, check_network, unchecked_networks
from xaibench.network.lending import copy_network
from xaibench.network.outputs import check_logits, probe

IMAGES = (
    torch.rand(3, 3, 12, 12, generator=torch.Generator().manual_seed(0))
    * torch.tensor([1.0, 0.3, 0.7])[:, None, None, None]
)


class Net(nn.Module):
    """A convolution, one step that a test gives, and a linear layer."""

    def __init__(self, step=lambda net, x: x, layer=None, classes=3):
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.conv, self.layer, self.head = nn.Conv2d(3, 8, 3), layer or nn.Identity(), nn.Linear(8, classes)
        self.step = step
        self.register_buffer("state", torch.zeros(2))

    def forward(self, x):
        return self.head(self.step(self, self.layer(self.conv(x)).relu().mean((2, 3))))


class Branches(nn.Module):
    """Two branches, one of which loses its gradient."""

    def __init__(self, lose):
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.lost, self.kept, self.head = Net(classes=8), Net(classes=8), nn.Linear(16, 3)
        self.lose = lose

    def forward(self, x):
        return self.head(torch.cat([self.lose(self, x), self.kept(x)], 1))


def without_gradient(net, x):
    with torch.no_grad():
        return net.lost(x)


class WrongBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clamp(min=0)

    @staticmethod
    def backward(ctx, gradient):
        return 0.5 * gradient


def count_calls(net, x):
    net.state += 1
    return x


class Always(nn.Dropout):
    def forward(self, x):
        return F.dropout(x, 0.5)


OWN = torch.Generator()
#: Networks, and what the error names.
RANDOM = {
    "dropout": (Net(lambda net, x: F.dropout(x)), "dropout in Net"),
    "in a layer": (Net(layer=Always()), "dropout in layer 'layer' (Always)"),
    "noise": (Net(lambda net, x: x + 1e-9 * torch.randn_like(x)), "randn_like in Net"),
    "numpy": (Net(lambda net, x: x * float(np.random.rand())), "numpy or random in Net"),
    "python": (Net(lambda net, x: x * random.random()), "numpy or random in Net"),
    "own generator": (Net(lambda net, x: x * torch.rand(1, generator=OWN)), "first in Net"),
}
BATCH = {
    "statistics": (Net(layer=nn.BatchNorm2d(8, track_running_stats=False)), "'layer' (BatchNorm2d)"),
    "function": (Net(lambda net, x: F.layer_norm(x.T, x.T.shape[1:]).T if len(x) > 1 else x), "first in Net"),
    "time": (Net(lambda net, x: x + 0.5 * x.roll(1, 0)), "first in Net"),
    "first image": (Net(lambda net, x: x * x[:1]), "first in Net"),
    "largest": (Net(layer=Wrapped(nn.Identity(), lambda _, x: x / x.abs().max())), "'layer' (Wrapped)"),
}
GRADIENT = {
    "no_grad": (Branches(without_gradient), "in layer 'lost' (Net), under torch.no_grad()"),
    "detached": (Branches(lambda net, x: net.lost(x).detach()), "detach in Branches"),
    "data": (Branches(lambda net, x: net.lost(x.data)), "data in Branches"),
    "rounded": (Branches(lambda net, x: net.lost((x * 64).round() / 64)), "round in Branches"),
    "other values": (
        Branches(lambda net, x: net.lost(x) + torch.is_grad_enabled()),
        "in Branches",
    ),
    "own function": (Branches(lambda net, x: WrongBackward.apply(net.lost(x) - 0.1)), "WrongBackward"),
}


@pytest.fixture(autouse=True)
def forget():
    network_contract._records.clear()


@pytest.mark.parametrize(
    "images", [IMAGES, IMAGES[:1], IMAGES[[0, 0]], IMAGES[:2].double()], ids=["three", "one", "equal", "float64"]
)
@pytest.mark.parametrize("kind", [*RANDOM, *BATCH])
def test_a_network_that_is_no_function_of_one_image_is_refused(kind, images):
    model, where = (RANDOM | BATCH)[kind]
    model = copy_network(model).eval().to(images.dtype)
    maps = torch.rand(len(images), 12, 12)
    calls = {
        "explain": lambda: explain("occlusion", model, images, 0, window=6, stride=6, device="cpu"),
        "metric": lambda: xb.deletion(model, images, maps, [0] * len(images), steps=2),
    }
    for name, call in calls.items():
        assert "check_network=False" in str(refused(NetworkContractError, where, call)), name
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


@pytest.mark.parametrize("kind", GRADIENT)
def test_a_lost_gradient_concerns_methods_that_use_it(kind):
    model, where = GRADIENT[kind]
    for explainer in ("saliency", "integrated_gradients", "deeplift", "gradcam"):
        refused(NetworkContractError, where, functools.partial(explain, explainer, model, IMAGES, 0, device="cpu"))
    own = lambda model, images, targets: torch.autograd.grad(  # noqa: E731
        model(x := images.requires_grad_()).sum(), x
    )[0]
    refused(NetworkContractError, "", lambda: explain(own, model, IMAGES, 0, device="cpu"))
    maps = explain("occlusion", model, IMAGES, 0, window=6, stride=6, device="cpu")
    assert explain("sobel", model, IMAGES, 0, device="cpu").any()
    assert xb.deletion(model, IMAGES, maps, [0] * 3, steps=2) >= 0
    refused(NetworkContractError, "", lambda: xb.metrics.adversarial(model, IMAGES, maps, [0] * 3, epsilon=0.1))


def test_a_changed_buffer_is_named():
    model = Net(count_calls)
    with pytest.raises(NetworkContractError, match=r"changes its buffers .* state\."):
        explain("rise", model, IMAGES, 0, n_masks=4, device="cpu")
    with pytest.raises(NetworkContractError, match="changes its buffers"):
        xb.deletion(model, IMAGES, IMAGES[:, 0], [0] * 3, steps=2)
    assert (model.state == 0).all()


def fill_cache(net, x):
    if net.state[0] == 0:
        net.state += 1
    return x * net.state[0]


RIGHT = {
    "kinks": Net(lambda net, x: (x - x.mean(1, keepdim=True)).abs() + F.max_pool1d(x[:, None], 2)[:, 0].repeat(1, 2)),
    "saturated": Net(lambda net, x: torch.tanh(1e4 * x)),
    "constant": Net(lambda net, x: torch.ones_like(x)),
    "piecewise constant": Net(lambda net, x: (x > 0.1).to(x)),
    "hard gate": Net(lambda net, x: x * (x > x.median(1, keepdim=True).values)),
    "straight through": Net(lambda net, x: x + ((x * 4096).round() / 4096 - x).detach()),
    "detached mask": Net(lambda net, x: x * (x.detach() > 0)),
    "cache": Net(fill_cache),
    "seeded": Net(lambda net, x: x * torch.rand(x.shape[1:], generator=torch.Generator().manual_seed(0)).to(x)),
    "writes its input": Wrapped(Net(), lambda net, x: net(x.sub_(0.5))),
    "clamps": Wrapped(Net(), lambda net, x: net(x.clamp(0, 1))),
    "large": Net(lambda net, x: 1e6 * x),
    "biased": Net(lambda net, x: 1e5 + x),
    "half inside": Net(lambda net, x: x.bfloat16().to(x)),
    "one at a time": Wrapped(Net(), lambda net, x: net(x.reshape(1, 3, 12, 12))),
    "batch norm": Net(layer=nn.BatchNorm2d(8)),
    "instance norm": Net(layer=nn.InstanceNorm2d(8)),
    "frozen weights": Net().requires_grad_(False),
}


@functools.cache
def half_is_supported():
    try:
        nn.Conv2d(3, 8, 3).half()(IMAGES.half())
    except RuntimeError:
        return False
    return True


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("kind", RIGHT)
def test_other_networks_are_not_refused(kind, dtype):
    if dtype == torch.float16 and kind in ("large", "biased"):
        pytest.skip("beyond its range")
    model = copy_network(RIGHT[kind], dtype=dtype).eval()
    if dtype == torch.float16 and not half_is_supported():
        pytest.skip("no convolution in float16")
    given = 1 if kind == "one at a time" else 2
    images = torch.cat([IMAGES[:given], IMAGES[:given].clamp(max=0.2).round()]).to(dtype)
    for pair in (images[:given], images[given:]):
        outputs = probe(model, pair)
        check_network(model, pair, outputs, gradients=True)
        check_network(model, pair[:1], outputs[:1])


@pytest.mark.parametrize(("name", "side"), [("cnn", 8), ("mlp", 8), ("cnn", 64), ("resnet18", 32), ("densenet121", 32)])
def test_networks_of_xaibench_are_not_refused(name, side):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        channels, weights = (1, {}) if name in ("cnn", "mlp") else (3, {"weights": None})
        model = build(name, (channels, side, side), 2, **weights).eval()
    images = torch.rand(2, channels, side, side, generator=torch.Generator().manual_seed(1))
    check_network(model, images, probe(model, images), gradients=True)


def rows_of(model, call):
    rows = []
    handle = model.register_forward_pre_hook(lambda _, given: rows.append(len(given[0])))
    call()
    handle.remove()
    return rows


def test_a_network_is_checked_once():
    model = Net()

    def call(explainer="saliency", images=IMAGES):
        return rows_of(model, lambda: explain(explainer, model, images, 0, device="cpu"))

    first = call()
    usual = call()
    assert sum(first) - sum(usual) <= 2 * 4  # forward passes of two images
    assert call(images=IMAGES[1:]) == [2, 2]
    assert xb.deletion.info.kind == "model"
    metric = lambda: xb.deletion(model, IMAGES, IMAGES[:, 0], [0] * 3, steps=2)  # noqa: E731
    assert rows_of(model, metric) == rows_of(model, metric)
    assert call(images=IMAGES[:, :, :6]) != [2, 3]  # another size
    with torch.no_grad():
        model.head.bias += 0  # a new version
    assert call() == first
    assert call() == usual


def test_methods_without_gradients_do_not_pay_for_the_gradient_and_the_rest_is_checked_later():
    model, window = Net(), {"window": 6, "stride": 6, "device": "cpu"}
    first = rows_of(model, lambda: explain("occlusion", model, IMAGES, 0, **window))
    again = rows_of(model, lambda: explain("occlusion", model, IMAGES, 0, **window))
    assert first == [2, 1, 1, *again[1:]]
    assert len(rows_of(model, lambda: explain("saliency", model, IMAGES, 0, device="cpu"))) > 2


def test_copies_and_other_precisions_are_checked_once(monkeypatch):
    found = []
    original = network_contract._find_fault
    monkeypatch.setattr(network_contract, "_find_fault", lambda *args: found.append(1) or original(*args))
    model = Net()
    for _ in range(3):
        explain("saliency", model, IMAGES, 0, dtype=torch.float64, device="cpu")
    assert len(found) == 1
    saliency = lambda model, images, targets: explain("saliency", model, images, targets, device="cpu")  # noqa: E731
    explain("saliency", model, IMAGES, 0, device="cpu")
    xb.parameter_randomization(saliency, model, IMAGES, [0] * 3)
    assert len(found) == 2


def test_unchecked_networks_go_on_with_a_warning():
    model, targets = RANDOM["dropout"][0], [0] * 3
    with pytest.warns(UserWarning, match="draws random numbers"):
        assert explain("occlusion", model, IMAGES, 0, window=6, check_network=False, device="cpu").shape == (3, 12, 12)
    with unchecked_networks() as found, pytest.warns(UserWarning, match="draws random numbers"):
        xb.deletion(model, IMAGES, IMAGES[:, 0], targets, steps=2)
    assert len(found) == 1
    refused(NetworkContractError, "", lambda: xb.deletion(model, IMAGES, IMAGES[:, 0], targets, steps=2))
    assert issubclass(NetworkContractError, UnsupportedModelError)


@pytest.mark.parametrize("draw", [np.random.random, random.random])
def test_what_another_thread_draws_during_most_calls_is_not_the_network_s_doing(draw):
    calls = []

    def step(net, x):
        calls.append(x)
        if len(calls) % 4:
            thread = threading.Thread(target=draw)
            thread.start()
            thread.join()
        return x

    explain("saliency", Net(step), IMAGES, 0, device="cpu")
    assert len(calls) > 8


def test_functions_are_checked():
    net = Net()
    maps = IMAGES[:, 0]
    assert xb.deletion(lambda images: net(images), IMAGES, maps, [0] * 3, steps=2) > 0
    assert xb.deletion(net.forward, IMAGES, maps, [0] * 3, steps=2) > 0
    with pytest.raises(NetworkContractError, match="draws random numbers"):
        xb.deletion(lambda images: F.dropout(net(images)), IMAGES, maps, [0] * 3, steps=2)


def test_a_function_of_the_outputs_is_checked():
    net = Net()
    with pytest.raises(NetworkContractError, match="other images of its batch"):
        explain("rise", net, IMAGES, output=lambda z: z[:, 0] - z[:, 0].mean(), n_masks=4, device="cpu")


def test_the_state_of_a_network_and_of_the_generators_is_kept():
    model, before = Net(layer=nn.BatchNorm2d(8)).train(), torch.get_rng_state()
    values = {name: value.clone() for name, value in model.state_dict().items()}
    explain("saliency", model, IMAGES, 0, device="cpu")
    assert model.training
    assert model.layer.training
    assert torch.equal(before, torch.get_rng_state())
    assert all(torch.equal(value, values[name]) for name, value in model.state_dict().items())
    assert all(p.requires_grad and p.grad is None for p in model.parameters())


def test_select_is_applied():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        net = Wrapped(Net(), lambda net, x: (x.flatten(1)[:, :3] * 0 + torch.rand(1), net(x)))
        outputs = probe(net, IMAGES[:2], select=lambda found, count, name: check_logits(found[1], count, name))
        with pytest.raises(NetworkContractError):  # the generator moves
            check_network(net, IMAGES, outputs, select=lambda found, count, name: found[1])
