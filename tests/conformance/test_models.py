"""What every registered model promises."""

import copy
import inspect
import pickle

import numpy as np
import pytest
import torch
from part_cases import ModelCase, case

from xaibench import models
from xaibench.models import MODELS
from xaibench.registry.info import ModelInfo

CASE = {name: case(MODELS, name, ModelCase()) for name in MODELS}
BIG = [name for name in MODELS if CASE[name].big]

every_model = pytest.mark.parametrize(
    ("name", "in_shape"),
    [(name, shape) for name in MODELS if not CASE[name].big for shape in CASE[name].shapes],
)


def build(name, in_shape, num_classes, **parameters):
    """The model; of those that are pretrained, with random weights, which need no download."""
    if CASE[name].needs:
        pytest.importorskip(CASE[name].needs)
    if "weights" in inspect.signature(MODELS.resolve(name)).parameters:
        parameters["weights"] = None
    return models.build(name, in_shape, num_classes, **parameters)


def pictures(in_shape, count=6):
    return torch.randn(count, *in_shape, generator=torch.Generator().manual_seed(0))


def weights(model):
    return torch.cat([tensor.flatten().double() for tensor in model.state_dict().values()])


@pytest.mark.parametrize("name", MODELS)
def test_info_is_complete(name):
    info = MODELS.resolve(name).info
    assert isinstance(info, ModelInfo)
    assert info.label
    assert info.citation
    assert info.revision >= 1
    assert isinstance(MODELS.resolve(name), type) or pickle.loads(pickle.dumps(MODELS.resolve(name))).info == info


def test_labels_are_unique():
    labels = [MODELS.resolve(name).info.label for name in MODELS]
    assert len(set(labels)) == len(labels)


@every_model
def test_logits_are_one_row_a_sample(name, in_shape):
    for classes in (2, 3):
        model = build(name, in_shape, num_classes=classes).eval()
        logits = model(100 * pictures(in_shape))
        assert (logits.shape, logits.dtype) == ((6, classes), torch.float32)
        assert logits.isfinite().all()
        # Probabilities would add up to one, whatever the image.
        assert (logits.sum(dim=1) - 1).abs().max() > 0.1


@pytest.mark.parametrize("name", BIG)
def test_big_models_too(name):
    with torch.device("meta"):  # no numbers, only shapes
        model = build(name, (3, 64, 64), 3)
        assert model(torch.zeros(6, 3, 64, 64)).shape == (6, 3)
    assert not model.training


@every_model
def test_the_seed_alone_decides_the_weights(name, in_shape):
    one = weights(build(name, in_shape, 2, seed=0))
    torch.manual_seed(99)
    torch_state, numpy_state = torch.get_rng_state(), np.random.get_state()
    assert torch.equal(weights(build(name, in_shape, 2)), one)
    assert not torch.equal(weights(build(name, in_shape, 2, seed=2)), one)
    assert torch.equal(torch.get_rng_state(), torch_state)
    assert all(np.array_equal(a, b) for a, b in zip(np.random.get_state(), numpy_state, strict=True))


@every_model
def test_evaluation_is_deterministic_and_sample_by_sample(name, in_shape):
    model, images = build(name, in_shape, 2).double().eval(), pictures(in_shape).double()
    with torch.no_grad():
        logits = model(images)
        assert torch.equal(model(images), logits)
        alone = torch.cat([model(image[None]) for image in images])
    torch.testing.assert_close(alone, logits, rtol=1e-11, atol=1e-11)
    assert logits.std(dim=0).min() > 0  # or all of this would say nothing


@every_model
def test_every_parameter_is_trained(name, in_shape):
    model = build(name, in_shape, 2).train()
    count = 32 if in_shape[0] == 1 else 8
    torch.manual_seed(0)
    torch.nn.functional.cross_entropy(model(pictures(in_shape, count)), torch.arange(count) % 2).backward()
    for parameter_name, parameter in model.named_parameters():
        assert parameter.grad is not None, parameter_name
        assert parameter.grad.abs().max() > 0, parameter_name


@every_model
def test_weights_travel(name, in_shape):
    model, images = build(name, in_shape, 2, seed=1).eval(), pictures(in_shape)
    other = build(name, in_shape, 2, seed=2).eval()
    other.load_state_dict(model.state_dict())
    for copied in (other, copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(copied(images), model(images))


@every_model
def test_another_shape_is_refused_at_once(name, in_shape):
    with pytest.raises(ValueError, match="in_shape"):
        build(name, in_shape=(2, 7, 5), num_classes=2)
