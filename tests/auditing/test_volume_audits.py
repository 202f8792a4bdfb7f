"""Audits of 3-D networks as a whole."""

import json

import numpy as np
import pytest
from oracles.tag_network import EXPLAINERS, tag_network, tagged_images
from oracles.volumes import shape_volumes, trained_network
from torch import nn
from typer.testing import CliRunner

import xaibench as xb
from xaibench.cli import app

NAMES = ("input_x_gradient", "integrated_gradients")


class OneSlice(nn.Module):
    """A network for images, of which the slice with a number gets the whole volume."""

    def __init__(self, number, network):
        super().__init__()
        self.number, self.network = number, network

    def forward(self, volumes):
        return self.network(volumes[:, :, self.number])


def numbers(audit):
    """What an audit found, without what depends on the time and the shape."""
    found = audit.to_dict()
    return {key: found[key] for key in ("verdicts", "questions", "sanity_checks", "findings", "network_test")}


def assert_close(one, other):
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        for key in one:
            assert_close(one[key], other[key])
    elif isinstance(one, list):
        assert len(one) == len(other)
        for a, b in zip(one, other, strict=True):
            assert_close(a, b)
    elif isinstance(one, float):
        assert other == pytest.approx(one, rel=1e-5, abs=1e-6)
    else:
        assert one == other


def test_an_audit_of_volumes_of_one_slice_is_that_of_images():
    images, labels = tagged_images(8)
    given = {"explainers": ["input_x_gradient"], "budget": 10, "progress": False}
    flat = xb.audit(tag_network(), images, labels, **given)
    assert_close(numbers(flat), numbers(xb.audit(tag_network(), images[:, :, None], labels, **given)))


def test_explainers_that_find_the_tag_in_a_slice_are_supported_and_others_refuted():
    images, labels = tagged_images(24)
    volumes = nn.functional.pad(images[:, :, None], (0, 0, 0, 0, 4, 1), value=0.1)
    explainers = {name: EXPLAINERS[name] for name in NAMES} | {
        "edges": lambda m, x, y: x[:, 0].diff(dim=1, prepend=x[:, 0, :1])
    }
    audit = xb.audit(OneSlice(4, tag_network()), volumes, labels, explainers=explainers, budget=20, progress=False)
    outcomes = {verdict.explainer: verdict.outcome for verdict in audit.verdicts}
    assert outcomes == {"input_x_gradient": "supported", "integrated_gradients": "supported", "edges": "refuted"}
    (finding,) = [finding for finding in audit.findings if finding.key == "decisive_regions"]
    assert "(top left of the last slices 12)" in finding.text


def test_a_trained_network_is_audited_to_the_page(tmp_path):
    volumes, classes, masks = shape_volumes(12)
    given = {"masks": masks, "classes": ["cube", "bar"], "explainers": ["input_x_gradient", "lime"], "budget": 30}
    audit = xb.audit(trained_network(), volumes, classes, **given, progress=False)
    assert audit.network.passed
    questions = {question.key: question for question in audit.questions}
    assert questions["mosaics"].text.startswith("Eight images on a grid")
    assert "only an eighth of the image" in questions["blinded_copies"].text
    assert not questions["interventions"].skipped
    means = questions["annotations"].means()
    assert means["input_x_gradient"] > means["uniform"] + 0.2
    page = audit.write(tmp_path).read_text()
    assert "1 × 12 × 12 × 12" in page
    assert "slice d, to its right column w, and below row h" in page
    assert "<script" not in page
    assert json.loads((tmp_path / "audit.json").read_text())["record"]["images"]["with_mask"] == 12


NETWORK_FILE = """
from oracles.tag_network import tag_network
from auditing.test_volume_audits import OneSlice

network = OneSlice(1, tag_network())
"""


def test_the_command_audits_a_folder_of_volumes(tmp_path):
    images, labels = tagged_images(12)
    for index, (image, label) in enumerate(zip(images, labels, strict=True)):
        place = tmp_path / "scans" / ("tagged", "plain")[int(label)]
        place.mkdir(parents=True, exist_ok=True)
        np.save(place / f"{index}.npy", image.repeat(3, 1, 1).numpy())
    (tmp_path / "mine.py").write_text(NETWORK_FILE)
    arguments = ["audit", f"{tmp_path / 'mine.py'}:network", "--images", str(tmp_path / "scans"), "--budget", "10"]
    arguments += ["--classes", "tagged,plain", "--explainers", "saliency", "--out", str(tmp_path / "out")]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    written = json.loads((tmp_path / "out" / "audit.json").read_text())
    assert written["record"]["network"]["accuracy"] == 1.0
    assert written["record"]["images"]["shape"] == [1, 3, 16, 16]
    result = CliRunner().invoke(app, [*arguments, "--size", "16"])
    assert result.exit_code != 0
    assert "size: only for folders of images" in result.output
