"""Audits as a whole: they find what the network uses, and support nothing if it is unknown."""

import json
import warnings

import numpy as np
import pytest
import torch
from oracles.tag_network import EXPLAINERS, SIDE, tag_network, tagged_images
from oracles.volumes import shape_volumes, trained_network
from refusals import refused
from torch import nn
from typer.testing import CliRunner

import xaibench as xb
from xaibench.auditing.page import SCHEMA
from xaibench.benchmarks.certified.blind_networks import Blind
from xaibench.cli import app
from xaibench.core.progress import ProgressBar
from xaibench.explainers import UnsupportedModelError


def outcomes(audit):
    return {verdict.explainer: verdict.outcome for verdict in audit.verdicts}


def test_explainers_that_find_the_tag_are_supported_and_others_refuted(tag_audit):
    found = outcomes(tag_audit)
    assert found["input_x_gradient"] == found["integrated_gradients"] == "supported"
    assert found["edges"] == found["other_network"] == "refuted"
    assert tag_audit.headline.startswith("Supported: ")


def test_the_tag_is_found(tag_audit):
    (finding,) = [finding for finding in tag_audit.findings if finding.key == "decisive_regions"]
    assert "top left" in finding.text
    assert finding.images


def test_json_follows_the_schema(written):
    jsonschema = pytest.importorskip("jsonschema")
    found = json.loads((written / "audit.json").read_text())
    jsonschema.validate(found, json.loads(SCHEMA.read_text()))
    assert found["record"]["network"]["accuracy"] == 1.0
    assert found["record"]["images"]["count"] == 24


def test_the_page_states_verdicts_limits_and_record(tag_audit, written):
    page = (written / "audit.html").read_text()
    for text in ("supported", "refuted", "Limits", tag_audit.record["network"]["sha256"], "data:image/png", "edges"):
        assert text in page
    assert "<script" not in page


def test_the_printed_form_has_a_line_per_explainer(tag_audit):
    text = str(tag_audit)
    assert all(any(line.startswith(label) for line in text.splitlines()) for label in EXPLAINERS)
    assert list(tag_audit.table()["explainer"]) == list(EXPLAINERS)


def test_nothing_is_supported_for_random_weights(unlabeled_audit):
    assert not unlabeled_audit.network.passed
    assert unlabeled_audit.supported == []
    assert "not shown to be better than chance" in str(unlabeled_audit)


@pytest.fixture(scope="module")
def plain():
    """An audit with an explainer that does not support the network, and one that fails for a copy of it."""

    def reads_layers(model, images, targets):
        if any(isinstance(module, Blind) for module in model.modules()):
            raise UnsupportedModelError("it has no layer")
        return images[:, 0]

    explainers = {name: name for name in ("saliency", "lrp_epsilon", "gradcam")} | {"mine": reads_layers}
    return xb.audit(tag_network(), *tagged_images(12), explainers=explainers, budget=10, progress=False)


def test_explainers_that_fail_are_listed(plain):
    assert plain.inapplicable.keys() == {"gradcam", "mine"}
    assert "it has no layer" in plain.inapplicable["mine"]
    assert list(outcomes(plain)) == ["saliency", "lrp_epsilon"]


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


def test_a_final_softmax_and_an_axis_of_one_slice_change_nothing(plain):
    """The softmax is left out with one warning; warnings of other libraries are shown once, too."""

    class Softmax(nn.Module):
        def forward(self, x):
            warnings.warn("of another library", UserWarning, stacklevel=1)
            return x.softmax(1)

    images, labels = tagged_images(12)
    given = {"explainers": ["saliency", "lrp_epsilon"], "budget": 10, "progress": False}
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        ended = xb.audit(nn.Sequential(tag_network(), Softmax()), images[:, :, None], labels, **given)
    texts = [str(one.message) for one in shown]
    assert len([text for text in texts if "another library" in text]) == 1
    assert len([text for text in texts if "ends in a softmax ('1')" in text]) == 1
    assert torch.equal(ended.subject.logits, plain.subject.logits)
    assert_close(numbers(plain), numbers(ended))


def test_a_network_of_several_labels():
    images, labels = tagged_images(12)
    rows = torch.stack([1 - labels, labels], 1)
    network = nn.Sequential(tag_network(), nn.Sigmoid())
    audit = xb.audit(network, images, rows, explainers=["saliency"], output="sigmoid", budget=10, progress=False)
    assert audit.network.passed
    assert audit.network.value == 1.0
    assert outcomes(audit)["saliency"] != "refuted"


def test_a_function_of_the_outputs_has_no_questions_about_classes():
    images, _ = tagged_images(12)
    audit = xb.audit(
        tag_network(), images, explainers=["saliency"], output=lambda z: z[:, 0] - z[:, 1], budget=10, progress=False
    )
    asked = {question.key for question in audit.questions if not question.skipped}
    assert asked <= {"interventions", "blinded_copies"}
    assert "interventions" in asked


def test_masks_are_for_information_and_progress_counts_what_takes_time(monkeypatch):
    """Reading the images, explaining them, and scoring their maps."""
    steps = {}

    class Bar(ProgressBar):
        def __exit__(self, *raised):
            if self._shown:
                steps.setdefault(self._description, []).append((self.done, self.total))
            super().__exit__(*raised)

    for module in ("api", "images", "plan"):
        monkeypatch.setattr(f"xaibench.auditing.{module}.ProgressBar", Bar)
    images, labels = tagged_images(12)
    masks = torch.zeros(12, SIDE, SIDE, dtype=torch.bool)
    masks[:8, :4, :4] = True
    collection = xb.data.open_images(images + 0.5, targets=labels, masks=masks)
    audit = xb.audit(tag_network(), collection, explainers=["saliency"], budget=10)
    (question,) = [question for question in audit.questions if question.truth == "human"]
    assert question.samples == 8
    assert question.means()["saliency"] > 0.8
    assert not [c for c in audit.verdicts[0].comparisons if c.about in ("human", "annotations")]
    assert steps["reading"] == [(12, 12)]
    for name, least in {"maps": 6 * 12, "interventions": 6 * 3 * 12}.items():
        ((done, total),) = steps[name]
        assert done == total >= least


def test_a_trained_copy_reacts_to_a_pattern(monkeypatch):
    monkeypatch.setattr("xaibench.auditing.questions._LEARNING_RATE", 1e-2)  # for so small a network
    images, labels = tagged_images(12)
    torch.manual_seed(0)
    network = nn.Sequential(*(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(8, 3)))
    before = {name: value.clone() for name, value in network.state_dict().items()}
    audit = xb.audit(network, images, labels, explainers=["input_x_gradient"], budget=10, train=True, progress=False)
    (question,) = [question for question in audit.questions if question.key == "planted_trigger"]
    assert question.samples == 12
    assert question.means()["input_x_gradient"] > 0.9
    assert all(torch.equal(before[name], value) for name, value in network.state_dict().items())


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("images", torch.rand(3, 1, SIDE, SIDE)),
        ("images", torch.ones(9, SIDE, SIDE)),
        ("images", torch.ones(9, 1, 4, 4, 4, 4)),
        ("classes", ["a"]),
        ("labels", torch.zeros(5)),
        ("masks", torch.zeros(9, 3, 3)),
        ("groups", [1, 2]),
        ("groups", [1, 2, 3] * 3),
        ("explainers", [lambda m, x, y: x[:, 0], lambda m, x, y: x[:, 0]]),
        ("explainers", {"sobel": "saliency"}),
        ("explainers", ["gradcam"]),
        ("required", ()),
        ("required", ("interventions",)),
    ],
)
def test_bad_input_is_refused(argument, value):
    arguments = {"images": torch.rand(9, 1, SIDE, SIDE), "explainers": ["saliency"]} | {argument: value}
    refused(ValueError, argument, lambda: xb.audit(tag_network(), progress=False, **arguments))


class OneSlice(nn.Module):
    """A network for images, of which the slice with a number gets the whole volume."""

    def __init__(self, number, network):
        super().__init__()
        self.number, self.network = number, network

    def forward(self, volumes):
        return self.network(volumes[:, :, self.number])


def test_explainers_that_find_the_tag_in_a_slice_are_supported_and_others_refuted():
    images, labels = tagged_images(24)
    volumes = nn.functional.pad(images[:, :, None], (0, 0, 0, 0, 4, 1), value=0.1)
    explainers = {
        "input_x_gradient": "input_x_gradient",
        "edges": lambda model, images, targets: images[:, 0].diff(dim=1, prepend=images[:, 0, :1]),
    }
    audit = xb.audit(OneSlice(4, tag_network()), volumes, labels, explainers=explainers, budget=20, progress=False)
    assert outcomes(audit) == {"input_x_gradient": "supported", "edges": "refuted"}
    (finding,) = [finding for finding in audit.findings if finding.key == "decisive_regions"]
    assert "(top left of the last slices 12)" in finding.text


def test_a_trained_network_is_audited_to_the_page(tmp_path):
    volumes, classes, masks = shape_volumes(10)
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
    assert json.loads((tmp_path / "audit.json").read_text())["record"]["images"]["with_mask"] == 10


def test_the_command_audits_a_folder_of_volumes(tmp_path):
    images, labels = tagged_images(12)
    for index, (image, label) in enumerate(zip(images, labels, strict=True)):
        place = tmp_path / "scans" / ("tagged", "plain")[int(label)]
        place.mkdir(parents=True, exist_ok=True)
        np.save(place / f"{index}.npy", image.repeat(3, 1, 1).numpy())
    lines = ["from oracles.tag_network import tag_network", "from auditing.test_api import OneSlice"]
    (tmp_path / "mine.py").write_text("\n".join([*lines, "network = OneSlice(1, tag_network())"]))
    arguments = ["audit", f"{tmp_path / 'mine.py'}:network", "--images", str(tmp_path / "scans"), "--minutes", "1e-6"]
    arguments += ["--classes", "tagged,plain", "--explainers", "saliency", "--out", str(tmp_path / "out")]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    record = json.loads((tmp_path / "out" / "audit.json").read_text())["record"]
    assert (record["network"]["accuracy"], record["images"]["shape"]) == (1.0, [1, 3, 16, 16])
    result = CliRunner().invoke(app, [*arguments, "--size", "16"])
    assert result.exit_code != 0
    assert "size: only for folders of images" in result.output
