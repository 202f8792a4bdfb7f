"""What every registered explainer promises: right form, repeatable, and the model comes back as it was given."""

import copy
import dataclasses
import functools
import pickle
from collections import Counter

import numpy as np
import pytest
import torch
from explainer_trials import CASE, NAMES, maps_of, network, network_of, shared_network
from refusals import refused
from torch import nn
from zoo.verdicts import portrait

from xaibench.explainers import EXPLAINERS, UnsupportedModelError, build
from xaibench.registry.info import ExplainerInfo

INFOS = {name: EXPLAINERS.resolve(name).info for name in NAMES}
NETWORKS = ("llr", "mlp", "cnn")

#: Those that take none of the small networks are held to the same promises by their own tests, on one of theirs.
EVERY = [name for name in NAMES if ":" not in CASE[name].network]
every_explainer = pytest.mark.parametrize("name", EVERY)
every_method = pytest.mark.parametrize("name", [name for name in EVERY if not INFOS[name].control])
every_control = pytest.mark.parametrize("name", [name for name in EVERY if INFOS[name].control])


def make_images():
    contrast = torch.linspace(0.8, 1.0, 6)[:, None, None, None]  # the extremes of the batch are in its last image
    return torch.randn(6, 1, 8, 8, generator=torch.Generator().manual_seed(1)).clamp(-1, 1) * contrast


def make_targets():
    return torch.tensor([0, 1, 1, 0, 1, 0])


@pytest.fixture
def images():
    return make_images()


@pytest.fixture
def targets():
    return make_targets()


@functools.cache
def known_maps(name):
    """The maps of these images, computed once for all tests."""
    return maps_of(name, network_of(name), make_images(), make_targets())


def is_seeded(name):
    return "seed" in {field.name for field in dataclasses.fields(build(name))}


def close(maps, expected):
    torch.testing.assert_close(maps, expected, rtol=1e-7, atol=1e-6 * expected.abs().max().item())


@every_explainer
def test_info_is_complete(name):
    info = INFOS[name]
    assert isinstance(info, ExplainerInfo)
    assert info.label
    assert info.family
    assert info.control or info.citation, f"{name}: give ExplainerInfo the paper as citation=..."
    assert not (info.control and info.needs_convolution)
    assert info.revision >= 1


def test_labels_are_unique():
    labels = Counter(info.label for info in INFOS.values())
    assert [label for label, count in labels.items() if count > 1] == []


@every_explainer
def test_parameters_are_frozen_and_travel(name):
    part = build(name)
    assert dataclasses.is_dataclass(part)
    assert pickle.loads(pickle.dumps(part)) == part
    field = dataclasses.fields(part)[0].name
    with pytest.raises(dataclasses.FrozenInstanceError, match=field):
        setattr(part, field, None)


@every_explainer
def test_maps_have_the_form_of_the_library(name, images, targets):
    for kind in NETWORKS:
        model = shared_network(CASE[name].network if kind == "cnn" else kind)
        if INFOS[name].needs_convolution and kind != "cnn":
            refused(UnsupportedModelError, "convolution", maps_of, name, model, images, targets)
            continue
        maps = known_maps(name) if kind == "cnn" else maps_of(name, model, images, targets)
        assert isinstance(maps, torch.Tensor)
        assert (maps.shape, maps.dtype) == ((6, 8, 8), model.explain_dtype)
        assert maps.isfinite().all(), kind
        # A method that keeps only what speaks for the class may find nothing for some samples, but not for all.
        assert (maps.abs() > 0).any(), kind
        assert not maps.requires_grad


@every_explainer
def test_maps_are_those_of_the_seed_and_arrays_come_as_they_were_given(name, images, targets):
    model, (given, classes) = network_of(name), (images.numpy().copy(), targets.numpy().copy())
    torch.manual_seed(7), np.random.seed(7)  # whatever else draws meanwhile
    torch_state, numpy_state = torch.get_rng_state(), np.random.get_state()
    array = maps_of(name, model, given, classes)
    assert isinstance(array, np.ndarray)
    assert np.array_equal(array, known_maps(name).numpy())
    assert torch.equal(torch.get_rng_state(), torch_state)
    assert all(np.array_equal(a, b) for a, b in zip(np.random.get_state(), numpy_state, strict=True))
    assert np.array_equal(given, images.numpy())
    assert np.array_equal(classes, targets.numpy())
    before = images.clone(), targets.clone()
    assert torch.equal(maps_of(name, model, images, targets, seed=1), known_maps(name)) == (not is_seeded(name))
    assert torch.equal(images, before[0])
    assert torch.equal(targets, before[1])
    assert not images.requires_grad


@every_explainer
def test_a_map_does_not_depend_on_the_other_samples(name, images, targets):
    if settings := CASE[name].sample_by_sample:  # permutation feature importance is defined on a group of images
        together = maps_of(name, network_of(name), images, targets, **settings)
        close(maps_of(name, network_of(name), images[:3], targets[:3], **settings), together[:3])
        return
    for some in ([4, 0, 2], [2]):  # without the last image
        close(maps_of(name, network_of(name), images[some], targets[some]), known_maps(name)[some])


@every_explainer
def test_maps_do_not_depend_on_the_batch_size_nor_on_gradients_being_off(name, images, targets):
    model, expected = network_of(name), known_maps(name)
    with torch.no_grad():
        close(maps_of(name, copy.deepcopy(model), images, targets, batch_size=1), expected)
    with torch.inference_mode():
        close(maps_of(name, model, images, targets, batch_size=4), expected)


@every_method
def test_a_method_knows_the_model(name, images, targets):
    assert not torch.allclose(maps_of(name, network_of(name, seed=1), images, targets), known_maps(name))


@every_control
def test_a_control_knows_no_model(name, images, targets):
    expected = maps_of(name, network(seed=0).double(), images, targets)
    assert torch.equal(maps_of(name, shared_network("mlp", seed=1), images, targets), expected)
    assert torch.equal(maps_of(name, shared_network(), images, 1 - targets), expected)
    close(maps_of(name, None, images, targets).double(), expected)


def scarred(kind="cnn"):
    """A network with a history: modes, gradients, frozen weights, hooks, a buffer and an attribute of its own."""
    model = copy.deepcopy(shared_network(kind)).train()
    model[1].eval()
    parameters = list(model.parameters())
    for number, parameter in enumerate(parameters):
        parameter.grad = torch.full_like(parameter, float(number)) if number % 2 else None
    parameters[0].requires_grad_(False)
    model.register_buffer("counter", torch.tensor([3.0]))
    model[0].register_forward_hook(lambda module, arguments, result: None)
    model[1].register_full_backward_hook(lambda module, before, after: None)
    model.note = ["mine"]
    return model


@every_explainer
def test_the_model_comes_back_as_it_was_given(name, images, targets):
    model = scarred(CASE[name].network)
    before = portrait(model)
    for dtype in (torch.float32, torch.float64):  # the network itself is lent to the explainer, and a copy of it
        assert maps_of(name, model, images, targets, dtype=dtype).dtype == dtype
        assert portrait(model) == before, dtype


@every_method
def test_the_model_comes_back_and_explains_on_when_explaining_fails(name, images, targets):
    model = scarred(CASE[name].network)
    left = iter(())

    def fail(module, arguments, result):
        if next(left, None) is None:
            raise OSError("the disk is on fire")

    handle = model[-1].register_forward_hook(fail)
    before = portrait(model)
    for calls in range(3):
        left = iter(range(calls))
        with pytest.raises(OSError, match="the disk is on fire"):
            maps_of(name, model, images, targets, dtype=torch.float32, batch_size=1)
        assert portrait(model) == before, calls
    # What Captum stores on a module while it explains would be found there by the next explainer.
    handle.remove()
    expected = maps_of(name, scarred(CASE[name].network), images, targets, dtype=torch.float32)
    assert torch.equal(maps_of(name, model, images, targets, dtype=torch.float32), expected)


def test_a_portrait_shows_what_an_explainer_may_leave_behind():
    def hook(module, arguments, result):
        return None

    harm = {
        "modes": lambda model: model[3].eval(),
        "requires_grad": lambda model: model[0].weight.requires_grad_(),
        "gradients": lambda model: model[0].bias.grad.add_(1),
        "gradient_ids": lambda model: setattr(model[3].bias, "grad", torch.ones(4)),
        "hooks": lambda model: model[3].register_forward_hook(hook),
        "attributes": lambda model: setattr(model[2], "rule", 1),
        "state": lambda model: model.counter.add_(1),
        "parameters": lambda model: setattr(model[0], "bias", nn.Parameter(model[0].bias.detach().clone())),
        "modules": lambda model: model.__setitem__(1, nn.ReLU()),
    }
    for aspect, do in harm.items():
        model = scarred()
        before = portrait(model)
        assert portrait(model) == before
        do(model)
        assert portrait(model)[aspect] != before[aspect]
