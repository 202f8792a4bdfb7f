"""Audits that were stopped continue, with the same result."""

import dataclasses
import json

import pytest
import torch
from oracles.tag_network import tag_network, tagged_images
from refusals import refused
from torch import nn

import xaibench as xb
from xaibench.auditing.images import make_subject
from xaibench.runner.store import Store


class Stopped(BaseException):
    """The process was stopped."""


class Network(nn.Module):
    """Counts the images it gets, and is stopped after a number of them."""

    rows, most = 0, None

    def __init__(self):
        super().__init__()
        self.network = tag_network(3)

    def forward(self, images):
        Network.rows += len(images)
        if Network.most is not None and Network.rows > Network.most:
            raise Stopped
        return self.network(images)


def audited(folder, most=None, show_plan=None):
    Network.rows, Network.most = 0, most
    images, labels = tagged_images(12)
    arguments = {"explainers": ["saliency", "occlusion", "rise"], "budget": 20, "progress": False, "folder": folder}
    audit = xb.audit(Network(), images, 2 * labels, show_plan=show_plan, **arguments)
    result = audit.to_dict()
    for key in ("date", "seconds", "seconds_per_explainer"):
        del result["record"][key]
    return result, Network.rows


@pytest.fixture(scope="module")
def uninterrupted():
    plans = []
    result, rows = audited(None, show_plan=plans.append)
    return result, rows, plans[0]


def test_the_forecast_counts_about_as_many_passes_as_an_audit_makes(uninterrupted):
    _, rows, plan = uninterrupted
    assert 0.5 < rows / sum(plan.stages.values()) < 1.3


@pytest.mark.parametrize("share", [0.2, 0.6, 0.98])
def test_an_audit_continues_where_it_was_stopped(uninterrupted, tmp_path, share):
    whole, rows, _ = uninterrupted
    stop = int(share * rows)
    refused(Stopped, "", audited, tmp_path, stop)
    assert not (tmp_path / "audit.json").exists()
    again, rest = audited(tmp_path)
    assert again == whole
    assert rest < rows - 0.6 * stop
    assert json.loads((tmp_path / "audit.json").read_text())["headline"] == whole["headline"]
    assert {path.name.partition("-")[0] for path in (tmp_path / "stored").rglob("*.safetensors")} == {"images"}


def test_stored_results_belong_to_their_inputs(tmp_path):
    subject = make_subject(tag_network(), tagged_images(8)[0])
    stored, calls = dataclasses.replace(subject, store=Store(tmp_path), context="network"), []

    def get(stored, *inputs):
        def compute():
            calls.append(inputs)
            return torch.ones(2)

        return stored.stored("audit", "a", inputs, compute).tolist()

    one, other = nn.Linear(2, 1), nn.Linear(2, 1)
    for inputs in [(torch.zeros(2), 1), (torch.zeros(2), 2), (torch.zeros(3), 1), (one,), (other,)]:
        assert get(stored, *inputs) == get(stored, *inputs) == [1.0, 1.0]
    assert len(calls) == 5
    get(dataclasses.replace(stored, context="another network"), one)
    assert len(calls) == 6
    for path in tmp_path.rglob("*.safetensors"):
        path.write_bytes(path.read_bytes()[:-20])
    assert get(stored, one) == [1.0, 1.0]
    assert len(calls) == 7
