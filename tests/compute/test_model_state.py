import copy

import pytest
import torch
from torch import nn

from xaibench.compute.lending import evaluation_mode, restore_model_state


def modes(model):
    return [module.training for module in model.modules()]


@pytest.fixture
def model():
    """With what a model in use has: mixed modes, buffers, a hook, a frozen parameter, a gradient, an attribute."""
    built = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(8, 2)).train()
    built[1].eval()
    built[3].register_forward_hook(lambda *_: None)
    built[0].bias.requires_grad_(False)
    built[0].weight.grad = torch.ones_like(built[0].weight)
    built[2].note = "mine"
    return built


@pytest.mark.parametrize("guard", [evaluation_mode, restore_model_state])
def test_every_module_is_evaluating_and_comes_back_in_its_own_mode(guard, model):
    before = modes(model)
    assert len(set(before)) == 2
    with guard(model):
        assert not any(modes(model))
        model.train()
    assert modes(model) == before


@pytest.mark.parametrize("guard", [evaluation_mode, restore_model_state])
def test_also_when_the_block_fails(guard, model):
    before = modes(model)
    with pytest.raises(RuntimeError, match="halfway"), guard(model):
        raise RuntimeError("halfway")
    assert modes(model) == before


def test_also_when_a_module_refuses_the_mode(model):
    class Stubborn(nn.Identity):
        def train(self, mode=True):
            raise RuntimeError("never")

    before = modes(model)
    model.append(Stubborn())
    with pytest.raises(RuntimeError, match="never"), evaluation_mode(model):
        pass
    assert modes(model)[:-1] == before


def test_a_function_has_no_mode():
    with evaluation_mode(torch.tanh):
        pass


def test_inside_gradients_are_on_and_parameters_are_frozen(model):
    asked = [p.requires_grad for p in model.parameters()]
    with torch.no_grad(), restore_model_state(model) as lent:
        assert lent is model
        assert torch.is_grad_enabled()
        assert not any(p.requires_grad for p in lent.parameters())
    with torch.inference_mode(), restore_model_state(model):
        assert not torch.is_inference_mode_enabled()
    assert [p.requires_grad for p in model.parameters()] == asked


def test_all_that_is_done_to_a_lent_model_is_undone(model):
    state, weight = copy.deepcopy(model.state_dict()), model[0].weight
    gradient, hooks, layers = weight.grad, dict(model[3]._forward_hooks), list(model)
    with restore_model_state(model) as lent:
        lent[1].train()
        lent(torch.rand(4, 1, 4, 4))  # moves the statistics of the batch normalization
        lent[0].weight.grad = None
        lent[0].weight.requires_grad_(True)
        lent[2].note, lent[2].extra = "yours", 1
        lent[3].register_forward_hook(lambda *_: None)
        lent[2] = nn.Identity()
        assert not torch.equal(lent[1].running_mean, state["1.running_mean"])
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    assert model[0].weight is weight
    assert weight.grad is gradient
    assert not model[0].bias.requires_grad
    assert list(model) == layers
    assert model[2].note == "mine"
    assert not hasattr(model[2], "extra")
    assert dict(model[3]._forward_hooks) == hooks
