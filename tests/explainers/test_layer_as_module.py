"""A layer can be given as the module itself, also where the network is copied before it is explained."""

import pytest
import torch
from torch import nn

import xaibench as xb
from xaibench.data import Split

IMAGES, TARGETS = torch.rand(2, 1, 8, 8, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 1])


@pytest.fixture
def model():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3),
        nn.ReLU(),
        nn.Conv2d(4, 4, 3),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(4, 2),
    )


@pytest.mark.parametrize(
    "name", ["gradcam", "gradcam++", "layercam", "eigencam", "scorecam", "ablationcam", "guided_gradcam"]
)
@pytest.mark.parametrize("dtype", ["auto", torch.float64])  # the latter explains a copy
def test_the_module_is_the_layer_of_its_name(model, name, dtype):
    by_name, by_module = (
        xb.explain(name, model, IMAGES, TARGETS, layer=layer, dtype=dtype) for layer in ("0", model[0])
    )
    assert torch.equal(by_name, by_module)
    assert not torch.equal(by_module, xb.explain(name, model, IMAGES, TARGETS, dtype=dtype))


def test_an_explainer_called_by_itself_takes_it(model):
    part = xb.explainers.build("gradcam", layer=model[0])
    assert torch.equal(part(model, IMAGES, TARGETS), xb.explainers.build("gradcam", layer="0")(model, IMAGES, TARGETS))


def test_evaluate_takes_it_where_the_network_is_copied(model):
    split = Split(IMAGES, IMAGES[:, 0] > 0.5, TARGETS)
    methods = {
        "module": xb.explainers.build("gradcam", layer=model[0]),
        "name": xb.explainers.build("gradcam", layer="0"),
    }
    how = {"metrics": ["roc_auc"], "controls": False, "scored": "all", "precision": "float64"}
    scores = xb.evaluate(methods, split, model, **how).matrix("roc_auc")
    assert scores["module"].tolist() == scores["name"].tolist()


def test_a_module_that_runs_again_on_vectors_keeps_its_maps():
    act, last = nn.ReLU(), nn.Linear(4, 2)
    layers = nn.Conv2d(1, 3, 3, padding=1), act, nn.Flatten(), nn.Linear(192, 4)
    shared, plain = nn.Sequential(*layers, act, last), nn.Sequential(*layers, nn.ReLU(), last)
    for name in ("gradcam", "hirescam", "ablationcam"):
        assert torch.equal(*(xb.explain(name, network, IMAGES, TARGETS, layer="1") for network in (shared, plain)))
