"""The compiled blocks are the blocks, on every shape, batch and number of threads."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from xaibench.kernels.training import convolution_blocks as convolution
from xaibench.kernels.training.convolution_blocks import Convolutions
from xaibench.models import build
from xaibench.models.networks.base import Network

FLOAT = torch.zeros(())


def network(*layers):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        for layer in layers:
            if isinstance(layer, nn.Conv2d):
                layer.reset_parameters()
    return Network(*layers)


def block(conv, window=2):
    return conv, nn.ReLU(), nn.MaxPool2d(window)


CASES = {
    "8x8": (lambda: network(*list(build("cnn", (1, 8, 8), 2).children())[:12]), (1, 8, 8)),
    "64x64": (lambda: network(*list(build("cnn", (1, 64, 64), 2).children())[:12]), (1, 64, 64)),
    "odd numbers": (lambda: network(*block(nn.Conv2d(1, 5, 3, padding=1)), *block(nn.Conv2d(5, 3, 3))), (1, 9, 8)),
    "without bias": (lambda: network(*block(nn.Conv2d(2, 4, 2, bias=False))), (2, 6, 6)),
    "oblong": (lambda: network(*block(nn.Conv2d(2, 3, (1, 3), padding=(2, 1)), (3, 2))), (2, 5, 7)),
}  # fmt: skip


def together(models, images, upstream):
    """Return outputs and gradients of the weights of all models, computed in one call."""
    blocks = Convolutions.of(models[0], images.shape[2:], FLOAT)
    named = {
        name: torch.stack([model.get_parameter(name) for model in models]).detach().requires_grad_()
        for name, _ in models[0].named_parameters()
    }
    out = blocks(named, images)
    gradients = torch.autograd.grad((out * upstream).sum(), list(named.values()))
    return out.detach(), dict(zip(named, gradients, strict=True))


def alone(model, images, upstream):
    """Return the same for one model in double precision, computed by torch's layers."""
    model = copy.deepcopy(model).double()
    out = model(images.double())
    (out * upstream).sum().backward()
    return out.detach(), {name: weight.grad for name, weight in model.named_parameters()}


@pytest.mark.parametrize("samples", [1, 300])
@pytest.mark.parametrize("case", CASES)
def test_outputs_and_gradients_are_those_of_the_layers(case, samples):
    """Inputs are small integers and quarters, which are summed exactly in single precision, so that ties stay ties."""
    make, shape = CASES[case]
    models = [make(), make()]
    samples = 20 if shape[1] == 64 and samples > 1 else samples
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for model in models:
            for weight in model.parameters():
                weight.copy_(torch.randint(-3, 4, weight.shape, generator=generator) / 4)
    images = torch.randint(-2, 3, (2, samples, *shape), generator=generator).float()
    upstream = torch.randint(-2, 3, (2, samples, *models[0](images[0]).shape[1:]), generator=generator)
    out, gradients = together(models, images, upstream)
    for m, model in enumerate(models):
        expected, wanted = alone(model, images[m], upstream[m])
        assert torch.equal(out[m].double(), expected)
        for name, value in wanted.items():
            assert torch.allclose(
                gradients[name][m].double(), value, rtol=1e-6, atol=1e-6 * float(value.abs().max())
            ), name
    assert any(float(value.abs().max()) > 0 for value in gradients.values())


def test_a_batch_of_another_size_in_between_changes_nothing():
    models = [CASES["8x8"][0]()]
    blocks = Convolutions.of(models[0], (1, 8, 8), FLOAT)
    named = {name: weight.detach()[None] for name, weight in models[0].named_parameters()}
    images = torch.randn(1, 40, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    first = blocks(named, images).clone()
    assert torch.equal(blocks(named, images[:, :7]), first[:, :7])
    assert torch.equal(blocks(named, images), first)


def test_the_number_of_threads_does_not_change_a_bit(monkeypatch):
    models = [CASES["8x8"][0](), CASES["8x8"][0]()]
    images = torch.randn(2, 600, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    upstream = torch.ones(2, 600, 4, 1, 1)
    threads, used = torch.get_num_threads(), []
    pool = convolution._thread_pool
    monkeypatch.setattr(convolution, "_thread_pool", lambda *given: used.append(given[0]) or pool(*given))
    monkeypatch.setattr(convolution, "GRAIN", 1)
    results = []
    try:
        for count in (1, 4):
            torch.set_num_threads(count)
            results.append(together(models, images, upstream))
    finally:
        torch.set_num_threads(threads)
    assert set(used) == {4}
    assert torch.equal(results[0][0], results[1][0])
    assert all(torch.equal(value, results[1][1][name]) for name, value in results[0][1].items())


def test_nan_comes_through_and_the_first_of_equal_pixels_is_chosen():
    conv = nn.Conv2d(1, 1, 1)
    model = network(*block(conv))
    with torch.no_grad():
        conv.weight.fill_(2.0)
        conv.bias.fill_(0.5)
    images = torch.tensor([[[1.0, 1.0], [1.0, 1.0]], [[5.0, torch.nan], [3.0, 2.0]], [[-1.0, -2.0], [-3.0, -4.0]]])
    out, gradients = together([model], images[None, :, None], torch.ones(1, 3, 1, 1, 1))
    assert out[0, 0].item() == 2.5
    assert out[0, 1].isnan()
    assert out[0, 2].item() == 0
    # One of the four equal pixels gets the gradient; in the dead window none does.
    _, gradients = together([model], images[None, [0, 2], None], torch.ones(1, 2, 1, 1, 1))
    assert gradients["0.weight"].item() == gradients["0.bias"].item() == 1


def test_other_layers_and_precisions_have_no_loop():
    model = build("cnn", (1, 8, 8), 2)
    assert len(Convolutions.of(model, (1, 8, 8), FLOAT).blocks) == 4
    assert Convolutions.of(model, (1, 8, 8), FLOAT.double()) is None
    assert Convolutions.of(model, (1, 8, 8), torch.zeros((), device="meta")) is None
    assert Convolutions.of(build("mlp", (1, 8, 8), 2), (1, 8, 8), FLOAT) is None
    assert Convolutions.of(network(nn.Conv2d(1, 4, 2), nn.Tanh(), nn.MaxPool2d(2)), (1, 8, 8), FLOAT) is None
    assert Convolutions.of(network(*block(nn.Conv2d(1, 4, 2), 9)), (1, 8, 8), FLOAT) is None
    partly = network(*block(nn.Conv2d(1, 4, 2)), nn.Conv2d(4, 4, 2), nn.Tanh())
    assert Convolutions.of(partly, (1, 8, 8), FLOAT).names == ["0"]
