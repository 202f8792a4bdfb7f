"""Labels of an audit: matched to the network's outputs by name, never by their order."""

import json

import numpy as np
import pytest
import torch
from oracles.tag_network import tag_network, tagged_images
from PIL import Image
from torch import nn
from typer.testing import CliRunner

import xaibench as xb
from xaibench.auditing.findings import find_suspicious_images
from xaibench.auditing.images import make_subject, number_classes, read_samples
from xaibench.auditing.questions import find_decisive_regions
from xaibench.cli import app
from xaibench.data.photographs.labeled_photographs import imagenet_synsets


def test_names_are_matched_regardless_of_their_order():
    assert number_classes(["bright", "dark"], ["dark", "bright"], 2) == {"bright": 1, "dark": 0}


def test_only_some_of_the_classes_may_occur():
    assert number_classes(["dog"], ["ant", "cat", "dog"], 3) == {"dog": 2}


def test_equal_names_win_over_similar_ones():
    assert number_classes(["cat"], ["Cat", "cat"], 2) == {"cat": 1}
    assert number_classes(["great_dane", "TABBY"], ["tabby, tabby cat", "Great Dane"], 2) == {
        "great_dane": 1,
        "TABBY": 0,
    }


def test_synset_ids_number_the_classes_of_imagenet():
    assert number_classes(["n01440764", "n02123045"], None, 1000) == {"n01440764": 0, "n02123045": 281}
    assert len(imagenet_synsets()) == 1000
    with pytest.raises(ValueError, match="no names of classes"):
        number_classes(["n01440764"], None, 10)


@pytest.mark.parametrize(
    ("names", "classes"),
    [
        (["bright", "dark"], None),  # the network carries no names
        (["bright", "dark", "patient-7"], ["bright", "dark"]),
        (["crane"], ["crane", "tench", "crane"]),
        (["gray cat"], ["Gray_Cat", "gray-cat"]),
    ],
)
def test_names_that_are_not_exactly_one_class_are_refused(names, classes):
    with pytest.raises(ValueError, match="--classes") as refused:
        number_classes(names, classes, 2 if classes is None else len(classes))
    for word in (*names, *(classes or ()), "--no-labels", "labels=False"):
        assert word in str(refused.value)


def write_folders(folder, images, names):
    for index, (image, name) in enumerate(zip(images, names, strict=True)):
        (folder / name).mkdir(parents=True, exist_ok=True)
        Image.fromarray((255 * (image[0].numpy() + 0.5)).astype(np.uint8)).save(folder / name / f"{index}.png")
    return folder


@pytest.fixture
def folders(tmp_path):
    """Images in folders whose alphabetical order is not that of the outputs."""
    images, labels = tagged_images(20)
    return write_folders(tmp_path / "images", images, [("tagged", "plain")[label] for label in labels.tolist()])


def test_class_folders_are_an_error_without_names(folders):
    with pytest.raises(ValueError, match="plain, tagged"):
        xb.audit(tag_network(), xb.data.open_images(folders, channels=1), explainers=["saliency"], progress=False)


def test_the_audit_states_which_folder_is_which_output(folders):
    audit = xb.audit(
        *(tag_network(), xb.data.open_images(folders, channels=1)),
        classes=["tagged", "plain"],
        explainers=["saliency"],
        budget=10,
        progress=False,
    )
    assert audit.record["network"]["accuracy"] == 1.0
    assert audit.to_dict()["record"]["labels"] == [
        {"label": "tagged", "output": 0, "class": "tagged", "images": 10, "right": 10},
        {"label": "plain", "output": 1, "class": "plain", "images": 10, "right": 10},
    ]


def test_folders_that_are_no_labels_are_left_out_on_request(folders):
    collection = xb.data.open_images(folders, channels=1)
    audit = xb.audit(tag_network(), collection, labels=False, explainers=["saliency"], budget=10, progress=False)
    assert (audit.subject.labels, audit.network.by) == (None, "shuffled weights")


def test_class_numbers_need_no_names():
    images, labels = tagged_images(12)
    collection = xb.data.open_images(images + 0.5, targets=labels)
    read = read_samples(collection.select(range(10)), None, None, lambda image: 2, 0)
    assert torch.equal(read["labels"], labels[:10])
    assert read["label_names"] == {}


def test_networks_of_imagenet_need_no_names(tmp_path):
    folder = write_folders(tmp_path, tagged_images(4)[0], ["n01440764", "n02123045"] * 2)
    read = read_samples(xb.data.open_images(folder), None, None, lambda image: 1000, 0)
    assert read["labels"].tolist() == [0, 0, 281, 281]
    assert read["classes"][281] == "n02123045"


def test_a_split_of_class_folders_has_names(folders):
    split = xb.load(f"photographs:{folders}", size=16, splits=(0, 0, 1)).test
    with pytest.raises(ValueError, match="plain, tagged"):
        read_samples(xb.data.open_images(split), None, None, lambda image: 2, 0)


def hint(labels, model=None, images=None, **options):
    images = tagged_images(len(labels))[0] if images is None else images
    subject = make_subject(model or tag_network(), images, labels=labels, **options)
    nothing = find_decisive_regions(subject, 1, np.random.default_rng(0))
    findings = find_suspicious_images(subject, {}, [], np.full(len(labels), np.nan), nothing)
    return next((finding.text for finding in findings if finding.key == "labels"), None)


def test_a_better_assignment_of_the_labels_is_named():
    labels = tagged_images(20)[1]
    text = hint(1 - labels, label_names={"folder a": 1, "folder b": 0}, classes=["tagged", "plain"])
    assert "20 of 20" in text
    assert "instead of 0" in text
    assert "folder a: output 0 instead of 1" in text


def test_no_assignment_is_named_where_chance_explains_it():
    labels = tagged_images(20)[1]
    assert hint(labels) is None
    assert hint(torch.from_numpy(np.random.default_rng(0).permutation(labels))) is None
    # A network that always gives the first answer would be right more often about the more frequent label.
    images, constant = torch.rand(20, 1, 4, 4), nn.Sequential(nn.Flatten(), nn.Linear(16, 2))
    constant[1].weight.data.zero_()
    constant[1].bias.data = torch.tensor([1.0, 0.0])
    assert hint(torch.tensor([0] * 2 + [1] * 18), constant, images) is None


def test_two_folders_of_a_network_with_one_output(folders):
    class OneOutput(nn.Module):
        def __init__(self):
            super().__init__()
            self.network = tag_network()

        def forward(self, images):
            logits = self.network(images)
            return logits[:, :1] - logits[:, 1:]

    collection = xb.data.open_images(folders, channels=1)
    options = {"explainers": ["saliency"], "budget": 10, "progress": False}
    with pytest.raises(ValueError, match="--output sigmoid"):
        xb.audit(OneOutput(), collection, classes=["plain", "tagged"], **options)
    with pytest.raises(ValueError, match="--classes"):
        xb.audit(OneOutput(), collection, output="sigmoid", **options)
    audit = xb.audit(OneOutput(), collection, classes=["plain", "tagged"], output="sigmoid", **options)
    assert audit.record["network"]["accuracy"] == 1.0


def test_the_command_refuses_to_guess_and_can_do_without_labels(folders, tmp_path):
    (tmp_path / "mine.py").write_text("from oracles.tag_network import tag_network\n")
    arguments = ["audit", f"{tmp_path / 'mine.py'}:tag_network", "--images", str(folders), "--size", "16"]
    arguments += ["--explainers", "saliency", "--budget", "10", "--out", str(tmp_path / "out")]
    refused = CliRunner().invoke(app, arguments)
    assert refused.exit_code != 0
    assert "--no-labels" in refused.output
    assert CliRunner().invoke(app, [*arguments, "--no-labels"]).exit_code == 0
    written = json.loads((tmp_path / "out" / "audit.json").read_text())
    assert written["record"]["network"]["accuracy"] is None
