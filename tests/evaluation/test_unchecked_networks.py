"""Evaluations and audits of networks that are not a deterministic function of one image."""

import json

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import xaibench as xb
from xaibench.auditing.page import SCHEMA
from xaibench.data import Split
from xaibench.explainers import NetworkContractError

IMAGES = (
    torch.rand(12, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    * torch.linspace(0.3, 1, 12)[:, None, None, None]
)
MASKS = torch.zeros(12, 8, 8, dtype=torch.bool)
MASKS[:, 2:5, 2:5] = True
SPLIT = Split(IMAGES, MASKS, torch.zeros(12, dtype=torch.long))


class Net(nn.Module):
    def __init__(self, change):
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.conv, self.head, self.change = nn.Conv2d(1, 4, 3), nn.Linear(4, 2), change

    def forward(self, x):
        return self.head(self.change(F.relu(self.conv(x)).mean((2, 3))))


BROKEN = {
    "random": (lambda x: F.dropout(x, 0.1), "draws random numbers"),
    "batch": (lambda x: x / x.abs().max(), "other images of its batch"),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_an_evaluation_raises_or_says_what_is_wrong(kind):
    change, message = BROKEN[kind]
    methods, metrics = {"occlusion": xb.explainers.Occlusion(window=4, stride=4)}, {"iou": {}, "deletion": {"steps": 2}}
    with pytest.raises(NetworkContractError, match=message):
        xb.evaluate(methods, SPLIT, Net(change), metrics, scored="all", batch_size=4, progress=False)
    with pytest.warns(UserWarning, match=message):
        result = xb.evaluate(
            methods, SPLIT, Net(change), metrics, scored="all", batch_size=4, progress=False, check_network=False
        )
    assert len(result.broken_assumptions) == 1
    assert message in result.broken_assumptions[0]
    assert message in str(result)


def test_of_a_lost_gradient_only_methods_with_gradients_are_left_out():
    model, methods = Net(lambda x: x.detach() + 0.01 * x), ["saliency", "occlusion"]
    arguments = (methods, SPLIT, model, {"iou": {}, "deletion": {"steps": 2}})
    result = xb.evaluate(*arguments, controls=False, scored="all", progress=False)
    assert "detach" in result.inapplicable["saliency"]
    assert result.methods == ["occlusion"]
    assert result.broken_assumptions == ()
    with pytest.warns(UserWarning, match="detach"):
        result = xb.evaluate(*arguments, controls=False, scored="all", progress=False, check_network=False)
    assert result.methods == methods
    assert len(result.broken_assumptions) == 1


def test_right_networks_have_nothing_to_say():
    result = xb.evaluate(
        "saliency", SPLIT, Net(nn.Identity()), {"deletion": {"steps": 2}}, scored="all", progress=False
    )
    assert result.broken_assumptions == ()
    assert "relied on" not in str(result)


def test_an_audit_raises_or_says_what_is_wrong(tmp_path):
    model, settings = Net(BROKEN["batch"][0]), {"explainers": ["saliency"], "budget": 4, "progress": False}
    with pytest.raises(NetworkContractError, match="other images of its batch"):
        xb.audit(model, IMAGES, **settings)
    with pytest.warns(UserWarning, match="other images of its batch"):
        found = xb.audit(model, IMAGES, check_network=False, **settings)
    why = found.record["broken_assumptions"][0]
    assert "other images of its batch" in why
    assert why in str(found)
    assert "Not to be relied on" in found.write(tmp_path).read_text()
    jsonschema = pytest.importorskip("jsonschema")
    jsonschema.validate(json.loads((tmp_path / "audit.json").read_text()), json.loads(SCHEMA.read_text()))
