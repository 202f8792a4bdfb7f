"""Each hand-set network computes its function, in every form, and unused pixels have no effect on it."""

import copy

import numpy as np
import pytest
import torch
from refusals import refused
from torch import nn

from xaibench.benchmarks.certified.functions import evidence
from xaibench.benchmarks.certified.hand_set_networks import HAND_SET
from xaibench.data import load
from xaibench.models import MODELS, build
from xaibench.registry.table import UnknownNameError

every_network = pytest.mark.parametrize("name", HAND_SET)


def images(count, side=8):
    return torch.randn(count, 1, side, side, generator=torch.Generator().manual_seed(0))


@every_network
def test_it_computes_its_function(name):
    model, given = build(f"certified:{name}", (1, 8, 8), 2), images(30)
    expected = evidence(model.function, given[:, 0].double().numpy())
    logits = model.double()(given.double()).detach()
    np.testing.assert_allclose(logits[:, 1], expected / 2, atol=1e-12)
    assert logits[:, 0].equal(-logits[:, 1])
    # In single precision, too, where the pixels are signs: all numbers are sums of a few powers of two.
    signs = given.sign()
    exact = evidence(model.function, signs[:, 0].double().numpy()) / 2
    assert model.float()(signs)[:, 1].tolist() == exact.tolist()


@every_network
def test_what_it_does_not_use_has_no_effect(name):
    model, signs = build(f"certified:{name}", (1, 8, 8), 2), images(20).sign()
    changed = torch.where(model.used, signs, -signs)
    assert model(changed).equal(model(signs))
    changed = torch.where(model.used, signs, torch.zeros(()))
    assert model(changed).equal(model(signs))
    for row, column in model.used.nonzero().tolist():
        turned = signs.clone()
        turned[:, 0, row, column] *= -1
        assert not model(turned).equal(model(signs))


@every_network
def test_effect_of_unused_pixels_with_any_values(name):
    """Exactly none, except where it cancels in two neurons, which leaves the rounding (docs/certified.md)."""
    model, given = build(f"certified:{name}", (1, 8, 8), 2), images(200)
    changed = torch.where(model.used, given, given.flip(0))
    effect = (model(changed) - model(given)).abs().max().item()
    assert 0 < effect < 1e-6 if name.startswith("cancellation") else effect == 0


@every_network
def test_it_is_plain_layers_that_travel(name):
    model = build(f"certified:{name}", (1, 8, 8), 2, seed=3)
    kinds = {type(layer) for layer in model}
    form = name.rpartition("-")[2]
    assert kinds == {nn.Linear} | ({nn.ReLU} if form != "linear" else set()) | ({nn.Conv2d} if form == "cnn" else set())
    other = copy.deepcopy(model)
    assert all(weight.equal(other.state_dict()[key]) for key, weight in model.state_dict().items())
    assert MODELS.resolve(f"certified:{name}").info.label


@every_network
def test_its_data_set_is_labeled_by_it(name):
    function = name.rpartition("-")[0]
    data = load(f"certified:{function}", seed=0, n_samples=100)
    model = build(f"certified:{name}", data.info.image_shape, 2)
    for split in (data.train, data.val, data.test):
        assert model(split.images).argmax(1).equal(split.targets)
        assert (split.masks == model.used).all()
        assert split.shapley.equal(model.shapley_values(split.images, split.targets))
        assert abs(int(split.targets.sum()) * 2 - len(split)) <= 1
    # They sum to the logit less that of an image of zeros.
    with torch.no_grad():
        logits = model.double()(data.test.images.double())
        rise = (logits - model(torch.zeros(1, 1, 8, 8).double())).gather(1, data.test.targets[:, None])[:, 0]
    torch.testing.assert_close(data.test.shapley.sum((1, 2)), rise)


def test_what_there_is_not_is_refused():
    refused(UnknownNameError, "'nand-mlp'", lambda: build("certified:nand-mlp", (1, 8, 8), 2))
    refused(UnknownNameError, "'xor-linear'", lambda: build("certified:xor-linear", (1, 8, 8), 2))
    refused(UnknownNameError, "'nand'", lambda: load("certified:nand"))
    refused(ValueError, "in_shape", lambda: build("certified:and-mlp", (3, 8, 8), 2))
    refused(ValueError, "7×7", lambda: load("certified:and", size=7))
