"""Images of an audit that cannot be read: a few are left out, counted and named; many are an error."""

import json
import os
import sys

import pytest
from oracles.tag_network import tag_network, tagged_images
from PIL import Image

import xaibench as xb
from xaibench.data.annotated import DataFileError


@pytest.fixture
def folder(tmp_path):
    for number, image in enumerate(tagged_images(40)[0]):
        file = tmp_path / ("plain", "tagged")[number % 2] / f"{number:02}.png"
        file.parent.mkdir(exist_ok=True)
        Image.fromarray(((image[0] + 0.5).clamp(0, 1) * 255).byte().numpy()).save(file)
    return tmp_path


def audit(folder, samples=None):
    images = xb.data.open_images(folder, channels=1)
    return xb.audit(
        tag_network(), images, samples=samples, labels=False, explainers=["saliency"], budget=10, progress=False
    )


def test_a_few_damaged_images_are_left_out_and_named(folder, tmp_path):
    (folder / "plain" / "00.png").write_bytes(b"no picture")
    (folder / "tagged" / "07.png").write_bytes((folder / "tagged" / "07.png").read_bytes()[:60])
    with pytest.warns(UserWarning, match="2 of 40 images cannot be read"):
        audited = audit(folder)
    assert len(audited.subject.images) == len(audited.subject.groups) == 38
    assert sorted(audited.subject.left_out) == ["plain/00.png", "tagged/07.png"]
    assert not set(audited.subject.ids) & set(audited.subject.left_out)
    audited.write(tmp_path / "out")
    record = json.loads((tmp_path / "out" / "audit.json").read_text())["record"]["images"]
    assert (record["count"], sorted(record["left_out"])) == (38, ["plain/00.png", "tagged/07.png"])
    assert "plain/00.png" in (tmp_path / "out" / "audit.html").read_text()


def test_many_damaged_images_are_an_error(folder):
    for number in (0, 2, 4):
        (folder / "plain" / f"{number:02}.png").write_bytes(b"")
    with pytest.raises(DataFileError, match="3 of 40 images cannot be read"):
        audit(folder)


@pytest.mark.skipif(sys.platform != "linux", reason="the system allows UTF-8 names only")
def test_file_names_that_are_not_utf_8_are_written_with_their_bytes(folder, tmp_path):
    os.rename(folder / "plain" / "00.png", os.fsencode(folder / "plain") + b"/\xff0.png")
    audit(folder).write(tmp_path / "out")
    content = json.loads((tmp_path / "out" / "audit.json").read_text())
    assert r"plain/\xff0.png" in [image["id"] for image in content["images"]]
