"""Images of an audit: labels are matched by name, never by their order; a few damaged images are left out."""

import json
import os
import sys
import warnings

import numpy as np
import pytest
import torch
from oracles.tag_network import tag_network, tagged_images
from PIL import Image
from refusals import refused
from torch import nn
from typer.testing import CliRunner

import xaibench as xb
from xaibench.auditing.images import number_classes, read_samples
from xaibench.cli import app
from xaibench.data.annotated import DataFileError


@pytest.mark.parametrize(
    ("names", "classes", "outputs"),
    [
        ({"bright": 1, "dark": 0}, ["dark", "bright"], 2),
        ({"dog": 2}, ["ant", "cat", "dog"], 3),
        ({"cat": 1}, ["Cat", "cat"], 2),  # equal names win over similar ones
        ({"great_dane": 1, "TABBY": 0}, ["tabby, tabby cat", "Great Dane"], 2),
        ({"n01440764": 0, "n02123045": 281}, None, 1000),
    ],
)
def test_names_are_matched_regardless_of_their_order(names, classes, outputs):
    assert number_classes(list(names), classes, outputs) == names


@pytest.mark.parametrize(
    ("names", "classes"),
    [
        (["bright", "dark"], None),  # the network carries no names
        (["n01440764"], None),
        (["bright", "dark", "patient-7"], ["bright", "dark"]),
        (["crane"], ["crane", "tench", "crane"]),
        (["gray cat"], ["Gray_Cat", "gray-cat"]),
    ],
)
def test_names_that_are_not_exactly_one_class_are_refused(names, classes):
    error = refused(ValueError, "--classes", number_classes, names, classes, 2 if classes is None else len(classes))
    for word in (*names, *(classes or ()), "--no-labels", "labels=False"):
        assert word in str(error)


def write_folders(folder, images, names):
    for index, (image, name) in enumerate(zip(images, names, strict=True)):
        (folder / name).mkdir(parents=True, exist_ok=True)
        Image.fromarray((255 * (image[0].numpy() + 0.5)).astype(np.uint8)).save(folder / name / f"{index}.png")
    return folder


@pytest.fixture
def folders(tmp_path):
    """Images in folders whose alphabetical order is not that of the outputs."""
    images, labels = tagged_images(40)
    return write_folders(tmp_path / "images", images, [("tagged", "plain")[label] for label in labels.tolist()])


#: The least thorough audit.
OPTIONS = {"explainers": ["saliency"], "minutes": 1e-6, "progress": False}


def read(images, outputs=2, **options):
    collection = xb.data.open_images(images)
    return read_samples(collection, None, None, lambda image: outputs, 0, **options)


def test_class_numbers_need_no_names():
    images, labels = tagged_images(12)
    found = read(xb.data.open_images(images[:10] + 0.5, targets=labels[:10]))
    assert torch.equal(found["labels"], labels[:10])
    assert found["label_names"] == {}


def test_networks_of_imagenet_need_no_names(tmp_path):
    found = read(write_folders(tmp_path, tagged_images(4)[0], ["n01440764", "n02123045"] * 2), 1000)
    assert found["labels"].tolist() == [0, 0, 281, 281]
    assert found["classes"][281] == "n02123045"


def test_class_folders_are_an_error_without_names(folders):
    for images in (folders, xb.load(f"photographs:{folders}", size=16, splits=(0, 0, 1)).test):
        refused(ValueError, "plain, tagged", read, images)


def test_two_folders_of_a_network_with_one_output(folders):
    class OneOutput(nn.Module):
        def __init__(self):
            super().__init__()
            self.network = tag_network()

        def forward(self, images):
            logits = self.network(images)
            return logits[:, :1] - logits[:, 1:]

    images = xb.data.open_images(folders, channels=1)
    two = {"classes": ["plain", "tagged"], **OPTIONS}
    refused(ValueError, "--output sigmoid", lambda: xb.audit(OneOutput(), images, **two))
    refused(ValueError, "--classes", lambda: xb.audit(OneOutput(), images, output="sigmoid", **OPTIONS))
    audit = xb.audit(OneOutput(), images, output="sigmoid", samples=10, **two)
    assert audit.record["network"]["accuracy"] == 1.0


@pytest.mark.skipif(sys.platform != "linux", reason="the system allows UTF-8 names only")
def test_the_command_needs_names_and_leaves_a_few_damaged_images_out(folders, tmp_path):
    """The record states which folder is which output; names of files may have any characters."""
    (folders / "tagged" / "0.png").write_bytes(b"no picture")
    (folders / "plain" / "7.png").write_bytes((folders / "plain" / "7.png").read_bytes()[:60])
    os.rename(folders / "plain" / "9.png", os.fsencode(folders / "plain") + b"/\xff0.png")
    (tmp_path / "mine.py").write_text("from oracles.tag_network import tag_network\n")
    arguments = ["audit", f"{tmp_path / 'mine.py'}:tag_network", "--images", str(folders), "--size", "16"]
    arguments += ["--explainers", "saliency", "--minutes", "1e-6", "--out", str(tmp_path / "out"), "--samples", "40"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        unnamed = CliRunner().invoke(app, arguments)
    assert unnamed.exit_code != 0
    assert "--no-labels" in unnamed.output
    with pytest.warns(UserWarning, match="2 of 40 images cannot be read"):
        accepted = CliRunner().invoke(app, [*arguments, "--classes", "tagged,plain"])
    assert accepted.exit_code == 0, accepted.output
    assert "saliency" in accepted.output
    written = json.loads((tmp_path / "out" / "audit.json").read_text())
    record, ids = written["record"], {image["id"] for image in written["images"]}
    assert record["network"]["accuracy"] == 1.0
    assert record["labels"] == [
        {"label": "tagged", "output": 0, "class": "tagged", "images": 19, "right": 19},
        {"label": "plain", "output": 1, "class": "plain", "images": 19, "right": 19},
    ]
    assert (record["images"]["count"], sorted(record["images"]["left_out"])) == (38, ["plain/7.png", "tagged/0.png"])
    assert r"plain/\xff0.png" in ids
    assert not ids & set(record["images"]["left_out"])
    assert "plain/7.png" in (tmp_path / "out" / "audit.html").read_text()


def test_labels_need_not_be_read(folders):
    found = read(folders, labeled=False)
    assert (found["labels"], found["label_names"]) == (None, {})


def test_many_damaged_images_are_an_error(folders):
    for number in (0, 2, 4):
        (folders / "tagged" / f"{number}.png").write_bytes(b"")
    refused(DataFileError, "3 of 40 images cannot be read", lambda: read(folders, labeled=False))
