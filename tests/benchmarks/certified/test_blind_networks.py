"""Pixels that a blind network does not see have no effect and no gradient; explainers that promise it return zero."""

import copy
import pickle

import pytest
import torch
from part_cases import ExplainerCase, case
from refusals import refused
from torch import nn

import xaibench as xb
from xaibench.benchmarks import blind
from xaibench.explainers import EXPLAINERS, UnsupportedModelError
from xaibench.models import MODELS, build, fit_many


@pytest.fixture
def visible():
    """The left half of 8×8 pixels, and one on the right."""
    found = torch.zeros(8, 8, dtype=torch.bool)
    found[:, :4] = found[3, 6] = True
    return found


def images(count, *shape):
    return torch.randn(count, *shape or (1, 8, 8), generator=torch.Generator().manual_seed(0))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", EXPLAINERS)
def test_methods_that_promise_zero_say_zero_where_nothing_is_read(name, visible):
    part = xb.explainers.build(name, **case(EXPLAINERS, name, ExplainerCase()).quick)
    exact_zero = part.info.exact_zero
    explained = 0
    for network in ("llr", "mlp", "cnn"):
        model = blind(build(network, (1, 8, 8), 2, seed=0), visible)
        try:
            training = [(images(32), torch.ones(32, 8, 8, dtype=torch.bool), torch.zeros(32, dtype=torch.int64))]
            fitted = part.fit(model, training) if hasattr(part, "fit") else part
            maps = xb.explain(fitted, model, images(4), torch.tensor([0, 1, 0, 1]), device="cpu")
        except UnsupportedModelError:
            continue
        explained += 1
        assert maps.abs().sum() > 0
        outside = maps.abs()[:, ~visible].sum()
        assert exact_zero is None or (outside == 0) == exact_zero
    assert explained or exact_zero is None


@pytest.mark.parametrize("network", ["mlp", "cnn"])
def test_what_lies_outside_has_no_effect_and_no_gradient(network, visible):
    model, given = blind(build(network, (1, 8, 8), 2, seed=0), visible), images(3).requires_grad_()
    logits = model(given)
    logits[:, 0].sum().backward()
    assert (given.grad[:, 0, ~visible] == 0).all()
    assert (given.grad[:, 0, visible] != 0).any()
    other = given.detach().clone()
    other[:, 0, ~visible] = torch.nan
    assert model(other).equal(logits)
    # What is read is what the network would have been given with zeros elsewhere.
    assert model.network(torch.where(visible, given, 0.0)).equal(logits)


def test_it_learns_from_what_it_sees_and_the_network_is_left_as_it_was(visible):
    network = build("mlp", (1, 8, 8), 2, seed=0)
    before = copy.deepcopy(network.state_dict())
    model = blind(network, visible)
    data = xb.data.Split(images(64), torch.zeros(64, 8, 8, dtype=torch.bool), (images(64)[:, 0, 0, 0] > 0).long())
    training = fit_many([model], [data], [data], epochs=12, batch_size=8, lr=0.01, device="cpu", progress=False)[0]
    assert training.val_accuracy > 0.9
    assert all(weight.equal(before[name]) for name, weight in network.state_dict().items())
    # The other columns of the first layer never learn: their inputs are zero.
    first = next(model.network.parameters())
    assert first[:, ~visible.flatten()].equal(before["0.weight"][:, ~visible.flatten()])


def test_it_travels_and_nests(visible):
    model = blind(build("cnn", (1, 8, 8), 2, seed=0), visible).eval()
    assert model.explain_dtype == torch.float64
    for other in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model), model.double().float()):
        assert other(images(2)).equal(model(images(2)))
    narrower = blind(model, torch.eye(8))
    changed = images(1)
    changed[0, 0, 7, 7] += 1  # on the diagonal, and outside of the first network's view
    assert narrower(changed).equal(narrower(images(1)))
    assert "visible=33 of 64 pixels" in repr(model)


def test_colors_go_together(visible):
    model = blind(nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 2)), visible.numpy())
    given = images(2, 3, 8, 8)
    changed = given.clone()
    changed[:, :, ~visible] += 1
    assert model(changed).equal(model(given))
    changed[:, 2, 0, 0] += 1
    assert not model(changed).equal(model(given))


@pytest.mark.parametrize(
    "visible", [torch.zeros(8, 8), torch.ones(1, 1, 8, 8), torch.full((8, 8), 0.5)], ids=["nothing", "shape", "values"]
)
def test_a_mask_that_cannot_be_is_refused(visible):
    refused(ValueError, "visible:", lambda: blind(build("llr", (1, 8, 8), 2), visible))


def test_a_blind_network_is_made_by_name_and_knows_what_it_sees_without_its_weights():
    model = build("blind:mlp", (1, 8, 8), 2, rows=[2, 5], columns=[0, 4], seed=1)
    images = torch.rand(3, 1, 8, 8)
    changed = images.clone()
    changed[:, :, ~MODELS.resolve("blind:mlp").visible((1, 8, 8), rows=[2, 5], columns=[0, 4])] = torch.nan
    assert model(changed).equal(model(images))
    assert int(model.visible.sum()) == 12
    assert bool(model.visible[2:5, :4].all())
    assert build("blind:llr", (1, 8, 8), 2).visible.all()


def test_a_blind_network_of_volumes_does_not_read_the_other_voxels():
    visible = torch.zeros(3, 4, 5, dtype=torch.bool)
    visible[1:, :2] = True
    model = blind(nn.Sequential(nn.Conv3d(1, 2, 2), nn.Flatten(), nn.Linear(48, 2)), visible)
    volumes = images(2, 1, 3, 4, 5)
    changed = torch.where(visible, volumes, torch.inf)
    assert torch.equal(model(volumes), model(changed))
    assert not torch.equal(model(volumes), model(torch.where(visible, volumes + 1, volumes)))
